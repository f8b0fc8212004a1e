/*
 * class: which tenants compete (see class.h). Runs in who charges a turn and who decides about the
 * next; owns one word of the segment; must never let a class starve.
 *
 * Of those who wait only the highest class competes, by charged time per weight (policy). A slice
 * of a lower class ends as soon as a higher one waits. So that the lower ones do not starve they
 * have 2 % of the time together: `class_owed` grows by 2 parts for each 98 that the class above is
 * charged while one of them waits, and shrinks by what turns given out of it take (`class_epoch`
 * marks them; what a slice takes to end because a higher one has come is no such turn). Once it has
 * grown to a turn, the next turn is theirs: the tenant goes whose last turn is longest ago,
 * whatever its class and weight, until what is owed is used up. These turns are short, since the
 * class above waits for them; a kernel that takes longer makes the next one come later.
 *
 * Long kernels of the class above make more than a turn owed, up to CLASS_MOST, and then the next
 * turn is that much longer. While one class has the GPU to itself what is owed either way is
 * forgotten, as fast as the GPU is used: so a high client that comes back finds no old claims.
 *
 * The word is moved by compare-exchange; a process that dies before it leaves one turn unbooked.
 */
#include "class.h"

#include <stdatomic.h>

#include "clock.h"
#include "segment.h"
#include "tenant.h"

#define CLASS_PARTS 49 /* 98 to 2 */
#define CLASS_MOST (40 * (int64_t)CLASS_TURN_NS)

unsigned class_of(const struct cuslice_tenant *tenant)
{
    uint32_t priority =
        tenant ? atomic_load_explicit(&tenant->priority, memory_order_relaxed) : CUSLICE_NORMAL;
    return priority <= CUSLICE_HIGH ? priority : CUSLICE_NORMAL;
}

bool class_outranks(struct cuslice_segment *shared, unsigned slot, unsigned other)
{
    return slot < CUSLICE_SLOTS && other < CUSLICE_SLOTS &&
           class_of(tenant_of(shared, slot)) > class_of(tenant_of(shared, other));
}

static int64_t class_worst(const struct cuslice_segment *shared)
{
    return (int64_t)(2 * (segment_quantum(shared) + segment_allowance(shared)));
}

/* Held to what turns can have made of it. */
static int64_t class_within(const struct cuslice_segment *shared, uint64_t owed)
{
    int64_t value = (int64_t)owed, least = -class_worst(shared);
    return value < least ? least : value > CLASS_MOST ? CLASS_MOST : value;
}

static int64_t class_owed(const struct cuslice_segment *shared)
{
    return class_within(shared, atomic_load(&shared->class_owed));
}

bool class_below(const struct cuslice_segment *shared, uint64_t epoch)
{
    return atomic_load(&shared->class_epoch) == epoch;
}

bool class_outranked(const struct waiters *waiters, unsigned slot)
{
    return slot < CUSLICE_SLOTS && waiters->highest > class_of(tenant_of(waiters->shared, slot));
}

bool class_due(struct waiters *waiters, unsigned last, bool below)
{
    int64_t owed = class_owed(waiters->shared);
    if (waiters->lowest >= waiters->highest)
        return false;
    if (!class_outranked(waiters, last))
        return owed >= (int64_t)CLASS_TURN_NS;
    const struct waiters_tenant *mine = waiters_find(waiters, last);
    return below && mine && waiters_outranked(waiters, mine) && owed > 0;
}

uint64_t class_end(const struct waiters *waiters, unsigned slot, uint64_t epoch, uint64_t granted,
                   uint64_t from)
{
    struct cuslice_segment *shared = waiters->shared;
    unsigned mine = class_of(tenant_of(shared, slot));
    int64_t owed = class_owed(shared);
    if (waiters->highest > mine)
        return from + (owed > 0 && class_below(shared, epoch) ? (uint64_t)owed : 0);
    if (waiters->lowest >= mine)
        return CLOCK_NEVER;
    int64_t lacks = (int64_t)CLASS_TURN_NS - owed;
    uint64_t quantum = segment_quantum(shared), least = CLASS_PARTS * CLASS_TURN_NS;
    uint64_t due = from + (lacks > 0 ? (uint64_t)lacks * CLASS_PARTS : 0);
    least = granted + (quantum < least ? quantum : least);
    return due > least ? due : least;
}

/* What is owed after a use of `use`, in a turn out of it or not, while a lower class waits, a
 * higher one, or neither. */
static int64_t class_after(int64_t owed, int64_t use, bool below, bool lower, bool higher)
{
    if (below)
        return owed - use;
    if (lower)
        return owed + use / CLASS_PARTS;
    if (higher)
        return owed;
    if (owed > 0)
        return owed > use ? owed - use : 0;
    return -owed > use ? owed + use : 0;
}

void class_spend(const struct waiters *waiters, unsigned slot, uint64_t epoch, uint64_t ns)
{
    struct cuslice_segment *shared = waiters->shared;
    unsigned mine = class_of(tenant_of(shared, slot));
    int64_t worst = class_worst(shared), use = ns < (uint64_t)worst ? (int64_t)ns : worst;
    uint64_t old = atomic_load(&shared->class_owed), next;
    do {
        int64_t owed = class_within(shared, old);
        owed = class_after(owed, use, class_below(shared, epoch),
                           waiters->lowest<mine, waiters->highest> mine);
        next = (uint64_t)class_within(shared, (uint64_t)owed);
        if (next == old)
            return;
    } while (!atomic_compare_exchange_weak(&shared->class_owed, &old, next));
}
