/*
 * ledger: reserve, then allocate (see ledger.h).
 *
 * A client's slot says what it has been granted, and what it has announced and not decided. A
 * reservation is, all of it sequentially consistent,
 *
 *   L1 announce   L2 sum announced + granted over the tenant's slots
 *   L3 fits: grant, and no longer announce    L4 does not: no longer announce
 *
 * Of two that race, at least one sees the other's L1 in its L2, so both pass only if both fit.
 * Small requests are announced in the upper bits of the word that says what is granted, in steps of
 * 512 bytes: one addition is all of L3. Larger ones, and those that may not fit, are announced to
 * the byte in a second word, `pending`. A reader takes that one first: L3 moves a figure the other
 * way, so it may be seen twice and never not at all.
 *
 * A client that has the tenant for itself and plenty of room under both caps needs no announcement
 * for a small request:
 *
 *   R1 grant   R2 look whether it is alone still, and what room there was
 *
 * It grants what it finds in R2 not to be its own to grant only if more than LEDGER_ROOM went since
 * the last look, or somebody entered the tenant between the two; then it takes R1 back and begins
 * at L1. Who enters does so before its own L1: either R2 sees it, or its L2 sees R1. A request of
 * such a newcomer at that very instant may be refused for what is taken back.
 *
 * That an announcement was seen does not mean that it will be granted. So a sum that is too high is
 * a refusal only when the granted bytes alone leave no room; else somebody announced at the same
 * time. Then the lowest slot keeps its announcement up and sums again; the others withdraw,
 * announce nothing while a lower one does, and try again, so what fits is not refused. Threads of
 * one process do this one at a time. Bytes that one client gives back and another takes while they
 * are being summed may be counted twice: a refusal needs two sums in a row that agree slot by slot.
 *
 * A client that dies, at any step, leaves its two words to be cleared by whoever reaps its slot;
 * the sum over live slots needs no other repair. One that is stopped with an announcement up counts
 * as if it had been granted, once the wait for it has ended.
 */
#include "ledger.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "slot.h"

/* The largest request that is announced in steps. So many at once that the bits for them run over
 * would be 16,384 threads of a process between two instructions. */
#define LEDGER_SMALL (UINT64_C(32) << 10)
#define LEDGER_STEP (UINT64_C(1) << CUSLICE_BYTES_STEP_BITS)
/* Plenty of room: more than 2,000 threads can ask for at once in small requests. */
#define LEDGER_ROOM (UINT64_C(64) << 20)
/* How long an announcement of somebody who does not move is waited for. */
#define LEDGER_PATIENCE_NS (250 * CLOCK_MS)
/* How often two sums are compared before others are taken to be at work. */
#define LEDGER_LOOKS 8
/* How many holders a message names. */
#define LEDGER_HOLDERS 8

/* What one look at the tenant's slots found. */
struct ledger_sum {
    uint64_t granted;
    uint64_t announced;
    uint64_t print;      /* of each slot's granted bytes; equal prints, equal words */
    uint64_t mine;       /* granted to this process */
    uint64_t mine_asked; /* announced by this process */
    bool lower;          /* a lower slot has an announcement up */
};

static uint64_t ledger_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* A bit among the members may be a damaged file's: the slot must say the same. */
static void ledger_see(const struct ring *ring, unsigned slot, struct ledger_sum *sum)
{
    const struct cuslice_slot *s = &ring_shared(ring)->slot[slot];
    if (slot != ring->slot && atomic_load(&s->tenant) != ring->tenant)
        return;
    uint64_t pending = atomic_load(&s->pending), word = atomic_load(&s->bytes);
    uint64_t bytes = ledger_add(CUSLICE_BYTES_GRANTED(word), atomic_load(&s->context_bytes));
    pending = ledger_add(pending, CUSLICE_BYTES_ANNOUNCED(word));
    sum->print = (sum->print ^ bytes) * UINT64_C(0x9e3779b97f4a7c15) + slot;
    sum->announced = ledger_add(sum->announced, pending);
    sum->granted = ledger_add(sum->granted, bytes);
    if (slot == ring->slot) {
        sum->mine = bytes;
        sum->mine_asked = pending;
    } else if (slot < ring->slot && pending) {
        sum->lower = true;
    }
}

static struct ledger_sum ledger_look(const struct ring *ring)
{
    struct ledger_sum sum = {0};
    struct cuslice_tenant *tenant = ring_tenant(ring);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++) {
        uint64_t left = atomic_load(&tenant->members[w]);
        if (w == ring->slot / 64)
            left |= UINT64_C(1) << (ring->slot % 64);
        for (; left; left &= left - 1)
            ledger_see(ring, w * 64 + (unsigned)__builtin_ctzll(left), &sum);
    }
    return sum;
}

uint64_t ledger_limit(const struct ring *ring)
{
    return atomic_load_explicit(&ring_tenant(ring)->mem_limit, memory_order_relaxed);
}

static __attribute__((noinline)) void ledger_raise(_Atomic(uint64_t) *word, uint64_t value)
{
    uint64_t old = atomic_load(word);
    while (old < value && !atomic_compare_exchange_weak(word, &old, value))
        ;
}

static inline void ledger_peak(_Atomic(uint64_t) *word, uint64_t value)
{
    if (__builtin_expect(atomic_load_explicit(word, memory_order_relaxed) < value, 0))
        ledger_raise(word, value);
}

/* L3 of what was announced in `pending`. `sum`: what the tenant then has. */
static void ledger_grant(struct ring *ring, uint64_t bytes, uint64_t sum)
{
    struct cuslice_slot *me = ring_me(ring);
    uint64_t mine = CUSLICE_BYTES_GRANTED(atomic_fetch_add(&me->bytes, bytes)) + bytes;
    atomic_fetch_sub(&me->pending, bytes);
    ledger_peak(&me->peak, mine);
    ledger_peak(&ring_tenant(ring)->mem_peak, sum);
}

/* The process's cap; what its word can say, where that is less. */
static inline uint64_t ledger_process_limit(const struct ring *ring,
                                            const struct cuslice_tenant *tenant)
{
    uint64_t limit = tenant_process_limit(tenant, ring->process_limit);
    return limit < LEDGER_MOST ? limit : LEDGER_MOST;
}

/* Whether the granted bytes alone refuse: nothing to wait for then. */
static bool ledger_full(const struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    struct ledger_sum before = ledger_look(ring), sum;
    *which = LEDGER_PROCESS;
    if (ledger_add(before.mine, bytes) > ledger_process_limit(ring, ring_tenant(ring)))
        return true;
    *which = LEDGER_TENANT;
    for (unsigned looks = 0; looks < LEDGER_LOOKS; looks++) {
        if (ledger_add(before.granted, bytes) <= ledger_limit(ring))
            return false;
        sum = ledger_look(ring);
        if (sum.print == before.print)
            return true;
        before = sum;
    }
    return false;
}

/* With the announcement up: whether everything announced fits too. */
static bool ledger_fits(const struct ring *ring, const struct ledger_sum *sum)
{
    return ledger_add(sum->granted, sum->announced) <= ledger_limit(ring) &&
           ledger_add(sum->mine, sum->mine_asked) <= ledger_process_limit(ring, ring_tenant(ring));
}

/* The sums over all slots of a tenant, quickly: a damaged file may say that a slot is a member
 * which is not, or have words that wrap them. */
struct ledger_total {
    uint64_t words; /* of bytes */
    uint64_t contexts;
    uint64_t pending;
    unsigned members;
};

static inline struct ledger_total ledger_total(const struct cuslice_slot *slot,
                                               const struct cuslice_tenant *tenant)
{
    struct ledger_total total = {0};
#pragma GCC unroll 4
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++, slot += 64)
        for (uint64_t left = atomic_load(&tenant->members[w]); left; left &= left - 1) {
            const struct cuslice_slot *s = &slot[(unsigned)__builtin_ctzll(left)];
            total.members++;
            total.pending += atomic_load(&s->pending);
            total.words += atomic_load(&s->bytes);
            total.contexts += atomic_load(&s->context_bytes);
        }
    return total;
}

/* Whether a process's cap refuses. */
static inline bool ledger_beyond(const struct cuslice_slot *me, uint64_t limit)
{
    uint64_t pending = atomic_load(&me->pending),
             word = atomic_load(&me->bytes); /* in this order */
    return CUSLICE_BYTES_GRANTED(word) + CUSLICE_BYTES_ANNOUNCED(word) + pending +
               atomic_load(&me->context_bytes) >
           limit;
}

/* All of a reservation where everything that anybody has announced fits, which is most of the time;
 * false, and nothing done, where not. What all together have within a process's cap, that process
 * has. */
static inline __attribute__((always_inline)) bool ledger_quick(struct ring *ring, uint64_t bytes,
                                                               const bool small)
{
    struct cuslice_slot *me = ring_me(ring);
    struct cuslice_tenant *tenant = ring_tenant(ring);
    _Atomic(uint64_t) *announced = small ? &me->bytes : &me->pending;
    uint64_t limit = ledger_process_limit(ring, tenant);
    uint64_t step = (bytes + LEDGER_STEP - 1) / LEDGER_STEP << CUSLICE_BYTES_BITS;
    uint64_t up = small ? step : bytes, word = atomic_fetch_add(announced, up) + up; /* L1 */
    struct ledger_total total = ledger_total(ring_shared(ring)->slot, tenant);       /* L2 */
    uint64_t granted = CUSLICE_BYTES_GRANTED(total.words) + total.contexts;
    uint64_t all = granted + CUSLICE_BYTES_ANNOUNCED(total.words) + total.pending;
    if (!small)
        word = atomic_load(&me->bytes);
    if (__builtin_expect(all > atomic_load_explicit(&tenant->mem_limit, memory_order_relaxed) ||
                             (all > limit && ledger_beyond(me, limit)) ||
                             total.words < word, /* damaged: the slow way adds with care */
                         0)) {
        atomic_fetch_sub(announced, up); /* L4 */
        return false;
    }
    uint64_t change = small ? bytes - step : bytes;
    word = atomic_fetch_add(&me->bytes, change) + change; /* L3 */
    if (!small)
        atomic_fetch_sub(announced, up);
    ledger_peak(&me->peak, CUSLICE_BYTES_GRANTED(word));
    ledger_peak(&tenant->mem_peak, granted + bytes);
    bool roomy =
        total.members == 1 && all + 2 * LEDGER_ROOM <= limit &&
        all + 2 * LEDGER_ROOM <= atomic_load_explicit(&tenant->mem_limit, memory_order_relaxed);
    if (atomic_load_explicit(&ring->roomy, memory_order_relaxed) != roomy)
        atomic_store_explicit(&ring->roomy, roomy, memory_order_relaxed);
    return true;
}

static __attribute__((noinline)) bool ledger_quick_large(struct ring *ring, uint64_t bytes)
{
    return bytes <= LEDGER_MOST && ledger_quick(ring, bytes, false);
}

/* An announcement that does not fit beside all others: 0 all the same, -ENOMEM, or -EAGAIN when it
 * may be that others only announced at the same time. It is down afterwards. */
static int ledger_reconsider(struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    struct ledger_sum sum = ledger_look(ring);
    if (ledger_fits(ring, &sum)) {
        ledger_grant(ring, bytes, ledger_add(sum.granted, bytes));
        return 0;
    }
    atomic_fetch_sub(&ring_me(ring)->pending, bytes); /* L4 */
    return ledger_full(ring, bytes, which) ? -ENOMEM : -EAGAIN;
}

/* The announcement stays up while this slot is the lowest that has one. */
static int ledger_insist(struct ring *ring, uint64_t bytes, enum ledger_cap *which,
                         uint64_t deadline)
{
    struct ledger_sum sum = ledger_look(ring);
    bool full = ledger_full(ring, bytes, which);
    if (full || sum.lower)
        return full ? -ENOMEM : -EAGAIN;
    atomic_fetch_add(&ring_me(ring)->pending, bytes);
    do {
        sum = ledger_look(ring);
        if (ledger_fits(ring, &sum)) {
            ledger_grant(ring, bytes, ledger_add(sum.granted, bytes));
            return 0;
        }
        full = ledger_full(ring, bytes, which);
        if (!sum.lower && !full)
            sched_yield();
    } while (!sum.lower && !full && clock_now() < deadline);
    atomic_fetch_sub(&ring_me(ring)->pending, bytes);
    return full ? -ENOMEM : -EAGAIN;
}

static int ledger_collide(struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    uint64_t deadline = clock_after(LEDGER_PATIENCE_NS);
    int rc;
    lock_take(&ring->ledger_lock);
    do {
        rc = ledger_insist(ring, bytes, which, deadline);
        if (rc == -EAGAIN)
            sched_yield();
    } while (rc == -EAGAIN && clock_now() < deadline);
    lock_put(&ring->ledger_lock);
    return rc == -EAGAIN ? -ENOMEM : rc;
}

static int ledger_announce(struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    atomic_fetch_add(&ring_me(ring)->pending, bytes); /* L1 */
    int rc = ledger_reconsider(ring, bytes, which);
    return rc == -EAGAIN ? ledger_collide(ring, bytes, which) : rc;
}

/* Members who died lately may be all that stands in the way. */
static __attribute__((noinline)) int ledger_reserve_slow(struct ring *ring, uint64_t bytes,
                                                         enum ledger_cap *which)
{
    enum ledger_cap cap = LEDGER_TENANT;
    int error = errno, rc = ledger_announce(ring, bytes, &cap);
    if (rc == -ENOMEM && cap == LEDGER_TENANT &&
        slot_reap_set(&ring->segment, ring_tenant(ring)->members, ring->slot) > 0)
        rc = ledger_announce(ring, bytes, &cap);
    if (rc < 0)
        *which = cap;
    errno = error;
    return rc;
}

/* All but the shortest way. */
static __attribute__((noinline)) int ledger_reserve_any(struct ring *ring, uint64_t bytes,
                                                        enum ledger_cap *which)
{
    if (bytes <= LEDGER_SMALL ? ledger_quick(ring, bytes, true) : ledger_quick_large(ring, bytes))
        return 0;
    if (bytes <= LEDGER_MOST)
        return ledger_reserve_slow(ring, bytes, which);
    *which = bytes > ring_process_limit(ring) ? LEDGER_PROCESS : LEDGER_TENANT;
    return -ENOMEM;
}

/* ---- Alone, with plenty of room ---- */

static inline bool ledger_alone(const struct ring *ring, const struct cuslice_tenant *tenant)
{
    uint64_t mine = UINT64_C(1) << ring->slot % 64, others = 0;
    unsigned word = ring->slot / 64;
#pragma GCC unroll 4
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        others |= atomic_load(&tenant->members[w]) ^ (w == word ? mine : 0);
    return others == 0;
}

/* What R2 found was not as before: then it is as if R1 had been L1, or had not been. */
static __attribute__((noinline)) int ledger_not_alone(struct ring *ring, uint64_t bytes,
                                                      enum ledger_cap *which)
{
    struct ledger_sum sum = ledger_look(ring);
    atomic_store_explicit(&ring->roomy, false, memory_order_relaxed);
    if (ledger_fits(ring, &sum)) {
        ledger_peak(&ring_me(ring)->peak, slot_bytes(ring_me(ring)));
        ledger_peak(&ring_tenant(ring)->mem_peak, sum.granted);
        return 0;
    }
    atomic_fetch_sub(&ring_me(ring)->bytes, bytes);
    return ledger_reserve_any(ring, bytes, which);
}

static __attribute__((noinline)) int ledger_new_peak(struct ring *ring, uint64_t mine, uint64_t all)
{
    ledger_peak(&ring_me(ring)->peak, mine);
    ledger_peak(&ring_tenant(ring)->mem_peak, all);
    return 0;
}

static inline int ledger_roomy(struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    struct cuslice_slot *me = ring_me(ring);
    struct cuslice_tenant *tenant = ring_tenant(ring);
    uint64_t word = atomic_fetch_add(&me->bytes, bytes) + bytes; /* R1 */
    uint64_t mine = CUSLICE_BYTES_GRANTED(word), all = mine + atomic_load(&me->context_bytes);
    uint64_t pending = atomic_load(&me->pending), now = atomic_load(&me->bytes); /* in this order */
    uint64_t need = CUSLICE_BYTES_GRANTED(now) + CUSLICE_BYTES_ANNOUNCED(now) + pending +
                    (all - mine) + LEDGER_ROOM;
    if (__builtin_expect(!ledger_alone(ring, tenant) || /* R2 */
                             need > ledger_limit(ring) || need > ledger_process_limit(ring, tenant),
                         0))
        return ledger_not_alone(ring, bytes, which);
    if (__builtin_expect(atomic_load_explicit(&me->peak, memory_order_relaxed) < mine ||
                             atomic_load_explicit(&tenant->mem_peak, memory_order_relaxed) < all,
                         0))
        return ledger_new_peak(ring, mine, all);
    return 0;
}

int ledger_reserve(struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    if (__builtin_expect(
            bytes <= LEDGER_SMALL && atomic_load_explicit(&ring->roomy, memory_order_relaxed), 1))
        return ledger_roomy(ring, bytes, which);
    return ledger_reserve_any(ring, bytes, which);
}

int ledger_force(struct ring *ring, uint64_t bytes, enum ledger_cap *which)
{
    struct ledger_sum sum = ledger_look(ring);
    enum ledger_cap cap = LEDGER_TENANT;
    bool absurd = bytes > LEDGER_MOST;
    bool refuse = absurd || ledger_full(ring, bytes, &cap);
    if (!absurd) {
        atomic_fetch_add(&ring_me(ring)->pending, bytes);
        ledger_grant(ring, bytes, ledger_add(sum.granted, bytes));
    }
    if (refuse)
        *which = cap;
    return refuse ? -ENOMEM : 0;
}

/* Below zero would be a sum that nothing fits under; only a damaged file leads there. */
void ledger_mend(struct ring *ring, uint64_t missing)
{
    atomic_fetch_add(&ring_me(ring)->bytes, missing);
}

uint64_t ledger_process(const struct ring *ring)
{
    const struct cuslice_slot *me = ring_me(ring);
    return ledger_add(slot_bytes(me), atomic_load(&me->context_bytes));
}

/* ---- Beside the sums ---- */

static void ledger_move(_Atomic(uint64_t) *word, int64_t change)
{
    uint64_t old = atomic_load(word), new;
    do
        new = change < 0 && old < (uint64_t)-change ? 0 : old + (uint64_t)change;
    while (!atomic_compare_exchange_weak(word, &old, new));
}

static uint64_t ledger_imports(const struct cuslice_segment *shared, struct cuslice_tenant *tenant)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = atomic_load(&tenant->members[w]); left; left &= left - 1)
            sum = ledger_add(
                sum, atomic_load(&shared->slot[w * 64 + (unsigned)__builtin_ctzll(left)].imported));
    return sum;
}

uint64_t ledger_orphaned(const struct cuslice_segment *shared, struct cuslice_tenant *tenant)
{
    uint64_t orphaned = atomic_load(&tenant->orphaned);
    uint64_t imported = orphaned ? ledger_imports(shared, tenant) : 0;
    return orphaned < imported ? orphaned : imported;
}

/* What nobody has open any more is no orphan. */
static void ledger_settle_orphans(const struct cuslice_segment *shared,
                                  struct cuslice_tenant *tenant)
{
    uint64_t old = atomic_load(&tenant->orphaned);
    while (old &&
           !atomic_compare_exchange_weak(&tenant->orphaned, &old, ledger_orphaned(shared, tenant)))
        ;
}

void ledger_orphan(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t bytes)
{
    if (bytes)
        atomic_fetch_add(&tenant->orphaned, bytes);
    ledger_settle_orphans(shared, tenant);
}

void ledger_exported(struct ring *ring, int64_t change, bool gone)
{
    ledger_move(&ring_me(ring)->exported, change);
    if (gone && change < 0)
        ledger_orphan(ring_shared(ring), ring_tenant(ring), (uint64_t)-change);
}

void ledger_imported(struct ring *ring, int64_t change)
{
    ledger_move(&ring_me(ring)->imported, change);
    if (change < 0)
        ledger_settle_orphans(ring_shared(ring), ring_tenant(ring));
}

void ledger_paged(struct ring *ring, int64_t change)
{
    ledger_move(&ring_me(ring)->paged, change);
}

uint64_t ledger_fixed(const struct ring *ring)
{
    uint64_t bytes = slot_bytes(ring_me(ring)), paged = atomic_load(&ring_me(ring)->paged);
    return bytes > paged ? bytes - paged : 0;
}

void ledger_context(struct ring *ring, uint64_t bytes)
{
    atomic_store(&ring_me(ring)->context_bytes, bytes);
}

uint64_t ledger_tenant(const struct ring *ring)
{
    return ledger_look(ring).granted;
}

static void ledger_clip(uint64_t limit, uint64_t used, uint64_t *free, uint64_t *total)
{
    uint64_t left = limit > used ? limit - used : 0;
    *total = limit < *total ? limit : *total;
    *free = left < *free ? left : *free;
}

void ledger_mask(const struct ring *ring, uint64_t *free, uint64_t *total)
{
    struct ledger_sum sum = ledger_look(ring);
    uint64_t limit = ledger_limit(ring);
    if (limit != CUSLICE_NO_LIMIT)
        ledger_clip(limit, sum.granted, free, total);
    if (ring_process_limit(ring) != CUSLICE_NO_LIMIT)
        ledger_clip(ring_process_limit(ring), sum.mine, free, total);
}

/* The member with the most bytes after (bytes, slot) in falling order, or CUSLICE_SLOTS. */
static unsigned ledger_next_holder(const struct ring *ring, uint64_t *bytes, unsigned after)
{
    struct cuslice_tenant *tenant = ring_tenant(ring);
    unsigned best = CUSLICE_SLOTS;
    uint64_t bound = *bytes, most = 0;
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        const struct cuslice_slot *s = &ring_shared(ring)->slot[i];
        uint64_t mine = ledger_add(slot_bytes(s), atomic_load(&s->context_bytes));
        bool member = atomic_load(&tenant->members[i / 64]) >> (i % 64) & 1;
        if (member && mine > most && (mine < bound || (mine == bound && i > after))) {
            best = i;
            most = mine;
        }
    }
    *bytes = most;
    return best;
}

void ledger_holders(const struct ring *ring, char *text, size_t size)
{
    uint64_t bytes = UINT64_MAX;
    unsigned slot = 0;
    size_t used = 0;
    text[0] = '\0';
    for (unsigned n = 0; n < LEDGER_HOLDERS && used + 1 < size; n++) {
        slot = ledger_next_holder(ring, &bytes, slot);
        if (slot == CUSLICE_SLOTS)
            return;
        const struct cuslice_slot *s = &ring_shared(ring)->slot[slot];
        int length = snprintf(text + used, size - used, "%s%.*s[%d] %.1f MiB", used ? ", " : "",
                              (int)sizeof s->command - 1, s->command, atomic_load(&s->pid),
                              (double)bytes / (1 << 20));
        used += length > 0 ? (size_t)length : 0;
    }
}
