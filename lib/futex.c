/*
 * futex: the system calls behind waiting and waking, and the lock made from them.
 * Owns nothing but its callers' words. Runs on any thread. Must never change errno or wait past a
 * deadline.
 */
#include "futex.h"
#include "clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One number on every architecture since 5.16; older kernel headers lack the name. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* The kernel's struct futex_waitv, which headers before 5.16 lack. */
struct futex_wait_record {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};

#define FUTEX_RECORD_32 2u

static int futex_result(long result, int saved)
{
    int error = errno;

    errno = saved;
    return result < 0 ? -error : (int)result;
}

/* FUTEX_WAIT_BITSET takes an absolute time on this process's CLOCK_MONOTONIC, as clock_abs gives
 * it. */
static int futex_wait_flags(const _Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns,
                            int flags)
{
    struct timespec until = clock_abs(deadline_ns);
    int saved = errno;

    return futex_result(syscall(SYS_futex, word, FUTEX_WAIT_BITSET | flags, expected, &until, NULL,
                                FUTEX_BITSET_MATCH_ANY),
                        saved);
}

static int futex_wake_flags(const _Atomic uint32_t *word, int n, int flags)
{
    int saved = errno;

    return futex_result(syscall(SYS_futex, word, FUTEX_WAKE | flags, n, NULL, NULL, 0), saved);
}

int futex_wait(const _Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    return futex_wait_flags(word, expected, deadline_ns, 0);
}

int futex_wake(const _Atomic uint32_t *word, int n)
{
    return futex_wake_flags(word, n, 0);
}

int futex_wait_private(const _Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    return futex_wait_flags(word, expected, deadline_ns, FUTEX_PRIVATE_FLAG);
}

int futex_wake_private(const _Atomic uint32_t *word, int n)
{
    return futex_wake_flags(word, n, FUTEX_PRIVATE_FLAG);
}

int futex_wait_many(const struct futex_watch *watch, unsigned n, uint64_t deadline_ns)
{
    struct futex_wait_record record[FUTEX_WATCH_MAX];
    struct timespec until = clock_abs(deadline_ns);
    int saved = errno;

    if (n == 0 || n > FUTEX_WATCH_MAX)
        return -EINVAL;
    for (unsigned i = 0; i < n; i++) {
        record[i] = (struct futex_wait_record){
            .value = watch[i].expected,
            .address = (uintptr_t)watch[i].word,
            .flags = FUTEX_RECORD_32 | (watch[i].private_word ? FUTEX_PRIVATE_FLAG : 0u),
        };
    }
    int result =
        futex_result(syscall(SYS_futex_waitv, record, n, 0, &until, CLOCK_MONOTONIC), saved);
    return result == -EPERM ? -ENOSYS : result; /* what older seccomp filters say */
}

bool futex_waits_many(void)
{
    _Atomic uint32_t word = 0;
    struct futex_watch other = {&word, 1, true};

    return futex_wait_many(&other, 1, clock_after(CLOCK_S)) == -EAGAIN;
}

void lock_take(struct lock *lock)
{
    uint32_t free_word = 0;

    if (atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return;
    /* 2 from here on: whoever puts the lock back cannot know that nobody else waits. */
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        futex_wait_private(&lock->word, 2, clock_after(CLOCK_S));
}

bool lock_try(struct lock *lock)
{
    uint32_t free_word = 0;

    return atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

void lock_put(struct lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        futex_wake_private(&lock->word, 1);
}

void lock_reset(struct lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}
