/*
 * handles: open addressing, one table per shard, so that threads seldom meet (see handles.h).
 * Memory comes from mmap, never from the program's malloc, which may be in the middle of something.
 */
#include "handles.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "allocs.h"
#include "futex.h"

#define HANDLES_SHARDS 16u
#define HANDLES_FIRST 128u

struct handles_entry {
    uint64_t handle;
    unsigned kind; /* 0 = free, else 1 + enum handles_kind */
    struct handles_item item;
};

struct handles_shard {
    _Alignas(64) struct lock lock;
    struct handles_entry *entry;
    size_t size; /* a power of two, or 0 */
    size_t used;
};

static struct handles_shard handles[HANDLES_SHARDS];
static _Atomic unsigned handles_used;

static uint64_t handles_hash(unsigned kind, uint64_t handle)
{
    handle = (handle + kind) * UINT64_C(0x9e3779b97f4a7c15);
    return handle ^ handle >> 29;
}

static struct handles_shard *handles_shard(unsigned kind, uint64_t handle)
{
    return &handles[handles_hash(kind, handle) >> 32 & (HANDLES_SHARDS - 1)];
}

/* The handle's place, or the free one where it belongs. */
static size_t handles_find(const struct handles_shard *shard, unsigned kind, uint64_t handle)
{
    size_t i = handles_hash(kind, handle) & (shard->size - 1);
    while (shard->entry[i].kind &&
           (shard->entry[i].kind != kind || shard->entry[i].handle != handle))
        i = (i + 1) & (shard->size - 1);
    return i;
}

static bool handles_grow(struct handles_shard *shard)
{
    struct handles_shard old = *shard;
    size_t size = old.size ? old.size * 2 : HANDLES_FIRST;
    void *memory = mmap(NULL, size * sizeof *old.entry, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    shard->entry = memory;
    shard->size = size;
    for (size_t i = 0; i < old.size; i++)
        if (old.entry[i].kind)
            shard->entry[handles_find(shard, old.entry[i].kind, old.entry[i].handle)] =
                old.entry[i];
    if (old.entry)
        munmap(old.entry, old.size * sizeof *old.entry);
    return true;
}

bool handles_put(enum handles_kind kind, uint64_t handle, struct handles_item item,
                 struct handles_item *before)
{
    unsigned word = 1 + (unsigned)kind;
    struct handles_shard *shard = handles_shard(word, handle);
    *before = (struct handles_item){0};
    lock_take(&shard->lock);
    bool room = (shard->used + 1) * 4 <= shard->size * 3 || handles_grow(shard);
    if (room) {
        struct handles_entry *entry = &shard->entry[handles_find(shard, word, handle)];
        if (entry->kind) {
            *before = entry->item;
        } else {
            shard->used++;
            atomic_fetch_add(&handles_used, 1);
        }
        *entry = (struct handles_entry){.handle = handle, .kind = word, .item = item};
    }
    lock_put(&shard->lock);
    return room;
}

/* Closes the hole at `i`, so that probing finds what lies behind it. */
static void handles_close(struct handles_shard *shard, size_t hole)
{
    size_t mask = shard->size - 1;
    for (size_t i = (hole + 1) & mask; shard->entry[i].kind; i = (i + 1) & mask) {
        size_t home = handles_hash(shard->entry[i].kind, shard->entry[i].handle) & mask;
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        shard->entry[hole] = shard->entry[i];
        hole = i;
    }
    shard->entry[hole].kind = 0;
    shard->used--;
    atomic_fetch_sub(&handles_used, 1);
}

static bool handles_get(unsigned kind, uint64_t handle, struct handles_item *item, bool take)
{
    struct handles_shard *shard = handles_shard(kind, handle);
    if (!handles_count())
        return false;
    lock_take(&shard->lock);
    size_t i = shard->size ? handles_find(shard, kind, handle) : 0;
    bool found = shard->size && shard->entry[i].kind;
    if (found) {
        *item = shard->entry[i].item;
        if (take)
            handles_close(shard, i);
    }
    lock_put(&shard->lock);
    return found;
}

bool handles_take(enum handles_kind kind, uint64_t handle, struct handles_item *item)
{
    return handles_get(1 + (unsigned)kind, handle, item, true);
}

bool handles_peek(enum handles_kind kind, uint64_t handle, struct handles_item *item)
{
    return handles_get(1 + (unsigned)kind, handle, item, false);
}

/* Whether its bytes are a context's own. A pool's pointers have the pool's number as their owner.
 */
static bool handles_goes_with(const struct handles_entry *entry, unsigned owner)
{
    bool pointer = entry->kind == 1 + HANDLES_POINTER &&
                   allocs_with_context((enum allocs_kind)entry->item.kind);
    return (pointer || entry->kind == 1 + HANDLES_ARRAY) && entry->item.owner == owner;
}

/* Closing a hole may bring an entry here from further on: the same place is looked at again. */
static void handles_sweep(struct handles_shard *shard, unsigned owner, struct allocs_gone *gone)
{
    for (size_t i = 0; i < shard->size;) {
        struct handles_entry *entry = &shard->entry[i];
        if (handles_goes_with(entry, owner)) {
            allocs_add_gone(gone, entry->item.kind, entry->item.bytes);
            handles_close(shard, i);
        } else {
            i++;
        }
    }
}

void handles_take_owner(unsigned owner, struct allocs_gone *gone)
{
    for (unsigned i = 0; i < HANDLES_SHARDS; i++) {
        lock_take(&handles[i].lock);
        handles_sweep(&handles[i], owner, gone);
        lock_put(&handles[i].lock);
    }
}

static bool handles_take_first(struct handles_shard *shard, unsigned kind, unsigned owner,
                               struct handles_item *item)
{
    for (size_t i = 0; i < shard->size; i++)
        if (shard->entry[i].kind == kind && shard->entry[i].item.owner == owner) {
            *item = shard->entry[i].item;
            handles_close(shard, i);
            return true;
        }
    return false;
}

bool handles_take_of(enum handles_kind kind, unsigned owner, struct handles_item *item)
{
    bool found = false;
    for (unsigned i = 0; i < HANDLES_SHARDS && !found && handles_count(); i++) {
        lock_take(&handles[i].lock);
        found = handles_take_first(&handles[i], 1 + (unsigned)kind, owner, item);
        lock_put(&handles[i].lock);
    }
    return found;
}

unsigned handles_count(void)
{
    return atomic_load_explicit(&handles_used, memory_order_relaxed);
}

void handles_reset(void)
{
    for (unsigned i = 0; i < HANDLES_SHARDS; i++) {
        if (handles[i].entry)
            munmap(handles[i].entry, handles[i].size * sizeof *handles[i].entry);
        memset(&handles[i], 0, sizeof handles[i]);
    }
    handles_used = 0;
}
