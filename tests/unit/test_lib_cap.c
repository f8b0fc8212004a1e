/* cap: every form that a person may write, what is refused, and what it comes to on a device. */
#include "cap.h"
#include "test.h"

#define GI (UINT64_C(1) << 30)
#define TOTAL (UINT64_C(80) * GI)

static const unsigned char uuid_a[16] = {0x8f, 0x6a, 0x2b, 0x11, 0x22, 0x33, 0x44, 0x55,
                                         0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd};
static const unsigned char uuid_b[16] = {1};
#define TEXT_A "GPU-8f6a2b11-2233-4455-6677-8899aabbccdd"

/* What the text allows on device `index`; 1 when it is refused, which no form here allows. */
static uint64_t resolve(const char *text, unsigned index, const unsigned char *uuid,
                        unsigned replicas)
{
    struct caps caps = {0};

    if (cap_parse(text, &caps.asked) < 0)
        return 1;
    return cap_resolve(&caps, index, uuid, TOTAL, replicas);
}

static void test_forms(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } form[] = {
        {"4294967296", 4 * GI},
        {"4Gi", 4 * GI},
        {"4GiB", 4 * GI},
        {"4G", 4 * GI},
        {"4g", 4 * GI},
        {"4GB", 4 * GI},
        {"4096Mi", 4 * GI},
        {"4096MiB", 4 * GI},
        {"4096m", 4 * GI},
        {"4096M", 4 * GI},
        {"4194304k", 4 * GI},
        {"1.5Gi", 3 * GI / 2},
        {"25%", 20 * GI},
        {"12.5%", 10 * GI},
        {"100%", TOTAL},
        {"150%", TOTAL},
        {"auto", 10 * GI},
        {"0", 0},
        {"0m", 0},
        {"0%", 0},
        {"99999999999G", TOTAL},
        {"99999999999999999999999999999999G", TOTAL},
        {"18446744073709551615", TOTAL},
        {"999999999999999999%", TOTAL},
        {"1T", TOTAL},
        {"none", CAP_NONE},
    };

    for (unsigned i = 0; i < sizeof(form) / sizeof(form[0]); i++)
        CHECK_EQ(resolve(form[i].text, 0, uuid_a, 8), form[i].bytes);
}

static void test_refused(void)
{
    static const char *const bad[] = {
        "",
        " ",
        "abc",
        "-1",
        "12 apples",
        "1e3",
        "4Gi ",
        " 4Gi",
        "4 Gi",
        "+4Gi",
        "4Gib",
        "4.5",
        "4..5Gi",
        ".5Gi",
        "0x1000",
        "4Gi,8Gi",
        "0:4Gi,",
        ",0:4Gi",
        "0:4Gi,,1:8Gi",
        "0:4Gi,8Gi",
        ":4Gi",
        "0:",
        "-1:4Gi",
        "a:4Gi",
        "0:4Gi,0:8Gi",
        "0:1:4Gi",
        "70000:4Gi",
        "GPU-:4Gi",
        "GPU-8f6a2b11:4Gi",
        "GPU-8f6a2b11-2233-4455-6677-8899aabbccd:4Gi",
        "GPU-8f6a2b11-2233-4455-6677-8899aabbccdde:4Gi",
        "GPU-8f6a2b1122334455-6677-8899aabbccdd:4Gi",
        TEXT_A ":4Gi," TEXT_A ":8Gi",
        "0:none",
        "Auto",
        "25%%",
        "%",
        "4Gi\n",
        "nan",
        "inf",
        "\xff",
    };
    struct cap_list list = {.count = 7};

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int error = cap_parse(bad[i], &list);

        if (error != -EINVAL)
            expect_fail(__FILE__, __LINE__, bad[i]);
        CHECK_EQ(error, -EINVAL);
    }
    CHECK_EQ(list.count, 7);
}

static void test_lists(void)
{
    CHECK_EQ(resolve("0:4Gi,1:8Gi", 0, uuid_a, 0), 4 * GI);
    CHECK_EQ(resolve("0:4Gi,1:8Gi", 1, uuid_a, 0), 8 * GI);
    CHECK_EQ(resolve("0:4Gi,1:8Gi", 2, uuid_a, 0), CAP_NONE);
    CHECK_EQ(resolve("0:25%,1:auto", 0, uuid_a, 4), 20 * GI);
    CHECK_EQ(resolve("0:25%,1:auto", 1, uuid_a, 4), 20 * GI);
    CHECK_EQ(resolve("3:0", 3, uuid_a, 0), 0);
    CHECK_EQ(resolve(TEXT_A ":4Gi", 9, uuid_a, 0), 4 * GI);
    CHECK_EQ(resolve(TEXT_A ":4Gi", 9, uuid_b, 0), CAP_NONE);
    CHECK_EQ(resolve("GPU-8F6A2B11-2233-4455-6677-8899AABBCCDD:4Gi", 0, uuid_a, 0), 4 * GI);
    CHECK_EQ(resolve("MIG-8f6a2b11-2233-4455-6677-8899aabbccdd:4Gi", 0, uuid_a, 0), 4 * GI);
    /* The device's own name goes before its place. */
    CHECK_EQ(resolve("0:8Gi," TEXT_A ":4Gi", 0, uuid_a, 0), 4 * GI);
    CHECK_EQ(resolve(TEXT_A ":4Gi,0:8Gi", 0, uuid_a, 0), 4 * GI);
    CHECK_EQ(resolve(TEXT_A ":4Gi,0:8Gi", 0, uuid_b, 0), 8 * GI);
}

static void test_list_length(void)
{
    char text[1024];
    size_t used = 0;
    struct cap_list list = {0};

    for (unsigned i = 0; i < CAPS_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u:1Gi", i ? "," : "", i);
    CHECK_EQ(cap_parse(text, &list), 0);
    CHECK_EQ(list.count, CAPS_MAX);
    snprintf(text + used, sizeof(text) - used, ",%u:1Gi", CAPS_MAX);
    CHECK_EQ(cap_parse(text, &list), -E2BIG);
}

static void test_auto(void)
{
    struct cap_list list;

    CHECK_EQ(resolve("auto", 0, uuid_a, 3), TOTAL / 3);
    CHECK_EQ(resolve("auto", 0, uuid_a, 0), TOTAL);
    REQUIRE(cap_parse("0:auto", &list) == 0);
    CHECK(cap_needs_replicas(&list));
    REQUIRE(cap_parse("25%", &list) == 0);
    CHECK(!cap_needs_replicas(&list));
}

static uint64_t under(const char *asked, const char *ceiling)
{
    struct caps caps;

    REQUIRE(cap_parse(asked, &caps.asked) == 0);
    REQUIRE(cap_parse(ceiling, &caps.ceiling) == 0);
    return cap_resolve(&caps, 0, uuid_a, TOTAL, 4);
}

static void test_ceiling(void)
{
    struct caps caps;

    CHECK_EQ(under("none", "8Gi"), 8 * GI);
    CHECK_EQ(under("16Gi", "8Gi"), 8 * GI);
    CHECK_EQ(under("4Gi", "8Gi"), 4 * GI);
    CHECK_EQ(under("50%", "8Gi"), 8 * GI);
    CHECK_EQ(under("1:4Gi", "8Gi"), 8 * GI);
    CHECK_EQ(under("16Gi", "1:8Gi"), 16 * GI);
    CHECK_EQ(under("0", "8Gi"), 0);

    REQUIRE(cap_parse("50%", &caps.asked) == 0);
    REQUIRE(cap_parse("8Gi", &caps.ceiling) == 0);
    CHECK(!cap_exceeds(&caps, 0)); /* nobody can know without the device */
    CHECK(cap_lowered(&caps, 0, uuid_a, TOTAL, 0));
    CHECK(!cap_lowered(&caps, 0, uuid_a, 16 * GI, 0));
    REQUIRE(cap_parse("auto", &caps.ceiling) == 0);
    CHECK(cap_exceeds(&caps, 4));
    CHECK(!cap_exceeds(&caps, 2));
    cap_bind_replicas(&caps.ceiling, 8);
    CHECK_EQ(cap_resolve(&caps, 0, uuid_a, TOTAL, 1), 10 * GI);
}

static void check_text(const char *text, const char *wanted)
{
    struct cap_list list, again;
    char formatted[2048];

    REQUIRE(cap_parse(text, &list) == 0);
    CHECK_EQ(cap_format(&list, formatted, sizeof(formatted)), strlen(wanted));
    CHECK_STR(formatted, wanted);
    CHECK_EQ(cap_parse(formatted, &again), 0);
    CHECK_EQ(again.count, list.count);
}

static void test_format(void)
{
    struct cap_list list;
    char small[8];

    check_text("none", "none");
    check_text("4096m", "4Gi");
    check_text("0m", "0");
    check_text("12.5%", "12.5%");
    check_text("0:25%,1:auto," TEXT_A ":1024k", "0:25%,1:auto," TEXT_A ":1Mi");
    REQUIRE(cap_parse("0:4Gi,1:8Gi", &list) == 0);
    CHECK_EQ(cap_format(&list, small, sizeof(small)), 11);
    CHECK_STR(small, "0:4Gi,1");
}

static void test_uuid(void)
{
    static const char *const bad[] = {"",
                                      "GPU-",
                                      "GPU",
                                      "8f6a2b11-2233-4455-6677-8899aabbccdd",
                                      "MIG-" TEXT_A,
                                      TEXT_A "/1/0",
                                      "gpu-8f6a2b11-2233-4455-6677-8899",
                                      "GPU-8f6a2b11-2233-4455-6677-8899aabbccd",
                                      TEXT_A "0",
                                      "GPU-8f6a2b11223344556677-8899aabbccdd"};
    unsigned char uuid[16];

    CHECK_EQ(cap_parse_uuid(TEXT_A, uuid), 0);
    CHECK(memcmp(uuid, uuid_a, sizeof(uuid)) == 0);
    memset(uuid, 0, sizeof(uuid));
    CHECK_EQ(cap_parse_uuid("MIG-8F6A2B11-2233-4455-6677-8899AABBCCDD", uuid), 0);
    CHECK(memcmp(uuid, uuid_a, sizeof(uuid)) == 0);
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(cap_parse_uuid(bad[i], uuid), -EINVAL);
}

int main(void)
{
    TEST(test_uuid);
    TEST(test_forms);
    TEST(test_refused);
    TEST(test_lists);
    TEST(test_list_length);
    TEST(test_auto);
    TEST(test_ceiling);
    TEST(test_format);
    return test_result();
}
