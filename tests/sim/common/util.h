/*
 * Small tools of the simulator's two halves: clock, futex, settings. No state of its own but the
 * clock's offset; any thread.
 */
#ifndef SIM_COMMON_UTIL_H
#define SIM_COMMON_UTIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTIL_NEVER UINT64_MAX

/* The host's CLOCK_MONOTONIC in nanoseconds, also inside a time namespace once util_clock_init ran.
 */
void util_clock_init(void);
uint64_t util_now(void);

/* Sleeps while *word is expected, until woken or for at most ns. Spurious returns are normal. */
void util_futex_wait(const _Atomic uint32_t *word, uint32_t expected, uint64_t ns);
void util_futex_wake(const _Atomic uint32_t *word, int count);

static inline void util_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* "20us", "1.5ms", "forever" (UTIL_NEVER); a bare number is nanoseconds. False: no such thing. */
bool util_parse_duration(const char *text, size_t length, uint64_t *ns);
/* "8Gi", "256M", "4096". */
bool util_parse_size(const char *text, uint64_t *bytes);

/* Settings from the environment; a missing or bad one gives the fallback. */
uint64_t util_env_duration(const char *name, uint64_t fallback);
uint64_t util_env_size(const char *name, uint64_t fallback);
uint64_t util_env_number(const char *name, uint64_t fallback, uint64_t most);
/* SIMCUDA_DIR or its default, in full; 0 or -ENAMETOOLONG. */
int util_directory(char *path, size_t size);

#endif
