/* Histograms of durations in the shared layout: log-linear, four buckets an octave.
 *
 * Owns the bucket edges: nobody else computes them. Adding is two or three relaxed atomic
 * additions and may be done by any thread of any client; reading takes a histogram that others are
 * adding to and never trusts what it finds. Nothing here blocks, allocates or fails.
 */
#ifndef CUSLICE_HISTOGRAM_H
#define CUSLICE_HISTOGRAM_H

#include <stdint.h>

#include "cuslice/segment.h"

/* Returns the bucket that counts a duration of ns; always below CUSLICE_BUCKETS. */
unsigned histogram_bucket(uint64_t ns);

/* Returns the least duration (ns) that the bucket counts; for a bucket past the last, UINT64_MAX.
 * A bucket ends where the next one begins. */
uint64_t histogram_edge(unsigned bucket);

/* Counts one duration of ns. Thread-safe and safe between processes. */
void histogram_add(struct cuslice_histogram *histogram, uint64_t ns);

/* Returns the duration (ns) that the share q (0..1) of the counted ones do not exceed, interpolated
 * within its bucket; 0 when nothing was counted. What lies past the last edge is given as it. */
uint64_t histogram_quantile(const struct cuslice_histogram *histogram, double q);

#endif
