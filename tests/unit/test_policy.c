/* policy: shares after many slices against the figures known for this rule, debts and their paying
 * back, sleepers, tenants of several clients, ties, and records that hold garbage. No clock and no
 * processes: turns are dealt by hand. */
#include "policy.h"

#include "room.h"
#include "segment.h"

#define MS CLOCK_MS

static struct segment ring_file;
static struct cuslice_segment *shared;
static uint64_t waiting[CUSLICE_SLOT_WORDS];
static uint64_t used[CUSLICE_TENANTS]; /* nanoseconds, as the test counts them */
static uint64_t now;
static unsigned holder;

static void begin(void)
{
    REQUIRE(segment_open_private(&ring_file, &room_device) == 0);
    shared = ring_file.shared;
    memset(waiting, 0, sizeof(waiting));
    memset(used, 0, sizeof(used));
    now = 1;
    holder = CUSLICE_NOBODY;
}

static void end(void)
{
    segment_close(&ring_file);
}

static void client(unsigned slot, unsigned tenant, uint32_t weight)
{
    shared->slot[slot].tenant = tenant;
    shared->tenant[tenant].weight = weight;
    shared->tenant[tenant].priority = CUSLICE_NORMAL;
}

static bool waits(unsigned slot)
{
    return waiting[slot / 64] >> (slot % 64) & 1;
}

static void want(unsigned slot)
{
    policy_lift(shared, slot, waiting, holder, 0, 0, now);
    waiting[slot / 64] |= UINT64_C(1) << (slot % 64);
}

static void rest(unsigned slot)
{
    waiting[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

/* One turn of `ns` for whom policy names; it wants the next one too. */
static unsigned turn(uint64_t ns)
{
    unsigned slot = policy_expect(shared, waiting, holder, now);
    unsigned tenant = shared->slot[slot].tenant;
    struct waiters all;

    REQUIRE(slot < CUSLICE_SLOTS && waits(slot));
    holder = slot;
    shared->slot[slot].last_grant_ns = now;
    now += ns;
    if (tenant < CUSLICE_TENANTS) {
        used[tenant] += ns;
        policy_charge(&shared->tenant[tenant], ns);
    }
    waiters_gather(&all, shared, waiting, now);
    policy_advance(&all, slot);
    return slot;
}

/* Who goes next after `slot`, which wants another turn. */
static unsigned again(unsigned slot)
{
    struct waiters all;
    bool below = false;

    waiters_gather(&all, shared, waiting, now);
    return policy_next(&all, slot, &below);
}

static double share(unsigned tenant)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < CUSLICE_TENANTS; i++)
        all += used[i];
    return 100.0 * (double)used[tenant] / (double)all;
}

static double worst(const double *wanted, unsigned n)
{
    double most = 0;

    for (unsigned i = 0; i < n; i++) {
        double off = share(i) - wanted[i];
        off = off < 0 ? -off : off;
        most = off > most ? off : most;
    }
    return most;
}

static void test_shares_50_30_20(void)
{
    static const double wanted[] = {50, 30, 20};

    begin();
    for (unsigned i = 0; i < 3; i++) {
        client(i, i, (uint32_t)wanted[i]);
        want(i);
    }
    for (unsigned n = 1; n <= 1000; n++) {
        turn(20 * MS);
        if (n == 100)
            CHECK(worst(wanted, 3) <= 0.6);
        if (n == 300)
            CHECK(worst(wanted, 3) <= 0.25);
    }
    CHECK(worst(wanted, 3) <= 0.1);
    end();
}

static void test_share_90_10(void)
{
    static const double wanted[] = {90, 10};

    begin();
    client(200, 0, 900);
    client(3, 1, 100);
    want(200);
    want(3);
    for (unsigned n = 0; n < 1000; n++)
        turn(20 * MS);
    CHECK(worst(wanted, 2) <= 0.1);
    end();
}

/* I3: the small one waits at most ceil(other weights / its weight) + other tenants slices. */
static void test_one_to_a_hundred(void)
{
    unsigned last = 0, longest = 0;

    begin();
    client(0, 0, 100);
    client(1, 1, 10000);
    want(0);
    want(1);
    for (unsigned n = 1; n <= 5050; n++)
        if (turn(20 * MS) == 0) {
            longest = n - last > longest ? n - last : longest;
            last = n;
        }
    CHECK(longest >= 100 && longest <= 102);
    CHECK_EQ(used[0], 50 * 20 * MS);
    end();
}

static void test_longest_wait_is_bounded(void)
{
    static const uint32_t weight[] = {37, 250, 4, 900, 100, 61};
    unsigned last[6] = {0}, bound[6];

    begin();
    for (unsigned i = 0; i < 6; i++) {
        uint32_t others = 0;

        for (unsigned j = 0; j < 6; j++)
            others += j == i ? 0 : weight[j];
        bound[i] = (others + weight[i] - 1) / weight[i] + 5;
        client(i, i, weight[i]);
        want(i);
    }
    for (unsigned n = 1; n <= 20000; n++) {
        unsigned slot = turn(20 * MS);

        for (unsigned i = 0; i < 6; i++)
            CHECK(n - last[i] <= bound[i] + 1);
        last[slot] = n;
    }
    end();
}

/* A kernel of 300 ms beside clients of 20 ms turns: waited for, then owed back. */
static void test_debt_is_paid_back(void)
{
    static const double wanted[] = {100.0 / 3, 100.0 / 3, 100.0 / 3};
    unsigned since = 0;

    begin();
    shared->allowance_ns = 1000 * MS;
    for (unsigned i = 0; i < 3; i++) {
        client(i, i, 100);
        want(i);
    }
    turn(20 * MS);
    turn(300 * MS);
    unsigned debtor = holder;
    for (; turn(20 * MS) != debtor; since++)
        REQUIRE(since < 100);
    CHECK(since >= 29 && since <= 31); /* 280 ms and 300 ms, in slices of 20; then a tie */
    for (unsigned n = 0; n < 900; n++)
        turn(20 * MS);
    CHECK(worst(wanted, 3) <= 0.15);
    end();
}

static void test_mixed_lengths_share_time(void)
{
    static const double wanted[] = {50, 50};

    begin();
    client(0, 0, 100);
    client(1, 1, 100);
    want(0);
    want(1);
    for (unsigned n = 0; n < 4000; n++) {
        unsigned next = policy_expect(shared, waiting, holder, now);
        turn(next == 0 ? 5 * MS / 100 : 20 * MS);
    }
    CHECK(worst(wanted, 2) <= 0.1);
    end();
}

/* Asleep for ten seconds of the others' turns, then back: ahead by one quantum, no more. */
static void test_sleeper_earns_one_quantum(void)
{
    unsigned in_a_row = 0;

    begin();
    client(0, 0, 100);
    client(1, 1, 100);
    want(0);
    want(1);
    for (unsigned n = 0; n < 10; n++)
        turn(20 * MS);
    rest(1);
    if (holder == 1)
        holder = 0;
    for (unsigned n = 0; n < 500; n++)
        turn(20 * MS);
    want(1);
    CHECK(shared->tenant[1].vtime >= shared->tenant[0].vtime - 20 * MS);
    for (; turn(20 * MS) == 1; in_a_row++)
        ;
    CHECK(in_a_row >= 1 && in_a_row <= 2);
    end();
}

/* Pausing between turns earns nothing: the one that never rests keeps its half. */
static void test_napping_earns_nothing(void)
{
    begin();
    client(0, 0, 100);
    client(1, 1, 100);
    want(0);
    want(1);
    for (unsigned n = 0; n < 2000; n++) {
        if (turn(20 * MS) == 1) {
            rest(1);
            turn(20 * MS);
            want(1);
        }
    }
    CHECK(share(1) <= 50.5);
    end();
}

static void test_newcomer_on_an_idle_ring(void)
{
    begin();
    client(0, 0, 100);
    want(0);
    for (unsigned n = 0; n < 1000; n++)
        turn(20 * MS);
    rest(0);
    holder = CUSLICE_NOBODY;
    client(1, 1, 100);
    want(1);
    CHECK_EQ(shared->tenant[1].vtime, shared->tenant[0].vtime - 20 * MS);
    want(0);
    turn(20 * MS);
    CHECK_EQ(holder, 1);
    turn(20 * MS);
    turn(20 * MS);
    CHECK(used[0] >= 1000 * 20 * MS + 20 * MS);
    end();
}

static void test_five_clients_one_share(void)
{
    static const double wanted[] = {50, 50};
    unsigned turns[6] = {0};

    begin();
    for (unsigned i = 0; i < 5; i++)
        client(i, 0, 100);
    client(5, 1, 100);
    for (unsigned i = 0; i < 6; i++)
        want(i);
    for (unsigned n = 0; n < 1000; n++)
        turns[turn(20 * MS)]++;
    CHECK(worst(wanted, 2) <= 0.1);
    for (unsigned i = 0; i < 5; i++)
        CHECK(turns[i] >= 99 && turns[i] <= 101);
    end();
}

/* A second client of a tenant that is awake lifts nothing and earns nothing. */
static void test_tenant_awake_is_not_lifted(void)
{
    begin();
    client(0, 0, 100);
    client(1, 0, 100);
    client(2, 1, 100);
    want(0);
    want(2);
    shared->tenant[0].vtime = 5 * MS;
    shared->tenant[1].vtime = 500 * MS;
    want(1);
    CHECK_EQ(shared->tenant[0].vtime, 5 * MS);
    end();
}

static void test_ties_in_ring_order(void)
{
    static const unsigned slot[] = {3, 70, 71, 130, 255};
    uint64_t none[CUSLICE_SLOT_WORDS] = {0};

    begin();
    CHECK_EQ(policy_expect(shared, none, CUSLICE_NOBODY, now), CUSLICE_NOBODY);
    CHECK_EQ(policy_expect(shared, none, 255, now), CUSLICE_NOBODY);
    for (unsigned i = 0; i < 5; i++) {
        client(slot[i], i, 100);
        waiting[slot[i] / 64] |= UINT64_C(1) << (slot[i] % 64);
    }
    for (unsigned i = 0; i < 5; i++) {
        CHECK_EQ(policy_expect(shared, waiting, slot[i], now), slot[(i + 1) % 5]);
        CHECK_EQ(policy_expect(shared, waiting, slot[i] - 1, now), slot[i]);
    }
    CHECK_EQ(policy_expect(shared, waiting, CUSLICE_NOBODY, now), 3);
    CHECK_EQ(policy_expect(shared, waiting, 0xabcd, now), 3);
    end();
}

static void test_garbage_tenants(void)
{
    begin();
    client(0, 0, 100);
    shared->slot[1].tenant = 4000000000u;
    shared->slot[2].tenant = CUSLICE_TENANTS;
    for (unsigned i = 0; i < 3; i++)
        want(i);
    shared->tenant[0].vtime = 1 << 20;
    CHECK_EQ(policy_expect(shared, waiting, CUSLICE_NOBODY, now), 0);
    rest(0);
    holder = 0;
    turn(20 * MS);
    unsigned first = holder;
    turn(20 * MS);
    CHECK(first != holder);
    CHECK(first == 1 || first == 2);
    policy_charge(NULL, 5);
    end();
}

static void test_garbage_weights(void)
{
    begin();
    client(0, 0, 0);
    client(1, 1, UINT32_MAX);
    client(2, 2, 100);
    for (unsigned i = 0; i < 3; i++)
        want(i);
    for (unsigned n = 0; n < 300; n++)
        turn(20 * MS);
    for (unsigned i = 0; i < 3; i++)
        CHECK(share(i) > 33 && share(i) < 34);
    end();
}

/* Whatever a damaged file holds as virtual times, everybody gets turns again soon. */
static void test_garbage_times_heal(void)
{
    static const uint64_t value[] = {
        0, 1, UINT64_MAX, UINT64_MAX - 20 * MS, UINT64_MAX / 2, UINT64_C(1) << 60};

    for (unsigned round = 0; round < 216; round++) {
        unsigned turns[3] = {0};

        begin();
        for (unsigned i = 0; i < 3; i++) {
            client(i, i, 100);
            want(i);
        }
        shared->tenant[0].vtime = value[round % 6];
        shared->tenant[1].vtime = value[round / 6 % 6];
        shared->tenant[2].vtime = value[round / 36];
        shared->vclock = value[(round + 2) % 6];
        for (unsigned n = 0; n < 200; n++) {
            unsigned slot = turn(20 * MS);
            turns[slot]++;
            rest(slot);
            holder = CUSLICE_NOBODY;
            want(slot);
        }
        for (unsigned i = 0; i < 3; i++)
            CHECK(turns[i] >= 20);
        end();
    }
}

/* A debt that turns really made is never forgiven. */
static void test_honest_debt_is_kept(void)
{
    begin();
    client(0, 0, 1);
    client(1, 1, 100);
    want(0);
    want(1);
    shared->tenant[0].vtime =
        (20 + 100 + 10) * MS * 100; /* quantum, allowance, grace at weight 1 */
    turn(20 * MS);
    CHECK_EQ(shared->tenant[0].vtime, 130 * MS * 100);
    end();
}

/* A turn lasts its slice and the drain. With equal weights the two still take turns one by one;
 * with unequal ones the heavier goes on until it is clearly ahead. */
static void test_drains_make_no_double_turns(void)
{
    unsigned doubles = 0;
    begin();
    client(0, 0, 100);
    client(1, 1, 100);
    want(0);
    want(1);
    for (unsigned i = 0, slot = 0; i < 1000; i++) {
        policy_charge(&shared->tenant[slot], 21 * MS);
        unsigned next = again(slot);
        doubles += next == slot;
        slot = next;
    }
    CHECK_EQ(doubles, 0);
    shared->tenant[0].vtime = shared->tenant[1].vtime = 0;
    shared->tenant[0].weight = 300;
    unsigned turns[2] = {0, 0};
    for (unsigned i = 0, slot = 0; i < 1000; i++) {
        turns[slot]++;
        policy_charge(&shared->tenant[slot], 21 * MS);
        slot = again(slot);
    }
    CHECK(turns[0] >= 748 && turns[0] <= 752);
    rest(1);
    CHECK_EQ(again(0), 0);
    end();
}

int main(void)
{
    TEST(test_drains_make_no_double_turns);
    TEST(test_shares_50_30_20);
    TEST(test_share_90_10);
    TEST(test_one_to_a_hundred);
    TEST(test_longest_wait_is_bounded);
    TEST(test_debt_is_paid_back);
    TEST(test_mixed_lengths_share_time);
    TEST(test_sleeper_earns_one_quantum);
    TEST(test_napping_earns_nothing);
    TEST(test_newcomer_on_an_idle_ring);
    TEST(test_five_clients_one_share);
    TEST(test_tenant_awake_is_not_lifted);
    TEST(test_ties_in_ring_order);
    TEST(test_garbage_tenants);
    TEST(test_garbage_weights);
    TEST(test_garbage_times_heal);
    TEST(test_honest_debt_is_kept);
    return test_result();
}
