/*
 * test: what a unit test needs. One program per file, one main that calls TEST(function) for each
 * case and returns test_result(). A failed CHECK prints where and what, fails the program, and goes
 * on.
 */
#ifndef TEST_H
#define TEST_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a test that cannot run here returns. */
#define TEST_SKIP 77

static unsigned test_failures;
static unsigned test_checks;
static const char *test_current = "";

static inline void expect_fail(const char *file, int line, const char *text)
{
    test_failures++;
    printf("%s:%d: %s: %s\n", file, line, test_current, text);
    fflush(stdout);
}

static inline void expect_true(bool ok, const char *file, int line, const char *text)
{
    test_checks++;
    if (!ok)
        expect_fail(file, line, text);
}

static inline void expect_equal(int64_t a, int64_t b, const char *file, int line, const char *text)
{
    char said[512];

    snprintf(said, sizeof(said),
             "%s: %" PRId64 " (0x%" PRIx64 ") is not %" PRId64 " (0x%" PRIx64 ")", text, a,
             (uint64_t)a, b, (uint64_t)b);
    expect_true(a == b, file, line, said);
}

static inline void expect_text(const char *a, const char *b, const char *file, int line,
                               const char *text)
{
    char said[4096];

    snprintf(said, sizeof(said), "%s: \"%s\" is not \"%s\"", text, a ? a : "(null)",
             b ? b : "(null)");
    expect_true(a && b && strcmp(a, b) == 0, file, line, said);
}

static inline void expect_part(const char *text, const char *part, bool wanted, const char *file,
                               int line)
{
    char said[4096];

    snprintf(said, sizeof(said), "\"%s\" in: %s", part, text);
    expect_true((strstr(text, part) != NULL) == wanted, file, line, said);
}

#define CHECK(condition) expect_true(condition, __FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b) expect_equal((int64_t)(a), (int64_t)(b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_STR(a, b) expect_text(a, b, __FILE__, __LINE__, #a " == " #b)
#define CHECK_HAS(text, part) expect_part(text, part, true, __FILE__, __LINE__)
#define CHECK_HAS_NOT(text, part) expect_part(text, part, false, __FILE__, __LINE__)
/* For what the rest of the program cannot go on without. */
#define REQUIRE(condition) \
    do { \
        if (!(condition)) { \
            expect_fail(__FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)
#define TEST(function) (test_current = #function, function())

/* Exit status of the program; a program that checked nothing has failed. */
static inline int test_result(void)
{
    if (test_failures)
        printf("%u of %u checks failed\n", test_failures, test_checks);
    else if (!test_checks)
        printf("nothing was checked\n");
    return test_failures || !test_checks;
}

#endif
