/*
 * jumps: preloaded by test_clock, the time of day jumps two hours at every look, back and forth.
 * What else tells the time is libc's own.
 */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define HOUR 3600

static _Atomic unsigned jumps_looks;

static time_t jumps_shift(void)
{
    return atomic_fetch_add(&jumps_looks, 1) % 2 ? HOUR : -HOUR;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, t);

    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        t->tv_sec += jumps_shift();
    return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) < 0)
        return -1;
    *t = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *t)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (t)
        *t = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *t, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, t) == 0 ? base : 0;
}
