/*
 * gang: clients of one tenant on several rings that take their turns together (see gang.c for the
 * rules). Owns this process's membership of one gang on one ring; knows neither tokens nor gates:
 * its caller, the keeper, says whether the ring's token is held, and does what the answer is.
 * One thread per membership; several memberships of a process may share a keeper.
 */
#ifndef CUSLICE_SCHEDULER_GANG_H
#define CUSLICE_SCHEDULER_GANG_H

#include <stdbool.h>
#include <stdint.h>

#include "cuslice/gang.h"
#include "segment.h"

struct gang {
    struct cuslice_gang *shared;
    unsigned me, sleep; /* its place; that of the member on whose word it sleeps */
    uint8_t uuid[16];
    uint64_t opened; /* the turn that is open for this member; 0 = none */
    uint64_t device; /* st_dev and st_ino of the file that is mapped */
    uint64_t inode;
    char path[SEGMENT_PATH_MAX];
};

/* What to do with the ring's token. */
enum gang_step {
    GANG_REST,   /* nothing: nobody of the gang wants a turn */
    GANG_AWAY,   /* not held, and it is not the time to ask for it */
    GANG_ASK,    /* not held: ask for it */
    GANG_GATHER, /* hold it, with the gate closed: others' are still missing */
    GANG_OPEN,   /* hold it; the gate may open */
    GANG_END,    /* the turn is to end: close the gate, drain */
    GANG_OVER    /* give it back: the turn is over or will not open, or it is not its time */
};

/* Opens or makes the gang's file in `directory`, which exists, and takes a place in it; 0, -ENOSPC
 * (all 64 are taken), -EPROTO (the file is no gang of this version), or another -errno. `uuid`: of
 * the ring's GPU. No descriptor stays open. */
int gang_join(struct gang *gang, const char *directory, const char *tenant, const char *name,
              const uint8_t uuid[16]);

/* Takes no part any more; the place is free once the mapping is gone, and until then this member
 * may return to it. */
void gang_leave(struct gang *gang);
void gang_return(struct gang *gang);

/* Unmaps. Nobody may use the membership any more. */
void gang_close(struct gang *gang);

/* Lets news for this membership wake those whom news for `other`, of the same process, wake. Not
 * where `other` is of an earlier file that has lost its name: then it goes on sleeping on its own.
 */
void gang_sleep_with(struct gang *gang, const struct gang *other);

/* The futex word that news for it change, and its value. */
const _Atomic uint32_t *gang_news_word(const struct gang *gang);

/* One look. `wants`: threads of this process wait for a turn on this ring; `holds`: this process
 * holds the ring's token. Says what it finds to the others. */
enum gang_step gang_look(struct gang *gang, bool wants, bool holds);

/* Whether a member wants a turn that has no part in this one: somebody who waits, to those who
 * have.
 */
bool gang_crowded(const struct gang *gang);

/* Whether one of them cannot come to have a part in this turn: its own ring, or one after it, is
 * held. */
bool gang_barred(const struct gang *gang);

/* The open turn is to end, for all. */
void gang_end(struct gang *gang);

/* Says whether this member has nothing to do in the open turn; true when none of those in it has.
 */
bool gang_idle(struct gang *gang, bool idle);

/* Whether another member has nothing to do, and so would like to know. */
bool gang_resting(const struct gang *gang);

/* This member's gate is closed in a turn that ends, after so many submissions in it. */
void gang_closed(struct gang *gang, uint64_t submitted);

/* How many submissions another member is ahead. What the ranks of a job do is alike: what another
 * has on its GPU may wait for these. */
uint64_t gang_behind(const struct gang *gang);

/* This member's work has left the GPU. True once that is so of all, and the turn over: the token
 * may go on. Else again later. */
bool gang_drained(struct gang *gang);

/* Takes that back, to submit more in the same turn; false when it is over. */
bool gang_again(struct gang *gang);

/* The turn is over although some have not drained. */
void gang_abandon(struct gang *gang);

/* The token has been given back. */
void gang_passed(struct gang *gang);

/* Whether no member of the gang is on a GPU before this one. */
bool gang_first(const struct gang *gang);

/* Strikes members whose process is gone; how many. Opens the file; for who waits for others. */
unsigned gang_reap(struct gang *gang);

/* Whether the path still names this gang's file. */
bool gang_current(const struct gang *gang);

#endif
