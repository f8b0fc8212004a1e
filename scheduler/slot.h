/*
 * slot: a client's place in a ring: taking it, leaving it, telling the dead from the living, and
 * clearing up after the dead. Owns the rule that a slot belongs to whoever holds the lock on its
 * byte.
 */
#ifndef CUSLICE_SCHEDULER_SLOT_H
#define CUSLICE_SCHEDULER_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "segment.h"
#include "tenant.h"

/* What a client has been granted, in bytes. */
static inline uint64_t slot_bytes(const struct cuslice_slot *slot)
{
    return CUSLICE_BYTES_GRANTED(atomic_load(&slot->bytes));
}

/* Takes a free (or a dead client's) slot for this process and enters it in its tenant. Returns the
 * index, or -ENOSPC: every slot is held by somebody alive, or every tenant record is. The segment's
 * descriptor is closed: from here on the mapping alone keeps the lock. */
int slot_join(struct segment *segment, const struct tenant_spec *spec);

/* Clears this process's slot. The lock itself ends with the mapping. */
void slot_leave(struct segment *segment, unsigned slot);

/* 1: the slot is in use and its owner is gone. 0: its owner lives, or nobody used it. -errno. */
int slot_dead(const struct segment *segment, unsigned slot);

/* Clears a dead client's slot: 0; -EAGAIN: its owner lives; -errno. Moves the token on if the dead
 * one held it. May be called by any client at any time; a reaper that dies half-way is followed by
 * another, which does all of it again. */
int slot_reap(struct segment *segment, unsigned slot);

/* Reaps the dead among the slots in `set`; how many. */
unsigned slot_reap_set(struct segment *segment, const _Atomic(uint64_t) set[CUSLICE_SLOT_WORDS],
                       unsigned except);

/* Charges the holder `slot` up to `now` for the turn of `epoch`: to its books, against its tenant's
 * share and limit, and to the account of the classes. By the holder itself, or by who takes the
 * token off it. slot_bill leaves the classes to its caller (class_spend) and returns for how long.
 */
uint64_t slot_bill(struct cuslice_segment *shared, unsigned slot, uint64_t epoch, uint64_t now);
void slot_charge(struct cuslice_segment *shared, unsigned slot, uint64_t epoch, uint64_t now);

/* Adds to a counter of the client and to the same one of its tenant. */
#define slot_count(shared, slot_index, field, amount) \
    do { \
        struct cuslice_tenant *tenant_ = tenant_of(shared, slot_index); \
        uint64_t amount_ = (amount); \
        atomic_fetch_add_explicit(&(shared)->slot[slot_index].books.field, amount_, \
                                  memory_order_relaxed); \
        if (tenant_) \
            atomic_fetch_add_explicit(&tenant_->books.field, amount_, memory_order_relaxed); \
    } while (0)

#endif
