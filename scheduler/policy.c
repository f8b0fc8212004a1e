/*
 * policy: least charged time per weight (see policy.h). Owns no state: all of it is in the tenants'
 * records.
 */
#include "policy.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "class.h"
#include "limit.h"
#include "paging.h"
#include "segment.h"
#include "tenant.h"

#define POLICY_MAX_WEIGHT 10000u

/* Whoever has just had a turn must be this part of a slice behind the next one to have another:
 * what the drain adds to a turn would else make the other's turn a double one, and so on. */
#define POLICY_AGAIN 4

static uint64_t policy_virtual(uint64_t ns, const struct cuslice_tenant *t)
{
    uint32_t weight = atomic_load_explicit(&t->weight, memory_order_relaxed);
    if (weight == 0 || weight > POLICY_MAX_WEIGHT)
        weight = 100;
    return ns * 100 / weight;
}

static uint64_t policy_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* More than any turn takes where no memory pages. */
static uint64_t policy_plain_turn(const struct cuslice_segment *shared)
{
    return 2 * (segment_quantum(shared) + segment_allowance(shared));
}

/* More than any turn takes: a virtual time that is further ahead than this is no debt but damage.
 * It takes a look at every slot, so what is less than the plain one is not compared with it. */
static uint64_t policy_worst_turn(const struct cuslice_segment *shared)
{
    return 2 * (paging_longest(shared) + segment_allowance(shared));
}

static uint64_t policy_vtime(const struct cuslice_tenant *t)
{
    return t ? atomic_load_explicit(&t->vtime, memory_order_acquire) : UINT64_MAX;
}

static void policy_raise(_Atomic(uint64_t) *word, uint64_t value)
{
    uint64_t old = atomic_load(word);
    while (old < value && !atomic_compare_exchange_weak(word, &old, value))
        ;
}

/* Whether `slot` goes before `best`, which is a slot of the same set met earlier in ring order. */
static bool policy_before(struct cuslice_segment *shared, unsigned slot, unsigned best)
{
    struct cuslice_tenant *mine = tenant_of(shared, slot), *its = tenant_of(shared, best);
    if (mine != its)
        return policy_vtime(mine) < policy_vtime(its);
    return atomic_load(&shared->slot[slot].last_grant_ns) <
           atomic_load(&shared->slot[best].last_grant_ns);
}

unsigned policy_pick(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                     unsigned after)
{
    unsigned best = CUSLICE_NOBODY;
    unsigned start = after < CUSLICE_SLOTS ? after + 1 : 0;
    for (unsigned k = 0; k < CUSLICE_SLOTS; k++) {
        unsigned slot = (start + k) % CUSLICE_SLOTS;
        if (!waiting[slot / 64]) {
            k += 63 - slot % 64;
            continue;
        }
        if ((waiting[slot / 64] >> (slot % 64) & 1) &&
            (best == CUSLICE_NOBODY || policy_before(shared, slot, best)))
            best = slot;
    }
    return best;
}

unsigned policy_pick_next(struct cuslice_segment *shared,
                          const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned self)
{
    uint64_t others[CUSLICE_SLOT_WORDS];
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        others[w] = waiting[w];
    others[self / 64] &= ~(UINT64_C(1) << (self % 64));
    unsigned other = policy_pick(shared, others, self);
    struct cuslice_tenant *mine = tenant_of(shared, self);
    struct cuslice_tenant *its = other < CUSLICE_SLOTS ? tenant_of(shared, other) : NULL;
    if (other == CUSLICE_NOBODY)
        return self;
    if (!mine || mine == its)
        return other;
    uint64_t ahead = policy_virtual(segment_quantum(shared) / POLICY_AGAIN, mine);
    return policy_sum(policy_vtime(mine), ahead) <= policy_vtime(its) ? self : other;
}

void policy_charge(struct cuslice_tenant *tenant, uint64_t ns)
{
    if (tenant)
        atomic_fetch_add_explicit(&tenant->vtime, policy_virtual(ns, tenant), memory_order_acq_rel);
}

/* The least virtual time among those in a set and the holder, who has run for held_ns; UINT64_MAX
 * when there is none. */
static uint64_t policy_least(struct cuslice_segment *shared, const uint64_t set[CUSLICE_SLOT_WORDS],
                             unsigned holder, uint64_t held_ns)
{
    struct cuslice_tenant *t = holder < CUSLICE_SLOTS ? tenant_of(shared, holder) : NULL;
    uint64_t least = t ? policy_sum(policy_vtime(t), policy_virtual(held_ns, t)) : UINT64_MAX;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = set[w]; left; left &= left - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(left);
            uint64_t vtime = policy_vtime(tenant_of(shared, slot));
            least = vtime < least ? vtime : least;
        }
    return least;
}

static bool policy_awake(struct cuslice_segment *shared, const struct cuslice_tenant *tenant,
                         const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned except,
                         unsigned holder)
{
    if (holder < CUSLICE_SLOTS && tenant_of(shared, holder) == tenant)
        return true;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w]; left; left &= left - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(left);
            if (slot != except && tenant_of(shared, slot) == tenant)
                return true;
        }
    return false;
}

/* The least virtual time of the others that compete; UINT64_MAX: there are none. */
static uint64_t policy_base(struct cuslice_segment *shared, const struct cuslice_tenant *tenant,
                            const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder,
                            uint64_t held_ns, uint64_t now)
{
    struct class_split split;
    uint64_t others[CUSLICE_SLOT_WORDS] = {0};
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w]; left; left &= left - 1)
            if (tenant_of(shared, w * 64 + (unsigned)__builtin_ctzll(left)) != tenant)
                others[w] |= left & -left;
    limit_strike(shared, others, now);
    class_split(shared, others, &split);
    return policy_least(shared, split.top, holder, held_ns);
}

/* Raises a tenant's virtual time to that, less a quantum, or less what it is owed. */
static void policy_level(struct cuslice_segment *shared, struct cuslice_tenant *tenant,
                         const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder,
                         uint64_t held_ns, uint64_t owed, uint64_t now)
{
    uint64_t base = policy_base(shared, tenant, waiting, holder, held_ns, now);
    if (base == UINT64_MAX)
        base = atomic_load(&shared->vclock);
    uint64_t credit = policy_virtual(segment_quantum(shared), tenant);
    credit = credit > owed ? credit : owed;
    policy_raise(&tenant->vtime, base > credit ? base - credit : 0);
}

uint64_t policy_owed(struct cuslice_segment *shared, unsigned slot,
                     const uint64_t waiting[CUSLICE_SLOT_WORDS], uint64_t now)
{
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    if (!tenant)
        return 0;
    uint64_t base = policy_base(shared, tenant, waiting, CUSLICE_NOBODY, 0, now);
    uint64_t vtime = policy_vtime(tenant);
    return base != UINT64_MAX && base > vtime ? base - vtime : 0;
}

void policy_lift(struct cuslice_segment *shared, unsigned slot,
                 const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns,
                 uint64_t owed, uint64_t now)
{
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    if (!tenant || policy_awake(shared, tenant, waiting, slot, holder))
        return;
    limit_rest(shared, tenant, now);
    policy_level(shared, tenant, waiting, holder, held_ns, owed, now);
}

void policy_return(struct cuslice_segment *shared, unsigned slot,
                   const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns,
                   uint64_t now)
{
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    if (tenant)
        policy_level(shared, tenant, waiting, holder, held_ns, 0, now);
}

/* Damage to the file may leave a virtual time that nobody would ever catch up with. */
static void policy_forgive(struct cuslice_segment *shared,
                           const uint64_t waiting[CUSLICE_SLOT_WORDS], uint64_t least)
{
    uint64_t plain = policy_plain_turn(shared);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w]; left; left &= left - 1) {
            struct cuslice_tenant *t = tenant_of(shared, w * 64 + (unsigned)__builtin_ctzll(left));
            uint64_t vtime = policy_vtime(t);
            if (!t || vtime <= policy_sum(least, policy_virtual(plain, t)))
                continue;
            uint64_t most = policy_sum(least, policy_virtual(policy_worst_turn(shared), t));
            if (vtime > most)
                atomic_compare_exchange_strong(&t->vtime, &vtime, most);
        }
}

/* Who is held back is like a sleeper: it earns no more than one quantum of credit. */
static void policy_keep_up(struct cuslice_segment *shared,
                           const uint64_t waiting[CUSLICE_SLOT_WORDS],
                           const uint64_t competing[CUSLICE_SLOT_WORDS])
{
    uint64_t clock = atomic_load(&shared->vclock);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w] & ~competing[w]; left; left &= left - 1) {
            struct cuslice_tenant *t = tenant_of(shared, w * 64 + (unsigned)__builtin_ctzll(left));
            uint64_t credit = t ? policy_virtual(segment_quantum(shared), t) : 0;
            if (t && clock > credit)
                policy_raise(&t->vtime, clock - credit);
        }
}

void policy_advance(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                    const uint64_t competing[CUSLICE_SLOT_WORDS], unsigned holder)
{
    uint64_t least = policy_least(shared, competing, holder, 0);
    uint64_t clock = atomic_load(&shared->vclock);
    if (least == UINT64_MAX)
        return;
    policy_forgive(shared, waiting, least);
    /* It may be ahead by a sleeper's credit, which is largest at weight 1. */
    if (clock > policy_sum(least, 100 * policy_plain_turn(shared)) &&
        clock > policy_sum(least, 100 * policy_worst_turn(shared)))
        atomic_compare_exchange_strong(&shared->vclock, &clock, least);
    policy_raise(&shared->vclock, least);
    policy_keep_up(shared, waiting, competing);
}

/* Those that no limit holds back, by class. */
static void policy_split(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                         struct class_split *split, uint64_t now)
{
    uint64_t able[CUSLICE_SLOT_WORDS];
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        able[w] = waiting[w];
    limit_strike(shared, able, now);
    class_split(shared, able, split);
}

unsigned policy_expect(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                       unsigned last, uint64_t now)
{
    struct class_split split;
    policy_split(shared, waiting, &split, now);
    return policy_pick(shared, split.top, last);
}

static bool policy_in(const uint64_t set[CUSLICE_SLOT_WORDS], unsigned slot)
{
    return slot < CUSLICE_SLOTS && (set[slot / 64] >> (slot % 64) & 1);
}

/* 0 for a time that is still to come, which is damage. */
static uint64_t policy_last_turn(const _Atomic(uint64_t) *word, uint64_t now)
{
    uint64_t last = atomic_load(word);
    return last <= now ? last : 0;
}

/* Whether the turns of `slot`, and of its tenant, are longer ago than those of `best`. */
static bool policy_older(struct cuslice_segment *shared, unsigned slot, unsigned best, uint64_t now)
{
    struct cuslice_tenant *mine = tenant_of(shared, slot), *its = tenant_of(shared, best);
    if (mine == its)
        return policy_last_turn(&shared->slot[slot].last_grant_ns, now) <
               policy_last_turn(&shared->slot[best].last_grant_ns, now);
    return !its || (mine && policy_last_turn(&mine->last_grant_ns, now) <
                                policy_last_turn(&its->last_grant_ns, now));
}

static unsigned policy_pick_oldest(struct cuslice_segment *shared,
                                   const uint64_t set[CUSLICE_SLOT_WORDS], uint64_t now)
{
    unsigned best = CUSLICE_NOBODY;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = set[w]; left; left &= left - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(left);
            if (best == CUSLICE_NOBODY || policy_older(shared, slot, best, now))
                best = slot;
        }
    return best;
}

unsigned policy_next(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                     unsigned last, bool *below, uint64_t now)
{
    struct class_split split;
    policy_split(shared, waiting, &split, now);
    struct cuslice_tenant *mine = last < CUSLICE_SLOTS ? tenant_of(shared, last) : NULL;
    bool outranked = class_outranks(shared, segment_first(split.top), last);
    bool held = outranked || (mine && limit_until(shared, mine, now));
    policy_advance(shared, waiting, split.top, held ? CUSLICE_NOBODY : last);
    *below = class_due(shared, &split, last, *below);
    if (*below)
        return outranked ? last : policy_pick_oldest(shared, split.lower, now);
    return policy_in(split.top, last) ? policy_pick_next(shared, split.top, last)
                                      : policy_pick(shared, split.top, last);
}
