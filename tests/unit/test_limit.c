/* limit: a busy tenant's occupancy of every window against the limit asked for, alone and in
 * company; what sleepers may save, debts and their paying back, several clients under one limit,
 * changes, and words that hold garbage. Turns are dealt by hand; what is compared is who had the
 * GPU when. */
#include "limit.h"

#include "deal.h"

#define MS CLOCK_MS
#define S CLOCK_S

/* The most and the least of all windows of a tenant's use, in percent. */
static void windows(unsigned tenant, uint64_t from, uint64_t to, uint64_t window, double *least,
                    double *most)
{
    *least = 100;
    *most = 0;
    for (uint64_t at = from; at + window <= to; at += window / 40) {
        double percent = deal_percent(tenant, at, at + window);

        *least = percent < *least ? percent : *least;
        *most = percent > *most ? percent : *most;
    }
}

static void alone(uint32_t percent, uint64_t quantum, uint64_t kernel)
{
    uint64_t window = 10 * quantum > S ? 10 * quantum : S, start;
    double least, most, mean, edge = 100.0 * (double)kernel / (double)window;

    deal_begin(quantum);
    deal_client(3, 0, 100, percent, CUSLICE_NORMAL);
    deal_kernel[3] = kernel;
    start = deal_now;
    deal_want(3);
    deal_for(6 * window);
    windows(0, start, deal_now, window, &least, &most);
    mean = deal_percent(0, start, deal_now);
    CHECK(most <= percent + 0.6 + edge);
    CHECK(least >= percent - 0.6 - edge);
    CHECK(mean <= percent + 0.2 + edge && mean >= percent - 0.2 - edge);
    deal_end();
}

static void test_alone_every_window(void)
{
    static const uint32_t percent[] = {1, 2, 10, 25, 50, 75, 90, 99};

    for (unsigned i = 0; i < 8; i++) {
        alone(percent[i], 20 * MS, 0);
        alone(percent[i], 20 * MS, 3 * MS);
        alone(percent[i], 1 * MS, MS / 2);
        alone(percent[i], 1 * S, 5 * MS);
    }
}

static void test_without_a_limit(void)
{
    struct cuslice_tenant t = {.limit_paid = UINT64_MAX};

    deal_begin(20 * MS);
    CHECK_EQ(limit_until(shared, &t, 5), 0);
    CHECK_EQ(limit_end(shared, &t, 5), CLOCK_NEVER);
    t.limit_ppm = LIMIT_NONE;
    CHECK_EQ(limit_of(&t), 0);
    t.limit_ppm = LIMIT_NONE + 1;
    CHECK_EQ(limit_of(&t), 0);
    t.limit_ppm = LIMIT_LEAST - 1;
    CHECK_EQ(limit_of(&t), 0);
    t.limit_ppm = LIMIT_LEAST;
    CHECK_EQ(limit_of(&t), 10000);
    limit_spend(shared, NULL, 5, 10);
    deal_end();
}

/* What the limited one leaves goes to the other; neither the limit nor the other is idle. */
static void test_in_company(void)
{
    static const uint32_t percent[] = {5, 25, 45};
    double least, most;

    for (unsigned i = 0; i < 3; i++) {
        deal_begin(20 * MS);
        deal_client(0, 0, 100, percent[i], CUSLICE_NORMAL);
        deal_client(1, 1, 100, 100, CUSLICE_NORMAL);
        deal_kernel[0] = deal_kernel[1] = MS;
        uint64_t start = deal_now;
        deal_want(0);
        deal_want(1);
        deal_for(8 * S);
        windows(0, start, deal_now, S, &least, &most);
        CHECK(most <= percent[i] + 1.5);
        CHECK(deal_percent(0, start, deal_now) >= percent[i] - 0.3);
        CHECK(deal_percent(0, start, deal_now) <= percent[i] + 0.3);
        CHECK(deal_percent(1, start, deal_now) >= 99.9 - percent[i] - 0.3);
        deal_end();
    }
}

/* Three others, whose slices it has to wait for: it gets what its limit allows all the same. */
static void test_waiting_for_slices_costs_nothing(void)
{
    deal_begin(20 * MS);
    deal_client(0, 0, 100, 20, CUSLICE_NORMAL);
    for (unsigned i = 1; i < 4; i++)
        deal_client(i, i, 100, 100, CUSLICE_NORMAL);
    uint64_t start = deal_now;
    for (unsigned i = 0; i < 4; i++)
        deal_want(i);
    deal_for(20 * S);
    CHECK(deal_percent(0, start, deal_now) >= 19.5 && deal_percent(0, start, deal_now) <= 20.3);
    for (unsigned i = 1; i < 4; i++)
        CHECK(deal_percent(i, start, deal_now) >= 26.2);
    deal_end();
}

/* A share below the limit is the weight's business alone. */
static void test_weight_below_the_limit(void)
{
    deal_begin(20 * MS);
    deal_client(0, 0, 30, 50, CUSLICE_NORMAL);
    deal_client(1, 1, 70, 100, CUSLICE_NORMAL);
    uint64_t start = deal_now;
    deal_want(0);
    deal_want(1);
    deal_for(20 * S);
    CHECK(deal_percent(0, start, deal_now) >= 29.8 && deal_percent(0, start, deal_now) <= 30.2);
    deal_end();
}

/* Held back for long beside one other, it is owed nothing when more of them come. */
static void test_held_back_earns_nothing(void)
{
    deal_begin(20 * MS);
    for (unsigned i = 0; i < 8; i++)
        deal_client(i, i, 100, i ? 100 : 25, CUSLICE_NORMAL);
    deal_want(0);
    deal_want(1);
    deal_for(60 * S);
    for (unsigned i = 2; i < 8; i++)
        deal_want(i);
    uint64_t start = deal_now;
    deal_for(8 * S);
    CHECK(deal_percent(0, start, deal_now) <= 13);
    CHECK(deal_percent(0, start, deal_now) >= 12);
    deal_end();
}

static void test_sleeper_saves_one_start(void)
{
    double least, most;

    deal_begin(20 * MS);
    deal_client(0, 0, 100, 25, CUSLICE_NORMAL);
    deal_want(0);
    deal_for(2 * S);
    deal_rest(0);
    deal_last = CUSLICE_NOBODY;
    deal_now += 30 * S;
    uint64_t start = deal_now;
    deal_want(0);
    deal_for(3 * S);
    windows(0, start, deal_now, S, &least, &most);
    CHECK(most <= 25.6);
    deal_end();
}

/* 300 ms where ten seconds have one: 2.7 s of them are to be waited, whoever the client is. */
static void test_debt_is_paid_back(void)
{
    deal_begin(20 * MS);
    deal_client(0, 0, 100, 10, CUSLICE_NORMAL);
    deal_client(1, 0, 100, 10, CUSLICE_NORMAL);
    deal_kernel[0] = 300 * MS;
    deal_want(0);
    CHECK_EQ(deal_turn(), 0);
    uint64_t ended = deal_now;
    deal_rest(0); /* killed, say */
    deal_want(1);
    CHECK_EQ(deal_turn(), CUSLICE_NOBODY);
    CHECK_EQ(deal_turn(), 1);
    uint64_t waited = deal_turns[1].start - ended;
    CHECK(waited >= 2690 * MS && waited <= 2800 * MS);
    deal_end();
}

static void test_two_clients_one_limit(void)
{
    double least, most;

    deal_begin(20 * MS);
    deal_client(0, 0, 100, 30, CUSLICE_NORMAL);
    deal_client(1, 0, 100, 30, CUSLICE_NORMAL);
    uint64_t start = deal_now;
    deal_want(0);
    deal_want(1);
    deal_for(6 * S);
    windows(0, start, deal_now, S, &least, &most);
    CHECK(most <= 30.6 && least >= 29);
    unsigned turns[2] = {0};
    for (unsigned i = 0; i < deal_count; i++)
        turns[deal_turns[i].slot]++;
    CHECK(turns[0] <= turns[1] + 1 && turns[1] <= turns[0] + 1);
    deal_end();
}

/* A light user is never made to wait for a start: its budget was not empty. */
static void test_light_use_is_not_delayed(void)
{
    struct cuslice_tenant *t;

    deal_begin(20 * MS);
    t = deal_client(0, 0, 100, 25, CUSLICE_NORMAL);
    deal_want(0);
    deal_now += S;
    for (unsigned i = 0; i < 100; i++) {
        CHECK_EQ(limit_until(shared, t, deal_now), 0);
        deal_now += MS;
        limit_spend(shared, t, MS, deal_now);
        deal_now += 9 * MS;
    }
    deal_end();
}

static void test_change_converts_the_debt(void)
{
    struct cuslice_tenant *t;

    deal_begin(20 * MS);
    t = deal_client(0, 0, 100, 10, CUSLICE_NORMAL);
    limit_spend(shared, t, MS, deal_now);
    limit_spend(shared, t, 400 * MS, deal_now);
    uint64_t before = limit_until(shared, t, deal_now) - deal_now;
    CHECK(before > 3 * S && before < 5 * S);
    t->limit_ppm = 500000;
    uint64_t after = limit_until(shared, t, deal_now) - deal_now;
    CHECK(after >= before / 5 - 20 * MS && after <= before / 5 + 20 * MS);
    CHECK_EQ(limit_until(shared, t, deal_now) - deal_now, after); /* once */
    t->limit_ppm = LIMIT_NONE;
    CHECK_EQ(limit_until(shared, t, deal_now), 0);
    t->limit_ppm = 250000;
    after = limit_until(shared, t, deal_now) - deal_now;
    CHECK(after >= before * 10 / 25 - 40 * MS && after <= before * 10 / 25 + 40 * MS);
    deal_end();
}

/* A limit given to one that is at work: what it has used until then is free, from then on not. */
static void test_begins_while_running(void)
{
    struct cuslice_tenant *t;

    deal_begin(20 * MS);
    t = deal_client(0, 0, 100, 100, CUSLICE_NORMAL);
    limit_spend(shared, t, S, deal_now);
    t->limit_ppm = 400000;
    limit_spend(shared, t, S, deal_now); /* a turn that began long before */
    CHECK_EQ(limit_until(shared, t, deal_now), 0);
    limit_spend(shared, t, 100 * MS, deal_now);
    uint64_t held = limit_until(shared, t, deal_now) - deal_now;
    CHECK(held > 50 * MS && held < 300 * MS); /* 100 ms cost 250, less what was saved */
    t->limit_ppm = LIMIT_NONE;
    limit_spend(shared, t, S, deal_now);
    t->limit_ppm = 400000;
    limit_spend(shared, t, S, deal_now);
    limit_spend(shared, t, MS, deal_now);
    CHECK(limit_until(shared, t, deal_now) <= deal_now + 300 * MS);
    deal_end();
}

/* Whatever the file holds, a limited tenant goes on within what the longest turn would cost. */
static void test_garbage_heals(void)
{
    static const uint64_t value[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
    static const uint32_t rate[] = {0, 1, 9999, 10000, 250000, 1000000, UINT32_MAX};

    for (unsigned i = 0; i < 5; i++)
        for (unsigned j = 0; j < 7; j++) {
            deal_begin(20 * MS);
            struct cuslice_tenant *t = deal_client(0, 0, 100, 50, CUSLICE_NORMAL);
            t->limit_paid = value[i];
            t->limit_rate = rate[j];
            uint64_t until = limit_until(shared, t, deal_now);
            CHECK(until <= deal_now + 21 * S);
            deal_now += 21 * S;
            CHECK_EQ(limit_until(shared, t, deal_now), 0);
            CHECK(limit_end(shared, t, deal_now) >= deal_now);
            CHECK(limit_end(shared, t, deal_now) <= deal_now + S);
            limit_spend(shared, t, MS, deal_now);
            CHECK_EQ(limit_until(shared, t, deal_now), 0);
            deal_end();
        }
}

/* Random tenants that come and go, with kernels of up to 30 ms. No second holds more than the
 * limit, a quantum that may have been saved while waiting, and the kernels at its edges. */
static void test_random_histories(void)
{
    uint64_t seed = 7;

    for (unsigned round = 0; round < 30; round++) {
        uint32_t percent[6];
        double least, most;

        deal_begin(20 * MS);
        for (unsigned i = 0; i < 6; i++) {
            percent[i] = 1 + (uint32_t)(room_random(&seed) % 99);
            deal_client(i, i, 1 + (uint32_t)(room_random(&seed) % 300), percent[i], CUSLICE_NORMAL);
            deal_kernel[i] = room_random(&seed) % (30 * MS);
        }
        uint64_t start = deal_now;
        deal_want(0);
        for (unsigned n = 0; n < 300; n++) {
            unsigned slot = (unsigned)(room_random(&seed) % 6);
            if (room_random(&seed) % 2)
                deal_want(slot);
            else if (slot)
                deal_rest(slot);
            deal_for(room_random(&seed) % (100 * MS));
        }
        for (unsigned i = 0; i < 6; i++) {
            windows(i, start, deal_now, S, &least, &most);
            CHECK(most <= percent[i] + 2 + 0.5 + 2 * 100.0 * (double)deal_kernel[i] / S);
        }
        deal_end();
    }
}

int main(void)
{
    TEST(test_alone_every_window);
    TEST(test_without_a_limit);
    TEST(test_in_company);
    TEST(test_waiting_for_slices_costs_nothing);
    TEST(test_weight_below_the_limit);
    TEST(test_held_back_earns_nothing);
    TEST(test_sleeper_saves_one_start);
    TEST(test_debt_is_paid_back);
    TEST(test_two_clients_one_limit);
    TEST(test_light_use_is_not_delayed);
    TEST(test_change_converts_the_debt);
    TEST(test_begins_while_running);
    TEST(test_garbage_heals);
    TEST(test_random_histories);
    return test_result();
}
