/*
 * allocs: a word per 256 bytes of the address space that holds device memory (see allocs.h): the
 * least alignment that the CUDA C++ Programming Guide promises. The address is the index, so
 * nothing is searched, nothing grows and nothing is locked: a pointer belongs to who got it from
 * the driver until he frees it. Words come in pieces of 2 MiB of addresses, carved out of mappings
 * that the kernel fills when they are touched, never from the program's malloc, which may be in the
 * middle of something.
 */
#include "allocs.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define ALLOCS_GRAIN_SHIFT 8
#define ALLOCS_PIECE_SHIFT 21
#define ALLOCS_WORDS ((size_t)1 << (ALLOCS_PIECE_SHIFT - ALLOCS_GRAIN_SHIFT))
/* Pieces are kept in leaves, each for 32 GiB; leaves for all of the address space. */
#define ALLOCS_LEAF_SHIFT 14
#define ALLOCS_LEAF ((size_t)1 << ALLOCS_LEAF_SHIFT)
#define ALLOCS_LEAVES ((size_t)1 << (48 - ALLOCS_PIECE_SHIFT - ALLOCS_LEAF_SHIFT))
/* Words of so many pieces are mapped at a time. */
#define ALLOCS_CHUNK 256u
#define ALLOCS_CHUNKS 4096u

/* A word: bytes 44 bits, gate 4, kind 4, owner 12. 0: nothing begins here. */
typedef _Atomic uint64_t allocs_word;

struct allocs_piece {
    allocs_word *_Atomic words; /* NULL until an allocation begins in the piece */
    _Atomic uint32_t spans;     /* allocations that reach into or out of it from another piece */
    _Atomic bool small;         /* some have begun elsewhere than at its start */
};

static struct allocs_piece *_Atomic allocs_leaf[ALLOCS_LEAVES];
static void *_Atomic allocs_chunk[ALLOCS_CHUNKS];
static _Atomic uint32_t allocs_carved; /* pieces' words handed out so far */

static void *allocs_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* What `place` points to, mapped by whoever needs it first. */
static void *allocs_make(void *_Atomic *place, size_t bytes)
{
    void *there = atomic_load_explicit(place, memory_order_acquire), *made;
    if (there)
        return there;
    made = allocs_map(bytes);
    if (!made || atomic_compare_exchange_strong(place, &there, made))
        return made;
    munmap(made, bytes);
    return there;
}

static struct allocs_piece *allocs_piece(uint64_t piece)
{
    if (piece >> ALLOCS_LEAF_SHIFT >= ALLOCS_LEAVES)
        return NULL;
    struct allocs_piece *leaf =
        atomic_load_explicit(&allocs_leaf[piece >> ALLOCS_LEAF_SHIFT], memory_order_acquire);
    return leaf ? &leaf[piece & (ALLOCS_LEAF - 1)] : NULL;
}

static struct allocs_piece *allocs_piece_make(uint64_t piece)
{
    if (piece >> ALLOCS_LEAF_SHIFT >= ALLOCS_LEAVES ||
        !allocs_make((void *_Atomic *)&allocs_leaf[piece >> ALLOCS_LEAF_SHIFT],
                     ALLOCS_LEAF * sizeof(struct allocs_piece)))
        return NULL;
    return allocs_piece(piece);
}

/* Two threads may both carve for one piece: the words of the one that comes second stay unused. */
static allocs_word *allocs_words_make(struct allocs_piece *piece)
{
    allocs_word *none = NULL, *mine;
    uint32_t number = atomic_fetch_add(&allocs_carved, 1);
    if (number / ALLOCS_CHUNK >= ALLOCS_CHUNKS)
        return NULL;
    char *chunk = allocs_make(&allocs_chunk[number / ALLOCS_CHUNK],
                              ALLOCS_CHUNK * ALLOCS_WORDS * sizeof(allocs_word));
    if (!chunk)
        return NULL;
    mine =
        (allocs_word *)(void *)(chunk + number % ALLOCS_CHUNK * ALLOCS_WORDS * sizeof(allocs_word));
    return atomic_compare_exchange_strong(&piece->words, &none, mine) ? mine : none;
}

/* The word of a pointer; NULL when there is none, or the pointer is of no allocation. */
static allocs_word *allocs_word_of(uint64_t pointer)
{
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    allocs_word *words = piece ? atomic_load_explicit(&piece->words, memory_order_acquire) : NULL;
    if (!words || pointer & ((1u << ALLOCS_GRAIN_SHIFT) - 1))
        return NULL;
    return &words[pointer >> ALLOCS_GRAIN_SHIFT & (ALLOCS_WORDS - 1)];
}

static allocs_word *allocs_word_make(uint64_t pointer)
{
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    if (!piece)
        piece = allocs_piece_make(pointer >> ALLOCS_PIECE_SHIFT);
    if (!piece ||
        (!atomic_load_explicit(&piece->words, memory_order_acquire) && !allocs_words_make(piece)))
        return NULL;
    if (pointer & ((1u << ALLOCS_PIECE_SHIFT) - 1) &&
        !atomic_load_explicit(&piece->small, memory_order_relaxed))
        atomic_store_explicit(&piece->small, true, memory_order_relaxed);
    return allocs_word_of(pointer);
}

static uint64_t allocs_pack(struct allocs_item item)
{
    return item.bytes | (uint64_t)(item.gate & 15) << 44 | (uint64_t)item.kind << 48 |
           (uint64_t)(item.owner & 4095) << 52;
}

static struct allocs_item allocs_unpack(uint64_t word)
{
    return (struct allocs_item){.bytes = word & (ALLOCS_MOST - 1),
                                .gate = (unsigned)(word >> 44 & 15),
                                .kind = (enum allocs_kind)(word >> 48 & 15),
                                .owner = (unsigned)(word >> 52)};
}

/* Takes note of an allocation that covers more than one piece, in each of them. */
static void allocs_span(uint64_t pointer, uint64_t bytes, bool add)
{
    uint64_t first = pointer >> ALLOCS_PIECE_SHIFT,
             last = (pointer + bytes - 1) >> ALLOCS_PIECE_SHIFT;
    for (uint64_t i = first; last > first && i <= last; i++) {
        struct allocs_piece *piece = add ? allocs_piece_make(i) : allocs_piece(i);
        if (piece)
            atomic_fetch_add_explicit(&piece->spans, add ? 1 : UINT32_MAX, memory_order_relaxed);
    }
}

bool allocs_put(uint64_t pointer, struct allocs_item item, struct allocs_item *before)
{
    allocs_word *word = item.bytes < ALLOCS_MOST ? allocs_word_make(pointer) : NULL;
    *before = (struct allocs_item){0};
    if (!word)
        return false;
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
    if (__builtin_expect(old != 0, 0)) {
        *before = allocs_unpack(atomic_exchange(word, 0));
        allocs_span(pointer, before->bytes, false);
    }
    allocs_span(pointer, item.bytes, true);
    atomic_store_explicit(word, allocs_pack(item), memory_order_release);
    return true;
}

bool allocs_take(uint64_t pointer, struct allocs_item *item)
{
    allocs_word *word = allocs_word_of(pointer);
    if (!word || atomic_load_explicit(word, memory_order_relaxed) == 0)
        return false;
    uint64_t old = atomic_exchange(word, 0);
    if (!old)
        return false;
    *item = allocs_unpack(old);
    allocs_span(pointer, item->bytes, false);
    return true;
}

bool allocs_peek(uint64_t pointer, struct allocs_item *item)
{
    allocs_word *word = allocs_word_of(pointer);
    uint64_t now = word ? atomic_load_explicit(word, memory_order_acquire) : 0;
    *item = allocs_unpack(now);
    return now != 0;
}

bool allocs_inside(uint64_t address)
{
    struct allocs_piece *piece = allocs_piece(address >> ALLOCS_PIECE_SHIFT);
    if (!piece)
        return false;
    if (atomic_load_explicit(&piece->spans, memory_order_relaxed))
        return true;
    allocs_word *words = atomic_load_explicit(&piece->words, memory_order_acquire);
    uint64_t base = address >> ALLOCS_PIECE_SHIFT << ALLOCS_PIECE_SHIFT;
    size_t at = address >> ALLOCS_GRAIN_SHIFT & (ALLOCS_WORDS - 1);
    for (size_t i = words ? at + 1 : 0; i-- > 0;) {
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        if (word)
            return address - (base + (i << ALLOCS_GRAIN_SHIFT)) < (word & (ALLOCS_MOST - 1));
    }
    return false;
}

bool allocs_turn(uint64_t pointer, enum allocs_kind from, enum allocs_kind to)
{
    allocs_word *word = allocs_word_of(pointer);
    uint64_t old = word ? atomic_load(word) : 0;
    struct allocs_item item = allocs_unpack(old);
    if (!old || item.kind != from)
        return false;
    item.kind = to;
    return atomic_compare_exchange_strong(word, &old, allocs_pack(item));
}

static uint64_t allocs_sweep(struct allocs_piece *piece, uint64_t base, unsigned owner,
                             uint64_t *exported)
{
    allocs_word *words = atomic_load(&piece->words);
    size_t last = piece->small ? ALLOCS_WORDS : 1;
    uint64_t bytes = 0;
    for (size_t i = 0; words && i < last; i++) {
        struct allocs_item item =
            allocs_unpack(atomic_load_explicit(&words[i], memory_order_relaxed));
        bool owned = item.kind == ALLOCS_OWNED || item.kind == ALLOCS_EXPORTED;
        if (!owned || item.owner != owner || !allocs_take(base + (i << ALLOCS_GRAIN_SHIFT), &item))
            continue;
        bytes += item.bytes;
        *exported += item.kind == ALLOCS_EXPORTED ? item.bytes : 0;
    }
    return bytes;
}

uint64_t allocs_take_owner(unsigned owner, uint64_t *exported)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < ALLOCS_LEAVES * ALLOCS_LEAF; i++) {
        struct allocs_piece *piece = allocs_piece(i);
        if (piece)
            bytes += allocs_sweep(piece, i << ALLOCS_PIECE_SHIFT, owner, exported);
        else
            i |= ALLOCS_LEAF - 1;
    }
    return bytes;
}

void allocs_reset(void)
{
    for (size_t i = 0; i < ALLOCS_LEAVES; i++)
        if (allocs_leaf[i]) {
            munmap(allocs_leaf[i], ALLOCS_LEAF * sizeof(struct allocs_piece));
            allocs_leaf[i] = NULL;
        }
    for (size_t i = 0; i < ALLOCS_CHUNKS; i++)
        if (allocs_chunk[i]) {
            munmap(allocs_chunk[i], ALLOCS_CHUNK * ALLOCS_WORDS * sizeof(allocs_word));
            allocs_chunk[i] = NULL;
        }
    allocs_carved = 0;
}
