/*
 * allocs: a word per 512 bytes of the address space that holds device memory (see allocs.h), the
 * grain in which it is handed out. The address is the index, so nothing is searched, nothing grows
 * and nothing is locked: a pointer belongs to who got it from the driver until he frees it. Words
 * come in pieces of 2 MiB of addresses, carved out of mappings that the kernel fills when they are
 * touched, never from the program's malloc, which may be in the middle of something.
 *
 * A word is small, since the cost of a look-up is that of fetching it: it holds the size of an
 * allocation that ends in its own piece. Of those that reach into the next one at most one begins
 * in each piece, and the piece itself has a word of its own for it. For the same reason the words
 * of addresses that are multiples of 4 KiB, as most are, stand side by side, before the others.
 */
#include "allocs.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define ALLOCS_GRAIN_SHIFT 9
#define ALLOCS_PIECE_SHIFT 21
#define ALLOCS_GRAINS ((size_t)1 << (ALLOCS_PIECE_SHIFT - ALLOCS_GRAIN_SHIFT))
#define ALLOCS_PAGE_SHIFT 12
#define ALLOCS_PAGES ((size_t)1 << (ALLOCS_PIECE_SHIFT - ALLOCS_PAGE_SHIFT))
#define ALLOCS_WORDS (ALLOCS_PAGES + ALLOCS_GRAINS)
/* Pieces are kept in leaves, each for 32 GiB; leaves for all of the address space. */
#define ALLOCS_LEAF_SHIFT 14
#define ALLOCS_LEAF ((size_t)1 << ALLOCS_LEAF_SHIFT)
#define ALLOCS_LEAVES ((size_t)1 << (48 - ALLOCS_PIECE_SHIFT - ALLOCS_LEAF_SHIFT))
/* Words of so many pieces are mapped at a time: 18 MiB, in huge pages where there are some, but for
 * the first pieces, which are enough for most programs. */
#define ALLOCS_CHUNK 2048u
#define ALLOCS_CHUNKS 512u
#define ALLOCS_FRUGAL 16u
#define ALLOCS_HUGE ((size_t)2 << 20)

/* A word: grains - 1 in 12 bits, kind in 4. 0: nothing begins here that ends in the same piece. */
typedef _Atomic uint16_t allocs_word;

struct allocs_piece {
    allocs_word *_Atomic words; /* NULL until an allocation begins and ends in the piece */
    _Atomic uint64_t reaching;  /* the one that begins here and ends in another piece: bytes 44
                                   bits, gate 4, kind 4, owner 12; 0: none */
    _Atomic uint32_t begins;    /* where that one begins, in grains; written before it */
    _Atomic uint32_t spans;     /* allocations that reach into or out of it */
    _Atomic uint32_t whose;     /* all are that words speak of; and: */
};

#define ALLOCS_SMALL (UINT32_C(1) << 29) /* some have begun elsewhere than at the piece's start */

static struct allocs_piece *_Atomic allocs_leaf[ALLOCS_LEAVES];
static void *_Atomic allocs_chunk[ALLOCS_CHUNKS];
static _Atomic uint32_t allocs_carved; /* pieces' words handed out so far */

static void *allocs_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Begins where a huge page does. */
static void *allocs_map_huge(size_t bytes)
{
    char *memory = allocs_map(bytes + ALLOCS_HUGE);
    if (!memory)
        return NULL;
    size_t skip = -(uintptr_t)memory % ALLOCS_HUGE;
    if (skip)
        munmap(memory, skip);
    munmap(memory + skip + bytes, ALLOCS_HUGE - skip);
    madvise(memory + skip, bytes, MADV_HUGEPAGE); /* refused: then in small ones */
    return memory + skip;
}

/* What `place` points to, mapped by whoever needs it first. */
static void *allocs_make(void *_Atomic *place, size_t bytes, bool huge)
{
    void *there = atomic_load_explicit(place, memory_order_acquire), *made;
    if (there)
        return there;
    made = huge ? allocs_map_huge(bytes) : allocs_map(bytes);
    if (!made || atomic_compare_exchange_strong(place, &there, made))
        return made;
    munmap(made, bytes);
    return there;
}

static inline struct allocs_piece *allocs_piece(uint64_t piece)
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
                     ALLOCS_LEAF * sizeof(struct allocs_piece), false))
        return NULL;
    return allocs_piece(piece);
}

static void *allocs_chunk_make(uint32_t chunk)
{
    size_t bytes = ALLOCS_CHUNK * ALLOCS_WORDS * sizeof(allocs_word);
    return allocs_make(&allocs_chunk[chunk], bytes, chunk > 0);
}

/* Two threads may both carve for one piece: the words of the one that comes second stay unused. */
static allocs_word *allocs_words_make(struct allocs_piece *piece)
{
    allocs_word *none = NULL, *mine;
    uint32_t number = atomic_fetch_add(&allocs_carved, 1);
    number += number < ALLOCS_FRUGAL ? 0 : ALLOCS_CHUNK - ALLOCS_FRUGAL; /* on to the next chunk */
    char *chunk =
        number / ALLOCS_CHUNK < ALLOCS_CHUNKS ? allocs_chunk_make(number / ALLOCS_CHUNK) : NULL;
    if (!chunk)
        return NULL;
    mine =
        (allocs_word *)(void *)(chunk + number % ALLOCS_CHUNK * ALLOCS_WORDS * sizeof(allocs_word));
    return atomic_compare_exchange_strong(&piece->words, &none, mine) ? mine : none;
}

/* Where a piece has the word of one of its grains. */
static inline size_t allocs_index(size_t grain)
{
    size_t page = grain / (ALLOCS_GRAINS / ALLOCS_PAGES);
    if (__builtin_expect(grain % (ALLOCS_GRAINS / ALLOCS_PAGES) != 0, 0))
        return ALLOCS_PAGES + grain;
    return page;
}

/* The word of a pointer; NULL when there is none, or the pointer is of no allocation. */
static inline allocs_word *allocs_word_in(struct allocs_piece *piece, uint64_t pointer)
{
    allocs_word *words = piece ? atomic_load_explicit(&piece->words, memory_order_acquire) : NULL;
    if (!words || pointer & ((1u << ALLOCS_GRAIN_SHIFT) - 1))
        return NULL;
    return &words[allocs_index(pointer >> ALLOCS_GRAIN_SHIFT & (ALLOCS_GRAINS - 1))];
}

static inline allocs_word *allocs_word_of(uint64_t pointer)
{
    return allocs_word_in(allocs_piece(pointer >> ALLOCS_PIECE_SHIFT), pointer);
}

static __attribute__((noinline)) allocs_word *allocs_word_new(uint64_t pointer)
{
    struct allocs_piece *piece = allocs_piece_make(pointer >> ALLOCS_PIECE_SHIFT);
    if (!piece || (!atomic_load(&piece->words) && !allocs_words_make(piece)))
        return NULL;
    return allocs_word_of(pointer);
}

static inline bool allocs_reaches(uint64_t pointer, uint64_t bytes)
{
    return (pointer ^ (pointer + bytes - 1)) >> ALLOCS_PIECE_SHIFT != 0;
}

static inline uint16_t allocs_pack(struct allocs_item item)
{
    uint64_t grains = (item.bytes - 1) >> ALLOCS_GRAIN_SHIFT;
    return (uint16_t)(grains | (unsigned)item.kind << 12);
}

static inline uint64_t allocs_bytes(uint16_t word)
{
    return ((uint64_t)(word & 4095) + 1) << ALLOCS_GRAIN_SHIFT;
}

static inline struct allocs_item allocs_unpack(uint16_t word, uint32_t whose)
{
    return (struct allocs_item){
        .bytes = allocs_bytes(word), .whose = whose & ~ALLOCS_SMALL, .kind = word >> 12};
}

static uint64_t allocs_pack_long(struct allocs_item item)
{
    return item.bytes | (uint64_t)allocs_gate(item) << 44 | (uint64_t)item.kind << 48 |
           (uint64_t)allocs_owner(item) << 52;
}

static struct allocs_item allocs_unpack_long(uint64_t word)
{
    return (struct allocs_item){.bytes = word & (ALLOCS_MOST - 1),
                                .whose = allocs_whose(word >> 44 & 15, (unsigned)(word >> 52)),
                                .kind = word >> 48 & 15};
}

static uint32_t allocs_grain(uint64_t pointer)
{
    return (uint32_t)(pointer >> ALLOCS_GRAIN_SHIFT) & (ALLOCS_GRAINS - 1);
}

/* The place of an allocation that begins at `pointer` and reaches out of its piece; NULL. */
static _Atomic uint64_t *allocs_reaching(uint64_t pointer)
{
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    bool here = piece && atomic_load(&piece->reaching) &&
                atomic_load(&piece->begins) == allocs_grain(pointer) &&
                pointer % (1u << ALLOCS_GRAIN_SHIFT) == 0;
    return here ? &piece->reaching : NULL;
}

/* Takes note of an allocation that covers more than one piece, in each of them. */
static void allocs_span(uint64_t pointer, uint64_t bytes, bool add)
{
    uint64_t last = (pointer + bytes - 1) >> ALLOCS_PIECE_SHIFT;
    for (uint64_t i = pointer >> ALLOCS_PIECE_SHIFT; i <= last; i++) {
        struct allocs_piece *piece = add ? allocs_piece_make(i) : allocs_piece(i);
        if (piece)
            atomic_fetch_add_explicit(&piece->spans, add ? 1 : UINT32_MAX, memory_order_relaxed);
    }
}

static bool allocs_put_reaching(uint64_t pointer, struct allocs_item item,
                                struct allocs_item *before)
{
    struct allocs_piece *piece = allocs_piece_make(pointer >> ALLOCS_PIECE_SHIFT);
    if (!piece || pointer % (1u << ALLOCS_GRAIN_SHIFT))
        return false;
    uint64_t old = atomic_exchange(&piece->reaching, 0);
    if (old) { /* there is room for one: the other is gone, wherever it began */
        uint64_t start = pointer >> ALLOCS_PIECE_SHIFT << ALLOCS_PIECE_SHIFT |
                         (uint64_t)piece->begins << ALLOCS_GRAIN_SHIFT;
        *before = allocs_unpack_long(old);
        allocs_span(start, before->bytes, false);
    }
    atomic_store(&piece->begins, allocs_grain(pointer));
    allocs_span(pointer, item.bytes, true);
    atomic_store(&piece->reaching, allocs_pack_long(item));
    return true;
}

/* The piece becomes, or is, this owner's; false when it is another's. */
static bool allocs_own_piece(struct allocs_piece *piece, uint32_t whose, bool small)
{
    uint32_t now = atomic_load(&piece->whose);
    if (now == 0 && atomic_compare_exchange_strong(&piece->whose, &now, whose))
        now = whose;
    if ((now & ~ALLOCS_SMALL) != whose)
        return false;
    if (small && !(now & ALLOCS_SMALL))
        atomic_fetch_or(&piece->whose, ALLOCS_SMALL);
    return true;
}

bool allocs_put(uint64_t pointer, struct allocs_item item, struct allocs_item *before)
{
    *before = (struct allocs_item){0};
    if (item.bytes == 0 || item.bytes >= ALLOCS_MOST)
        return false;
    *before = allocs_take(pointer);
    if (allocs_reaches(pointer, item.bytes))
        return allocs_put_reaching(pointer, item, before);
    allocs_word *word = allocs_word_new(pointer);
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    bool small = pointer << (64 - ALLOCS_PIECE_SHIFT) != 0;
    if (!word || !piece || !allocs_own_piece(piece, item.whose, small))
        return false;
    atomic_store_explicit(word, allocs_pack(item), memory_order_release);
    return true;
}

/* Whether it is known of the piece that it has this owner's, and where they may begin. */
static inline bool allocs_owned(const struct allocs_piece *piece, uint32_t whose, uint64_t pointer)
{
    uint32_t now = atomic_load_explicit(&piece->whose, memory_order_relaxed);
    return now == (whose | ALLOCS_SMALL) ||
           (now == whose && pointer << (64 - ALLOCS_PIECE_SHIFT) == 0);
}

bool allocs_put_quickly(uint64_t pointer, struct allocs_item item)
{
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    allocs_word *word = allocs_word_in(piece, pointer);
    if (!word || allocs_reaches(pointer, item.bytes) || !allocs_owned(piece, item.whose, pointer) ||
        atomic_load_explicit(word, memory_order_relaxed) != 0)
        return false;
    atomic_store_explicit(word, allocs_pack(item), memory_order_release);
    return true;
}

static __attribute__((noinline)) struct allocs_item allocs_take_reaching(uint64_t pointer)
{
    _Atomic uint64_t *reaching = allocs_reaching(pointer);
    uint64_t old = reaching ? atomic_exchange(reaching, 0) : 0;
    if (!old)
        return (struct allocs_item){0};
    struct allocs_item item = allocs_unpack_long(old);
    allocs_span(pointer, item.bytes, false);
    return item;
}

struct allocs_item allocs_take(uint64_t pointer)
{
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    allocs_word *word = allocs_word_in(piece, pointer);
    if (!word || !atomic_load_explicit(word, memory_order_relaxed))
        return allocs_take_reaching(pointer);
    uint16_t old = atomic_exchange(word, 0);
    return old ? allocs_unpack(old, atomic_load_explicit(&piece->whose, memory_order_relaxed))
               : (struct allocs_item){0};
}

bool allocs_peek(uint64_t pointer, struct allocs_item *item)
{
    struct allocs_piece *piece = allocs_piece(pointer >> ALLOCS_PIECE_SHIFT);
    allocs_word *word = allocs_word_of(pointer);
    uint16_t now = word ? atomic_load_explicit(word, memory_order_acquire) : 0;
    _Atomic uint64_t *reaching = now ? NULL : allocs_reaching(pointer);
    uint64_t now_long = reaching ? atomic_load(reaching) : 0;
    if (now)
        *item = allocs_unpack(now, piece->whose);
    else if (now_long)
        *item = allocs_unpack_long(now_long);
    return now || now_long;
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
    for (size_t i = words ? allocs_grain(address) + 1u : 0; i-- > 0;) {
        uint16_t word = atomic_load_explicit(&words[allocs_index(i)], memory_order_relaxed);
        if (word)
            return address - (base + (i << ALLOCS_GRAIN_SHIFT)) < allocs_bytes(word);
    }
    return false;
}

bool allocs_turn(uint64_t pointer, enum allocs_kind from, enum allocs_kind to)
{
    struct allocs_item item;
    allocs_word *word = allocs_word_of(pointer);
    if (!allocs_peek(pointer, &item) || item.kind != from)
        return false;
    item.kind = to;
    if (allocs_reaches(pointer, item.bytes))
        atomic_store(allocs_reaching(pointer), allocs_pack_long(item));
    else
        atomic_store_explicit(word, allocs_pack(item), memory_order_release);
    return true;
}

void allocs_add_gone(struct allocs_gone *gone, unsigned kind, uint64_t bytes)
{
    gone->bytes += bytes;
    gone->exported += kind == ALLOCS_EXPORTED ? bytes : 0;
    gone->paged += kind == ALLOCS_PAGED ? bytes : 0;
}

static void allocs_sweep_one(uint64_t pointer, unsigned owner, struct allocs_gone *gone)
{
    struct allocs_item item;
    if (!allocs_peek(pointer, &item) || allocs_owner(item) != owner ||
        !allocs_with_context(item.kind))
        return;
    item = allocs_take(pointer);
    allocs_add_gone(gone, item.kind, item.bytes);
}

static void allocs_sweep(struct allocs_piece *piece, uint64_t base, unsigned owner,
                         struct allocs_gone *gone)
{
    size_t last = !atomic_load(&piece->words) ? 0 : piece->whose & ALLOCS_SMALL ? ALLOCS_GRAINS : 1;
    if (atomic_load(&piece->reaching))
        allocs_sweep_one(base + ((uint64_t)piece->begins << ALLOCS_GRAIN_SHIFT), owner, gone);
    for (size_t i = 0; i < last; i++)
        allocs_sweep_one(base + (i << ALLOCS_GRAIN_SHIFT), owner, gone);
}

void allocs_take_owner(unsigned owner, struct allocs_gone *gone)
{
    for (uint64_t i = 0; i < ALLOCS_LEAVES * ALLOCS_LEAF; i++) {
        struct allocs_piece *piece = allocs_piece(i);
        if (piece)
            allocs_sweep(piece, i << ALLOCS_PIECE_SHIFT, owner, gone);
        else
            i |= ALLOCS_LEAF - 1;
    }
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
