/*
 * symbols: the two kinds of hash table and the version records of the ELF format (see symbols.h).
 * What it reads are mapped pages of objects that stay. It calls no function of libc: a sanitizer's
 * runtime asks for its own functions through us before it can stand in for them.
 */
#include "symbols.h"

#include <stddef.h>

#define SYMBOLS_GLOBAL_VERSION 1u
#define SYMBOLS_HIDDEN 0x8000u

/* The loader writes addresses over the offsets of most objects' tables, but not of the kernel's. */
SYMBOLS_EARLY
static const void *symbols_place(const struct link_map *map, ElfW(Addr) value)
{
    return (const void *)(value < map->l_addr ? map->l_addr + value : value);
}

SYMBOLS_EARLY
bool symbols_same(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

SYMBOLS_EARLY
bool symbols_open(struct symbols *symbols, const struct link_map *map)
{
    *symbols = (struct symbols){.map = map};
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        const void *place = symbols_place(map, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            symbols->table = (ElfW(Sym) *)(size_t)place;
        else if (d->d_tag == DT_STRTAB)
            symbols->names = place;
        else if (d->d_tag == DT_GNU_HASH)
            symbols->gnu_hash = place;
        else if (d->d_tag == DT_HASH)
            symbols->hash = place;
        else if (d->d_tag == DT_VERSYM)
            symbols->versions = place;
        else if (d->d_tag == DT_VERDEF)
            symbols->defined = place;
    }
    return symbols->table && symbols->names && (symbols->gnu_hash || symbols->hash);
}

SYMBOLS_EARLY
static bool symbols_is(const struct symbols *symbols, size_t i, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[i];
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
           symbols_same(symbols->names + symbol->st_name, name);
}

/* Header: buckets, first symbol hashed, words of the filter, its shift; then filter, buckets, and
 * one word per hashed symbol whose lowest bit ends a chain. */
SYMBOLS_EARLY
static size_t symbols_next_gnu(const struct symbols *symbols, const char *name, size_t before)
{
    const uint32_t *head = symbols->gnu_hash;
    const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof *head);
    const uint32_t *chain = buckets + head[0];
    uint32_t hash = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        hash = hash * 33 + *c;
    size_t i = head[0] ? buckets[hash % head[0]] : 0;
    if (i < head[1])
        return 0;
    for (;; i++) {
        uint32_t word = chain[i - head[1]];
        if (i > before && ((word ^ hash) | 1) == 1 && symbols_is(symbols, i, name))
            return i;
        if (word & 1)
            return 0;
    }
}

SYMBOLS_EARLY
static size_t symbols_next_classic(const struct symbols *symbols, const char *name, size_t before)
{
    const ElfW(Word) *buckets = symbols->hash + 2, *chain = buckets + symbols->hash[0];
    uint32_t hash = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        hash = (hash << 4) + *c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    size_t best = 0;
    for (size_t i = symbols->hash[0] ? buckets[hash % symbols->hash[0]] : 0; i; i = chain[i])
        if (i > before && (best == 0 || i < best) && symbols_is(symbols, i, name))
            best = i;
    return best;
}

SYMBOLS_EARLY
ElfW(Sym) * symbols_next(const struct symbols *symbols, const char *name, const ElfW(Sym) * before)
{
    size_t after = before ? (size_t)(before - symbols->table) : 0;
    size_t i = symbols->gnu_hash ? symbols_next_gnu(symbols, name, after)
                                 : symbols_next_classic(symbols, name, after);
    return i ? &symbols->table[i] : NULL;
}

SYMBOLS_EARLY
const char *symbols_version(const struct symbols *symbols, const ElfW(Sym) * symbol)
{
    if (!symbols->versions || !symbols->defined)
        return NULL;
    unsigned index = symbols->versions[symbol - symbols->table] & ~SYMBOLS_HIDDEN;
    const ElfW(Verdef) *d = symbols->defined;
    for (; index > SYMBOLS_GLOBAL_VERSION; d = (const void *)((const char *)d + d->vd_next)) {
        if (d->vd_ndx == index) {
            const ElfW(Verdaux) *name = (const void *)((const char *)d + d->vd_aux);
            return symbols->names + name->vda_name;
        }
        if (d->vd_next == 0)
            break;
    }
    return NULL;
}
