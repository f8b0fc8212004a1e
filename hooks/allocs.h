/*
 * allocs: which device pointers this process holds, how large they are, and on which device. The
 * cost does not grow with their number. Any thread.
 */
#ifndef CUSLICE_HOOKS_ALLOCS_H
#define CUSLICE_HOOKS_ALLOCS_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of an allocation. */
struct allocs_item {
    uint64_t bytes;
    unsigned gate;
    unsigned owner; /* number of the context it goes with; ALLOCS_NOBODY */
};

#define ALLOCS_NOBODY 255u

/* Enters a pointer; false when there is no memory for it. *before is what the table said of the
 * same pointer so far (bytes 0: nothing): its free was not seen. */
bool allocs_put(uint64_t pointer, struct allocs_item item, struct allocs_item *before);

/* Takes a pointer out; false when it is not known. */
bool allocs_take(uint64_t pointer, struct allocs_item *item);

/* Takes out all that goes with a context; their bytes. */
uint64_t allocs_take_owner(unsigned owner);

/* Whether an address lies inside an allocation, or in the same 2 MiB as one: the driver gives such
 * a piece of the address space to the device alone. No lock, two loads; false when there was no
 * room for the map. */
bool allocs_inside(uint64_t address);

/* Forgets everything: for a process that attaches. */
void allocs_reset(void);

#endif
