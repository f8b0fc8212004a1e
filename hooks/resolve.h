/*
 * resolve: the doors by which a program looks driver functions up. One rule: ask the real resolver,
 * then swap the address it returned if a row of hooks.def or nvml.def owns that address. Nothing is
 * guessed from a name.
 */
#ifndef CUSLICE_HOOKS_RESOLVE_H
#define CUSLICE_HOOKS_RESOLVE_H

#include <stdbool.h>

#include "driver.h"
#include "symbols.h"

/* The hook for a function of the driver or of NVML, or the function itself when there is none. */
void *resolve_swap(void *function);

/* The hook that is exported under a name; NULL. */
void *resolve_hook(const char *name);

/* Whether some row is a version or flavour of this name. */
bool resolve_is_base(const char *name);

/* cuInit, but not curl_easy_init or cudaMalloc. */
SYMBOLS_EARLY static inline bool resolve_is_driver_name(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* nvmlInit, of the driver's management library. */
SYMBOLS_EARLY static inline bool resolve_is_nvml_name(const char *name)
{
    return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l' && name[4] >= 'A' &&
           name[4] <= 'Z';
}

/* Called by the doors in dlsym.S: what dlsym or dlvsym shall answer, or NULL to let the real one
 * answer; what has to be done before a load. */
void *resolve_dlsym(void *handle, const char *name);
void *resolve_dlvsym(void *handle, const char *name, const char *version);
void resolve_dlopen(int mode);

CUresult resolve_proc(const char *symbol, void **function, int version, cuuint64_t flags);
CUresult resolve_proc_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status);

#endif
