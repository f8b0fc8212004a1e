/*
 * watch: an audit library that writes down what a program's copies of the CUDA runtime look up in
 * the driver, and what each look-up gave them. It stands between the runtime and whoever answers
 * it, changes no answer but that for the look-up function itself, and lives in a namespace of its
 * own.
 * One line per look-up in $WATCH: ASKER NAME VERSION FLAGS RESULT OWNER SYMBOL.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int watch_proc_function(const char *, void **, int, uint64_t, void *);
typedef void *watch_dlsym_function(void *, const char *);

unsigned la_version(unsigned version);
unsigned la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie);
uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name);

static watch_dlsym_function *watch_real_dlsym;
static watch_proc_function *watch_real_proc;

static const char *watch_file(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path && *path ? path : "program";
}

static const char *watch_asker(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) ? watch_file(info.dli_fname) : "unknown";
}

static void watch_say(const void *asker, const char *name, int version, uint64_t flags, int rc,
                      void *function)
{
    Dl_info info;
    char line[512];
    int known = function && dladdr(function, &info) && info.dli_fname;
    int exact = known && info.dli_sname && info.dli_saddr == function;
    int length = snprintf(line, sizeof line, "%s %s %d %d %d %s %s\n", watch_asker(asker),
                          *name ? name : "-", version, (int)flags, rc,
                          known ? watch_file(info.dli_fname) : "none",
                          exact ? info.dli_sname : "-");
    int file = open(getenv("WATCH"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, line, (size_t)length) != length)
        _exit(99);
    close(file);
}

static int watch_proc(const char *name, void **function, int version, uint64_t flags, void *status)
{
    int rc = watch_real_proc(name, function, version, flags, status);
    void *found = rc == 0 && function ? *function : NULL;
    watch_say(__builtin_return_address(0), name, version, flags, rc, found);
    /* The runtime goes on with what it is given for the look-up itself. */
    if (found && !strcmp(name, "cuGetProcAddress") && version >= 12000) {
        watch_real_proc = (watch_proc_function *)found;
        *function = (void *)watch_proc;
    }
    return rc;
}

static void *watch_dlsym(void *handle, const char *name)
{
    void *found = watch_real_dlsym(handle, name);
    if (!name || strncmp(name, "cu", 2))
        return found;
    watch_say(__builtin_return_address(0), name, 0, 0, found ? 0 : 1, found);
    if (!found || strcmp(name, "cuGetProcAddress_v2"))
        return found;
    watch_real_proc = (watch_proc_function *)found;
    return (void *)watch_proc;
}

unsigned la_version(unsigned version)
{
    return version;
}

unsigned la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
    (void)lmid;
    *cookie = (uintptr_t)map;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

/* Whoever binds dlsym binds ours instead, but for the library under test. */
uintptr_t la_symbind64(ElfW(Sym) * symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name)
{
    const struct link_map *asker = (const struct link_map *)*from;
    (void)index;
    (void)to;
    if (strcmp(name, "dlsym") || *flags & LA_SYMB_DLSYM || strstr(asker->l_name, "libcuslice"))
        return symbol->st_value;
    watch_real_dlsym = (watch_dlsym_function *)symbol->st_value;
    return (uintptr_t)watch_dlsym;
}
