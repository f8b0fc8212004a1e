/*
 * calls: finds the driver's functions through one of the doors that programs use. Compiled twice:
 * WORKER_LINKED is for the program that is linked with the driver, the other loads it by itself.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "worker.h"

struct calls cu;

struct calls_row {
    const char *name;
    size_t offset;
};

static const struct calls_row calls_rows[] = {
#define CALL(name_) {#name_, offsetof(struct calls, name_)},
#include "calls.def"
};
#define CALLS_ROWS (sizeof calls_rows / sizeof calls_rows[0])

static void calls_set(const struct calls_row *row, void *function)
{
    memcpy((char *)&cu + row->offset, &function, sizeof function);
}

static bool calls_missing(const char *door, const char *name)
{
    fprintf(stderr, "worker: no %s through %s\n", name, door);
    return false;
}

/* What this driver is too old for stays NULL. */
static bool calls_find_symbols(const char *door, void *handle)
{
    for (size_t i = 0; i < CALLS_ROWS; i++)
        calls_set(&calls_rows[i], dlsym(handle, calls_rows[i].name));
    return cu.cuInit ? true : calls_missing(door, "cuInit");
}

/* A name as cuGetProcAddress takes it: the flavour is told by flags, the version by a number. */
static void calls_base(const char *name, char base[128], cuuint64_t *flags)
{
    size_t length = strlen(name);

    snprintf(base, 128, "%s", name);
    *flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    if (length > 5 &&
        (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds"))) {
        *flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        base[length -= 5] = '\0';
    }
    if (length > 3 && !strcmp(base + length - 3, "_v2"))
        base[length - 3] = '\0';
}

#ifdef WORKER_LINKED

bool calls_find_linked(const char *door)
{
    (void)door;
#define CALL(name) cu.name = name;
#include "calls.def"
    return true;
}

static bool calls_open(void **handle)
{
    *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return *handle != NULL;
}

#else

bool calls_find_linked(const char *door)
{
    return calls_missing(door, "anything: this program is not linked with the driver");
}

static bool calls_open(void **handle)
{
    *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    return *handle != NULL;
}

#endif

typedef CUresult calls_proc_v2(const char *, void **, int, cuuint64_t,
                               CUdriverProcAddressQueryResult *);
typedef CUresult calls_proc_v1(const char *, void **, int, cuuint64_t);

/* One look-up, by whichever of the two. */
static void calls_look_up(const struct calls_row *row, calls_proc_v2 *proc, calls_proc_v1 *old)
{
    char base[128];
    cuuint64_t flags;
    void *function = NULL;
    CUresult rc;

    calls_base(row->name, base, &flags);
    rc = proc ? proc(base, &function, 12000, flags, NULL) : old(base, &function, 11030, flags);
    calls_set(row, rc == CUDA_SUCCESS ? function : NULL);
}

static bool calls_find_each(const char *door, calls_proc_v2 *proc, calls_proc_v1 *old)
{
    for (size_t i = 0; i < CALLS_ROWS; i++)
        calls_look_up(&calls_rows[i], proc, old);
    return cu.cuInit ? true : calls_missing(door, "cuInit");
}

/* As the CUDA runtime does: one dlsym, the first look-ups with no status pointer, then on with the
 * pointer that the driver gave for its own name. */
static bool calls_find_proc(const char *door, void *handle, int version)
{
    calls_proc_v2 *proc = NULL;
    calls_proc_v1 *old = NULL;
    void *found = dlsym(handle, "cuGetProcAddress_v2"), *ignored;

    if (!found)
        return calls_missing(door, "cuGetProcAddress_v2");
    memcpy(&proc, &found, sizeof proc);
    proc("", &ignored, 11030, 0, NULL);
    if (proc("cuGetProcAddress", &ignored, 11030, 0, NULL) != CUDA_SUCCESS ||
        proc("cuGetProcAddress", &found, version, 0, NULL) != CUDA_SUCCESS)
        return calls_missing(door, "cuGetProcAddress");
    memcpy(&proc, &found, sizeof proc);
    memcpy(&old, &found, sizeof old);
    return calls_find_each(door, version >= 12000 ? proc : NULL, old);
}

/* Before CUDA 12 there is only the older one. */
static bool calls_find_proc_only(const char *door, void *handle)
{
    calls_proc_v1 *old = NULL;
    void *found = dlsym(handle, "cuGetProcAddress");

    if (!found)
        return calls_missing(door, "cuGetProcAddress");
    memcpy(&old, &found, sizeof old);
    return calls_find_each(door, NULL, old);
}

bool calls_find(const char *door)
{
    void *handle;

    if (!strcmp(door, "linked"))
        return calls_find_linked(door);
    if (!calls_open(&handle)) {
        fprintf(stderr, "worker: %s\n", dlerror());
        return false;
    }
    if (!strcmp(door, "handle"))
        return calls_find_symbols(door, handle);
    if (!strcmp(door, "default"))
        return calls_find_symbols(door, RTLD_DEFAULT);
    if (!strcmp(door, "next"))
        return calls_find_symbols(door, RTLD_NEXT);
    if (!strcmp(door, "proc"))
        return calls_find_proc(door, handle, 12000);
    if (!strcmp(door, "proc1"))
        return calls_find_proc(door, handle, 11030);
    if (!strcmp(door, "old"))
        return calls_find_proc_only(door, handle);
    return calls_missing(door, "anything: no such door");
}
