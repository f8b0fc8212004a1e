/*
 * paging: turns that are long enough to bring pages in (see paging.h). Runs in the client that
 * begins a turn, and in whoever asks how long a turn may be. Reads every slot's bytes, writes
 * slice_ns of its own alone; must never trust a figure further than to make one turn
 * PAGING_SLICE_MOST_NS long.
 *
 * Memory that may be paged out (slot.paged) of a client that does not have the turn goes to the
 * host when the one that has it needs the room. What moves at a change of turns is what the clients
 * at work have together beyond the device's memory, and no more than the client's own: so many
 * bytes out, so many in. A turn is PAGING_PARTS times as long as that takes, so that a fifth to a
 * quarter of it goes into paging.
 *
 * At work is who waits, or has launched something within the last PAGING_RECENT_NS. Of the others
 * the memory that cannot be paged out counts alone, since the rest leaves once and stays away.
 */
#include "paging.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "clock.h"
#include "segment.h"
#include "slot.h"

#define PAGING_PARTS 4
/* Bytes per second, one way: about half of what PCIe 4.0 x16 carries, since pages come by faults.
 */
#define PAGING_RATE UINT64_C(10000000000)
#define PAGING_RECENT_NS (20 * CLOCK_S)
/* More than any device has. */
#define PAGING_ABSURD (UINT64_C(1) << 43)

static uint64_t paging_bytes(uint64_t bytes)
{
    return bytes < PAGING_ABSURD ? bytes : PAGING_ABSURD;
}

static bool paging_at_work(const struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    uint64_t last =
        atomic_load_explicit(&shared->slot[slot].books.last_launch_ns, memory_order_relaxed);
    return (atomic_load(&shared->waiting[slot / 64]) >> (slot % 64) & 1) ||
           (last && (last > now || now - last < PAGING_RECENT_NS));
}

/* What a slot takes of the device while another has the turn, and wants in its own. */
static uint64_t paging_need(const struct cuslice_segment *shared, unsigned slot, bool at_work)
{
    const struct cuslice_slot *s = &shared->slot[slot];
    uint64_t bytes = paging_bytes(slot_bytes(s)), paged = paging_bytes(atomic_load(&s->paged));
    uint64_t fixed = bytes > paged ? bytes - paged : 0;
    return (at_work ? bytes : fixed) + paging_bytes(atomic_load(&s->context_bytes));
}

/* Bytes that the clients at work, `slot` among them, have beyond the device's memory. */
static uint64_t paging_excess(const struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = atomic_load(&shared->attached[w]); left; left &= left - 1) {
            unsigned other = w * 64 + (unsigned)__builtin_ctzll(left);
            sum += paging_need(shared, other, other == slot || paging_at_work(shared, other, now));
        }
    return sum > shared->device_bytes ? sum - shared->device_bytes : 0;
}

uint64_t paging_cost(const struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    uint64_t moves = paging_bytes(atomic_load(&shared->slot[slot].paged));
    if (moves == 0)
        return 0;
    uint64_t excess = paging_excess(shared, slot, now);
    moves = excess < moves ? excess : moves;
    return (uint64_t)(2 * (double)moves * (double)CLOCK_S / (double)PAGING_RATE);
}

void paging_begin(struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    uint64_t ns = PAGING_PARTS * paging_cost(shared, slot, now);
    ns = ns < PAGING_SLICE_MOST_NS ? ns : PAGING_SLICE_MOST_NS;
    if (atomic_load_explicit(&shared->slot[slot].slice_ns, memory_order_relaxed) != ns)
        atomic_store(&shared->slot[slot].slice_ns, ns);
}

/* 0: the quantum. */
static uint64_t paging_written(const struct cuslice_segment *shared, unsigned slot)
{
    uint64_t ns = atomic_load_explicit(&shared->slot[slot].slice_ns, memory_order_relaxed);
    return ns < PAGING_SLICE_MOST_NS ? ns : PAGING_SLICE_MOST_NS;
}

uint64_t paging_slice(const struct cuslice_segment *shared, unsigned slot)
{
    uint64_t quantum = segment_quantum(shared), ns = paging_written(shared, slot);
    return ns > quantum ? ns : quantum;
}

uint64_t paging_longest(const struct cuslice_segment *shared)
{
    uint64_t longest = segment_quantum(shared);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = atomic_load(&shared->attached[w]); left; left &= left - 1) {
            uint64_t ns = paging_written(shared, w * 64 + (unsigned)__builtin_ctzll(left));
            longest = ns > longest ? ns : longest;
        }
    return longest;
}

uint64_t paging_patience(const struct cuslice_segment *shared, unsigned slot)
{
    return paging_written(shared, slot) / PAGING_PARTS;
}
