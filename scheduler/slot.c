/*
 * slot: join, leave, reap (see slot.h). Runs in attach, in the keeper, and in a thread that waits
 * at the gate or was refused memory. Every lock here is taken through a description opened for this
 * one occasion, so that two threads of one process exclude each other too, and so that a program
 * which closed or reused our descriptors cannot make us lock a stranger's file.
 */
#include "slot.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "class.h"
#include "clock.h"
#include "config.h"
#include "ledger.h"
#include "limit.h"
#include "log.h"
#include "mapfile.h"
#include "policy.h"
#include "ring.h"
#include "waiters.h"
#include "watch.h"

/* A turn is revoked so soon after it could be, even where CPUs are busy. */
#define SLOT_REVOKED_NS (100 * CLOCK_MS)

static bool slot_bit(const _Atomic(uint64_t) *set, unsigned slot)
{
    return atomic_load(&set[slot / 64]) >> (slot % 64) & 1;
}

static void slot_set(_Atomic(uint64_t) *set, unsigned slot)
{
    atomic_fetch_or(&set[slot / 64], UINT64_C(1) << (slot % 64));
}

static void slot_unset(_Atomic(uint64_t) *set, unsigned slot)
{
    atomic_fetch_and(&set[slot / 64], ~(UINT64_C(1) << (slot % 64)));
}

/* Since when, at the earliest after `from`, another client has waited; `now` when none does. */
static uint64_t slot_wanted_since(struct cuslice_segment *shared, unsigned slot, uint64_t from,
                                  uint64_t now)
{
    uint64_t others[CUSLICE_SLOT_WORDS], first = now;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        others[w] = atomic_load(&shared->waiting[w]);
    others[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    limit_strike(shared, others, now);
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        uint64_t since = atomic_load(&shared->slot[i].waiting_since_ns);
        if ((others[i / 64] >> (i % 64) & 1) && since && since < first)
            first = since;
    }
    return first > from ? first : from;
}

/* What a turn from `from` to `now` is charged. Who waits revokes a turn that takes too long; one
 * that took longer than that was nobody's doing: all were frozen, say. Then it was a slice. */
static uint64_t slot_used(struct cuslice_segment *shared, unsigned slot, uint64_t from,
                          uint64_t now)
{
    uint64_t slice = segment_quantum(shared), longest = slice + segment_allowance(shared);
    longest += WATCH_GRACE_NS + SLOT_REVOKED_NS;
    if (now - from <= longest)
        return now - from;
    uint64_t since = slot_wanted_since(shared, slot, from, now);
    return now - since <= longest ? now - from : since - from + slice;
}

uint64_t slot_bill(struct cuslice_segment *shared, unsigned slot, uint64_t epoch, uint64_t now)
{
    struct cuslice_slot *s = &shared->slot[slot];
    uint64_t from = atomic_load(&s->grant_ns), to = atomic_load(&s->charged_to_ns);
    if (atomic_load(&s->grant_epoch) != epoch)
        return 0;
    if (to > now && to - now > CLOCK_S) /* damage, which would make every turn free */
        atomic_compare_exchange_strong(&s->charged_to_ns, &to, now);
    from = to > from ? to : from;
    if (from >= now || !atomic_compare_exchange_strong(&s->charged_to_ns, &to, now))
        return 0;
    uint64_t used = slot_used(shared, slot, from, now);
    slot_count(shared, slot, granted_ns, used);
    slot_count(shared, slot, charged_ns, used);
    atomic_fetch_add_explicit(&shared->busy_ns, used, memory_order_relaxed);
    policy_charge(tenant_of(shared, slot), used);
    limit_spend(shared, tenant_of(shared, slot), used, now);
    return used;
}

void slot_charge(struct cuslice_segment *shared, unsigned slot, uint64_t epoch, uint64_t now)
{
    struct waiters waiters;
    uint64_t used = slot_bill(shared, slot, epoch, now);
    if (used == 0)
        return;
    waiters_look(&waiters, shared, now);
    class_spend(&waiters, slot, epoch, used);
}

/* Word by word, since a revoker may be adding to them. */
static void slot_clear_books(struct cuslice_books *books)
{
    _Atomic(uint64_t) *word = (_Atomic(uint64_t) *)books;
    for (size_t i = 0; i < sizeof *books / sizeof *word; i++)
        atomic_store_explicit(&word[i], 0, memory_order_relaxed);
}

/* The order matters: the token first, since others wait for it; the books of a dead holder while
 * its tenant is still known; then the mark that the slot is in use, so that a reaper's death leaves
 * it to be found again; and behind that the word by which its guards find it. The caller holds the
 * slot's byte. */
static void slot_clear(struct cuslice_segment *shared, unsigned slot)
{
    struct cuslice_slot *s = &shared->slot[slot];
    uint64_t now = clock_now();
    slot_unset(shared->waiting, slot);
    ring_evict(shared, slot, now);
    if (slot_bytes(s))
        atomic_store(&shared->last_death_ns, now);
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    uint64_t exported = atomic_exchange(&s->exported, 0);
    tenant_leave(shared, atomic_load(&s->tenant), slot, now);
    atomic_store(&s->imported, 0);
    if (tenant)
        ledger_orphan(shared, tenant, exported);
    atomic_store(&s->bytes, 0);
    atomic_store(&s->pending, 0);
    atomic_store(&s->context_bytes, 0);
    atomic_store(&s->paged, 0);
    atomic_store(&s->slice_ns, 0);
    atomic_store(&s->changes, 0);
    if (atomic_load(&s->joined_ns))
        atomic_store(&shared->last_left_ns, now);
    atomic_store(&s->tenant, CUSLICE_TENANTS);
    atomic_store(&s->waiting_since_ns, 0);
    atomic_store(&s->joined_ns, 0);
    slot_clear_books(&s->books);
    atomic_fetch_add(&s->generation, 1);
    slot_unset(shared->attached, slot);
    atomic_store(&s->guard_ns, 0);
    atomic_store(&s->death, 0);
}

int slot_dead(const struct segment *segment, unsigned slot)
{
    if (segment->private_copy || !slot_bit(segment->shared->attached, slot))
        return 0;
    int fd = segment_reopen(segment);
    if (fd < 0)
        return fd;
    int locked = mapfile_locked(fd, CUSLICE_LOCK_SLOT(slot));
    close(fd);
    return locked < 0 ? locked : !locked;
}

int slot_reap(struct segment *segment, unsigned slot)
{
    if (segment->private_copy)
        return -EAGAIN;
    int fd = segment_reopen(segment);
    if (fd < 0)
        return fd;
    int rc = mapfile_lock(fd, CUSLICE_LOCK_SLOT(slot));
    if (rc == 0) {
        if (slot_bit(segment->shared->attached, slot)) { /* else another reaper was faster */
            slot_clear(segment->shared, slot);
            atomic_fetch_add_explicit(&segment->shared->reaped, 1, memory_order_relaxed);
        }
        /* Closing is not enough if another thread forks just now: the child has the descriptor. */
        mapfile_unlock(fd, CUSLICE_LOCK_SLOT(slot));
    }
    close(fd);
    return rc;
}

unsigned slot_reap_set(struct segment *segment, const _Atomic(uint64_t) set[CUSLICE_SLOT_WORDS],
                       unsigned except)
{
    unsigned reaped = 0;
    int fd = segment->private_copy ? -1 : segment_reopen(segment);
    if (fd < 0)
        return 0;
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        if (i != except && slot_bit(set, i) && slot_bit(segment->shared->attached, i) &&
            mapfile_locked(fd, CUSLICE_LOCK_SLOT(i)) == 0 && slot_reap(segment, i) == 0)
            reaped++;
    close(fd);
    return reaped;
}

/* First the slots that look free, then all: a dead client's looks taken. */
static int slot_seize(struct segment *segment)
{
    if (segment->private_copy)
        return 0;
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
            if ((pass || !slot_bit(segment->shared->attached, i)) &&
                mapfile_lock(segment->fd, CUSLICE_LOCK_SLOT(i)) == 0)
                return (int)i;
    return -ENOSPC;
}

static void slot_command(char *text, size_t size)
{
    FILE *file = fopen("/proc/self/comm", "re");
    memset(text, 0, size);
    if (!file)
        return;
    if (fgets(text, (int)size, file))
        text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

static void slot_describe(struct cuslice_slot *s, const struct tenant_spec *spec, uint64_t now)
{
    int32_t pid = getpid();
    uint64_t space = tenant_pid_namespace();
    atomic_store(&s->pid, pid);
    atomic_store(&s->pid_namespace, space);
    atomic_store(&s->host_pid, tenant_on_host(space) ? pid : 0);
    atomic_store(&s->mode, spec->mode);
    atomic_store(&s->closing_ns, 0);
    atomic_store(&s->due_ns, 0);
    atomic_store(&s->looking, 0);
    atomic_store(&s->idle_since_ns, 0);
    atomic_store(&s->last_grant_ns, 0);
    atomic_store(&s->peak, 0);
    slot_command(s->command, sizeof s->command);
    atomic_store(&s->joined_ns, now);
}

/* The slot names its tenant before it is entered there: a joiner that dies in between is struck off
 * by its reaper. */
static int slot_enter(struct segment *segment, unsigned slot, const struct tenant_spec *spec)
{
    struct cuslice_segment *shared = segment->shared;
    uint64_t now = clock_now();
    int tenant = tenant_claim(segment, spec, now);
    if (tenant < 0)
        return tenant;
    slot_set(shared->attached, slot);
    slot_reap_set(segment, shared->tenant[tenant].members, slot);
    slot_describe(&shared->slot[slot], spec, now);
    atomic_store_explicit(&shared->slot[slot].tenant, (unsigned)tenant, memory_order_release);
    tenant_enter(shared, (unsigned)tenant, slot, spec);
    return 0;
}

int slot_join(struct segment *segment, const struct tenant_spec *spec)
{
    int slot = slot_seize(segment);
    if (slot < 0)
        return slot;
    slot_clear(segment->shared, (unsigned)slot);
    int rc = tenant_lock(segment, spec);
    if (rc == 0) {
        rc = slot_enter(segment, (unsigned)slot, spec);
        tenant_unlock(segment, spec);
    }
    if (rc < 0) {
        if (!segment->private_copy)
            mapfile_unlock(segment->fd, CUSLICE_LOCK_SLOT(slot));
        return rc;
    }
    if (segment->fd >= 0)
        close(segment->fd);
    segment->fd = -1;
    return slot;
}

void slot_leave(struct segment *segment, unsigned slot)
{
    slot_clear(segment->shared, slot);
}
