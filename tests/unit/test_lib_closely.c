/* closely: what is learnt from late sleeps, and who looks closely when a CPU is not to be had. */
#include "closely.h"
#include "test.h"

static uint64_t now = CLOCK_S;

static uint64_t fake_now(void)
{
    return now;
}

static void test_late(void)
{
    struct closely c = {0};
    CHECK_EQ(closely_wake(&c, CLOCK_S), CLOCK_S - 5 * CLOCK_US);
    for (int i = 0; i < 100; i++)
        closely_slept(&c, CLOCK_S, CLOCK_S + 40 * CLOCK_US);
    CHECK(c.late_ns > 39 * CLOCK_US && c.late_ns <= 40 * CLOCK_US);
    CHECK(closely_wake(&c, CLOCK_S) <= CLOCK_S - 60 * CLOCK_US);
    closely_slept(&c, CLOCK_S, CLOCK_S); /* one early sleep changes little */
    CHECK(c.late_ns > 35 * CLOCK_US);
    closely_slept(&c, CLOCK_S, 2 * CLOCK_S); /* one very late sleep is no measure for the others */
    CHECK(c.late_ns < 60 * CLOCK_US);
    for (int i = 0; i < 100; i++)
        closely_slept(&c, CLOCK_S, 2 * CLOCK_S);
    CHECK_EQ(closely_wake(&c, CLOCK_S), CLOCK_S - CLOSELY_BEFORE_NS);
    CHECK_EQ(closely_wake(&c, 1), 0);
}

/* A row of looks, the last of them after a gap. */
static void looks(struct closely *c, _Atomic(uint64_t) *crowded, uint64_t gap)
{
    closely_begin(c);
    for (int i = 0; i < 10; i++) {
        now += CLOCK_US;
        closely_next(c);
    }
    now += gap;
    closely_next(c);
    closely_end(c, crowded);
}

static void test_crowded(void)
{
    _Atomic(uint64_t) crowded = 0;
    struct closely c = {0};
    looks(&c, &crowded, CLOCK_US);
    CHECK(closely_may(&crowded, now));
    looks(&c, &crowded, CLOCK_MS);
    CHECK(!closely_may(&crowded, now));
    uint64_t first = crowded - now;
    CHECK(first >= CLOSELY_PENALTY_LEAST_NS);
    now = crowded;
    CHECK(closely_may(&crowded, now));
    looks(&c, &crowded, CLOCK_MS);
    CHECK_EQ(crowded - now, 2 * first);
    for (int i = 0; i < 20; i++)
        looks(&c, &crowded, CLOCK_MS);
    CHECK_EQ(crowded - now, CLOSELY_PENALTY_MOST_NS);
    for (int i = 0; i < 200; i++)
        looks(&c, &crowded, CLOCK_US);
    looks(&c, &crowded, CLOCK_MS);
    CHECK(crowded - now <= 2 * CLOSELY_PENALTY_LEAST_NS);
}

/* A time that nobody can have meant, in a damaged file, binds nobody. */
static void test_damaged(void)
{
    _Atomic(uint64_t) crowded = UINT64_MAX;
    CHECK(closely_may(&crowded, now));
}

int main(void)
{
    clock_fake(fake_now);
    TEST(test_late);
    TEST(test_crowded);
    TEST(test_damaged);
    return test_result();
}
