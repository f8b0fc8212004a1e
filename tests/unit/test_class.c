/* class: who competes while tenants of several classes wait, what the lower ones keep, how soon a
 * higher one has the GPU, and that nobody waits longer than the ring promises, whatever mixture of
 * weights, limits and classes. Turns are dealt by hand; what is compared is who had the GPU when.
 */
#include "class.h"

#include "deal.h"

#define MS CLOCK_MS
#define S CLOCK_S

enum { LOW = CUSLICE_LOW, NORMAL = CUSLICE_NORMAL, HIGH = CUSLICE_HIGH };

static uint64_t begun;

static void begin(void)
{
    deal_begin(20 * MS);
    begun = deal_now;
}

static void busy(unsigned slot, uint32_t weight, uint32_t priority, uint64_t kernel)
{
    deal_client(slot, slot, weight, 100, priority);
    deal_kernel[slot] = kernel;
    deal_want(slot);
}

static double percent(unsigned tenant)
{
    return deal_percent(tenant, begun, deal_now);
}

/* The clients that compete, and those of the lower classes, one word of slots of each. */
static void split(struct waiters *all, unsigned word, uint64_t *top, uint64_t *lower)
{
    *top = *lower = 0;
    WAITERS_EACH(all, t)
    {
        *top |= waiters_competes(all, t) ? t->slots[word] : 0;
        *lower |= waiters_outranked(all, t) ? t->slots[word] : 0;
    }
}

static void test_split(void)
{
    struct waiters all;
    uint64_t set[CUSLICE_SLOT_WORDS] = {0}, top, lower;

    begin();
    waiters_gather(&all, shared, set, deal_now);
    CHECK(all.highest < all.lowest && !class_due(&all, 3, true));
    deal_client(1, 1, 100, 100, LOW);
    deal_client(70, 2, 100, 100, HIGH);
    deal_client(200, 3, 100, 100, HIGH);
    deal_client(4, 4, 100, 100, 77);      /* damage: normal */
    set[0] = 1u << 1 | 1u << 4 | 1u << 5; /* 5 has no tenant */
    waiters_gather(&all, shared, set, deal_now);
    split(&all, 0, &top, &lower);
    CHECK(all.highest == NORMAL && all.lowest == LOW);
    CHECK_EQ(top, 1u << 4 | 1u << 5);
    CHECK_EQ(lower, 1u << 1);
    set[1] = 1u << 6;
    set[3] = 1u << 8;
    waiters_gather(&all, shared, set, deal_now);
    split(&all, 0, &top, &lower);
    CHECK(top == 0 && lower == set[0]);
    split(&all, 1, &top, &lower);
    CHECK(top == 1u << 6 && lower == 0);
    split(&all, 3, &top, &lower);
    CHECK(top == 1u << 8 && lower == 0);
    CHECK(class_outranked(&all, 1) && !class_outranked(&all, 200));
    CHECK(!class_outranked(&all, CUSLICE_NOBODY));
    CHECK(class_outranks(shared, 70, 1) && !class_outranks(shared, 70, 200));
    CHECK(!class_outranks(shared, 1, 4) && !class_outranks(shared, 70, CUSLICE_NOBODY));
    deal_end();
}

static void test_low_keeps_two_percent(void)
{
    static const uint64_t kernel[] = {0, MS / 10, MS, 5 * MS, 30 * MS};

    for (unsigned high = 0; high < 5; high++)
        for (unsigned low = 0; low < 5; low++) {
            begin();
            busy(0, 100, HIGH, kernel[high]);
            busy(1, 100, LOW, kernel[low]);
            deal_for(60 * S);
            CHECK(percent(1) >= 1.9 && percent(1) <= 2.1);
            deal_end();
        }
}

static void test_under_two_busy_ones(void)
{
    begin();
    busy(0, 70, HIGH, MS);
    busy(1, 30, HIGH, MS);
    busy(2, 10000, LOW, MS);
    deal_for(60 * S);
    CHECK(percent(2) >= 1.9 && percent(2) <= 2.1);
    CHECK(percent(0) >= 0.7 * 98 - 0.3 && percent(0) <= 0.7 * 98 + 0.3);
    deal_end();
}

/* A kernel of the class above as long as half the allowance leaves more owed than one turn. */
static void test_two_percent_of_long_kernels(void)
{
    begin();
    busy(0, 100, HIGH, 500 * MS);
    busy(1, 100, NORMAL, MS);
    deal_for(120 * S);
    CHECK(percent(1) >= 1.9 && percent(1) <= 2.1);
    deal_end();
}

/* Together, and none of them starves: not the lowest, and not the one whose kernels are long. */
static void test_lower_ones_share_it(void)
{
    begin();
    busy(0, 100, HIGH, MS);
    busy(1, 100, NORMAL, MS);
    busy(2, 100, LOW, MS);
    busy(3, 100, LOW, 5 * MS);
    deal_for(120 * S);
    CHECK(percent(1) + percent(2) + percent(3) >= 1.9);
    CHECK(percent(1) + percent(2) + percent(3) <= 2.1);
    for (unsigned i = 1; i < 4; i++)
        CHECK(percent(i) >= 0.2);
    deal_end();
}

static void test_normal_above_low(void)
{
    begin();
    busy(0, 100, NORMAL, MS);
    busy(1, 300, NORMAL, MS);
    busy(2, 100, LOW, MS);
    deal_for(60 * S);
    CHECK(percent(2) >= 1.9 && percent(2) <= 2.1);
    CHECK(percent(1) >= 0.75 * 98 - 0.3 && percent(1) <= 0.75 * 98 + 0.3);
    deal_end();
}

/* A turn of the lower ones holds the class above up for less than a millisecond and one kernel. */
static void test_turns_below_are_short(void)
{
    begin();
    busy(0, 100, HIGH, MS);
    busy(1, 100, LOW, 2 * MS);
    busy(2, 100, LOW, 2 * MS);
    deal_for(20 * S);
    unsigned turns = 0;
    for (unsigned i = 0; i < deal_count; i++)
        if (deal_turns[i].slot != 0) {
            turns++;
            CHECK(deal_turns[i].end - deal_turns[i].start <=
                  CLASS_TURN_NS + 20 * MS / 49 + 2 * MS + MS / 10);
            CHECK(i == 0 || deal_turns[i - 1].slot == 0);
        }
    CHECK(turns > 100);
    deal_end();
}

/* One that holds a slice when a higher one begins to wait has to end it at once, whatever was owed
 * to it long ago. */
static void test_higher_one_ends_a_slice(void)
{
    begin();
    busy(0, 100, HIGH, 400 * MS);
    busy(1, 100, LOW, MS);
    deal_for(S);
    deal_rest(0);
    deal_last = 1;
    deal_for(S);
    deal_grant(1);
    deal_last = 1;
    deal_now += 3 * MS;
    CHECK(deal_due(1) > deal_now + 16 * MS);
    deal_want(0);
    CHECK(deal_due(1) <= deal_now);
    deal_charge(1);
    CHECK_EQ(deal_next(1), 0);
    deal_end();
}

/* The same class, or a lower one that waits, ends nothing early. */
static void test_equals_do_not(void)
{
    begin();
    busy(0, 100, NORMAL, 0);
    deal_grant(0);
    uint64_t end = deal_due(0);
    busy(1, 100, NORMAL, 0);
    CHECK_EQ(deal_due(0), end);
    busy(2, 100, LOW, 0);
    CHECK_EQ(deal_due(0), end);
    deal_end();
}

/* Ten-second slices do not make the lower ones wait ten seconds. */
static void test_long_quantum(void)
{
    deal_begin(10 * S);
    begun = deal_now;
    busy(0, 100, HIGH, MS);
    busy(1, 100, LOW, MS);
    deal_for(60 * S);
    CHECK(percent(1) >= 1.9 && percent(1) <= 2.1);
    for (unsigned i = 0; i < deal_count; i++)
        CHECK(deal_turns[i].end - deal_turns[i].start < 200 * MS);
    deal_end();
}

/* Held down for a minute, it is owed no minute once the class above sleeps. */
static void test_held_down_earns_nothing(void)
{
    begin();
    busy(0, 100, HIGH, MS);
    busy(1, 100, NORMAL, MS);
    deal_for(60 * S);
    busy(2, 100, NORMAL, MS);
    deal_rest(0);
    deal_last = 0;
    begun = deal_now;
    deal_for(S);
    CHECK(percent(1) >= 47 && percent(1) <= 53);
    deal_end();
}

static void test_limited_high_leaves_the_rest(void)
{
    begin();
    deal_client(0, 0, 100, 30, HIGH);
    deal_kernel[0] = MS;
    deal_want(0);
    busy(1, 100, LOW, MS);
    deal_for(20 * S);
    CHECK(percent(0) >= 29.5 && percent(0) <= 30.3);
    CHECK(percent(1) >= 69.5);
    deal_end();
}

static void test_garbage_owed(void)
{
    static const uint64_t value[] = {UINT64_MAX, UINT64_C(1) << 63, INT64_MAX, UINT64_C(1) << 62};

    for (unsigned i = 0; i < 4; i++) {
        begin();
        shared->class_owed = value[i];
        busy(0, 100, HIGH, MS);
        busy(1, 100, LOW, MS);
        deal_for(200 * S); /* what two turns of a whole allowance would take to be paid back */
        begun = deal_now;
        deal_for(60 * S);
        CHECK(percent(1) >= 1.9 && percent(1) <= 2.1);
        deal_end();
    }
}

/* How long tenant `i` may have to wait: I3 for its class, and what the classes below keep. */
static uint64_t promise(unsigned i, unsigned n, uint64_t kernel)
{
    uint32_t others = 0, mine = shared->tenant[i].weight;
    unsigned count = 0;

    for (unsigned j = 0; j < n; j++)
        if (j != i && shared->tenant[j].priority == shared->tenant[i].priority) {
            others += shared->tenant[j].weight;
            count++;
        }
    uint64_t slices = (others + mine - 1) / mine + count;
    return (slices * (20 * MS + kernel) + 2 * (CLASS_TURN_NS + kernel)) * 104 / 100 + 20 * MS;
}

/* Everybody of the highest class waits no longer than promised from when its limit lets it. */
static void test_nobody_waits_too_long(void)
{
    uint64_t seed = 11;

    for (unsigned round = 0; round < 200; round++) {
        unsigned n = 2 + (unsigned)(room_random(&seed) % 7);
        uint64_t since[9] = {0}, kernel = room_random(&seed) % (3 * MS);

        begin();
        for (unsigned i = 0; i < n; i++) {
            uint32_t limit = room_random(&seed) % 3 ? 100 : 1 + (uint32_t)(room_random(&seed) % 99);
            deal_client(i, i, 1 + (uint32_t)(room_random(&seed) % 500), limit,
                        i == 0 ? HIGH : (uint32_t)(room_random(&seed) % 3));
            deal_kernel[i] = kernel;
            deal_want(i);
            since[i] = deal_now;
        }
        while (deal_now < begun + 10 * S) {
            unsigned slot = deal_turn();
            if (slot == CUSLICE_NOBODY)
                continue;
            uint64_t waited = deal_turns[deal_count - 1].start;
            waited = waited > since[slot] ? waited - since[slot] : 0;
            uint64_t until = limit_until(shared, &shared->tenant[slot], deal_now);
            if (shared->tenant[slot].priority == HIGH)
                CHECK(waited <= promise(slot, n, kernel));
            since[slot] = until > deal_now ? until : deal_now;
        }
        for (unsigned i = 0; i < n; i++)
            CHECK(deal_used(i, begun, deal_now) > 0);
        deal_end();
    }
}

int main(void)
{
    TEST(test_split);
    TEST(test_low_keeps_two_percent);
    TEST(test_under_two_busy_ones);
    TEST(test_two_percent_of_long_kernels);
    TEST(test_lower_ones_share_it);
    TEST(test_normal_above_low);
    TEST(test_turns_below_are_short);
    TEST(test_higher_one_ends_a_slice);
    TEST(test_equals_do_not);
    TEST(test_long_quantum);
    TEST(test_held_down_earns_nothing);
    TEST(test_limited_high_leaves_the_rest);
    TEST(test_garbage_owed);
    TEST(test_nobody_waits_too_long);
    return test_result();
}
