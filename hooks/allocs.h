/*
 * allocs: which device pointers this process holds, how large they are, and on which device. The
 * cost does not grow with their number. Any thread.
 */
#ifndef CUSLICE_HOOKS_ALLOCS_H
#define CUSLICE_HOOKS_ALLOCS_H

#include <stdbool.h>
#include <stdint.h>

/* Enters a pointer; false when there is no memory for it. */
bool allocs_put(uint64_t pointer, uint64_t bytes, unsigned gate);

/* Takes a pointer out; false when it is not known. */
bool allocs_take(uint64_t pointer, uint64_t *bytes, unsigned *gate);

/* Forgets everything: for a forked child that attaches anew. */
void allocs_reset(void);

#endif
