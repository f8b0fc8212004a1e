/*
 * allocs: which device pointers this process holds, how large they are, and on which device. Costs
 * the same with one and with a million of them. Any thread; no lock.
 */
#ifndef CUSLICE_HOOKS_ALLOCS_H
#define CUSLICE_HOOKS_ALLOCS_H

#include <stdbool.h>
#include <stdint.h>

/* What a pointer's bytes are to the books. */
enum allocs_kind {
    ALLOCS_NONE,
    ALLOCS_OWNED,    /* counted; goes with the context it was made in */
    ALLOCS_EXPORTED, /* the same, and other processes may have it open */
    ALLOCS_POOLED,   /* counted by its pool (pools.c) */
    ALLOCS_POOL_EXPORTED,
    ALLOCS_MAPPED,   /* counted by the memory behind it (physical.c) */
    ALLOCS_IMPORTED, /* another process's; counted as imported */
    ALLOCS_PAGED,    /* OWNED, and may be paged out (oversubscribe.c) */
};

/* What is known of an allocation, in two words. Bytes are multiples of 512; others are rounded up.
 */
struct allocs_item {
    uint64_t bytes; /* below ALLOCS_MOST */
    uint32_t whose; /* allocs_whose: of which gate, and who owns it there */
    uint32_t kind;  /* enum allocs_kind */
};

#define ALLOCS_MOST (UINT64_C(1) << 44)
#define ALLOCS_NOBODY 4095u
#define ALLOCS_OWNERS (UINT32_C(1) << 24)

/* Owner: the number of its context, or ALLOCS_NOBODY; of what is POOLED the number of its pool,
 * below ALLOCS_OWNERS. Never 0. */
static inline uint32_t allocs_whose(unsigned gate, unsigned owner)
{
    return UINT32_C(1) << 28 | (gate & 15) << 24 | owner;
}

static inline unsigned allocs_gate(struct allocs_item item)
{
    return item.whose >> 24 & 15;
}

static inline unsigned allocs_owner(struct allocs_item item)
{
    return item.whose & (ALLOCS_OWNERS - 1);
}

/* Enters a pointer; false when there is no memory for it. *before is what the table said of the
 * same pointer so far (bytes 0: nothing): its free was not seen. */
bool allocs_put(uint64_t pointer, struct allocs_item item, struct allocs_item *before);

/* The same in a few instructions, where they are enough, which is most of the time: false asks for
 * the other. Bytes are a multiple of 512 and not 0. */
bool allocs_put_quickly(uint64_t pointer, struct allocs_item item);

/* Takes a pointer out; bytes 0 when it is not known. Of several threads that take the same one, one
 * gets it. */
struct allocs_item allocs_take(uint64_t pointer);

/* What is known of a pointer, without taking it out; false when nothing is. */
bool allocs_peek(uint64_t pointer, struct allocs_item *item);

/* Puts another kind in place of the one there is; false when the pointer is not known, or of
 * another kind than `from`. */
bool allocs_turn(uint64_t pointer, enum allocs_kind from, enum allocs_kind to);

/* Whether bytes of this kind are their context's own, and go with it. */
static inline bool allocs_with_context(unsigned kind)
{
    return kind == ALLOCS_OWNED || kind == ALLOCS_EXPORTED || kind == ALLOCS_PAGED;
}

/* What went with a context. */
struct allocs_gone {
    uint64_t bytes;
    uint64_t exported; /* part of them */
    uint64_t paged;
};

void allocs_add_gone(struct allocs_gone *gone, unsigned kind, uint64_t bytes);

/* Takes out all that goes with a context, and adds it to *gone. */
void allocs_take_owner(unsigned owner, struct allocs_gone *gone);

/* Whether an address lies inside an allocation. A few loads; more the further it lies behind its
 * allocation's start, and at most 4,096. False when there was no room to remember it. */
bool allocs_inside(uint64_t address);

/* Forgets everything: for a process that attaches. */
void allocs_reset(void);

#endif
