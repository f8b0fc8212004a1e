/*
 * policy: least charged time per weight (see policy.h). Owns no state: all of it is in the tenants'
 * records.
 */
#include "policy.h"

#include <stdatomic.h>
#include <stdbool.h>

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

/* More than any turn takes: a virtual time that is further ahead than this is no debt but damage.
 */
static uint64_t policy_worst_turn(const struct cuslice_segment *shared)
{
    return 2 * (segment_quantum(shared) + segment_allowance(shared));
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

/* The least virtual time among the waiting (but for `except`) and the holder, who has run for
 * held_ns; UINT64_MAX when there is none. */
static uint64_t policy_least(struct cuslice_segment *shared,
                             const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned except,
                             unsigned holder, uint64_t held_ns)
{
    struct cuslice_tenant *t = holder < CUSLICE_SLOTS ? tenant_of(shared, holder) : NULL;
    uint64_t least = t ? policy_sum(policy_vtime(t), policy_virtual(held_ns, t)) : UINT64_MAX;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w]; left; left &= left - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(left);
            uint64_t vtime = slot == except ? UINT64_MAX : policy_vtime(tenant_of(shared, slot));
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

void policy_lift(struct cuslice_segment *shared, unsigned slot,
                 const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns)
{
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    if (!tenant || policy_awake(shared, tenant, waiting, slot, holder))
        return;
    uint64_t base = policy_least(shared, waiting, slot, holder, held_ns);
    if (base == UINT64_MAX)
        base = atomic_load(&shared->vclock);
    uint64_t credit = policy_virtual(segment_quantum(shared), tenant);
    policy_raise(&tenant->vtime, base > credit ? base - credit : 0);
}

/* Damage to the file may leave a virtual time that nobody would ever catch up with. */
static void policy_forgive(struct cuslice_segment *shared,
                           const uint64_t waiting[CUSLICE_SLOT_WORDS], uint64_t least)
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w]; left; left &= left - 1) {
            struct cuslice_tenant *t = tenant_of(shared, w * 64 + (unsigned)__builtin_ctzll(left));
            uint64_t vtime = policy_vtime(t);
            if (!t)
                continue;
            uint64_t most = policy_sum(least, policy_virtual(policy_worst_turn(shared), t));
            if (vtime > most)
                atomic_compare_exchange_strong(&t->vtime, &vtime, most);
        }
}

void policy_advance(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                    unsigned holder)
{
    uint64_t least = policy_least(shared, waiting, CUSLICE_NOBODY, holder, 0);
    uint64_t clock = atomic_load(&shared->vclock);
    if (least == UINT64_MAX)
        return;
    policy_forgive(shared, waiting, least);
    /* It may be ahead by a sleeper's credit, which is largest at weight 1. */
    if (clock > policy_sum(least, 100 * policy_worst_turn(shared)))
        atomic_compare_exchange_strong(&shared->vclock, &clock, least);
    policy_raise(&shared->vclock, least);
}
