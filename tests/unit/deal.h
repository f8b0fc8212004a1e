/*
 * deal: turns dealt by hand on a clock of the test's own: what a keeper does at the end of each
 * slice, in the order in which it does it, with clients that always want more. The test reads back
 * who had the GPU when.
 */
#ifndef DEAL_H
#define DEAL_H

#include "room.h"

#include "class.h"
#include "limit.h"
#include "policy.h"
#include "segment.h"
#include "slot.h"
#include "tenant.h"

#define DEAL_TURNS 200000

struct deal_turn {
    unsigned slot;
    uint64_t start, end;
};

static struct segment deal_file;
static struct cuslice_segment *shared;
static uint64_t deal_now;
static unsigned deal_last;
static uint64_t deal_epoch;
static bool deal_below;    /* the turn that deal_next has chosen is one of a lower class */
static uint64_t deal_stop; /* who is alone until then has its turn ended */
static uint64_t deal_kernel[CUSLICE_SLOTS]; /* what is under way when a slice ends */
static struct deal_turn deal_turns[DEAL_TURNS];
static unsigned deal_count;

static inline void deal_begin(uint64_t quantum)
{
    REQUIRE(segment_open_private(&deal_file, &room_device) == 0);
    shared = deal_file.shared;
    shared->quantum_ns = quantum;
    shared->allowance_ns = CLOCK_S;
    memset(deal_kernel, 0, sizeof(deal_kernel));
    deal_now = 1000 * CLOCK_S;
    deal_last = CUSLICE_NOBODY;
    deal_epoch = 1;
    deal_stop = UINT64_MAX;
    deal_count = 0;
}

static inline void deal_end(void)
{
    segment_close(&deal_file);
}

static inline struct cuslice_tenant *deal_client(unsigned slot, unsigned tenant, uint32_t weight,
                                                 uint32_t limit_percent, uint32_t priority)
{
    struct cuslice_tenant *t = &shared->tenant[tenant];

    shared->slot[slot].tenant = tenant;
    t->weight = weight;
    t->limit_ppm = limit_percent * 10000;
    t->limit_rate = limit_of(t); /* from the start, as tenant_settle has it */
    t->priority = priority;
    return t;
}

static inline void deal_waiting(uint64_t set[CUSLICE_SLOT_WORDS])
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        set[w] = shared->waiting[w];
}

static inline void deal_want(unsigned slot)
{
    uint64_t set[CUSLICE_SLOT_WORDS];

    deal_waiting(set);
    policy_lift(shared, slot, set, deal_last, 0, 0, deal_now);
    shared->waiting[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static inline void deal_rest(unsigned slot)
{
    shared->waiting[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

static inline void deal_charge(unsigned slot)
{
    slot_charge(shared, slot, deal_epoch, deal_now);
}

static inline unsigned deal_next(unsigned last)
{
    struct waiters all;

    waiters_look(&all, shared, deal_now);
    deal_below = class_below(shared, deal_epoch);
    return policy_next(&all, last, &deal_below);
}

static inline void deal_grant(unsigned slot)
{
    deal_epoch++;
    if (deal_below)
        shared->class_epoch = deal_epoch;
    shared->slot[slot].grant_epoch = deal_epoch;
    shared->slot[slot].grant_ns = deal_now;
    shared->slot[slot].last_grant_ns = deal_now;
    tenant_of(shared, slot)->last_grant_ns = deal_now;
}

/* When the turn of `slot` has to end, as its keeper sees it. */
static inline uint64_t deal_due(unsigned slot)
{
    struct waiters all;
    uint64_t granted = shared->slot[slot].grant_ns, charged = shared->slot[slot].charged_to_ns;
    uint64_t from = charged > granted ? charged : granted, due = granted + shared->quantum_ns;

    waiters_look(&all, shared, deal_now);
    uint64_t limit = limit_end(shared, tenant_of(shared, slot), from);
    uint64_t class = class_end(&all, slot, deal_epoch, granted, from);
    due = limit < due ? limit : due;
    return class < due ? class : due;
}

/* Nobody may have the token: until the first limit lets somebody. */
static inline void deal_idle(void)
{
    uint64_t first = UINT64_MAX;

    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        struct cuslice_tenant *t = tenant_of(shared, i);

        if (shared->waiting[i / 64] >> (i % 64) & 1) {
            uint64_t until = limit_until(shared, t, deal_now);
            first = until && until < first ? until : first;
        }
    }
    REQUIRE(first != UINT64_MAX);
    deal_now = first;
}

/* The next turn, of whoever it is; its slot, or CUSLICE_NOBODY when time passed instead. */
static inline unsigned deal_turn(void)
{
    unsigned slot = deal_next(deal_last);

    if (slot == CUSLICE_NOBODY) {
        deal_idle();
        return slot;
    }
    struct deal_turn *turn = &deal_turns[deal_count++];
    REQUIRE(deal_count < DEAL_TURNS);
    deal_last = slot;
    *turn = (struct deal_turn){slot, deal_now, 0};
    deal_grant(slot);
    for (unsigned parts = 0;; parts++) {
        uint64_t due = deal_due(slot);

        REQUIRE(parts < 10000);
        deal_now = due > deal_now ? due : deal_now + 15 * CLOCK_US;
        deal_charge(slot);
        if (deal_next(slot) != slot || deal_now >= deal_stop)
            break;
        deal_grant(slot);
    }
    deal_now += deal_kernel[slot];
    deal_charge(slot);
    turn->end = deal_now;
    return slot;
}

static inline void deal_for(uint64_t ns)
{
    deal_stop = deal_now + ns;
    while (deal_now < deal_stop)
        deal_turn();
}

/* Nanoseconds that a tenant had between two instants. */
static inline uint64_t deal_used(unsigned tenant, uint64_t from, uint64_t to)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < deal_count; i++) {
        uint64_t start = deal_turns[i].start > from ? deal_turns[i].start : from;
        uint64_t end = deal_turns[i].end < to ? deal_turns[i].end : to;

        if (end > start && shared->slot[deal_turns[i].slot].tenant == tenant)
            sum += end - start;
    }
    return sum;
}

static inline double deal_percent(unsigned tenant, uint64_t from, uint64_t to)
{
    return 100.0 * (double)deal_used(tenant, from, to) / (double)(to - from);
}

#endif
