/*
 * alias: for a driver whose cuGetProcAddress answers with other addresses than those it exports.
 * Comparing addresses would then pass such a function by. Only called for names that rows of
 * hooks.def belong to and answers that no row owns; any thread.
 */
#ifndef CUSLICE_HOOKS_ALIAS_H
#define CUSLICE_HOOKS_ALIAS_H

#include "driver.h"

/* What the program gets for the driver's answer `function` to `name`: the answer, when it is a
 * function that the driver exports; the hook of the exported function that it stands for; or the
 * answer, with an error said once, when that cannot be told. */
void *alias_answer(const char *name, void *function, cuuint64_t flags);

#endif
