/*
 * resolve: the doors by which a program looks driver functions up. One rule: ask the real resolver,
 * then swap the address it returned if a row of hooks.def owns that address. Nothing is guessed
 * from a name.
 */
#ifndef CUSLICE_HOOKS_RESOLVE_H
#define CUSLICE_HOOKS_RESOLVE_H

#include "driver.h"

/* The hook for a function of the driver, or the function itself when there is none. */
void *resolve_swap(void *function);

/* libc's dlsym, for a real handle. */
void *resolve_libc_dlsym(void *handle, const char *name);

/* libc's dlsym as dlsym.S jumps to it, with the caller's own frame, so that RTLD_NEXT and
 * RTLD_DEFAULT mean what they mean to the caller. Set by the first look-up. */
typedef void *resolve_dlsym_function(void *handle, const char *name);
extern resolve_dlsym_function *resolve_dlsym_target;

/* Called by dlsym.S: what dlsym shall answer, or NULL to let libc answer. */
void *resolve_dlsym(void *handle, const char *name);

CUresult resolve_proc(const char *symbol, void **function, int version, cuuint64_t flags);
CUresult resolve_proc_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status);

#endif
