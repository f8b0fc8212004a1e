/*
 * paging: how long turns are while memory pages (see paging.c). Arithmetic over the slots; any
 * thread; owns the word slice_ns of each slot.
 */
#ifndef CUSLICE_SCHEDULER_PAGING_H
#define CUSLICE_SCHEDULER_PAGING_H

#include <stdint.h>

#include "cuslice/segment.h"

/* No turn is made longer than this. */
#define PAGING_SLICE_MOST_NS UINT64_C(10000000000)

/* Nanoseconds in which the pages that a turn of this slot needs come in, and others go for them; 0
 * while all that is at work fits on the device. An estimate. */
uint64_t paging_cost(const struct cuslice_segment *shared, unsigned slot, uint64_t now);

/* As a turn of this slot begins: writes down how long it may be. By the slot's owner. */
void paging_begin(struct cuslice_segment *shared, unsigned slot, uint64_t now);

/* How long the slot's turn may be while others wait: the quantum, or what was written down. */
uint64_t paging_slice(const struct cuslice_segment *shared, unsigned slot);

/* The longest there is in this ring now. */
uint64_t paging_longest(const struct cuslice_segment *shared);

/* How long the slot may hold the GPU without work, at least: letting it go costs that much. 0 where
 * nothing pages. */
uint64_t paging_patience(const struct cuslice_segment *shared, unsigned slot);

#endif
