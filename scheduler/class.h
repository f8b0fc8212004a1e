/*
 * class: high, normal and low tenants. Arithmetic over a segment's words, like policy: who may
 * compete for the next turn, and when a turn has to end because of another class. class.c tells how
 * it works.
 */
#ifndef CUSLICE_SCHEDULER_CLASS_H
#define CUSLICE_SCHEDULER_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#include "waiters.h"

/* How long a turn of a lower class is while a higher one waits, but for its drain and what long
 * kernels of the higher one have made it. */
#define CLASS_TURN_NS UINT64_C(500000)

/* A tenant's class, CUSLICE_LOW to CUSLICE_HIGH; that of nobody is CUSLICE_NORMAL. */
unsigned class_of(const struct cuslice_tenant *tenant);

/* Whether the class of `slot` is higher than that of `other`. */
bool class_outranks(struct cuslice_segment *shared, unsigned slot, unsigned other);

/* Whether the turn of that epoch was given to a lower class although a higher one waited. */
bool class_below(const struct cuslice_segment *shared, uint64_t epoch);

/* Whether a higher class than that of `slot` waits. */
bool class_outranked(const struct waiters *waiters, unsigned slot);

/* Whether the next turn is one of the lower classes, at the end of a turn of `last` (or of a part
 * of it: if that was a turn of a lower class itself, `below`, whether it may go on). */
bool class_due(struct waiters *waiters, unsigned last, bool below);

/* When the turn of `slot` and `epoch`, granted at `granted` and charged up to `from`, has to end
 * because tenants of another class wait; CLOCK_NEVER when it need not, a time past when it should
 * have. */
uint64_t class_end(const struct waiters *waiters, unsigned slot, uint64_t epoch, uint64_t granted,
                   uint64_t from);

/* Books `ns` that `slot` used in the turn of `epoch`, while those waited. */
void class_spend(const struct waiters *waiters, unsigned slot, uint64_t epoch, uint64_t ns);

#endif
