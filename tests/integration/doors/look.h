/*
 * look: finds every function named in names.h through one door, and says where each was found.
 * Compiled into the program, into plugins and into preloads, so that each asks as itself; knows no
 * CUDA. One line per function: DOOR NAME OWNER SYMBOL, where OWNER is hook, driver, other or none.
 */
#ifndef TESTS_DOORS_LOOK_H
#define TESTS_DOORS_LOOK_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int look_proc_v2(const char *, void **, int, uint64_t, int *);
typedef int look_proc(const char *, void **, int, uint64_t);

static const char *const look_names[] = {
#define NAME(name) #name,
#include "names.h"
#undef NAME
};
#define LOOK_NAMES (sizeof look_names / sizeof look_names[0])

static inline const char *look_owner(void *function, const char **symbol)
{
    Dl_info info;
    *symbol = "-";
    if (!function)
        return "none";
    if (!dladdr(function, &info) || !info.dli_fname)
        return "other";
    if (info.dli_sname && info.dli_saddr == function)
        *symbol = info.dli_sname;
    if (strstr(info.dli_fname, "libcuslice"))
        return "hook";
    return strstr(info.dli_fname, "libcuda.so") ? "driver" : "other";
}

static inline void look_say(const char *door, const char *name, void *function)
{
    const char *symbol, *owner = look_owner(function, &symbol);
    printf("%s %s %s %s\n", door, name, owner, symbol);
}

static inline void look_by_dlsym(const char *door, void *handle)
{
    for (size_t i = 0; i < LOOK_NAMES; i++)
        look_say(door, look_names[i], dlsym(handle, look_names[i]));
}

/* Under the version that the tests' versioned driver has; a driver without versions has none. */
static inline void look_by_dlvsym(const char *door, void *handle)
{
    for (size_t i = 0; i < LOOK_NAMES; i++)
        look_say(door, look_names[i], dlvsym(handle, look_names[i], "VERSION_1"));
}

/* A name as cuGetProcAddress takes it. */
static inline int look_base(const char *name, char base[128])
{
    size_t length = strlen(name);
    int flags = 1;
    snprintf(base, 128, "%s", name);
    const char *end = length > 5 ? name + length - 5 : "";
    if (!strcmp(end, "_ptsz") || !strcmp(end, "_ptds")) {
        base[length -= 5] = 0;
        flags = 2;
    }
    if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v')
        base[length - 3] = 0;
    return flags;
}

static inline int look_version(int step)
{
    return (step / 10 + 2) * 1000 + step % 10 * 10;
}
#define LOOK_STEPS 111 /* versions 2000 to 13000 */

/* Whichever version of the name the driver answers with this very symbol. */
static inline void look_by_proc(const char *door, look_proc *old, look_proc_v2 *new)
{
    for (size_t i = 0; i < LOOK_NAMES; i++) {
        char base[128];
        int flags = look_base(look_names[i], base);
        void *found = NULL;
        for (int step = 0; step < LOOK_STEPS; step++) {
            void *function = NULL;
            const char *symbol;
            int rc = new ? new (base, &function, look_version(step), (uint64_t)flags, NULL)
                         : old(base, &function, look_version(step), (uint64_t)flags);
            if (rc == 0)
                look_owner(function, &symbol);
            if (rc == 0 && !strcmp(symbol, look_names[i]))
                found = function;
        }
        look_say(door, look_names[i], found);
    }
}

static inline void *look_open(const char *file)
{
    void *handle = dlopen(file, RTLD_NOW);
    if (!handle)
        printf("error %s\n", dlerror());
    return handle;
}

/* All doors that a caller has; their names begin with `who`. */
static inline void look_all(const char *who)
{
    char door[64];
    void *by_name = look_open("libcuda.so.1"), *by_path = look_open(getenv("DRIVER"));
    if (!by_name || !by_path)
        return;
#define DOOR(name) (snprintf(door, sizeof door, "%s%s", who, name), door)
    look_by_dlsym(DOOR("handle"), by_name);
    look_by_dlsym(DOOR("path"), by_path);
    look_by_dlvsym(DOOR("dlvsym"), by_name);
    look_by_dlsym(DOOR("default"), RTLD_DEFAULT);
    look_proc_v2 *new = (look_proc_v2 *)dlsym(by_name, "cuGetProcAddress_v2");
    look_proc *old = (look_proc *)dlsym(by_name, "cuGetProcAddress");
    look_by_proc(DOOR("proc_v2"), NULL, new);
    look_by_proc(DOOR("proc"), old, NULL);
    void *again = NULL;
    if (new && new ("cuGetProcAddress", &again, 12000, 0, NULL) == 0)
        look_by_proc(DOOR("proc_v2-by-proc_v2"), NULL, (look_proc_v2 *)again);
    if (new && new ("cuGetProcAddress", &again, 11030, 0, NULL) == 0)
        look_by_proc(DOOR("proc-by-proc_v2"), (look_proc *)again, NULL);
    if (old && old("cuGetProcAddress", &again, 12000, 0) == 0)
        look_by_proc(DOOR("proc_v2-by-proc"), NULL, (look_proc_v2 *)again);
    if (old && old("cuGetProcAddress", &again, 11030, 0) == 0)
        look_by_proc(DOOR("proc-by-proc"), (look_proc *)again, NULL);
#undef DOOR
}

#endif
