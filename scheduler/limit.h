/*
 * limit: the ceiling on a tenant's occupancy. Arithmetic over words of its record, like policy:
 * whoever charges a turn books it here, whoever decides asks. limit.c tells how it works.
 */
#ifndef CUSLICE_SCHEDULER_LIMIT_H
#define CUSLICE_SCHEDULER_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "cuslice/segment.h"

/* A limit of 100 %, which is none. */
#define LIMIT_NONE 1000000u
/* The lowest there is, 1 %. */
#define LIMIT_LEAST 10000u

/* The tenant's ceiling in millionths of the time; 0: it has none. */
uint32_t limit_of(const struct cuslice_tenant *tenant);

/* Until when its limit holds the tenant back; 0: it may have a turn now. */
uint64_t limit_until(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t now);

/* When a holder that has been charged up to `from`, and uses the GPU since, will have used up its
 * tenant's budget; CLOCK_NEVER without a limit. */
uint64_t limit_end(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t from);

/* Books `ns` of use that ended at `now`. NULL is nobody's. */
void limit_spend(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t ns,
                 uint64_t now);

/* The tenant begins to wait after a rest: what it saved meanwhile shrinks to one start. */
void limit_rest(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t now);

/* Strikes out of `set` the slots that their tenants' limits hold back. */
void limit_strike(struct cuslice_segment *shared, uint64_t set[CUSLICE_SLOT_WORDS], uint64_t now);

/* Whether there is a slot in `set` that they do not hold back. */
bool limit_spares(struct cuslice_segment *shared, const uint64_t set[CUSLICE_SLOT_WORDS],
                  uint64_t now);

#endif
