/*
 * symbols: reads the dynamic symbol table of a loaded object, as the loader does. Any thread, also
 * before anybody's constructors: no lock, no allocation, no call into the loader.
 */
#ifndef CUSLICE_HOOKS_SYMBOLS_H
#define CUSLICE_HOOKS_SYMBOLS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* For code that a sanitizer's runtime reaches before it has set itself up: it asks us for the
 * functions that it stands in front of. */
#define SYMBOLS_EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

struct symbols {
    const struct link_map *map;
    ElfW(Sym) * table;
    const char *names;
    const uint32_t *gnu_hash;
    const ElfW(Word) * hash;
    const ElfW(Half) * versions; /* per symbol; NULL: the object has none */
    const ElfW(Verdef) * defined;
};

/* False when the object has no symbols to look up. */
bool symbols_open(struct symbols *symbols, const struct link_map *map);

/* The first definition of a name, or the one after `before`; NULL at the end. A name has several
 * where it has several versions. */
ElfW(Sym) * symbols_next(const struct symbols *symbols, const char *name, const ElfW(Sym) * before);

/* The version that a symbol is defined under; NULL when the object defines none. */
const char *symbols_version(const struct symbols *symbols, const ElfW(Sym) * symbol);

/* Whether two texts are equal. */
bool symbols_same(const char *a, const char *b);

/* Where a symbol's function is. */
SYMBOLS_EARLY static inline void *symbols_address(const struct symbols *symbols,
                                                  const ElfW(Sym) * symbol)
{
    return (void *)(symbols->map->l_addr + symbol->st_value);
}

#endif
