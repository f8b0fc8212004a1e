/*
 * libc: finding the real functions, and diverting those who would pass us by (see libc.h). The
 * diversion changes this process's private copy of the three symbols' values in libc's table; code
 * that is bound already, and what libc itself calls, stay as they are. Only a program that uses
 * RTLD_DEEPBIND is changed at all.
 */
#include "libc.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "futex.h"
#include "symbols.h"

libc_dlsym_function *libc_next_dlsym, *libc_dlsym;
libc_dlvsym_function *libc_next_dlvsym, *libc_dlvsym;
libc_dlopen_function *libc_next_dlopen, *libc_dlopen;

/* The doors for callers that were diverted; in dlsym.S. */
void *libc_door_dlsym(void *handle, const char *name);
void *libc_door_dlvsym(void *handle, const char *name, const char *version);
void *libc_door_dlopen(const char *file, int mode);

/* The names that these functions have had since this processor's first glibc, which newer ones
 * keep. */
#ifdef __x86_64__
#define LIBC_FIRST "GLIBC_2.2.5"
#else
#define LIBC_FIRST "GLIBC_2.17"
#endif

static const struct link_map *libc_map; /* libc; libdl before glibc 2.34 */

SYMBOLS_EARLY
static bool libc_is_ours(const struct link_map *map)
{
    return map->l_ld == _DYNAMIC;
}

/* libc's definition in an object; with `any` also that of an object without versions. */
SYMBOLS_EARLY
static void *libc_in(const struct link_map *map, const char *name, bool any)
{
    struct symbols symbols;
    if (libc_is_ours(map) || !symbols_open(&symbols, map))
        return NULL;
    for (ElfW(Sym) *s = symbols_next(&symbols, name, NULL); s;
         s = symbols_next(&symbols, name, s)) {
        const char *version = symbols_version(&symbols, s);
        if (version ? symbols_same(version, LIBC_FIRST) : any)
            return symbols_address(&symbols, s);
    }
    return NULL;
}

SYMBOLS_EARLY
static void *libc_from(const struct link_map *map, const char *name, bool any)
{
    void *found = NULL;
    for (; map && !found; map = map->l_next)
        found = libc_in(map, name, any);
    return found;
}

SYMBOLS_EARLY
static const struct link_map *libc_find_map(void)
{
    const struct link_map *map = _r_debug.r_map;
    while (map && !libc_in(map, "dlsym", false))
        map = map->l_next;
    return map;
}

/* Behind us, or, when we were loaded later than libc, from the start. */
SYMBOLS_EARLY
static void *libc_next(const char *name)
{
    const struct link_map *map = _r_debug.r_map;
    while (map && !libc_is_ours(map))
        map = map->l_next;
    void *found = libc_from(map, name, true);
    return found ? found : libc_from(_r_debug.r_map, name, true);
}

/* Once: what a second look would find may be a door of ours already. */
SYMBOLS_EARLY
static void libc_set(void *place, void *function)
{
    void *none = NULL;
    __atomic_compare_exchange_n((void **)place, &none, function, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
}

SYMBOLS_EARLY
void libc_find(void)
{
    if (__atomic_load_n(&libc_next_dlsym, __ATOMIC_ACQUIRE))
        return;
    const struct link_map *map = libc_find_map();
    libc_set(&libc_map, (void *)(size_t)map);
    libc_set(&libc_dlsym, libc_from(map, "dlsym", false));
    libc_set(&libc_dlvsym, libc_from(map, "dlvsym", false));
    libc_set(&libc_dlopen, libc_from(map, "dlopen", false));
    libc_set(&libc_next_dlvsym, libc_next("dlvsym"));
    libc_set(&libc_next_dlopen, libc_next("dlopen"));
    /* Last, as the doors ask whether this one is there. */
    libc_set(&libc_next_dlsym, libc_next("dlsym"));
}

/* ---- Diverting ----------------------------------------------------------------------------------
 */

struct libc_diversion {
    const char *name;
    void *door;
};

/* How the pages around a symbol are mapped. */
static int libc_protection(const struct link_map *map, const void *place)
{
    const ElfW(Ehdr) *head = (const void *)map->l_addr;
    const ElfW(Phdr) *segment = (const void *)(map->l_addr + head->e_phoff);
    for (unsigned i = 0; i < head->e_phnum; i++) {
        uintptr_t start = map->l_addr + segment[i].p_vaddr;
        if (segment[i].p_type == PT_LOAD && (uintptr_t)place - start < segment[i].p_memsz)
            return PROT_READ | (segment[i].p_flags & PF_X ? PROT_EXEC : 0) |
                   (segment[i].p_flags & PF_W ? PROT_WRITE : 0);
    }
    return PROT_READ;
}

static bool libc_write(const struct link_map *map, ElfW(Sym) * symbol, ElfW(Addr) value)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *start = (char *)((uintptr_t)symbol & ~(page - 1));
    size_t length = (size_t)((char *)(symbol + 1) - start);
    int protection = libc_protection(map, symbol);
    if (mprotect(start, length, protection | PROT_WRITE) != 0)
        return false;
    __atomic_store_n(&symbol->st_value, value, __ATOMIC_RELEASE);
    mprotect(start, length, protection);
    return true;
}

static bool libc_divert_name(const struct symbols *symbols, const struct libc_diversion *diversion)
{
    bool done = true;
    ElfW(Addr) value = (ElfW(Addr))diversion->door - symbols->map->l_addr;
    for (ElfW(Sym) *s = symbols_next(symbols, diversion->name, NULL); s;
         s = symbols_next(symbols, diversion->name, s)) {
        const char *version = symbols_version(symbols, s);
        if (version)
            done = libc_write(symbols->map, s, value) && done;
    }
    return done;
}

bool libc_divert(void)
{
    static struct lock lock;
    static _Atomic bool tried, done;
    const struct libc_diversion diversions[] = {{"dlsym", (void *)(size_t)libc_door_dlsym},
                                                {"dlvsym", (void *)(size_t)libc_door_dlvsym},
                                                {"dlopen", (void *)(size_t)libc_door_dlopen}};
    struct symbols symbols;
    if (tried)
        return done;
    lock_take(&lock);
    if (!tried) {
        bool all = symbols_open(&symbols, libc_map);
        for (size_t i = 0; all && i < sizeof diversions / sizeof diversions[0]; i++)
            all = libc_divert_name(&symbols, &diversions[i]);
        done = all;
        tried = true;
    }
    lock_put(&lock);
    return done;
}
