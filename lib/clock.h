/*
 * clock: nanoseconds on the host's CLOCK_MONOTONIC, the one time that all clients of a node share.
 * A time namespace shifts CLOCK_MONOTONIC by a constant; clock_init takes the shift out once.
 * Any thread may call anything but clock_init and clock_fake, which belong to start-up.
 */
#ifndef CUSLICE_CLOCK_H
#define CUSLICE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_US UINT64_C(1000)
#define CLOCK_MS UINT64_C(1000000)
#define CLOCK_S UINT64_C(1000000000)

/* A deadline that never comes. */
#define CLOCK_NEVER UINT64_MAX

/* Learns the time namespace's offset. Call once before any other client's times are compared. */
void clock_init(void);

/* Now, on the host's clock. */
uint64_t clock_now(void);

/* What this time namespace adds to the host's clock, in nanoseconds; 0 outside of one. */
int64_t clock_offset(void);

/* The host time `delay_ns` from now; saturates at CLOCK_NEVER. */
uint64_t clock_after(uint64_t delay_ns);

/* A deadline on the host's clock as an absolute CLOCK_MONOTONIC timespec of this process. */
struct timespec clock_abs(uint64_t deadline_ns);

/* What is left until a deadline as a relative timespec; zero when it has passed. */
struct timespec clock_rel(uint64_t deadline_ns);

/* The time a relative timespec, or any timespec, stands for. */
static inline uint64_t clock_ns(struct timespec t)
{
    return (uint64_t)t.tv_sec * CLOCK_S + (uint64_t)t.tv_nsec;
}

/* How late the calling thread's timed waits may end, from now on; returns what it was before, to be
 * given back. Negative: it is not known, and nothing is changed. */
int clock_slack(int ns);
void clock_give_slack(int ns);

/* How often the kernel has taken the calling thread off its CPU for another one. Where it does not
 * say, each call counts one more. */
long clock_switches(void);

/* Tells the processor that this is a loop that waits. */
static inline void clock_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

/* Replaces the source of clock_now in unit tests; NULL restores the system's. */
void clock_fake(uint64_t (*source)(void));
/* The same for clock_switches. */
void clock_fake_switches(long (*source)(void));

#endif
