/* policy on random rings, damaged ones among them, against the rules written out plainly: each
 * client is compared with each other one, and nothing is remembered. Who goes next, what that moves
 * in the file, and where those stand who begin to wait must be the same to the last unit.
 * timeout: 150 (under a sanitizer) */
#include "policy.h"

#include "room.h"

#include "class.h"
#include "limit.h"
#include "paging.h"
#include "segment.h"

#define MS CLOCK_MS
#define STATES 300000
#define NOW (1000 * CLOCK_S)
#define NEVER UINT64_MAX

/* The same state twice: policy moves the first, the rules the second. */
static struct segment file[2];
static struct cuslice_segment *ring[2];
static struct cuslice_segment *r; /* the one that the rules look at */
static uint64_t waiting[CUSLICE_SLOT_WORDS];
static bool counts[CUSLICE_SLOTS];           /* waits, and no limit holds it back */
static unsigned top;                         /* the highest class of those */
static unsigned slots[CUSLICE_SLOTS], count; /* who waits */

/* ---- States --------------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

static uint64_t any(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

#define ONE_OF(...) \
    ((uint64_t[]){__VA_ARGS__}[any(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))])

/* Sets a word of both. */
#define SET(field, value) \
    do { \
        uint64_t value_ = (value); \
        ring[0]->field = (__typeof__(ring[0]->field + 0))value_; \
        ring[1]->field = (__typeof__(ring[1]->field + 0))value_; \
    } while (0)

static void some_tenant(unsigned t, bool plain)
{
    SET(tenant[t].weight, plain ? 100 : ONE_OF(100, 100, 1, 10000, 300, 7, 0, 77777));
    SET(tenant[t].priority, plain ? 1 : ONE_OF(1, 1, 1, 0, 2, 77));
    SET(tenant[t].limit_ppm, plain ? 1000000 : ONE_OF(1000000, 1000000, 0, 10000 + any(990000)));
    SET(tenant[t].limit_rate, ONE_OF(ring[0]->tenant[t].limit_ppm, 0, 500000));
    SET(tenant[t].limit_paid, ONE_OF(0, NOW - any(CLOCK_S), NOW + any(CLOCK_S), any(NEVER)));
    SET(tenant[t].vtime, NOW + ONE_OF(0, 0, any(5) * 5 * MS, any(CLOCK_S), any(3600 * CLOCK_S)));
    if (any(40) == 0)
        SET(tenant[t].vtime, ONE_OF(0, NEVER, any(NEVER)));
    SET(tenant[t].last_grant_ns, ONE_OF(0, any(4), NOW, NOW + any(4), any(NOW)));
}

static void some_slot(unsigned slot, unsigned tenants)
{
    SET(slot[slot].tenant, any(30) ? any(tenants) : ONE_OF(CUSLICE_TENANTS, 4000000000u));
    SET(slot[slot].last_grant_ns, ONE_OF(0, any(4), NOW + any(4), any(NOW)));
    SET(slot[slot].slice_ns, any(50) ? 0 : any(20 * CLOCK_S));
}

static void some_state(void)
{
    unsigned tenants = (unsigned)ONE_OF(1, 2, 3, 5, 20), n = (unsigned)any(9);
    bool plain = any(3) == 0;
    if (any(100) == 0) {
        tenants = CUSLICE_TENANTS;
        n = (unsigned)ONE_OF(100, 256, 1000);
    }
    for (unsigned t = 0; t < tenants; t++)
        some_tenant(t, plain);
    memset(waiting, 0, sizeof waiting);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        SET(attached[w], any(3) ? 0 : NEVER);
    for (unsigned i = 0; i < n; i++) {
        unsigned slot = (unsigned)(any(2) ? any(CUSLICE_SLOTS) : any(8));
        some_slot(slot, tenants);
        waiting[slot / 64] |= UINT64_C(1) << (slot % 64);
    }
    SET(quantum_ns, ONE_OF(20 * MS, 20 * MS, MS, CLOCK_S, 0));
    SET(allowance_ns, ONE_OF(CLOCK_S, 50 * MS));
    SET(vclock, NOW + ONE_OF(0, any(CLOCK_S), any(100000 * CLOCK_S), 0 - NOW, NEVER - NOW));
    SET(class_owed, ONE_OF(0, CLASS_TURN_NS, any(2 * CLASS_TURN_NS), 0 - any(MS), any(NEVER)));
    SET(class_epoch, any(2));
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        SET(waiting[w], waiting[w]);
}

/* ---- The rules ------------------------------------------------------------------------------ */

static struct cuslice_tenant *tenant(unsigned slot)
{
    return slot < CUSLICE_SLOTS && r->slot[slot].tenant < CUSLICE_TENANTS
               ? &r->tenant[r->slot[slot].tenant]
               : NULL;
}

static unsigned class(unsigned slot)
{
    unsigned priority = tenant(slot) ? tenant(slot)->priority : CUSLICE_NORMAL;
    return priority > CUSLICE_HIGH ? CUSLICE_NORMAL : priority;
}

static uint64_t vtime(unsigned slot)
{
    return tenant(slot) ? tenant(slot)->vtime : NEVER;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b < a ? NEVER : a + b;
}

static uint64_t weighed(uint64_t ns, const struct cuslice_tenant *t)
{
    return ns * 100 / (t->weight >= 1 && t->weight <= 10000 ? t->weight : 100);
}

/* Looks at who waits. Those of `without` are as if they did not. */
static void look(const struct cuslice_tenant *without)
{
    memset(counts, 0, sizeof counts);
    count = top = 0;
    for (unsigned s = 0; s < CUSLICE_SLOTS; s++) {
        if (!(waiting[s / 64] >> (s % 64) & 1))
            continue;
        slots[count++] = s;
        counts[s] = !tenant(s) || (tenant(s) != without && !limit_until(r, tenant(s), NOW));
        if (counts[s] && class(s) > top)
            top = class(s);
    }
}

static bool competes(unsigned s)
{
    return s < CUSLICE_SLOTS && counts[s] && class(s) == top;
}

static bool outranked(unsigned s)
{
    return s < CUSLICE_SLOTS && class(s) < top;
}

static uint64_t least(uint64_t holder)
{
    for (unsigned i = 0; i < count; i++)
        if (competes(slots[i]) && vtime(slots[i]) < holder)
            holder = vtime(slots[i]);
    return holder;
}

/* How many steps round the ring from `after`. */
static unsigned steps(unsigned s, unsigned after)
{
    unsigned n = 0, at = after < CUSLICE_SLOTS ? after + 1 : 0;
    for (; at % CUSLICE_SLOTS != s; at++)
        n++;
    return n;
}

/* What orders clients: `rank` of their tenants, ties in ring order of the tenants' first ones in
 * the set, then their own last turns, ties in ring order. */
struct key {
    uint64_t part[4];
};

static bool before(const struct key *a, const struct key *b)
{
    for (unsigned i = 0; i < 4; i++)
        if (a->part[i] != b->part[i])
            return a->part[i] < b->part[i];
    return false;
}

static unsigned first_of(const bool in[CUSLICE_SLOTS], unsigned after,
                         uint64_t (*rank)(unsigned slot), uint64_t (*turn)(unsigned slot))
{
    unsigned best = CUSLICE_NOBODY;
    struct key best_key;
    for (unsigned i = 0; i < count; i++) {
        unsigned s = slots[i];
        struct key key = {{rank(s), NEVER, turn(s), steps(s, after)}};
        if (!in[s])
            continue;
        for (unsigned k = 0; k < count; k++)
            if (in[slots[k]] && tenant(slots[k]) == tenant(s) &&
                steps(slots[k], after) < key.part[1])
                key.part[1] = steps(slots[k], after);
        if (best == CUSLICE_NOBODY || before(&key, &best_key)) {
            best = s;
            best_key = key;
        }
    }
    return best;
}

static uint64_t past(uint64_t ns)
{
    return ns <= NOW ? ns : 0;
}

static uint64_t last_turn(unsigned s)
{
    return r->slot[s].last_grant_ns;
}

static uint64_t past_turn(unsigned s)
{
    return past(r->slot[s].last_grant_ns);
}

static uint64_t past_of_tenant(unsigned s)
{
    return tenant(s) ? past(tenant(s)->last_grant_ns) : NEVER;
}

static unsigned by_time(unsigned after, unsigned but)
{
    bool in[CUSLICE_SLOTS];
    for (unsigned s = 0; s < CUSLICE_SLOTS; s++)
        in[s] = competes(s) && s != but;
    return first_of(in, after, vtime, last_turn);
}

static unsigned by_age(void)
{
    bool in[CUSLICE_SLOTS];
    for (unsigned s = 0; s < CUSLICE_SLOTS; s++)
        in[s] = counts[s] && outranked(s);
    return first_of(in, CUSLICE_NOBODY, past_of_tenant, past_turn);
}

/* The clock goes on to `low`; no waiting tenant is further ahead of it than turns can make it, and
 * none that is held back further behind than a quantum. */
static void clock_moves(uint64_t low)
{
    uint64_t worst = 2 * (paging_longest(r) + segment_allowance(r));
    if (low == NEVER)
        return;
    for (unsigned i = 0; i < count; i++) {
        struct cuslice_tenant *t = tenant(slots[i]);
        if (t && t->vtime > plus(low, weighed(worst, t)))
            t->vtime = plus(low, weighed(worst, t));
    }
    if (r->vclock < low || r->vclock > plus(low, 100 * worst))
        r->vclock = low;
    for (unsigned i = 0; i < count; i++) {
        struct cuslice_tenant *t = tenant(slots[i]);
        uint64_t credit = t ? weighed(segment_quantum(r), t) : NEVER;
        if (!competes(slots[i]) && r->vclock > credit && t->vtime < r->vclock - credit)
            t->vtime = r->vclock - credit;
    }
}

static int64_t owed(void)
{
    int64_t value = (int64_t)r->class_owed, most = 40 * (int64_t)CLASS_TURN_NS;
    int64_t worst = 2 * (int64_t)(segment_quantum(r) + segment_allowance(r));
    return value < -worst ? -worst : value > most ? most : value;
}

/* Whether the next turn is one of the lower classes. */
static bool lower_due(unsigned last, bool below)
{
    bool lower = false;
    for (unsigned i = 0; i < count; i++)
        lower |= counts[slots[i]] && outranked(slots[i]);
    if (outranked(last))
        return below && counts[last] && owed() > 0;
    return lower && owed() >= (int64_t)CLASS_TURN_NS;
}

static unsigned next_of(unsigned last, bool *below)
{
    look(NULL);
    struct cuslice_tenant *mine = tenant(last);
    bool held = outranked(last) || (mine && limit_until(r, mine, NOW));
    clock_moves(least(held || !mine ? NEVER : mine->vtime));
    *below = lower_due(last, *below);
    if (*below)
        return outranked(last) ? last : by_age();
    if (!competes(last))
        return by_time(last, CUSLICE_NOBODY);
    unsigned other = by_time(last, last);
    if (other == CUSLICE_NOBODY)
        return last;
    bool behind = mine && mine != tenant(other) &&
                  plus(mine->vtime, weighed(segment_quantum(r) / 4, mine)) <= vtime(other);
    return behind ? last : other;
}

static uint64_t owed_to(unsigned slot)
{
    look(tenant(slot));
    uint64_t base = least(NEVER);
    return tenant(slot) && base != NEVER && base > vtime(slot) ? base - vtime(slot) : 0;
}

static void begins(unsigned slot, unsigned holder, uint64_t held, uint64_t keeps, bool slept)
{
    struct cuslice_tenant *t = tenant(slot), *its = tenant(holder);
    if (!t || (slept && t == its))
        return;
    look(t);
    for (unsigned i = 0; i < count && slept; i++)
        if (slots[i] != slot && tenant(slots[i]) == t)
            return;
    uint64_t base = least(its ? plus(its->vtime, weighed(held, its)) : NEVER);
    uint64_t credit = weighed(segment_quantum(r), t);
    base = base == NEVER ? r->vclock : base;
    credit = credit > keeps ? credit : keeps;
    if (base > credit && t->vtime < base - credit)
        t->vtime = base - credit;
}

/* 2 parts of use in 100 go to the lower classes; while nobody of another class waits it is
 * forgotten either way. */
static void spends(unsigned slot, uint64_t epoch, uint64_t ns)
{
    bool lower = false, higher = false, below = r->class_epoch == epoch;
    int64_t was = owed(), use = (int64_t)ns;
    look(NULL);
    for (unsigned i = 0; i < count; i++) {
        lower |= counts[slots[i]] && class(slots[i]) < class(slot);
        higher |= counts[slots[i]] && class(slots[i]) > class(slot);
    }
    int64_t now = below     ? was - use
                  : lower   ? was + use / 49
                  : higher  ? was
                  : was > 0 ? (was > use ? was - use : 0)
                            : (-was > use ? was + use : 0);
    r->class_owed = (uint64_t)now;
    r->class_owed = (uint64_t)owed();
}

/* A higher class ends the turn at once, or when what is owed to the lower ones is used up; a lower
 * one when a turn is owed to it, but not before a quantum or what earns it one. */
static uint64_t ends(unsigned slot, uint64_t epoch, uint64_t granted, uint64_t from)
{
    uint64_t shortest = 49 * CLASS_TURN_NS, due = from;
    bool lower = false;
    look(NULL);
    for (unsigned i = 0; i < count; i++)
        lower |= counts[slots[i]] && class(slots[i]) < class(slot);
    if (outranked(slot))
        return from + (r->class_epoch == epoch && owed() > 0 ? (uint64_t)owed() : 0);
    if (!lower)
        return CLOCK_NEVER;
    if (owed() < (int64_t)CLASS_TURN_NS)
        due += 49 * (uint64_t)((int64_t)CLASS_TURN_NS - owed());
    shortest = shortest < segment_quantum(r) ? shortest : segment_quantum(r);
    return due > granted + shortest ? due : granted + shortest;
}

/* ---- Both ----------------------------------------------------------------------------------- */

static bool same(void)
{
    for (unsigned t = 0; t < CUSLICE_TENANTS; t++)
        if (ring[0]->tenant[t].vtime != ring[1]->tenant[t].vtime)
            return false;
    return ring[0]->vclock == ring[1]->vclock && ring[0]->class_owed == ring[1]->class_owed;
}

/* A slot that waits, or another, or none. */
static unsigned some_last(void)
{
    look(NULL);
    if (count && any(3))
        return slots[any(count)];
    return (unsigned)ONE_OF(CUSLICE_NOBODY, any(CUSLICE_SLOTS), 0xabcd);
}

static bool same_limits(void)
{
    uint64_t able[CUSLICE_SLOT_WORDS], spared = 0;
    memcpy(able, waiting, sizeof able);
    limit_strike(ring[0], able, NOW);
    look(NULL);
    for (unsigned s = 0; s < CUSLICE_SLOTS; s++) {
        if ((able[s / 64] >> (s % 64) & 1) != counts[s])
            return false;
        spared |= counts[s];
    }
    return limit_spares(ring[0], waiting, NOW) == spared;
}

static bool same_choice(void)
{
    struct waiters all;
    unsigned last = some_last(), slot = (unsigned)any(CUSLICE_SLOTS);
    bool below = any(2), ours = below, its = below;
    waiters_gather(&all, ring[0], waiting, NOW);
    if (class_end(&all, slot, 1, NOW - MS, NOW) != ends(slot, 1, NOW - MS, NOW))
        return false;
    class_spend(&all, slot, 1, 20 * MS);
    spends(slot, 1, 20 * MS);
    look(NULL);
    if (policy_expect(ring[0], waiting, last, NOW) != by_time(last, CUSLICE_NOBODY))
        return false;
    unsigned next = policy_next(&all, last, &ours);
    if (next != next_of(last, &its) || ours != its)
        return false;
    return last >= CUSLICE_SLOTS || next == last || policy_owed(&all, last) == owed_to(last);
}

static bool same_beginning(void)
{
    unsigned slot = (unsigned)any(CUSLICE_SLOTS), holder = some_last();
    uint64_t held = any(CLOCK_S), keeps = ONE_OF(0, any(CLOCK_S));
    bool slept = any(2);
    if (slept)
        policy_lift(ring[0], slot, waiting, holder, held, keeps, NOW);
    else
        policy_return(ring[0], slot, waiting, holder, held, NOW);
    begins(slot, holder, held, slept ? keeps : 0, slept);
    return same();
}

static void test_the_rules(void)
{
    unsigned differ = 0;
    for (unsigned i = 0; i < 2; i++) {
        REQUIRE(segment_open_private(&file[i], &room_device) == 0);
        ring[i] = file[i].shared;
    }
    r = ring[1];
    for (unsigned n = 0; n < STATES && differ < 5; n++) {
        some_state();
        bool right = any(4) ? same_limits() && same_choice() && same() : same_beginning();
        if (!right)
            printf("state %u differs\n", n);
        differ += !right;
    }
    CHECK_EQ(differ, 0);
    for (unsigned i = 0; i < 2; i++)
        segment_close(&file[i]);
}

int main(void)
{
    TEST(test_the_rules);
    return test_result();
}
