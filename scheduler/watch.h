/*
 * watch: looking at the holder on behalf of those who wait: is it dead, gone, or does it not move?
 * Each look is a step of its own; whoever waits, and the keeper that passed last, decides when the
 * next one is (watch_period, watch_after). No thread is needed for it, and none may block here.
 */
#ifndef CUSLICE_SCHEDULER_WATCH_H
#define CUSLICE_SCHEDULER_WATCH_H

#include "ring.h"

/* How often a waiter that stands first, and the client that passed last, look at a holder that has
 * no guards. */
#define WATCH_NS UINT64_C(4000000)
/* What a holder gets beyond quantum and allowance before it is revoked. */
#define WATCH_GRACE_NS UINT64_C(10000000)

/* What one observer remembers of the token between two looks. Zero-initialised; one per thread. */
struct watch {
    uint64_t token;
    uint64_t since_ns; /* first look at this token */
    uint64_t last_ns;
    uint64_t lost_ns;  /* time in which the observer itself did not run */
    uint64_t due_ns;   /* when the next look was meant to be; 0: within WATCH_NS */
    unsigned looks;    /* close ones in a row, none of them late */
    uint64_t heard_ns; /* waits that news have ended, without a look, since then; 0: none has */
    uint64_t told;     /* the turn whose holder was said to be dead, and since when */
    uint64_t told_ns;
    uint64_t asked_ns; /* not before then need a holder's lock be looked at that has a notice */
};

/* One look at the holder on behalf of those who wait: reaps it when dead (and with it those among
 * the waiting who died too), revokes it when overdue. True when the token moved. */
bool watch_look(struct ring *ring, struct watch *watch);

/* For who looks after a pass: the next look is due in so many nanoseconds. */
uint64_t watch_after(struct ring *ring, struct watch *watch);

/* How long a thread that waits for `token` may sleep before its next look. */
uint64_t watch_period(const struct ring *ring, struct watch *watch, uint64_t token, uint64_t now);

/* Whether the holder of `token` is said to be dead; and from then on, how long until the next look
 * at its lock: 0 at first. */
bool watch_noticed(const struct ring *ring, uint64_t token);
uint64_t watch_told(struct watch *watch, uint64_t token, uint64_t now);

/* The word to sleep on besides one's own for a notice that the holder of `token` is dead. False
 * when none is to come, or other clients' keepers, its guards, sleep on it: the one wake-up is
 * theirs, and must not go to a client that dies with it. */
bool watch_word(const struct ring *ring, uint64_t token, struct futex_watch *word);

#endif
