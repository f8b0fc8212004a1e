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

static long switches;

static long fake_switches(void)
{
    return switches;
}

/* A row of looks, the last of them after a gap in which others had the CPU so often; what was
 * looked for came `lost` before that one. */
static void looks_put_off(struct closely *c, _Atomic(uint64_t) *crowded, uint64_t gap,
                          uint64_t lost, long others)
{
    closely_begin(c);
    for (int i = 0; i < 10; i++) {
        now += CLOCK_US;
        closely_next(c);
    }
    now += gap;
    switches += others;
    closely_next(c);
    closely_end(c, crowded, now - lost);
}

static void looks(struct closely *c, _Atomic(uint64_t) *crowded, uint64_t gap, uint64_t lost)
{
    looks_put_off(c, crowded, gap, lost, 0);
}

/* Put off the CPU for `gap`, all of it in vain. */
static void put_off(struct closely *c, _Atomic(uint64_t) *crowded, uint64_t gap)
{
    looks_put_off(c, crowded, gap, gap, 1);
}

static void test_crowded(void)
{
    _Atomic(uint64_t) crowded = 0;
    struct closely c = {0};
    looks(&c, &crowded, CLOCK_US, 0);
    CHECK(closely_may(&crowded, now));
    put_off(&c, &crowded, 60 * CLOCK_US);
    CHECK(!closely_may(&crowded, now));
    uint64_t first = crowded - now;
    CHECK_EQ(first, CLOSELY_PENALTY_SHARE * 60 * CLOCK_US);
    now = crowded;
    CHECK(closely_may(&crowded, now));
    put_off(&c, &crowded, 60 * CLOCK_US);
    CHECK_EQ(crowded - now, 2 * first);
    for (int i = 0; i < 20; i++)
        put_off(&c, &crowded, 60 * CLOCK_US);
    CHECK_EQ(crowded - now, CLOSELY_PENALTY_MOST_NS);
    for (int i = 0; i < 200; i++)
        looks(&c, &crowded, CLOCK_US, 0);
    put_off(&c, &crowded, 60 * CLOCK_US);
    CHECK_EQ(crowded - now, first);
}

/* The longer it was away the longer it does without. */
static void test_loss(void)
{
    _Atomic(uint64_t) crowded = 0;
    struct closely c = {0};
    put_off(&c, &crowded, CLOCK_MS);
    CHECK_EQ(crowded - now, CLOSELY_PENALTY_SHARE * CLOCK_MS);
    c = (struct closely){0};
    put_off(&c, &crowded, CLOCK_S);
    CHECK_EQ(crowded - now, CLOSELY_PENALTY_MOST_NS);
}

/* A gap is no reason when nobody else had the CPU, or when nothing was missed in it. */
static void test_no_loss(void)
{
    _Atomic(uint64_t) crowded = 0;
    struct closely c = {0};
    looks(&c, &crowded, CLOCK_MS, CLOCK_MS);
    CHECK_EQ(crowded, 0);
    looks_put_off(&c, &crowded, CLOCK_MS, 30 * CLOCK_US, 1);
    CHECK_EQ(crowded, 0);
    closely_begin(&c);
    now += CLOCK_MS;
    switches++;
    closely_next(&c);
    now += CLOCK_US;
    closely_next(&c);
    closely_end(&c, &crowded, now - CLOCK_MS);
    CHECK_EQ(crowded, 0);
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
    clock_fake_switches(fake_switches);
    TEST(test_late);
    TEST(test_crowded);
    TEST(test_loss);
    TEST(test_no_loss);
    TEST(test_damaged);
    return test_result();
}
