/* paging: how long turns are, from the bytes in the slots: who counts as at work, what can move,
 * the bounds, and slots that hold garbage. No clock and no processes. */
#include "paging.h"

#include "policy.h"
#include "room.h"
#include "segment.h"

#define GB UINT64_C(1000000000)
#define NOW (UINT64_C(1000) * CLOCK_S)

static struct segment ring_file;
static struct cuslice_segment *shared;

static void begin(uint64_t device_bytes)
{
    REQUIRE(segment_open_private(&ring_file, &room_device) == 0);
    shared = ring_file.shared;
    shared->device_bytes = device_bytes;
}

static void client(unsigned slot, uint64_t bytes, uint64_t paged, bool waits)
{
    shared->slot[slot].bytes = bytes;
    shared->slot[slot].paged = paged;
    shared->attached[slot / 64] |= UINT64_C(1) << (slot % 64);
    if (waits)
        shared->waiting[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static void what_fits_does_not_page(void)
{
    begin(8 * GB);
    client(0, 4 * GB, 4 * GB, true);
    client(70, 4 * GB, 4 * GB, true);
    CHECK_EQ(paging_cost(shared, 0, NOW), 0);
    paging_begin(shared, 0, NOW);
    CHECK_EQ(paging_slice(shared, 0), segment_quantum(shared));
    CHECK_EQ(paging_longest(shared), segment_quantum(shared));
    CHECK_EQ(paging_patience(shared, 0), 0);
    segment_close(&ring_file);
}

/* 12 GB on 8: 4 GB go, 4 GB come, at 10 GB/s: 0.8 s; the turn is four times that. */
static void what_does_not_fit_makes_turns_long(void)
{
    begin(8 * GB);
    client(0, 6 * GB, 6 * GB, true);
    client(70, 6 * GB, 5 * GB, true);
    CHECK_EQ(paging_cost(shared, 0, NOW) / CLOCK_MS, 800);
    shared->slot[70].context_bytes = GB / 2;
    CHECK_EQ(paging_cost(shared, 0, NOW) / CLOCK_MS, 900);
    shared->slot[70].context_bytes = 0;
    paging_begin(shared, 0, NOW);
    CHECK_EQ(paging_slice(shared, 0) / CLOCK_MS, 3200);
    CHECK_EQ(paging_longest(shared) / CLOCK_MS, 3200);
    CHECK_EQ(paging_patience(shared, 0) / CLOCK_MS, 800);
    CHECK_EQ(paging_slice(shared, 70), segment_quantum(shared)); /* not begun yet */
    segment_close(&ring_file);
}

/* No more than its own pages can move; without any there is nothing to wait for. */
static void no_more_moves_than_there_is(void)
{
    begin(8 * GB);
    client(0, 7 * GB, 1 * GB, true);
    client(1, 7 * GB, 0, true);
    CHECK_EQ(paging_cost(shared, 0, NOW) / CLOCK_MS, 200);
    CHECK_EQ(paging_cost(shared, 1, NOW), 0);
    segment_close(&ring_file);
}

/* The pages of who does nothing leave once and stay away; what is fixed stays in the way. */
static void the_idle_count_for_what_is_fixed(void)
{
    begin(8 * GB);
    client(0, 6 * GB, 6 * GB, true);
    client(1, 6 * GB, 5 * GB, false);
    CHECK_EQ(paging_cost(shared, 0, NOW), 0);
    shared->slot[1].books.last_launch_ns = NOW - CLOCK_S;
    CHECK_EQ(paging_cost(shared, 0, NOW) / CLOCK_MS, 800);
    shared->slot[1].books.last_launch_ns = NOW - 60 * CLOCK_S;
    CHECK_EQ(paging_cost(shared, 0, NOW), 0);
    shared->slot[1].bytes = 8 * GB;
    CHECK_EQ(paging_cost(shared, 0, NOW) / CLOCK_MS, 200);
    segment_close(&ring_file);
}

static void garbage_makes_no_turn_endless(void)
{
    begin(8 * GB);
    client(0, UINT64_MAX, UINT64_MAX, true);
    for (unsigned slot = 1; slot < CUSLICE_SLOTS; slot++)
        client(slot, UINT64_MAX, UINT64_MAX / 2, true);
    paging_begin(shared, 0, NOW);
    CHECK_EQ(paging_slice(shared, 0), PAGING_SLICE_MOST_NS);
    shared->slot[1].slice_ns = UINT64_MAX;
    CHECK_EQ(paging_slice(shared, 1), PAGING_SLICE_MOST_NS);
    CHECK_EQ(paging_longest(shared), PAGING_SLICE_MOST_NS);
    segment_close(&ring_file);
}

/* What a long turn can have made is owed, and no damage. */
static void debts_of_long_turns_stand(void)
{
    uint64_t set[CUSLICE_SLOT_WORDS] = {3};
    struct waiters both;
    begin(8 * GB);
    for (unsigned i = 0; i < 2; i++) {
        client(i, GB, GB, true);
        shared->slot[i].tenant = i;
        shared->tenant[i].weight = 100;
        shared->tenant[i].vtime = CLOCK_S;
    }
    shared->tenant[0].vtime = 5 * CLOCK_S;
    shared->slot[0].slice_ns = 3 * CLOCK_S;
    waiters_gather(&both, shared, set, NOW);
    policy_advance(&both, CUSLICE_NOBODY);
    CHECK_EQ(shared->tenant[0].vtime / CLOCK_MS, 5000);
    shared->slot[0].slice_ns = 0;
    waiters_gather(&both, shared, set, NOW);
    policy_advance(&both, CUSLICE_NOBODY);
    CHECK(shared->tenant[0].vtime < 2 * CLOCK_S);
    segment_close(&ring_file);
}

int main(void)
{
    TEST(what_fits_does_not_page);
    TEST(what_does_not_fit_makes_turns_long);
    TEST(no_more_moves_than_there_is);
    TEST(the_idle_count_for_what_is_fixed);
    TEST(debts_of_long_turns_stand);
    TEST(garbage_makes_no_turn_endless);
    return test_result();
}
