/*
 * handles: what the books know of things that are no plain pointers: arrays, physical memory,
 * mappings, pools, graphs. A hash table; the cost does not grow with their number. Any thread.
 */
#ifndef CUSLICE_HOOKS_HANDLES_H
#define CUSLICE_HOOKS_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

#include "allocs.h"

/* What a handle is of; handles of different kinds may have the same value. */
enum handles_kind {
    HANDLES_POINTER, /* a device pointer that allocs.c cannot hold */
    HANDLES_ARRAY,   /* arrays and mipmapped arrays */
    HANDLES_MEMORY,  /* a handle of cuMemCreate, retained or imported */
    HANDLES_MAPPING, /* where physical memory is mapped */
    HANDLES_TILED,   /* an array that physical memory is mapped to */
    HANDLES_GRAPH,   /* an executable graph that allocates */
    HANDLES_POOL,
    HANDLES_EXTERNAL, /* imported external memory */
};

struct handles_item {
    uint64_t bytes;
    void *object; /* of the caller's; not owned */
    unsigned gate;
    unsigned owner; /* number of the context it goes with; ALLOCS_NOBODY; of a pool's: the pool's */
    unsigned kind;  /* of a pointer: enum allocs_kind */
};

/* Enters; false when there is no memory for it. An item of the same handle is replaced, and goes to
 * *before (bytes 0 and object NULL: there was none). */
bool handles_put(enum handles_kind kind, uint64_t handle, struct handles_item item,
                 struct handles_item *before);

/* Takes out, or only looks; false when the handle is not known. */
bool handles_take(enum handles_kind kind, uint64_t handle, struct handles_item *item);
bool handles_peek(enum handles_kind kind, uint64_t handle, struct handles_item *item);

/* Takes out all pointers and arrays that go with a context, and adds them to *gone. */
void handles_take_owner(unsigned owner, struct allocs_gone *gone);

/* Takes out one item of this kind that goes with a context; false when there is none. */
bool handles_take_of(enum handles_kind kind, unsigned owner, struct handles_item *item);

/* How many there are of all kinds; a plain load, so that who has none pays nothing. */
unsigned handles_count(void);

/* Forgets everything: for a process that attaches. */
void handles_reset(void);

#endif
