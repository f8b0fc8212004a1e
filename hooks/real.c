/*
 * real: finding the driver's functions (see real.h). Any thread may load; the first one does it.
 * Pointers change once, from a stand-in to the driver's function, each by one store, so a reader
 * always has something right to call.
 */
#include "real.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "log.h"
#include "pairs.h"
#include "resolve.h"

#define ROW(name, ...) static CUresult real_missing_##name(PAIRS_DECLARE(__VA_ARGS__));
#define ROW_VOID(name) static CUresult real_missing_##name(void);
#include "hooks.def"

struct real real = {
#define ROW(name, ...) .name = real_missing_##name,
#define ROW_VOID(name) .name = real_missing_##name,
#include "hooks.def"
};

static pthread_mutex_t real_mutex = PTHREAD_MUTEX_INITIALIZER;
static void *_Atomic real_library;

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
    for (size_t i = 0; i < sizeof real_rows / sizeof real_rows[0]; i++) {
        void *function = resolve_libc_dlsym(library, real_rows[i].name);
        if (function)
            memcpy((char *)&real + real_rows[i].offset, &function, sizeof function);
    }
}

bool real_load(bool load)
{
    if (real_library)
        return true;
    pthread_mutex_lock(&real_mutex);
    if (!real_library) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
        if (library) {
            real_fill(library);
            real_library = library;
        } else if (load) {
            log_warn("no-driver", "the CUDA driver cannot be loaded: %s", dlerror());
        }
    }
    pthread_mutex_unlock(&real_mutex);
    return real_library != NULL;
}

static bool real_is_missing(const void *function)
{
#define ROW(name, ...) \
    if (function == (const void *)real_missing_##name) \
        return true;
#define ROW_VOID(name) ROW(name, )
#include "hooks.def"
    return false;
}

bool real_has(const void *function_pointer)
{
    return function_pointer && !real_is_missing(function_pointer);
}

void *real_handle(void)
{
    return real_library;
}
