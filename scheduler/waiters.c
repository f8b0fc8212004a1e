/*
 * waiters: one walk over those who wait (see waiters.h). Runs in whoever decides about a turn or
 * charges one; owns nothing; must believe no index that the file holds.
 */
#include "waiters.h"

#include <stdatomic.h>
#include <string.h>

#include "class.h"
#include "limit.h"
#include "segment.h"
#include "tenant.h"

#define WAITERS_NEW 0xff

static void waiters_add(struct waiters *w, unsigned tenant)
{
    struct waiters_tenant *t = &w->tenant[w->count++];
    struct cuslice_tenant *record = tenant < CUSLICE_TENANTS ? &w->shared->tenant[tenant] : NULL;
    memset(t->slots, 0, sizeof t->slots);
    t->record = record;
    t->vtime = record ? atomic_load_explicit(&record->vtime, memory_order_acquire) : UINT64_MAX;
    t->class = class_of(record);
    t->able = !record || !limit_until(w->shared, record, w->now);
    if (t->able && t->class > w->highest)
        w->highest = t->class;
    if (t->able && t->class < w->lowest)
        w->lowest = t->class;
}

void waiters_gather(struct waiters *w, struct cuslice_segment *shared,
                    const uint64_t set[CUSLICE_SLOT_WORDS], uint64_t now)
{
    uint8_t place[CUSLICE_TENANTS + 1];
    memset(place, WAITERS_NEW, sizeof place);
    w->shared = shared;
    w->now = now;
    w->highest = CUSLICE_LOW;
    w->lowest = CUSLICE_HIGH;
    w->count = 0;
    for (unsigned word = 0; word < CUSLICE_SLOT_WORDS; word++)
        for (uint64_t left = set[word]; left; left &= left - 1) {
            unsigned tenant = tenant_index(shared, word * 64 + (unsigned)__builtin_ctzll(left));
            if (place[tenant] == WAITERS_NEW) {
                place[tenant] = (uint8_t)w->count;
                waiters_add(w, tenant);
            }
            w->tenant[place[tenant]].slots[word] |= left & -left;
        }
}

void waiters_look(struct waiters *w, struct cuslice_segment *shared, uint64_t now)
{
    uint64_t set[CUSLICE_SLOT_WORDS];
    for (unsigned word = 0; word < CUSLICE_SLOT_WORDS; word++)
        set[word] = atomic_load(&shared->waiting[word]);
    waiters_gather(w, shared, set, now);
}

struct waiters_tenant *waiters_find(struct waiters *w, unsigned slot)
{
    if (slot >= CUSLICE_SLOTS)
        return NULL;
    WAITERS_EACH(w, t)
    {
        if (t->slots[slot / 64] >> (slot % 64) & 1)
            return t;
    }
    return NULL;
}

void waiters_strike(struct waiters_tenant *t, unsigned slot)
{
    t->slots[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    t->able = t->able && segment_first(t->slots) < CUSLICE_SLOTS;
}
