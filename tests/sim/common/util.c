/*
 * Clock, futex and settings, see util.h. Runs in the clients and in the device; never allocates,
 * never prints, keeps no state but the clock's offset.
 */
#include "util.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t util_offset;

void util_clock_init(void)
{
    char name[32];
    long long seconds, nanoseconds;
    FILE *file = fopen("/proc/self/timens_offsets", "re");

    if (!file)
        return;
    while (fscanf(file, "%31s %lld %lld", name, &seconds, &nanoseconds) == 3)
        if (!strcmp(name, "monotonic"))
            util_offset = seconds * 1000000000 + nanoseconds;
    fclose(file);
}

uint64_t util_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((int64_t)now.tv_sec * 1000000000 + now.tv_nsec - util_offset);
}

void util_futex_wait(const _Atomic uint32_t *word, uint32_t expected, uint64_t ns)
{
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
    int saved = errno;

    syscall(SYS_futex, word, FUTEX_WAIT, expected, ns == UTIL_NEVER ? NULL : &limit, NULL, 0);
    errno = saved;
}

void util_futex_wake(const _Atomic uint32_t *word, int count)
{
    int saved = errno;

    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
    errno = saved;
}

struct util_unit {
    const char *name;
    uint64_t value;
};

static bool util_scale(const char *text, size_t length, const struct util_unit *units,
                       uint64_t *out)
{
    char number[32];
    char *end;
    double value;
    size_t digits = strspn(text, "0123456789.");

    if (!digits || digits >= sizeof(number) || digits > length)
        return false;
    memcpy(number, text, digits);
    number[digits] = 0;
    value = strtod(number, &end);
    if (*end)
        return false;
    for (; units->name; units++)
        if (strlen(units->name) == length - digits &&
            !strncmp(units->name, text + digits, length - digits)) {
            *out = (uint64_t)(value * (double)units->value + 0.5);
            return true;
        }
    return false;
}

bool util_parse_duration(const char *text, size_t length, uint64_t *ns)
{
    static const struct util_unit units[] = {
        {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"", 1}, {NULL, 0},
    };

    if (length == strlen("forever") && !strncmp(text, "forever", length)) {
        *ns = UTIL_NEVER;
        return true;
    }
    return util_scale(text, length, units, ns);
}

bool util_parse_size(const char *text, uint64_t *bytes)
{
    static const struct util_unit units[] = {
        {"", 1},
        {"K", 1000},
        {"M", 1000000},
        {"G", 1000000000},
        {"Ki", UINT64_C(1) << 10},
        {"Mi", UINT64_C(1) << 20},
        {"Gi", UINT64_C(1) << 30},
        {NULL, 0},
    };

    return util_scale(text, strlen(text), units, bytes);
}

uint64_t util_env_duration(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    uint64_t value;

    return text && util_parse_duration(text, strlen(text), &value) ? value : fallback;
}

uint64_t util_env_size(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    uint64_t value;

    return text && util_parse_size(text, &value) ? value : fallback;
}

uint64_t util_env_number(const char *name, uint64_t fallback, uint64_t most)
{
    const char *text = getenv(name);
    char *end;
    unsigned long long value;

    if (!text || !*text)
        return fallback;
    value = strtoull(text, &end, 10);
    return *end || value > most ? fallback : value;
}

int util_directory(char *path, size_t size)
{
    const char *text = getenv("SIMCUDA_DIR");
    int length;

    if (text && *text)
        length = snprintf(path, size, "%s", text);
    else
        length = snprintf(path, size, "/tmp/simcuda-%u", (unsigned)getuid());
    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}
