/*
 * ledger: bytes of device memory that the clients of a ring have been granted, and the two caps
 * over them: the process's own, and the tenant's over the sum of its clients. Both hold at every
 * instant however many threads and processes race. Any thread; blocks only while two requests that
 * do not both fit are being decided.
 */
#ifndef CUSLICE_SCHEDULER_LEDGER_H
#define CUSLICE_SCHEDULER_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring.h"

enum ledger_cap { LEDGER_TENANT, LEDGER_PROCESS };

/* Reserves bytes before the driver is asked. 0; -ENOMEM, with *which cap refused. errno is kept.
 * Every reservation that succeeded is given back once, by ledger_release, when the driver failed or
 * on free. */
int ledger_reserve(struct ring *ring, uint64_t bytes, enum ledger_cap *which);

/* Reserves without asking the caps (observe mode); 0, or -ENOMEM where a cap would have refused.
 * Given back by ledger_release in both cases. */
int ledger_force(struct ring *ring, uint64_t bytes, enum ledger_cap *which);

/* Gives bytes back: as many as one reservation took. */
static inline void ledger_release(struct ring *ring, uint64_t bytes);

/* Of what this client was granted, so much more (or less) may be open to other processes; of
 * theirs, so much is open here. Neither counts against a cap. `gone`: the exporter has let go of it
 * while others of its tenant may still have it; that is the tenant's orphaned figure, until they
 * let go. */
void ledger_exported(struct ring *ring, int64_t change, bool gone);
void ledger_imported(struct ring *ring, int64_t change);

/* Of what this client was granted, so much more (or less) may be paged out; and what may not. */
void ledger_paged(struct ring *ring, int64_t change);
uint64_t ledger_fixed(const struct ring *ring);

/* A client that had exported bytes is gone: its tenant's orphaned figure takes them over. Its slot
 * no longer counts as a member's. */
void ledger_orphan(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t bytes);

/* The tenant's orphaned bytes: never more than its clients have imported. */
uint64_t ledger_orphaned(const struct cuslice_segment *shared, struct cuslice_tenant *tenant);

/* What this client's contexts, modules and heaps cost: an estimate, counted like what was granted.
 */
void ledger_context(struct ring *ring, uint64_t bytes);

/* Bytes in use, contexts included: by this process; by its tenant, this process included. */
uint64_t ledger_process(const struct ring *ring);
uint64_t ledger_tenant(const struct ring *ring);

/* The tenant's cap as it stands now, in bytes; CUSLICE_NO_LIMIT. */
uint64_t ledger_limit(const struct ring *ring);

/* What a program may believe about its device of `total` bytes, `free` of them free: cap and what
 * is left under it. */
void ledger_mask(const struct ring *ring, uint64_t *free, uint64_t *total);

/* For ledger_release: so much more was given back than was there. */
void ledger_mend(struct ring *ring, uint64_t missing);

/* The most that one process can have, more than any device has. A larger request is refused before
 * it can wrap a sum. */
#define LEDGER_MOST (UINT64_C(1) << (CUSLICE_BYTES_BITS - 1))

static inline void ledger_release(struct ring *ring, uint64_t bytes)
{
    if (__builtin_expect(bytes > LEDGER_MOST, 0)) /* ledger_force did not book it */
        return;
    uint64_t granted = CUSLICE_BYTES_GRANTED(atomic_fetch_sub(&ring_me(ring)->bytes, bytes));
    if (__builtin_expect(granted < bytes, 0))
        ledger_mend(ring, bytes - granted);
}

/* The tenant's largest holders, as "COMMAND[PID] BYTES, ..." for a message. */
void ledger_holders(const struct ring *ring, char *text, size_t size);

#endif
