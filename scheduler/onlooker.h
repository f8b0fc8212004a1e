/*
 * onlooker: a ring and one tenant in it as somebody sees them who joins nothing: for a process that
 * asks about memory and never uses it. Opened for one question and closed again. What it maps is a
 * private copy, so whatever is done with it stays in this process.
 */
#ifndef CUSLICE_SCHEDULER_ONLOOKER_H
#define CUSLICE_SCHEDULER_ONLOOKER_H

#include "ring.h"

struct onlooker {
    /* Of no client (slot CUSLICE_SLOTS); its tenant is CUSLICE_TENANTS where there is no record. */
    struct ring ring;
};

/* Reads the GPU's ring, and in it the tenant of this key (NULL: of none); members that died are
 * struck off. 0; -ENOENT without such a file; -errno or -EPROTO for one that is no ring of this GPU
 * and layout. Says nothing, makes nothing, takes no lock. Blocking (file system). */
int onlooker_open(struct onlooker *onlooker, const char *directory, const uint8_t uuid[16],
                  const char *key);

/* The tenant's record, NULL without one. Lives until onlooker_close. */
struct cuslice_tenant *onlooker_tenant(const struct onlooker *onlooker);

void onlooker_close(struct onlooker *onlooker);

/* The slot of the living client of the ring's tenant that has this process id in the host's
 * namespace, or CUSLICE_SLOTS. Also on the ring of a client. */
unsigned onlooker_find(const struct ring *ring, uint32_t host_pid);

#endif
