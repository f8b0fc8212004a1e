/*
 * chain: another preload that stands in front of dlsym and dlopen, as profilers do: it counts what
 * comes and goes on to the next. It finds the next one at the first call, by name and version.
 */
#include <dlfcn.h>
#include <stddef.h>

#ifdef __x86_64__
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif

int chain_dlsyms, chain_dlopens;

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", FIRST);
    chain_dlsyms++;
    return next(handle, name);
}

void *dlopen(const char *file, int mode)
{
    static void *(*next)(const char *, int);
    if (!next)
        *(void **)&next = dlvsym(RTLD_NEXT, "dlopen", FIRST);
    chain_dlopens++;
    return next(file, mode);
}
