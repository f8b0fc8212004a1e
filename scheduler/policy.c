/*
 * policy: least charged time per weight (see policy.h). Owns no state: all of it is in the tenants'
 * records.
 */
#include "policy.h"

#include <stdatomic.h>

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

/* 0 for a time that is still to come, which is damage. */
static uint64_t policy_last_turn(const _Atomic(uint64_t) *word, uint64_t now)
{
    uint64_t last = atomic_load(word);
    return last <= now ? last : 0;
}

/* The first slot of a set that comes after `after` in ring order, round to itself; CUSLICE_NOBODY
 * when the set is empty. */
static unsigned policy_after(const uint64_t set[CUSLICE_SLOT_WORDS], unsigned after)
{
    unsigned start = after < CUSLICE_SLOTS ? (after + 1) % CUSLICE_SLOTS : 0;
    uint64_t part = UINT64_MAX << (start % 64); /* of the first word; the rest of it comes last */
    for (unsigned k = 0; k <= CUSLICE_SLOT_WORDS; k++, part = UINT64_MAX) {
        unsigned w = (start / 64 + k) % CUSLICE_SLOT_WORDS;
        if (set[w] & part)
            return w * 64 + (unsigned)__builtin_ctzll(set[w] & part);
    }
    return CUSLICE_NOBODY;
}

/* How far a tenant's next client is from `after`, in ring order. */
static unsigned policy_distance(const struct waiters_tenant *t, unsigned after)
{
    unsigned start = after < CUSLICE_SLOTS ? after + 1 : 0;
    return (policy_after(t->slots, after) - start) % CUSLICE_SLOTS;
}

/* The tenant with the least virtual time of those who compete, ties in ring order after `after`;
 * NULL when there is none. */
static struct waiters_tenant *policy_least(struct waiters *w, unsigned after)
{
    struct waiters_tenant *best = NULL;
    WAITERS_EACH(w, t)
    {
        if (!waiters_competes(w, t))
            continue;
        if (!best || t->vtime < best->vtime ||
            (t->vtime == best->vtime && policy_distance(t, after) < policy_distance(best, after)))
            best = t;
    }
    return best;
}

/* The client of a tenant whose last turn, of those up to `now`, is longest ago. */
static unsigned policy_client(const struct waiters *w, const struct waiters_tenant *t,
                              unsigned after, uint64_t now)
{
    unsigned first = policy_after(t->slots, after), best = first, slot = first;
    while ((slot = policy_after(t->slots, slot)) != first)
        if (policy_last_turn(&w->shared->slot[slot].last_grant_ns, now) <
            policy_last_turn(&w->shared->slot[best].last_grant_ns, now))
            best = slot;
    return best;
}

/* Turns that begin while one chooses count as well: hence no `now`. */
static unsigned policy_pick(struct waiters *w, unsigned after)
{
    struct waiters_tenant *t = policy_least(w, after);
    return t ? policy_client(w, t, after, UINT64_MAX) : CUSLICE_NOBODY;
}

/* The same at the end of the turn of `self`, which is one of `mine` and wants another: itself when
 * it is clearly behind the others. */
static unsigned policy_pick_again(struct waiters *w, struct waiters_tenant *mine, unsigned self)
{
    waiters_strike(mine, self);
    struct waiters_tenant *its = policy_least(w, self);
    if (!its)
        return self;
    if (mine->record && mine != its) {
        uint64_t ahead = policy_virtual(segment_quantum(w->shared) / POLICY_AGAIN, mine->record);
        if (policy_sum(mine->vtime, ahead) <= its->vtime)
            return self;
    }
    return policy_client(w, its, self, UINT64_MAX);
}

void policy_charge(struct cuslice_tenant *tenant, uint64_t ns)
{
    if (tenant)
        atomic_fetch_add_explicit(&tenant->vtime, policy_virtual(ns, tenant), memory_order_acq_rel);
}

/* The virtual time of the holder, who has run for held_ns; UINT64_MAX when there is none. */
static uint64_t policy_held(struct cuslice_segment *shared, unsigned holder, uint64_t held_ns)
{
    struct cuslice_tenant *t = holder < CUSLICE_SLOTS ? tenant_of(shared, holder) : NULL;
    return t ? policy_sum(policy_vtime(t), policy_virtual(held_ns, t)) : UINT64_MAX;
}

/* The least virtual time of those who would compete without `tenant` (NULL: nobody's); UINT64_MAX:
 * there are none. */
static uint64_t policy_others(const struct waiters *w, const struct cuslice_tenant *tenant)
{
    uint64_t least = UINT64_MAX;
    unsigned highest = CUSLICE_LOW;
    WAITERS_EACH(w, t)
    {
        if (!t->able || (tenant && t->record == tenant) || t->class < highest)
            continue;
        if (t->class > highest || t->vtime < least)
            least = t->vtime;
        highest = t->class;
    }
    return least;
}

/* Raises a tenant's virtual time to that of the others and the holder, less a quantum, or less what
 * it is owed. */
static void policy_level(const struct waiters *w, struct cuslice_tenant *tenant, unsigned holder,
                         uint64_t held_ns, uint64_t owed)
{
    uint64_t held = policy_held(w->shared, holder, held_ns), base = policy_others(w, tenant);
    base = held < base ? held : base;
    if (base == UINT64_MAX)
        base = atomic_load(&w->shared->vclock);
    uint64_t credit = policy_virtual(segment_quantum(w->shared), tenant);
    credit = credit > owed ? credit : owed;
    policy_raise(&tenant->vtime, base > credit ? base - credit : 0);
}

uint64_t policy_owed(const struct waiters *waiters, unsigned slot)
{
    struct cuslice_tenant *tenant = tenant_of(waiters->shared, slot);
    if (!tenant)
        return 0;
    uint64_t base = policy_others(waiters, tenant), vtime = policy_vtime(tenant);
    return base != UINT64_MAX && base > vtime ? base - vtime : 0;
}

/* Whether another client of a tenant than `slot` waits or holds the token: ends at the first. */
static bool policy_awake(struct cuslice_segment *shared, const struct cuslice_tenant *tenant,
                         const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned slot, unsigned holder)
{
    if (holder < CUSLICE_SLOTS && tenant_of(shared, holder) == tenant)
        return true;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = waiting[w]; left; left &= left - 1) {
            unsigned other = w * 64 + (unsigned)__builtin_ctzll(left);
            if (other != slot && tenant_of(shared, other) == tenant)
                return true;
        }
    return false;
}

void policy_lift(struct cuslice_segment *shared, unsigned slot,
                 const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns,
                 uint64_t owed, uint64_t now)
{
    struct waiters waiters;
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    if (!tenant || policy_awake(shared, tenant, waiting, slot, holder))
        return;
    limit_rest(shared, tenant, now);
    waiters_gather(&waiters, shared, waiting, now);
    policy_level(&waiters, tenant, holder, held_ns, owed);
}

void policy_return(struct cuslice_segment *shared, unsigned slot,
                   const uint64_t waiting[CUSLICE_SLOT_WORDS], unsigned holder, uint64_t held_ns,
                   uint64_t now)
{
    struct waiters waiters;
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    waiters_gather(&waiters, shared, waiting, now);
    if (tenant)
        policy_level(&waiters, tenant, holder, held_ns, 0);
}

/* Damage to the file may leave a virtual time that nobody would ever catch up with. */
static void policy_forgive(struct waiters *w, uint64_t least)
{
    uint64_t plain = policy_plain_turn(w->shared);
    WAITERS_EACH(w, t)
    {
        if (!t->record || t->vtime <= policy_sum(least, policy_virtual(plain, t->record)))
            continue;
        uint64_t worst = policy_virtual(policy_worst_turn(w->shared), t->record);
        uint64_t most = policy_sum(least, worst);
        if (t->vtime > most && atomic_compare_exchange_strong(&t->record->vtime, &t->vtime, most))
            t->vtime = most;
    }
}

/* Who is held back is like a sleeper: it earns no more than one quantum of credit. */
static void policy_keep_up(struct waiters *w)
{
    uint64_t clock = atomic_load(&w->shared->vclock), quantum = segment_quantum(w->shared);
    WAITERS_EACH(w, t)
    {
        if (!t->record || waiters_competes(w, t))
            continue;
        uint64_t credit = policy_virtual(quantum, t->record);
        if (clock > credit && t->vtime < clock - credit) {
            t->vtime = clock - credit;
            policy_raise(&t->record->vtime, t->vtime);
        }
    }
}

void policy_advance(struct waiters *waiters, unsigned holder)
{
    struct cuslice_segment *shared = waiters->shared;
    uint64_t held = policy_held(shared, holder, 0), least = policy_others(waiters, NULL);
    uint64_t clock = atomic_load(&shared->vclock);
    least = held < least ? held : least;
    if (least == UINT64_MAX)
        return;
    policy_forgive(waiters, least);
    /* It may be ahead by a sleeper's credit, which is largest at weight 1. */
    if (clock > policy_sum(least, 100 * policy_plain_turn(shared)) &&
        clock > policy_sum(least, 100 * policy_worst_turn(shared)))
        atomic_compare_exchange_strong(&shared->vclock, &clock, least);
    policy_raise(&shared->vclock, least);
    policy_keep_up(waiters);
}

unsigned policy_expect(struct cuslice_segment *shared, const uint64_t waiting[CUSLICE_SLOT_WORDS],
                       unsigned last, uint64_t now)
{
    struct waiters waiters;
    waiters_gather(&waiters, shared, waiting, now);
    return policy_pick(&waiters, last);
}

/* Of the lower classes: whose last turn is longest ago. Who has no tenant comes last. */
static unsigned policy_pick_oldest(struct waiters *w)
{
    struct waiters_tenant *best = NULL;
    uint64_t oldest = UINT64_MAX;
    WAITERS_EACH(w, t)
    {
        if (!waiters_outranked(w, t))
            continue;
        uint64_t last =
            t->record ? policy_last_turn(&t->record->last_grant_ns, w->now) : UINT64_MAX;
        if (!best || last < oldest) {
            best = t;
            oldest = last;
        }
    }
    return best ? policy_client(w, best, CUSLICE_NOBODY, w->now) : CUSLICE_NOBODY;
}

unsigned policy_next(struct waiters *waiters, unsigned last, bool *below)
{
    struct cuslice_segment *shared = waiters->shared;
    struct cuslice_tenant *mine = last < CUSLICE_SLOTS ? tenant_of(shared, last) : NULL;
    bool outranked = class_outranked(waiters, last);
    bool held = outranked || (mine && limit_until(shared, mine, waiters->now));
    policy_advance(waiters, held ? CUSLICE_NOBODY : last);
    *below = class_due(waiters, last, *below);
    if (*below)
        return outranked ? last : policy_pick_oldest(waiters);
    struct waiters_tenant *again = waiters_find(waiters, last);
    return again && waiters_competes(waiters, again) ? policy_pick_again(waiters, again, last)
                                                     : policy_pick(waiters, last);
}
