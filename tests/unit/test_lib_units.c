/* units: every form of a duration, a size and a number, the refused ones, and the edges of 64 bits.
 */
#include "test.h"
#include "units.h"

static void test_duration(void)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {
        {"20ms", 20000000},
        {"500us", 500000},
        {"1s", 1000000000},
        {"1.5s", 1500000000},
        {"20", 20000000},
        {"0", 0},
        {"0s", 0},
        {"7ns", 7},
        {"0.000001ms", 1},
        {"0.5us", 500},
        {"10.25ms", 10250000},
        {"0.1234567891s", 123456789},
    };
    uint64_t ns;

    for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ns = 1234;
        CHECK_EQ(units_parse_duration(good[i].text, &ns), 0);
        CHECK_EQ(ns, good[i].ns);
    }
    CHECK_EQ(units_parse_duration("99999999999999999999s", &ns), 0);
    CHECK_EQ(ns, UINT64_MAX - 1);
}

static void test_duration_refused(void)
{
    static const char *const bad[] = {"",    "ms",   "-1",  "+1",  " 1ms", "1 ms",  "1ms ",
                                      "1e3", "1m",   "1h",  "1.",  ".5s",  "1..5s", "0x10",
                                      "1S",  "1,5s", "nan", "inf", "1msx"};
    uint64_t ns = 42;

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(units_parse_duration(bad[i], &ns), -EINVAL);
    CHECK_EQ(ns, 42);
}

static void test_size(void)
{
    uint64_t bytes;

    CHECK_EQ(units_parse_size("4294967296", &bytes), 0);
    CHECK_EQ(bytes, 4294967296);
    CHECK_EQ(units_parse_size("1.5Gi", &bytes), 0);
    CHECK_EQ(bytes, 1610612736);
    CHECK_EQ(units_parse_size("0.3G", &bytes), 0);
    CHECK_EQ(bytes, 322122547); /* 0.3 * 2^30 rounded down */
    CHECK_EQ(units_parse_size("0.999999999T", &bytes), 0);
    CHECK_EQ(bytes, 1099511626676); /* 2^40 - 2^40 / 10^9, rounded down */
    CHECK_EQ(units_parse_size("16777215T", &bytes), 0);
    CHECK_EQ(bytes, UINT64_C(16777215) << 40);
    CHECK_EQ(units_parse_size("16777216T", &bytes), 0);
    CHECK_EQ(bytes, UINT64_MAX - 1);
    CHECK_EQ(units_parse_size("18446744073709551615", &bytes), 0);
    CHECK_EQ(bytes, UINT64_MAX - 1);
    CHECK_EQ(units_parse_size("1.5", &bytes), -EINVAL);
    CHECK_EQ(units_parse_size("4Gb", &bytes), -EINVAL);
    CHECK_EQ(units_parse_size("4ib", &bytes), -EINVAL);
    CHECK_EQ(units_parse_size("4P", &bytes), -EINVAL);
}

static void test_number(void)
{
    uint64_t number = 42;

    CHECK_EQ(units_parse_number("10000", &number), 0);
    CHECK_EQ(number, 10000);
    CHECK_EQ(units_parse_number("1.0", &number), -EINVAL);
    CHECK_EQ(units_parse_number("", &number), -EINVAL);
    CHECK_EQ(units_parse_number("-5", &number), -EINVAL);
    CHECK_EQ(units_parse_number("99999999999999999999", &number), -ERANGE);
    CHECK_EQ(number, 10000);
    CHECK_EQ(units_parse_percent("12.5%", &number), 0);
    CHECK_EQ(number, 125000);
    CHECK_EQ(units_parse_percent("50", &number), 0);
    CHECK_EQ(number, 500000);
    CHECK_EQ(units_parse_percent("50%%", &number), -EINVAL);
    char text[32];
    CHECK_EQ(units_format_percent(500000, text, sizeof(text)), 3);
    CHECK_STR(text, "50%");
    units_format_percent(125000, text, sizeof(text));
    CHECK_STR(text, "12.5%");
    units_format_percent(1000001, text, sizeof(text));
    CHECK_STR(text, "100.0001%");
    units_format_percent(10070, text, sizeof(text));
    CHECK_STR(text, "1.007%");
}

static void check_format(size_t (*format)(uint64_t, char *, size_t), uint64_t value,
                         const char *wanted)
{
    char text[64];

    CHECK_EQ(format(value, text, sizeof(text)), strlen(wanted));
    CHECK_STR(text, wanted);
}

static void test_format(void)
{
    check_format(units_format_duration, 0, "0s");
    check_format(units_format_duration, 20000000, "20ms");
    check_format(units_format_duration, 1500000, "1500us");
    check_format(units_format_duration, 60000000000, "60s");
    check_format(units_format_duration, 1, "1ns");
    check_format(units_format_size, 0, "0");
    check_format(units_format_size, UINT64_C(4) << 30, "4Gi");
    check_format(units_format_size, (UINT64_C(4) << 30) + 1, "4294967297");
    check_format(units_format_size, 1536 * 1024, "1536Ki");
}

int main(void)
{
    TEST(test_duration);
    TEST(test_duration_refused);
    TEST(test_size);
    TEST(test_number);
    TEST(test_format);
    return test_result();
}
