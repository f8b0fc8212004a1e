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

static void resolve_find_libc(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0] && !resolve_dlsym_target; i++) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        memcpy(&resolve_dlsym_target, &found, sizeof found);
    }
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

void *resolve_dlsym(void *handle, const char *name)
{
    if (!resolve_dlsym_target)
        resolve_find_libc();
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name || name[0] != 'c' || name[1] != 'u')
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
