/* Histograms: edges against the layout's own words, additions from many threads, quantiles against
 * sorted samples, and reading of garbage. */
#include "histogram.h"

#include <pthread.h>
#include <stdatomic.h>

#include "test.h"

static struct cuslice_histogram histogram;

static void reset(void)
{
    memset(&histogram, 0, sizeof(histogram));
}

/* segment.h: bucket[1 + 4*o + s] counts [2^(10+o) * (1 + s/4), 2^(10+o) * (1 + (s+1)/4)). */
static void test_edges(void)
{
    CHECK_EQ(histogram_bucket(0), 0);
    CHECK_EQ(histogram_bucket(1023), 0);
    for (unsigned o = 0; o <= 30; o++)
        for (unsigned s = 0; s < 4; s++) {
            uint64_t low = (UINT64_C(1) << (10 + o)) / 4 * (4 + s);
            uint64_t high = (UINT64_C(1) << (10 + o)) / 4 * (5 + s);
            unsigned bucket = 1 + 4 * o + s;
            CHECK_EQ(histogram_bucket(low), bucket);
            CHECK_EQ(histogram_bucket(high - 1), bucket);
            CHECK_EQ(histogram_edge(bucket), low);
            CHECK_EQ(histogram_edge(bucket + 1), high);
        }
    CHECK_EQ(histogram_bucket(UINT64_C(1) << 41), 125);
    CHECK_EQ(histogram_bucket(UINT64_MAX), 125);
    CHECK_EQ(histogram_edge(0), 0);
    CHECK_EQ(histogram_edge(126), UINT64_MAX);
}

static void test_empty(void)
{
    reset();
    CHECK_EQ(histogram_quantile(&histogram, 0.5), 0);
}

static void test_interpolation(void)
{
    reset();
    for (unsigned i = 0; i < 100; i++)
        histogram_add(&histogram, 1100);
    CHECK_EQ(histogram_quantile(&histogram, 0.5), 1024 + 128);
    CHECK_EQ(histogram_quantile(&histogram, 1), 1280);
    CHECK_EQ(histogram_quantile(&histogram, 2), 1280);
    CHECK_EQ(histogram_quantile(&histogram, -1), 1024);
    CHECK_EQ(histogram.count, 100);
    CHECK_EQ(histogram.sum_ns, 110000);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* A bucket is a quarter of an octave wide at most, so no quantile is off by more than 25 %. */
static void test_quantiles(void)
{
    static uint64_t sample[10000];
    uint64_t state = 88172645463325252;

    reset();
    for (unsigned i = 0; i < 10000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        sample[i] = 2000 + (state >> 20) % (UINT64_C(1) << (14 + state % 20));
        histogram_add(&histogram, sample[i]);
    }
    qsort(sample, 10000, sizeof(sample[0]), compare);
    for (unsigned i = 1; i < 100; i++) {
        double is = (double)histogram_quantile(&histogram, i / 100.0);
        double should = (double)sample[i * 100 - 1];
        CHECK(is > should * 0.75 && is < should * 1.26);
    }
}

static void test_rest(void)
{
    reset();
    histogram_add(&histogram, UINT64_MAX);
    CHECK_EQ(histogram_quantile(&histogram, 0.5), UINT64_C(1) << 41);
}

/* Whatever the file holds: a number comes back, monotonic in q. */
static void test_garbage(void)
{
    uint64_t last = 0;

    memset(&histogram, 0xff, sizeof(histogram));
    for (unsigned i = 0; i <= 10; i++) {
        uint64_t now = histogram_quantile(&histogram, i / 10.0);
        CHECK(now >= last);
        last = now;
    }
    CHECK(last <= UINT64_C(1) << 41);
}

static void *add_many(void *arg)
{
    for (unsigned i = 0; i < 50000; i++)
        histogram_add(&histogram, 1500 + (uint64_t)(uintptr_t)arg);
    return NULL;
}

static void test_threads(void)
{
    pthread_t thread[4];

    reset();
    for (uintptr_t i = 0; i < 4; i++)
        REQUIRE(pthread_create(&thread[i], NULL, add_many, (void *)i) == 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(histogram.count, 200000);
    CHECK_EQ(histogram.bucket[histogram_bucket(1500)], 200000);
    CHECK_EQ(histogram.sum_ns, 50000 * (4 * 1500 + 6));
}

int main(void)
{
    TEST(test_edges);
    TEST(test_empty);
    TEST(test_interpolation);
    TEST(test_quantiles);
    TEST(test_rest);
    TEST(test_garbage);
    TEST(test_threads);
    return test_result();
}
