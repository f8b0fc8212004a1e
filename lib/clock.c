/*
 * clock: the host's CLOCK_MONOTONIC, seen from inside a time namespace too.
 * Owns the namespace's offset and, in unit tests, the replaced source. clock_init runs once at
 * start-up; everything else may run on any thread. Must never block or change errno.
 */
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static _Atomic int64_t clock_shift;
static uint64_t (*_Atomic clock_source)(void);
static long (*_Atomic clock_switch_source)(void);

/* The file names the offsets of the namespace that children will be in; that is ours too unless the
 * program has called unshare and not forked since. */
static int clock_same_namespace(void)
{
    char own[64] = "", children[64] = "";

    if (readlink("/proc/self/ns/time", own, sizeof(own) - 1) < 0 ||
        readlink("/proc/self/ns/time_for_children", children, sizeof(children) - 1) < 0)
        return 0;
    return strcmp(own, children) == 0;
}

/* Nanoseconds of the line `monotonic SECONDS NANOSECONDS`; 0 without one. */
static int64_t clock_parse_offsets(const char *text)
{
    const char *line = strstr(text, "monotonic");
    long long seconds, nanoseconds;

    if (!line || sscanf(line, "monotonic %lld %lld", &seconds, &nanoseconds) != 2)
        return 0;
    return (int64_t)(seconds * (long long)CLOCK_S + nanoseconds);
}

void clock_init(void)
{
    int saved = errno;
    char text[256] = "";
    int fd = -1;

    if (clock_same_namespace())
        fd = open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, text, sizeof(text) - 1);

        text[n > 0 ? n : 0] = '\0';
        close(fd);
    }
    atomic_store(&clock_shift, clock_parse_offsets(text));
    errno = saved;
}

int64_t clock_offset(void)
{
    return atomic_load_explicit(&clock_shift, memory_order_relaxed);
}

uint64_t clock_now(void)
{
    uint64_t (*source)(void) = atomic_load_explicit(&clock_source, memory_order_relaxed);
    struct timespec t;

    if (__builtin_expect(source != NULL, 0))
        return source();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return clock_ns(t) - (uint64_t)clock_offset();
}

uint64_t clock_after(uint64_t delay_ns)
{
    uint64_t now = clock_now();

    return delay_ns > CLOCK_NEVER - now ? CLOCK_NEVER : now + delay_ns;
}

static struct timespec clock_split(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / CLOCK_S), .tv_nsec = (long)(ns % CLOCK_S)};
}

struct timespec clock_abs(uint64_t deadline_ns)
{
    int64_t shift = clock_offset();

    if (shift > 0 && deadline_ns > CLOCK_NEVER - (uint64_t)shift)
        return clock_split(CLOCK_NEVER);
    if (shift < 0 && deadline_ns < (uint64_t)-shift)
        return clock_split(0);
    return clock_split(deadline_ns + (uint64_t)shift);
}

struct timespec clock_rel(uint64_t deadline_ns)
{
    uint64_t now = clock_now();

    return clock_split(deadline_ns > now ? deadline_ns - now : 0);
}

void clock_fake(uint64_t (*source)(void))
{
    atomic_store(&clock_source, source);
}

void clock_fake_switches(long (*source)(void))
{
    atomic_store(&clock_switch_source, source);
}

void clock_give_slack(int ns)
{
    int saved = errno;

    if (ns >= 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)ns, 0, 0, 0);
    errno = saved;
}

int clock_slack(int ns)
{
    int saved = errno, before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);

    errno = saved;
    if (before >= 0)
        clock_give_slack(ns);
    return before;
}

long clock_switches(void)
{
    static _Atomic long unknown;
    struct rusage usage;
    long (*source)(void) = atomic_load_explicit(&clock_switch_source, memory_order_relaxed);
    int saved = errno, failed = source ? 0 : getrusage(RUSAGE_THREAD, &usage);

    errno = saved;
    if (failed)
        return atomic_fetch_add(&unknown, 1);
    return source ? source() : usage.ru_nivcsw;
}
