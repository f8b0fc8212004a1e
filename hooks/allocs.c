/*
 * allocs: hash tables with open addressing, one per shard, so that threads seldom meet (see
 * allocs.h). Memory comes from mmap, never from the program's malloc, which may itself be in the
 * middle of something.
 */
#include "allocs.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "futex.h"

#define ALLOCS_SHARDS 64u
#define ALLOCS_FIRST 256u

struct allocs_entry {
    uint64_t pointer; /* 0 = free */
    uint64_t bytes : 48;
    uint64_t gate : 8;
    uint64_t owner : 8;
};

struct allocs_shard {
    _Alignas(64) struct lock lock;
    struct allocs_entry *entry;
    size_t size; /* a power of two, or 0 */
    size_t used;
};

static struct allocs_shard allocs[ALLOCS_SHARDS];

/* ---- Which pieces of the address space hold allocations -----------------------------------------
 */

/* How many allocations touch each piece of 2 MiB, for the whole address space of a process: leaves
 * of counters, each for 32 GiB, made when an allocation first touches them and kept. */
#define ALLOCS_PIECE_SHIFT 21
#define ALLOCS_LEAF_SHIFT 14
#define ALLOCS_LEAF ((size_t)1 << ALLOCS_LEAF_SHIFT)
#define ALLOCS_LEAVES ((size_t)1 << (48 - ALLOCS_PIECE_SHIFT - ALLOCS_LEAF_SHIFT))

typedef _Atomic uint16_t allocs_count;
static allocs_count *_Atomic allocs_leaf[ALLOCS_LEAVES];

static allocs_count *allocs_leaf_make(allocs_count *_Atomic *place)
{
    allocs_count *none = NULL;
    void *memory = mmap(NULL, ALLOCS_LEAF * sizeof *none, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (atomic_compare_exchange_strong(place, &none, memory))
        return memory;
    munmap(memory, ALLOCS_LEAF * sizeof *none);
    return none;
}

/* A piece's counter; NULL when there is none. */
static allocs_count *allocs_piece(uint64_t piece, bool make)
{
    if (piece >> ALLOCS_LEAF_SHIFT >= ALLOCS_LEAVES)
        return NULL;
    allocs_count *_Atomic *place = &allocs_leaf[piece >> ALLOCS_LEAF_SHIFT];
    allocs_count *leaf = *place;
    if (!leaf && make)
        leaf = allocs_leaf_make(place);
    return leaf ? &leaf[piece & (ALLOCS_LEAF - 1)] : NULL;
}

/* Under the lock of the pointer's shard. A counter that could not be made when it was to go up
 * stays at 0 when it is to go down. */
static void allocs_touch(uint64_t pointer, uint64_t bytes, bool add)
{
    uint64_t last = (pointer + (bytes ? bytes - 1 : 0)) >> ALLOCS_PIECE_SHIFT;
    for (uint64_t i = pointer >> ALLOCS_PIECE_SHIFT; i <= last; i++) {
        allocs_count *count = allocs_piece(i, add);
        if (count && (add || atomic_load_explicit(count, memory_order_relaxed)))
            atomic_fetch_add_explicit(count, add ? 1 : UINT16_MAX, memory_order_relaxed);
    }
}

bool allocs_inside(uint64_t address)
{
    allocs_count *count = allocs_piece(address >> ALLOCS_PIECE_SHIFT, false);
    return count && atomic_load_explicit(count, memory_order_relaxed) != 0;
}

static void allocs_forget_pieces(void)
{
    for (size_t i = 0; i < ALLOCS_LEAVES; i++)
        if (allocs_leaf[i]) {
            munmap((void *)allocs_leaf[i], ALLOCS_LEAF * sizeof(allocs_count));
            allocs_leaf[i] = NULL;
        }
}

static uint64_t allocs_hash(uint64_t pointer)
{
    pointer *= UINT64_C(0x9e3779b97f4a7c15);
    return pointer ^ pointer >> 29;
}

static struct allocs_shard *allocs_shard(uint64_t hash)
{
    return &allocs[hash >> 32 & (ALLOCS_SHARDS - 1)];
}

/* The pointer's place, or the free one where it belongs. */
static size_t allocs_find(const struct allocs_shard *shard, uint64_t pointer)
{
    size_t i = allocs_hash(pointer) & (shard->size - 1);
    while (shard->entry[i].pointer && shard->entry[i].pointer != pointer)
        i = (i + 1) & (shard->size - 1);
    return i;
}

static struct allocs_entry *allocs_map(size_t size)
{
    void *memory = mmap(NULL, size * sizeof(struct allocs_entry), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool allocs_grow(struct allocs_shard *shard)
{
    struct allocs_shard old = *shard;
    size_t size = old.size ? old.size * 2 : ALLOCS_FIRST;
    struct allocs_entry *entry = allocs_map(size);
    if (!entry)
        return false;
    shard->entry = entry;
    shard->size = size;
    for (size_t i = 0; i < old.size; i++)
        if (old.entry[i].pointer)
            entry[allocs_find(shard, old.entry[i].pointer)] = old.entry[i];
    if (old.entry)
        munmap(old.entry, old.size * sizeof *old.entry);
    return true;
}

static struct allocs_item allocs_item(const struct allocs_entry *entry)
{
    return (struct allocs_item){
        .bytes = entry->bytes, .gate = (unsigned)entry->gate, .owner = (unsigned)entry->owner};
}

bool allocs_put(uint64_t pointer, struct allocs_item item, struct allocs_item *before)
{
    struct allocs_shard *shard = allocs_shard(allocs_hash(pointer));
    *before = (struct allocs_item){0};
    lock_take(&shard->lock);
    bool room = (shard->used + 1) * 4 <= shard->size * 3 || allocs_grow(shard);
    if (room) {
        struct allocs_entry *entry = &shard->entry[allocs_find(shard, pointer)];
        if (entry->pointer) {
            *before = allocs_item(entry);
            allocs_touch(pointer, before->bytes, false);
        }
        allocs_touch(pointer, item.bytes, true);
        shard->used += entry->pointer == 0;
        *entry = (struct allocs_entry){
            .pointer = pointer, .bytes = item.bytes, .gate = item.gate, .owner = item.owner};
    }
    lock_put(&shard->lock);
    return room;
}

/* Closes the hole at `i`, so that probing finds what lies behind it. */
static void allocs_close(struct allocs_shard *shard, size_t hole)
{
    size_t mask = shard->size - 1;
    for (size_t i = (hole + 1) & mask; shard->entry[i].pointer; i = (i + 1) & mask) {
        size_t home = allocs_hash(shard->entry[i].pointer) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        shard->entry[hole] = shard->entry[i];
        hole = i;
    }
    shard->entry[hole].pointer = 0;
    shard->used--;
}

bool allocs_take(uint64_t pointer, struct allocs_item *item)
{
    struct allocs_shard *shard = allocs_shard(allocs_hash(pointer));
    lock_take(&shard->lock);
    size_t i = shard->size && pointer ? allocs_find(shard, pointer) : 0;
    bool found = shard->size && pointer && shard->entry[i].pointer == pointer;
    if (found) {
        *item = allocs_item(&shard->entry[i]);
        allocs_touch(pointer, item->bytes, false);
        allocs_close(shard, i);
    }
    lock_put(&shard->lock);
    return found;
}

/* Closing a hole may bring an entry here from further on: the same place is looked at again. */
static uint64_t allocs_sweep(struct allocs_shard *shard, unsigned owner)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < shard->size;) {
        if (shard->entry[i].pointer && shard->entry[i].owner == owner) {
            bytes += shard->entry[i].bytes;
            allocs_touch(shard->entry[i].pointer, shard->entry[i].bytes, false);
            allocs_close(shard, i);
        } else {
            i++;
        }
    }
    return bytes;
}

uint64_t allocs_take_owner(unsigned owner)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < ALLOCS_SHARDS; i++) {
        lock_take(&allocs[i].lock);
        bytes += allocs_sweep(&allocs[i], owner);
        lock_put(&allocs[i].lock);
    }
    return bytes;
}

void allocs_reset(void)
{
    for (unsigned i = 0; i < ALLOCS_SHARDS; i++) {
        if (allocs[i].entry)
            munmap(allocs[i].entry, allocs[i].size * sizeof *allocs[i].entry);
        memset(&allocs[i], 0, sizeof allocs[i]);
    }
    allocs_forget_pieces();
}
