/*
 * resolve: what the doors answer (see resolve.h). Runs on any thread of any program, CUDA or not,
 * also before our own or anybody's constructors: it takes no lock unless the name is a driver's and
 * the driver is there, and allocates nothing.
 */
#include "resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "alias.h"
#include "bindings.h"
#include "libc.h"
#include "log.h"
#include "nvml.h"
#include "real.h"
#include "symbols.h"

/* Set by a load with RTLD_DEEPBIND, until the new object's calls have been looked at. The loading
 * thread's own: another's look might come while the object is not bound yet. */
static __thread bool resolve_deep;
/* Such an object's look-ups could not be diverted. */
static _Atomic bool resolve_missed;

struct resolve_row {
    const char *name;
    const void *hook;
    const void *place; /* of the pointer to the real function */
};

static const struct resolve_row resolve_rows[] = {
#define ROW(name, ...) {#name, (const void *)name, &real.name},
#define ROW_VOID(name) {#name, (const void *)name, &real.name},
#include "hooks.def"
#define MASK(name, ...) {#name, (const void *)name, &nvml_real.name},
#include "nvml.def"
};
#define RESOLVE_ROWS (sizeof resolve_rows / sizeof resolve_rows[0])

void *resolve_swap(void *function)
{
    for (size_t i = 0; i < RESOLVE_ROWS; i++) {
        void *owned;
        memcpy(&owned, resolve_rows[i].place, sizeof owned);
        if (owned == function)
            return (void *)(size_t)resolve_rows[i].hook;
    }
    return function;
}

void *resolve_hook(const char *name)
{
    for (size_t i = 0; i < RESOLVE_ROWS; i++)
        if (strcmp(resolve_rows[i].name, name) == 0)
            return (void *)(size_t)resolve_rows[i].hook;
    return NULL;
}

bool resolve_is_base(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < RESOLVE_ROWS; i++) {
        const char *row = resolve_rows[i].name;
        if (strncmp(row, name, length) == 0 && (row[length] == '\0' || row[length] == '_'))
            return true;
    }
    return false;
}

/* ---- dlopen -------------------------------------------------------------------------------------
 */

/* Something was loaded with RTLD_DEEPBIND before: if it is linked with the driver, it is bound past
 * us. Its loader comes back here, to look its functions up, before it calls any of them. */
SYMBOLS_EARLY
static void resolve_after_deep(void)
{
    if (__builtin_expect(!resolve_deep, 1))
        return;
    int error = errno;
    resolve_deep = false;
    bool driver = real_load(false), nvml = nvml_load();
    if (driver || nvml)
        bindings_redirect();
    errno = error;
}

SYMBOLS_EARLY
void resolve_dlopen(int mode)
{
    libc_find();
    resolve_after_deep();
    if (__builtin_expect((mode & RTLD_DEEPBIND) == 0, 1))
        return;
    int error = errno;
    if (!libc_divert())
        resolve_missed = true;
    resolve_deep = true;
    errno = error;
}

/* Said when a driver's function is looked up, not before: the program may have nothing to do with
 * CUDA. */
static void resolve_say_missed(void)
{
    if (__builtin_expect(resolve_missed, 0) && atomic_exchange(&resolve_missed, false))
        log_error("deepbind", "this program loads libraries with RTLD_DEEPBIND, and libc's symbols "
                              "cannot be diverted here: CUDA calls of those are not seen");
}

/* ---- dlsym and dlvsym ---------------------------------------------------------------------------
 */

/* Whether this look-up is none of ours, so that libc answers with the caller's own scope. */
SYMBOLS_EARLY
static bool resolve_leave(void *handle, const char *name)
{
    libc_find();
    resolve_after_deep();
    return handle == RTLD_DEFAULT || handle == RTLD_NEXT || !name ||
           !(resolve_is_driver_name(name) || resolve_is_nvml_name(name));
}

/* A second copy of the driver, from another file or in a namespace of its own (dlmopen): it knows
 * nothing of the first one's contexts, so our hooks cannot stand in front of it. */
static void resolve_look_beside(const char *name, void *found)
{
    static _Atomic bool said;
    Dl_info info;
    if (said || !resolve_hook(name) || found == resolve_hook(name) || !dladdr(found, &info) ||
        !info.dli_fname || !strstr(info.dli_fname, "libcuda.so") || atomic_exchange(&said, true))
        return;
    log_error("second-driver",
              "%s is a second copy of the driver, beside the one found by its name: calls of the "
              "second one are not seen",
              info.dli_fname);
}

static void *resolve_found(const char *name, void *found)
{
    if (!found)
        return NULL;
    bool loaded = resolve_is_nvml_name(name) ? nvml_load() : real_load(false);
    void *swapped = loaded ? resolve_swap(found) : found;
    if (swapped != found) {
        resolve_say_missed();
        return swapped;
    }
    int error = errno;
    resolve_look_beside(name, found);
    errno = error;
    return NULL;
}

SYMBOLS_EARLY
void *resolve_dlsym(void *handle, const char *name)
{
    return resolve_leave(handle, name) ? NULL : resolve_found(name, libc_dlsym(handle, name));
}

SYMBOLS_EARLY
void *resolve_dlvsym(void *handle, const char *name, const char *version)
{
    if (resolve_leave(handle, name))
        return NULL;
    return resolve_found(name, libc_dlvsym(handle, name, version));
}

/* ---- cuGetProcAddress ---------------------------------------------------------------------------
 */

static CUresult resolve_answer(CUresult rc, const char *symbol, void **function, cuuint64_t flags)
{
    if (rc != CUDA_SUCCESS || !function || !*function)
        return rc;
    void *hook = resolve_swap(*function);
    if (hook == *function && resolve_is_base(symbol))
        hook = alias_answer(symbol, hook, flags);
    *function = hook;
    return rc;
}

CUresult resolve_proc(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return resolve_answer(real.cuGetProcAddress(symbol, function, version, flags), symbol, function,
                          flags);
}

CUresult resolve_proc_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult *status)
{
    return resolve_answer(real.cuGetProcAddress_v2(symbol, function, version, flags, status),
                          symbol, function, flags);
}
