/* What the guests got since the counting began: differences of two readings of the ring, and of the
 * guests' own words. Plain arithmetic on the caller's memory; one thread. */
#ifndef DEMO_TALLY_H
#define DEMO_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "guest.h"
#include "status.h"

/* One guest's figures, since the beginning where they count up. */
struct tally_row {
    bool present;
    bool holds;
    bool draining;
    uint64_t holding_ns;
    uint64_t waiting_ns;
    uint64_t granted_ns;
    uint64_t waited_ns;
    uint64_t slices;
    uint64_t kernels;
    uint64_t memory;
    uint64_t cap;
    uint64_t refusals;
};

struct tally {
    uint64_t begin_ns;
    uint64_t now_ns;
    struct tally_row base[GUESTS]; /* absolute, when the counting began */
    struct tally_row row[GUESTS];
};

/* Whether every guest is attached and has had a turn. */
bool tally_ready(const struct status_ring *ring, const struct guest guests[GUESTS]);

/* Begins the counting at this reading. */
void tally_begin(struct tally *tally, const struct status_ring *ring,
                 const struct guest guests[GUESTS]);

/* Takes in a later reading. */
void tally_update(struct tally *tally, const struct status_ring *ring,
                  const struct guest guests[GUESTS]);

/* A guest's part of the time that all were granted, in percent; likewise of the kernels that all
 * say they have run, and of the weights. */
double tally_share(const struct tally *tally, int guest);
double tally_kernel_share(const struct tally *tally, int guest);
double tally_asked(const struct guest guests[GUESTS], int guest);

/* The guest that holds the token, or -1. */
int tally_holder(const struct tally *tally);

#endif
