/*
 * resolve: dlsym and cuGetProcAddress (see resolve.h). Runs on any thread of any program, CUDA or
 * not, also before our own or anybody's constructors: it takes no lock unless the name is a
 * driver's and the driver is there, and allocates nothing.
 */
#include "resolve.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "real.h"

resolve_dlsym_function *resolve_dlsym_target;

/* dlsym under the name it has had since this processor's first glibc, which newer ones keep. Asking
 * for a version that is not there would allocate for the error's text, and an allocator may be who
 * asks. */
#ifdef __x86_64__
#define RESOLVE_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define RESOLVE_FIRST_GLIBC "GLIBC_2.17"
#endif

static void resolve_find_libc(void)
{
    void *found = dlvsym(RTLD_NEXT, "dlsym", RESOLVE_FIRST_GLIBC);
    memcpy(&resolve_dlsym_target, &found, sizeof found);
}

void *resolve_libc_dlsym(void *handle, const char *name)
{
    if (!resolve_dlsym_target)
        resolve_find_libc();
    return resolve_dlsym_target(handle, name);
}

struct resolve_row {
    const void *hook;
    size_t offset; /* of the real function's pointer in `real` */
};

static const struct resolve_row resolve_rows[] = {
#define ROW(name, ...) {(const void *)name, offsetof(struct real, name)},
#define ROW_VOID(name) {(const void *)name, offsetof(struct real, name)},
#include "hooks.def"
};

void *resolve_swap(void *function)
{
    for (size_t i = 0; i < sizeof resolve_rows / sizeof resolve_rows[0]; i++) {
        void *owned;
        memcpy(&owned, (const char *)&real + resolve_rows[i].offset, sizeof owned);
        if (owned == function)
            return (void *)(size_t)resolve_rows[i].hook;
    }
    return function;
}

/* cuInit, but not curl_easy_init or cudaMalloc: no lock, no look-up for those. */
static bool resolve_is_driver_name(const char *name)
{
    return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

void *resolve_dlsym(void *handle, const char *name)
{
    if (!resolve_dlsym_target)
        resolve_find_libc();
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !resolve_is_driver_name(name))
        return NULL;
    void *found = resolve_dlsym_target(handle, name);
    if (!found || !real_load(false))
        return NULL;
    void *swapped = resolve_swap(found);
    return swapped == found ? NULL : swapped;
}

static CUresult resolve_answer(CUresult rc, void **function)
{
    if (rc == CUDA_SUCCESS && function && *function)
        *function = resolve_swap(*function);
    return rc;
}

CUresult resolve_proc(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return resolve_answer(real.cuGetProcAddress(symbol, function, version, flags), function);
}

CUresult resolve_proc_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status)
{
    return resolve_answer(real.cuGetProcAddress_v2(symbol, function, version, flags, status),
                          function);
}
