/*
 * turn: what the keeper does with one device's token, and when it looks again. turn.c holds it and
 * finds out when the turn is over, drain.c ends a turn, gather.c takes the turns of a gang. All of
 * it runs in the keeper's thread alone; nothing here waits: each call is one look, and answers when
 * the next one is due.
 */
#ifndef CUSLICE_HOOKS_TURN_H
#define CUSLICE_HOOKS_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "closely.h"
#include "guard.h"
#include "ring.h"
#include "watch.h"

struct gate;

#define TURN_TICK_NS CLOCK_MS
#define TURN_LOOK_LEAST_NS (15 * CLOCK_US)
#define TURN_LOOK_MOST_NS (500 * CLOCK_US)
#define TURN_RELENTS 6u
/* How often who waits for others of its gang looks whether they live. */
#define GATHER_LOOK_NS (10 * CLOCK_MS)

/* METERING: the meter's markers will tell when all is done. DRAINING: an event over all streams. */
enum turn_step { TURN_HOLDING, TURN_CLOSING, TURN_METERING, TURN_DRAINING };

struct turn {
    enum turn_step step;
    uint64_t token; /* of the turn being closed or drained */
    uint64_t closed_ns;
    uint64_t give_up_ns;
    uint64_t
        stuck_ns; /* the drain should have ended: threads at the gate may be what it waits for */
    uint64_t looked_ns;     /* up to here the end of the drain was looked for closely */
    struct closely closely; /* for the end of a drain */
    uint64_t relent_ns;     /* the gate is open for them until then */
    unsigned relents;       /* in vain: each makes the next one wait twice as long */
    uint64_t unclaimed_token, unclaimed_ns;
    uint64_t held_token, held_end_ns; /* of the turn being held; its end never moves */
    uint64_t verify_ns;               /* the event over all streams was recorded */
    uint64_t published;               /* launches already in the books */
    unsigned move_skip, move_wait;    /* seconds until moving to another ring is tried again */
    uint64_t launches;                /* at the last look */
    uint64_t idle_ns;                 /* work known to be done since; 0 = not */
    uint64_t watch_ns;                /* not before then is an end of work looked for closely */
    bool verifying;                   /* an event over all streams is under way to tell idleness */
    uint64_t overrun_ns;              /* the token went, and work was left; 0 = none was */
    uint64_t passed;                  /* the word after our last pass */
    uint64_t gather_ns;               /* the token is held for a gang since then; 0 = it is not */
    uint64_t submitted;               /* launches before the gang's turn */
    uint64_t nudge_ns;                /* when to let one more through, since others do not drain */
    unsigned nudges;
    struct watch watch;
    struct guard guard;
};

static inline uint64_t turn_sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t turn_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The state of a device's turn. */
struct turn *turn_of(const struct gate *gate);

/* Starts afresh, for all devices. */
void turn_reset(void);

/* One look at a device; when the next one is due. */
uint64_t turn_look(struct gate *gate);

/* Publishes what was launched since the last time. */
void turn_books(struct gate *gate);

/* When the turn of `token`, which is held, has run its length. */
uint64_t turn_end(struct gate *gate, struct turn *turn, uint64_t token);

/* ---- drain.c: the end of a turn ---- */

/* Closes the gate in the turn of `token`, whose slice is over then; drains and passes. */
uint64_t drain_begin(struct gate *gate, struct turn *turn, uint64_t token, uint64_t slice_end);

/* One look while submissions under way return, and while work leaves the GPU. */
uint64_t drain_closing(struct gate *gate, struct turn *turn);
uint64_t drain_look(struct gate *gate, struct turn *turn);

/* The turn ends here: drained, or what is on the GPU is lost count of. */
void drain_settle(struct gate *gate, struct turn *turn, bool drained);

/* It goes on under another token word. */
void drain_reopen(struct gate *gate, uint64_t token);

/* Whether the gate is open for threads that the end of the turn may wait for, and some may still
 * pass. */
bool drain_relenting(const struct gate *gate, const struct turn *turn, uint64_t now);

/* Books how long work went on after the token was passed or lost, up to now or to its end. When it
 * ends only a look tells; true while it has not. When to look then. */
bool drain_overrunning(struct gate *gate, struct turn *turn, bool holding);
uint64_t drain_overrun_look(const struct turn *turn);

/* ---- gather.c: the turns of a gang ---- */

/* The token is not held. Leaves the gang with a device that is no longer used. */
void gather_leave(struct gate *gate, struct turn *turn);

/* Whether this device's gate opens with a gang's. */
bool gather_joined(struct gate *gate);

/* The token is another's, or nobody's, and the gang may want it. */
uint64_t gather_ask(struct gate *gate, struct turn *turn);

/* The token is held for the gang, and no thread of this process has opened the gate. */
uint64_t gather_hold(struct gate *gate, struct turn *turn, uint64_t token);

/* Whether others of the gang wait for the end of its turn, or for news of this one's idleness; and
 * whether the turn ends, but for threads that are let through in it. */
bool gather_wanted(const struct gate *gate);
bool gather_ends(struct gate *gate, const struct turn *turn, uint64_t token, uint64_t now);

/* In a drain. Threads of this process stand at the gate and others of the gang have submitted more:
 * lets as much through; true when it has. All is drained here, and not yet elsewhere. The drain may
 * wait for a member that has no part in the turn. The token has been passed. */
bool gather_catch_up(struct gate *gate, struct turn *turn);
uint64_t gather_linger(struct gate *gate, struct turn *turn);
bool gather_late(const struct gate *gate, const struct turn *turn, uint64_t now);
uint64_t gather_passed(struct gate *gate, struct turn *turn);

/* The gang's file has lost its name: leaves it; what is held for it goes back first. */
void gather_regroup(struct gate *gate);

#endif
