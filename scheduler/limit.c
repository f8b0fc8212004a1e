/*
 * limit: a budget that fills at the limit's rate and that use empties (see limit.h). Runs in who
 * charges a turn and who decides about the next; owns two words of each tenant's record; must never
 * wait, and never hold back a tenant that has no limit.
 *
 * ONE WORD. The budget is kept as a point in time, `limit_paid`: when everything used so far is
 * paid for at the rate of the limit. A use of t moves it ahead by t / limit; what lies between it
 * and now, times the limit, is the budget. It needs no clock to fill, and each change is one
 * compare-exchange: of a process that dies, a use is booked or not, and nothing is half-done. All
 * clients of a tenant share the word, so they share the limit.
 *
 * A turn may begin while the budget is not empty, and ends when it is. Once it was empty (the
 * lowest bit) it must grow to a START before the next turn, half a percent of the window, else
 * turns would be as short as the time that it takes to look. So a busy tenant's use of any window
 * differs from its limit by no more than a start and the kernel that was running when the budget
 * ended. What such a kernel takes beyond the budget is debt: the word lies ahead of now, and
 * later windows pay.
 *
 * What may be saved up: a tenant that sleeps, one start. One that waits for others to end their
 * slices, a quantum (or a start if that is more): else whoever waits for its neighbours' slices
 * would stay below its limit for ever.
 *
 * The window is one second, or ten quanta if that is longer. Debt beyond LIMIT_WORST of use (or the
 * longest turn there can be, if that is more) is forgiven: it is more likely damage to the file.
 *
 * The limit may change at any time. Whoever finds `limit_rate` to be another exchanges it and
 * converts what is owed, once; one that dies in between leaves a debt in terms of the old limit.
 * Where there was no limit before (0), what was used until then is free: the first charge is not
 * booked.
 */
#include "limit.h"

#include <stdatomic.h>

#include "clock.h"
#include "segment.h"
#include "tenant.h"

#define LIMIT_WINDOW_NS CLOCK_S
#define LIMIT_WINDOW_QUANTA 10
#define LIMIT_STARTS 200 /* in a window */
#define LIMIT_WORST (10 * CLOCK_S)
/* What is left of a budget when it counts as empty: nothing can be done with it, and what rounding
 * leaves must not make a turn go on for ever. */
#define LIMIT_DUST_NS (10 * CLOCK_US)
#define LIMIT_SPENT UINT64_C(1)

uint32_t limit_of(const struct cuslice_tenant *tenant)
{
    uint32_t ppm = atomic_load_explicit(&tenant->limit_ppm, memory_order_relaxed);
    return ppm >= LIMIT_LEAST && ppm < LIMIT_NONE ? ppm : 0;
}

/* The time in which the rate pays for so much use. */
static uint64_t limit_stretch(uint64_t use, uint32_t ppm)
{
    return use / ppm * LIMIT_NONE + use % ppm * LIMIT_NONE / ppm;
}

static uint64_t limit_start(const struct cuslice_segment *shared)
{
    uint64_t quanta = LIMIT_WINDOW_QUANTA * segment_quantum(shared);
    return (quanta > LIMIT_WINDOW_NS ? quanta : LIMIT_WINDOW_NS) / LIMIT_STARTS;
}

static uint64_t limit_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* `paid`, but no further back than what a tenant that waits may have saved up. */
static uint64_t limit_saved(const struct cuslice_segment *shared, uint64_t paid, uint32_t ppm,
                            uint64_t from)
{
    uint64_t quantum = segment_quantum(shared), start = limit_start(shared);
    uint64_t least = limit_less(from, limit_stretch(quantum > start ? quantum : start, ppm));
    return paid > least ? paid : least;
}

/* Debt in terms of another limit. */
static void limit_convert(struct cuslice_tenant *t, uint32_t ppm, uint64_t now)
{
    uint32_t rate = atomic_load(&t->limit_rate);
    if (rate == ppm || rate == 0 || !atomic_compare_exchange_strong(&t->limit_rate, &rate, ppm))
        return;
    if (rate < LIMIT_LEAST || rate > LIMIT_NONE)
        return;
    uint64_t paid = atomic_load(&t->limit_paid), debt, next;
    do {
        debt = limit_less(paid, now);
        next = now + debt / ppm * rate + debt % ppm * rate / ppm;
    } while (debt && !atomic_compare_exchange_weak(&t->limit_paid, &paid,
                                                   (next & ~LIMIT_SPENT) | (paid & LIMIT_SPENT)));
}

/* The word, put right. */
static uint64_t limit_paid(struct cuslice_segment *shared, struct cuslice_tenant *t, uint32_t ppm,
                           uint64_t now)
{
    uint64_t turn = 2 * (segment_quantum(shared) + segment_allowance(shared));
    uint64_t most = now + limit_stretch(turn > LIMIT_WORST ? turn : LIMIT_WORST, ppm);
    limit_convert(t, ppm, now);
    uint64_t paid = atomic_load(&t->limit_paid);
    if (paid > most + 1 &&
        atomic_compare_exchange_strong(&t->limit_paid, &paid, most | LIMIT_SPENT))
        paid = most | LIMIT_SPENT;
    return paid;
}

uint64_t limit_until(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t now)
{
    uint32_t ppm = limit_of(tenant);
    if (!ppm)
        return 0;
    uint64_t paid = limit_paid(shared, tenant, ppm, now);
    uint64_t until = paid & ~LIMIT_SPENT;
    if (paid & LIMIT_SPENT)
        until += limit_stretch(limit_start(shared), ppm);
    return until > now ? until : 0;
}

uint64_t limit_end(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t from)
{
    uint32_t ppm = limit_of(tenant);
    if (!ppm)
        return CLOCK_NEVER;
    uint64_t paid = limit_paid(shared, tenant, ppm, from) & ~LIMIT_SPENT;
    uint64_t left = limit_less(from, limit_saved(shared, paid, ppm, from));
    uint32_t rest = LIMIT_NONE - ppm; /* it goes on filling meanwhile */
    return from + left / rest * ppm + left % rest * ppm / rest;
}

/* Whether there was none before; from now on there is. */
static bool limit_begins(struct cuslice_tenant *tenant, uint32_t ppm)
{
    uint32_t none = 0;
    return atomic_compare_exchange_strong(&tenant->limit_rate, &none, ppm);
}

void limit_spend(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t ns,
                 uint64_t now)
{
    uint32_t ppm = tenant ? limit_of(tenant) : 0;
    if (tenant && !ppm && atomic_load(&tenant->limit_rate))
        atomic_store(&tenant->limit_rate, 0);
    if (!ppm || limit_begins(tenant, ppm))
        return;
    uint64_t paid = limit_paid(shared, tenant, ppm, now), next;
    do {
        next = limit_saved(shared, paid & ~LIMIT_SPENT, ppm, limit_less(now, ns)) +
               limit_stretch(ns, ppm);
        next = (next & ~LIMIT_SPENT) | (next + LIMIT_DUST_NS >= now);
    } while (!atomic_compare_exchange_weak(&tenant->limit_paid, &paid, next));
}

void limit_rest(struct cuslice_segment *shared, struct cuslice_tenant *tenant, uint64_t now)
{
    uint32_t ppm = limit_of(tenant);
    if (!ppm)
        return;
    uint64_t paid = limit_paid(shared, tenant, ppm, now);
    uint64_t least = limit_less(now, limit_stretch(limit_start(shared), ppm));
    while ((paid & ~LIMIT_SPENT) < (least & ~LIMIT_SPENT) &&
           !atomic_compare_exchange_weak(&tenant->limit_paid, &paid, least & ~LIMIT_SPENT))
        ;
}

static bool limit_holds(struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    struct cuslice_tenant *tenant = tenant_of(shared, slot);
    return tenant && limit_until(shared, tenant, now);
}

void limit_strike(struct cuslice_segment *shared, uint64_t set[CUSLICE_SLOT_WORDS], uint64_t now)
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = set[w]; left; left &= left - 1)
            if (limit_holds(shared, w * 64 + (unsigned)__builtin_ctzll(left), now))
                set[w] &= ~(left & -left);
}

bool limit_spares(struct cuslice_segment *shared, const uint64_t set[CUSLICE_SLOT_WORDS],
                  uint64_t now)
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = set[w]; left; left &= left - 1)
            if (!limit_holds(shared, w * 64 + (unsigned)__builtin_ctzll(left), now))
                return true;
    return false;
}
