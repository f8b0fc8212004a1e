/*
 * futex: waiting on 32-bit words, shared between processes or private to this one, and a small
 * lock. Deadlines are absolute, on the host's monotonic clock (clock.h); CLOCK_NEVER is for tests
 * only. Waits return 0 when woken (also spuriously: look at the word again), -EAGAIN when the word
 * did not hold `expected`, -ETIMEDOUT, or -EINTR. Nothing here allocates or changes errno.
 */
#ifndef CUSLICE_FUTEX_H
#define CUSLICE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Waits on a word in shared memory. Blocking. */
int futex_wait(const _Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);

/* Wakes at most n waiters of a shared word; returns how many, or -errno. */
int futex_wake(const _Atomic uint32_t *word, int n);

/* The same for a word that only this process waits on. */
int futex_wait_private(const _Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);
int futex_wake_private(const _Atomic uint32_t *word, int n);

/* One of the words futex_wait_many watches. */
struct futex_watch {
    const _Atomic uint32_t *word;
    uint32_t expected;
    bool private_word;
};

#define FUTEX_WATCH_MAX 128 /* as the kernel has it */

/* Waits on up to FUTEX_WATCH_MAX words; returns the index of a woken one, or as above; -ENOSYS
 * where the kernel lacks futex_waitv (before 5.16, or refused by a seccomp filter). Blocking. */
int futex_wait_many(const struct futex_watch *watch, unsigned n, uint64_t deadline_ns);

/* Whether it can be used here and now. */
bool futex_waits_many(void);

/* A lock of this process: zero-initialised, not recursive. Never held across a driver call. */
struct lock {
    _Atomic uint32_t word; /* 0 free, 1 taken, 2 taken and somebody waits */
};

#define LOCK_INIT \
    { \
        0 \
    }

/* Takes the lock, waiting as long as it takes; signals do not end the wait. */
void lock_take(struct lock *lock);

/* Takes the lock if it is free; true when taken. */
bool lock_try(struct lock *lock);

/* Puts the lock back. */
void lock_put(struct lock *lock);

/* In a forked child: frees the lock whose holder stayed behind in the parent. */
void lock_reset(struct lock *lock);

#endif
