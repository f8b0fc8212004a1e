/*
 * real: the driver's own functions. `real.cuLaunchKernel(...)` is the driver; no other file names
 * one. Loaded once, when the first hook or look-up needs it; until then, and for functions that
 * this driver lacks, the pointer of a hooked function leads to a stand-in that loads the driver and
 * says so. Functions that only the hooks call (USE) are NULL then: ask REAL_HAS for those newer
 * than CUDA 10.1.
 */
#ifndef CUSLICE_HOOKS_REAL_H
#define CUSLICE_HOOKS_REAL_H

#include <stdbool.h>
#include <stddef.h>

#include "driver.h"

struct real {
#define ROW(name, ...) __typeof__(name) *name;
#define ROW_VOID(name) __typeof__(name) *name;
#define USE(name) __typeof__(name) *name;
#include "hooks.def"
};
extern struct real real;

/* True when the driver is there. `load`: bring it if the program has not; only for a program that
 * calls a hook, never for one that looks a name up. Blocking the first time. */
bool real_load(bool load);

/* The loaded driver's function of any name; NULL. */
void *real_symbol(const char *name);

enum {
#define ROW(name, ...) REAL_ROW_##name,
#define ROW_VOID(name) REAL_ROW_##name,
#define USE(name) REAL_ROW_##name,
#include "hooks.def"
    REAL_ROWS
};

/* Whether this driver has the function: REAL_HAS(cuCtxRecordEvent). */
bool real_has(size_t offset);
#define REAL_HAS(name) real_has(offsetof(struct real, name))

#endif
