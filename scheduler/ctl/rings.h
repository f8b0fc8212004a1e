/* The rings of a directory that a command changes: chosen by --gpu, opened for writing one by one.
 * One thread. */
#ifndef CUSLICE_CTL_RINGS_H
#define CUSLICE_CTL_RINGS_H

#include "admin.h"
#include "status.h"

struct rings {
    const char *directory;
    struct status_names names;
    unsigned first, end; /* the chosen ones, by their place in names */
};

/* Lists the directory and chooses: gpu is NULL or "all", a ring's place as `cuslice status` lists
 * them, or the beginning of one UUID. CTL_OK, or CTL_FAILED or CTL_USAGE, said. */
int rings_choose(struct rings *rings, const char *command, const char *directory, const char *gpu);

/* Opens the i-th for writing and takes a snapshot of it; CTL_OK, or CTL_FAILED, said.
 * segment_close(segment) ends it. */
int rings_open(const struct rings *rings, unsigned i, struct segment *segment,
               struct status_ring *snapshot);

#endif
