/*
 * closely: waiting for something whose time is known, with no more delay than a look takes. A timed
 * sleep ends late by what a timer and a wake-up take; so it is aimed that much earlier, and the
 * rest is looked through without sleeping, for a bounded time. That needs a CPU that nobody else
 * wants: a thread that is put off it while it looks loses more than it gained, and so looks closely
 * less and less often as long as that happens. A gap alone does not tell that: a timer's tick takes
 * tens of microseconds on a virtual machine; the kernel's count of switches does. One record per
 * thread; nothing here blocks.
 */
#ifndef CUSLICE_CLOSELY_H
#define CUSLICE_CLOSELY_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

/* What is looked through at most, before something is due and after it. */
#define CLOSELY_BEFORE_NS (100 * CLOCK_US)
#define CLOSELY_AFTER_NS (100 * CLOCK_US)
/* Who yields between two looks does so no more often: each yield puts a thread behind others by a
 * slice of its CPU, also where it changes nothing, and a hundred of them by a third of a second. */
#define CLOSELY_YIELD_NS (10 * CLOCK_US)
/* Two looks further apart than this: the thread may have been put off its CPU. */
#define CLOSELY_AWAY_NS (40 * CLOCK_US)
/* For so long nobody looks closely then; twice as long when it happens again, and at least so many
 * times as long as the thread was away: a close look gains some tens of microseconds in each of the
 * hand-overs that there would have been. */
#define CLOSELY_PENALTY_LEAST_NS (2 * CLOCK_MS)
#define CLOSELY_PENALTY_MOST_NS (6400 * CLOCK_MS)
#define CLOSELY_PENALTY_SHARE 200

/* Zero-initialised. */
struct closely {
    uint64_t late_ns;    /* what sleeps overshoot by: few are later than this */
    uint64_t last_ns;    /* the look before */
    uint64_t yielded_ns; /* the last yield */
    uint64_t penalty_ns; /* for how long not, when the thread is put off its CPU */
    uint64_t away_ns;    /* for so long it was, before the last look */
    long switches;       /* how often it has been, by the kernel's count (clock_switches) */
};

/* A sleep was to end at asked_ns. Follows quickly upwards, slowly down. */
static inline void closely_slept(struct closely *c, uint64_t asked_ns, uint64_t woke_ns)
{
    uint64_t late = woke_ns > asked_ns ? woke_ns - asked_ns : 0;
    late = late < CLOSELY_BEFORE_NS ? late : CLOSELY_BEFORE_NS;
    c->late_ns = late > c->late_ns ? c->late_ns + (late - c->late_ns) / 4
                                   : c->late_ns - (c->late_ns - late) / 32;
}

/* When to wake for what is due at due_ns. */
static inline uint64_t closely_wake(const struct closely *c, uint64_t due_ns)
{
    uint64_t early = c->late_ns + c->late_ns / 2 + 5 * CLOCK_US;
    early = early < CLOSELY_BEFORE_NS ? early : CLOSELY_BEFORE_NS;
    return due_ns > early ? due_ns - early : 0;
}

/* Whether anybody should look closely now. `crowded`: a word that those share who do, in which the
 * one that was put off its CPU says until when they should not. */
static inline bool closely_may(const _Atomic(uint64_t) *crowded, uint64_t now)
{
    uint64_t until = atomic_load_explicit(crowded, memory_order_relaxed);
    return until <= now || until > now + CLOSELY_PENALTY_MOST_NS;
}

/* Before a row of looks, and between two of them. */
static inline void closely_begin(struct closely *c)
{
    c->switches = clock_switches();
    c->last_ns = clock_now();
    c->away_ns = 0;
}

static inline uint64_t closely_next(struct closely *c)
{
    clock_pause();
    uint64_t now = clock_now(), gap = now - c->last_ns;
    c->last_ns = now;
    c->away_ns = 0;
    if (gap > CLOSELY_AWAY_NS) {
        long switches = clock_switches();
        c->away_ns = switches != c->switches ? gap : 0;
        c->switches = switches;
    }
    return now;
}

/* Lets somebody else have this CPU who may be about to bring what is looked for. */
static inline void closely_yield(struct closely *c)
{
    if (c->last_ns < c->yielded_ns + CLOSELY_YIELD_NS)
        return;
    c->yielded_ns = c->last_ns;
    sched_yield();
}

/* Behind them. What was looked for came at `since`: an absence before that has cost nothing. */
static inline void closely_end(struct closely *c, _Atomic(uint64_t) *crowded, uint64_t since)
{
    uint64_t least = CLOSELY_PENALTY_LEAST_NS, most = CLOSELY_PENALTY_MOST_NS;
    uint64_t lost = c->last_ns > since ? c->last_ns - since : 0;
    lost = lost < c->away_ns ? lost : c->away_ns;
    bool away = lost > CLOSELY_AWAY_NS;
    c->penalty_ns = away ? 2 * c->penalty_ns : c->penalty_ns - c->penalty_ns / 16;
    if (away && lost > least / CLOSELY_PENALTY_SHARE)
        least = lost < most / CLOSELY_PENALTY_SHARE ? lost * CLOSELY_PENALTY_SHARE : most;
    c->penalty_ns = c->penalty_ns < least ? least : c->penalty_ns > most ? most : c->penalty_ns;
    if (away)
        atomic_store_explicit(crowded, c->last_ns + c->penalty_ns, memory_order_relaxed);
}

#endif
