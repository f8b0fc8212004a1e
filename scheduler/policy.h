/*
 * policy: who goes next, and what a turn costs. Pure arithmetic over a segment's words: no clock,
 * no waiting, no wake-ups, so that it can be tested to the last unit. Any client may ask; the
 * answer is only a proposal until the token word has been exchanged.
 *
 * A tenant's virtual time is its charged time divided by its weight (100 = one to one). The waiting
 * tenant with the least goes next; ties go in ring order after the last holder. Within a tenant the
 * client whose last turn is longest ago goes. Charging what a turn really took is what pays debts
 * back: whoever used more has more virtual time and is passed over until the others have caught up.
 *
 * Two things keep a tenant from competing at all: its limit (limit.h), and a higher class that
 * waits (class.h).
 */
#ifndef CUSLICE_SCHEDULER_POLICY_H
#define CUSLICE_SCHEDULER_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "waiters.h"

/* Who goes next of those who wait and may: neither held back by a limit nor, unless its turn is
 * due, by a higher class. `last` is who had the turn that ends, and wants another if it is among
 * them; it gets that only when it is clearly behind the others, by a quarter of a slice.
 * CUSLICE_NOBODY when there is nobody. *below: whether that turn was, and the next one is, one that
 * a lower class gets although a higher one waits. Moves the ring's virtual clock on, and strikes
 * `last` from the waiters. */
unsigned policy_next(struct waiters *waiters, unsigned last, bool *below);

/* Who of those in `waiting` is likely to be next after `last`, which has the turn and is not among
 * them. Changes nothing. */
unsigned policy_expect(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                       unsigned last, uint64_t now);

/* Adds `ns` of use to a tenant's virtual time; NULL is nobody's. */
void policy_charge(struct cuslice_tenant *tenant, uint64_t ns);

/* How far the tenant of `slot` is behind the others that wait, in virtual time: what it is owed as
 * it lets go. */
uint64_t policy_owed(const struct waiters *waiters, unsigned slot);

/* Lifts a tenant that begins to wait to where the ring is, less one quantum: a sleeper earns no
 * more credit than that, but one that has been away for a moment only keeps what it is `owed`.
 * `holder` holds the token since `held_ns` nanoseconds (CUSLICE_NOBODY: free). */
void policy_lift(struct cuslice_segment *shared, unsigned slot,
                 const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns,
                 uint64_t owed, uint64_t now);

/* The same for one that its limit has held back until now, although it waited. */
void policy_return(struct cuslice_segment *shared, unsigned slot,
                   const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns,
                   uint64_t now);

/* Moves the ring's virtual clock up to the least virtual time of `holder` and of those waiting who
 * compete; keeps the others within a quantum of it, since who is held back earns no more than a
 * sleeper; pulls back times that only a damaged file can hold. */
void policy_advance(struct waiters *waiters, unsigned holder);

#endif
