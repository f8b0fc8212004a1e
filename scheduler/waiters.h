/*
 * waiters: those who wait, by tenant: what decides about their turns, read once. A copy on the
 * reader's stack, at most one entry for each of the tenants, from which policy and class choose
 * without going back to the shared file for each client.
 */
#ifndef CUSLICE_SCHEDULER_WAITERS_H
#define CUSLICE_SCHEDULER_WAITERS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuslice/segment.h"

/* A tenant that waits. */
struct waiters_tenant {
    struct cuslice_tenant *record; /* NULL: the slots that name no tenant, all of them together */
    uint64_t slots[CUSLICE_SLOT_WORDS]; /* its clients that wait */
    uint64_t vtime;                     /* UINT64_MAX without a record */
    unsigned class;
    bool able; /* its limit does not hold it back */
};

struct waiters {
    struct cuslice_segment *shared;
    uint64_t now;     /* when that was */
    unsigned highest; /* class of those able; below `lowest` when there is nobody */
    unsigned lowest;
    unsigned count;
    struct waiters_tenant tenant[CUSLICE_TENANTS + 1]; /* in the order of their first slots */
};

#define WAITERS_EACH(waiters, t) \
    for (__typeof__(&(waiters)->tenant[0]) t = (waiters)->tenant, t##_end = t + (waiters)->count; \
         t < t##_end; t++)

/* Reads what the clients in `set` are about, as of `now`. */
void waiters_gather(struct waiters *waiters, struct cuslice_segment *shared,
                    const uint64_t set[CUSLICE_SLOT_WORDS], uint64_t now);

/* The same of all who wait in the ring now. */
void waiters_look(struct waiters *waiters, struct cuslice_segment *shared, uint64_t now);

/* The tenant for which `slot` waits; NULL when it does not. */
struct waiters_tenant *waiters_find(struct waiters *waiters, unsigned slot);

/* Takes out a client of it. */
void waiters_strike(struct waiters_tenant *tenant, unsigned slot);

/* Whether a tenant competes for the next turn by its charged time; whether it only may have one of
 * those that the lower classes get. */
static inline bool waiters_competes(const struct waiters *waiters, const struct waiters_tenant *t)
{
    return t->able && t->class == waiters->highest;
}

static inline bool waiters_outranked(const struct waiters *waiters, const struct waiters_tenant *t)
{
    return t->able && t->class < waiters->highest;
}

#endif
