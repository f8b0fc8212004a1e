/*
 * log: one line of text, one write(2), to stderr or to CUSLICE_LOG_FILE.
 * Owns the level and the destination. Runs on whatever thread has something to say, inside a
 * program that is not ours: it must never allocate, take a lock, change errno or touch stdout.
 * Every message carries a short stable id, which the documentation lists:
 * cuslice[PID] LEVEL: TEXT [ID]
 */
#ifndef CUSLICE_LOG_H
#define CUSLICE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* A line longer than this is cut, and ends in "...". */
#define LOG_LINE_MAX 1024

/* Highest level that is written. Set by log_open; read by the macros below. */
extern _Atomic int log_threshold;

/* Sets level and destination; file NULL or "" means stderr. Not to be raced with itself. The file
 * is opened for each line, so that a program which closes or reuses descriptors cannot misdirect
 * one. */
void log_open(enum log_level level, const char *file);

/* From now on what the calling thread would say is not said, and log_open on it changes nothing; or
 * no more so. */
void log_hush(bool hush);

/* Writes one line whatever the level; use the macros. Thread-safe, keeps errno; %m is errno's text.
 */
void log_write(enum log_level level, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

#define log_enabled(level) \
    ((int)(level) <= atomic_load_explicit(&log_threshold, memory_order_relaxed))
#define log_at(level, id, ...) \
    do { \
        if (log_enabled(level)) \
            log_write(level, id, __VA_ARGS__); \
    } while (0)
#define log_error(id, ...) log_at(LOG_ERROR, id, __VA_ARGS__)
#define log_warn(id, ...) log_at(LOG_WARN, id, __VA_ARGS__)
#define log_info(id, ...) log_at(LOG_INFO, id, __VA_ARGS__)
#define log_debug(id, ...) log_at(LOG_DEBUG, id, __VA_ARGS__)

/* One per rate-limited message; zero-initialised. */
struct log_rate {
    _Atomic uint64_t next_ns;
    _Atomic unsigned held_back;
};

/* True when the message may be said now (at most once per interval); *suppressed is then how many
 * were held back since the last time. False counts this one as held back. Thread-safe. */
bool log_every(struct log_rate *rate, uint64_t interval_ns, unsigned *suppressed);

#endif
