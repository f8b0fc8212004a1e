/* Histograms of durations: see histogram.h for the contract and segment.h for the layout.
 *
 * The edges follow from the bits of the duration, so that an addition costs one bit scan and no
 * search. Runs on whatever thread counts (the keeper, a submitter at the gate) or reads (the tool);
 * must never take a lock or divide by something read from shared memory without looking at it.
 */
#include "histogram.h"

#include <stdatomic.h>

enum { FIRST_BITS = 10, STEPS_BITS = 2, STEPS = 1 << STEPS_BITS, LAST = CUSLICE_BUCKETS - 1 };

unsigned histogram_bucket(uint64_t ns)
{
    if (ns >> FIRST_BITS == 0)
        return 0;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned step = (unsigned)(ns >> (top - STEPS_BITS)) & (STEPS - 1);
    unsigned bucket = 1 + STEPS * (top - FIRST_BITS) + step;
    return bucket < LAST ? bucket : LAST;
}

uint64_t histogram_edge(unsigned bucket)
{
    if (bucket == 0)
        return 0;
    if (bucket > LAST)
        return UINT64_MAX;
    unsigned octave = (bucket - 1) / STEPS;
    unsigned step = (bucket - 1) % STEPS;
    return (uint64_t)(STEPS + step) << (FIRST_BITS - STEPS_BITS + octave);
}

void histogram_add(struct cuslice_histogram *histogram, uint64_t ns)
{
    unsigned bucket = histogram_bucket(ns);

    atomic_fetch_add_explicit(&histogram->bucket[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_ns, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->count, 1, memory_order_relaxed);
}

/* The buckets are copied first: others go on counting, and the rank must fit what is walked. Counts
 * are cut to 48 bits so that no garbage overflows the sum. */
static uint64_t histogram_copy(const struct cuslice_histogram *histogram,
                               uint64_t count[CUSLICE_BUCKETS])
{
    uint64_t total = 0;

    for (unsigned i = 0; i < CUSLICE_BUCKETS; i++) {
        uint64_t n = atomic_load_explicit(&histogram->bucket[i], memory_order_relaxed);
        count[i] = n & (UINT64_MAX >> 16);
        total += count[i];
    }
    return total;
}

static uint64_t histogram_interpolate(unsigned bucket, double part)
{
    uint64_t low = histogram_edge(bucket);

    if (bucket == LAST)
        return low;
    return low + (uint64_t)((double)(histogram_edge(bucket + 1) - low) * part);
}

uint64_t histogram_quantile(const struct cuslice_histogram *histogram, double q)
{
    uint64_t count[CUSLICE_BUCKETS];
    uint64_t total = histogram_copy(histogram, count);
    double wanted = (q > 0 ? (q < 1 ? q : 1) : 0) * (double)total;
    double below = 0;
    unsigned last = 0;

    for (unsigned i = 0; i < CUSLICE_BUCKETS; i++) {
        if (count[i] == 0)
            continue;
        if (below + (double)count[i] >= wanted)
            return histogram_interpolate(i, (wanted - below) / (double)count[i]);
        below += (double)count[i];
        last = i;
    }
    return total ? histogram_interpolate(last, 1) : 0;
}
