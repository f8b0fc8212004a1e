/*
 * real: finding the driver's functions (see real.h). Any thread may load; the first one does it.
 * Pointers change once, from a stand-in to the driver's function, each by one store, so a reader
 * always has something right to call.
 */
#include "real.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "libc.h"
#include "log.h"
#include "pairs.h"

#define ROW(name, ...) static CUresult real_missing_##name(PAIRS_DECLARE(__VA_ARGS__));
#define ROW_VOID(name) static CUresult real_missing_##name(void);
#include "hooks.def"

struct real real = {
#define ROW(name, ...) .name = real_missing_##name,
#define ROW_VOID(name) .name = real_missing_##name,
#include "hooks.def"
};

static void *_Atomic real_library;
static bool real_filled[REAL_ROWS]; /* which rows this driver has */

/* Called through a pointer that has no driver behind it: the driver is not loaded, or lacks this.
 */
#define ROW(name, ...) \
    static CUresult real_missing_##name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        if (!real_load(true)) \
            return CUDA_ERROR_NO_DEVICE; \
        return real.name == real_missing_##name ? CUDA_ERROR_NOT_SUPPORTED \
                                                : real.name(PAIRS_PASS(__VA_ARGS__)); \
    }
#define ROW_VOID(name) \
    static CUresult real_missing_##name(void) \
    { \
        if (!real_load(true)) \
            return CUDA_ERROR_NO_DEVICE; \
        return real.name == real_missing_##name ? CUDA_ERROR_NOT_SUPPORTED : real.name(); \
    }
#include "hooks.def"

struct real_row {
    const char *name;
    size_t offset;
};

static const struct real_row real_rows[] = {
#define ROW(name_, ...) {#name_, offsetof(struct real, name_)},
#define ROW_VOID(name_) {#name_, offsetof(struct real, name_)},
#define USE(name_) {#name_, offsetof(struct real, name_)},
#include "hooks.def"
};

static void real_fill(void *library)
{
    for (size_t i = 0; i < REAL_ROWS; i++) {
        void *function = libc_dlsym(library, real_rows[i].name);
        void **place = (void **)(void *)((char *)&real + real_rows[i].offset);
        if (function)
            __atomic_store_n(place, function, __ATOMIC_RELEASE);
        real_filled[i] = function != NULL;
    }
}

/* No lock of ours: the loader has its own, which a caller may hold. Whoever comes second finds the
 * same library and fills in the same addresses. */
bool real_load(bool load)
{
    static _Atomic bool said;
    if (real_library)
        return true;
    libc_find();
    void *library = libc_dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
    if (library) {
        real_fill(library);
        real_library = library;
    } else if (load && !atomic_exchange(&said, true)) {
        log_warn("no-driver", "the CUDA driver cannot be loaded: %s", dlerror());
    }
    return library != NULL;
}

void *real_symbol(const char *name)
{
    return real_library ? libc_dlsym(real_library, name) : NULL;
}

bool real_has(size_t offset)
{
    for (size_t i = 0; i < REAL_ROWS; i++)
        if (real_rows[i].offset == offset)
            return real_filled[i];
    return false;
}
