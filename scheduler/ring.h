/*
 * ring: turns between processes. Owns the token word, the waiting set and the wake-ups; the essay
 * in ring.c is the protocol. Everything here is a single look or a single step: the loops, the gate
 * and the drain are its callers'. Any thread of the process may call anything at any time.
 */
#ifndef CUSLICE_SCHEDULER_RING_H
#define CUSLICE_SCHEDULER_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "closely.h"
#include "futex.h"
#include "segment.h"
#include "tenant.h"

struct ring {
    struct segment segment;
    unsigned slot;
    unsigned tenant;          /* its record's index; what the file says is held to this */
    uint64_t process_limit;   /* as its own settings say: bytes; CUSLICE_NO_LIMIT */
    _Atomic bool roomy;       /* it was alone in its tenant with plenty of room (ledger.c) */
    struct closely closely;   /* of the thread that looks closely */
    uint64_t expected;        /* the turn whose end the next client has been told of */
    uint64_t expected_ns;     /* and when that was to be */
    _Atomic uint64_t left_ns; /* when it last passed the token on without wanting another turn */
    _Atomic uint64_t owed;    /* by how much it was behind then, in virtual time */
    _Atomic uint32_t notice;  /* what its slot's death word says; 0: nothing (notice.h) */
    bool pages;               /* its memory may be paged out: its turns may be longer */
    struct lock ledger_lock;  /* threads of this process that collided near a cap, one at a time */
};

struct watch;

/* Opens the GPU's ring and takes a slot; 0 or -errno as segment_open and slot_join. */
int ring_join(struct ring *ring, const char *directory, const struct segment_spec *device,
              const struct tenant_spec *tenant);

/* The same on a ring of this process alone. */
int ring_join_private(struct ring *ring, const struct segment_spec *device,
                      const struct tenant_spec *tenant);

/* Gives the token and the slot back and unmaps. */
void ring_leave(struct ring *ring);

static inline struct cuslice_segment *ring_shared(const struct ring *ring)
{
    return ring->segment.shared;
}

static inline struct cuslice_tenant *ring_tenant(const struct ring *ring)
{
    return &ring->segment.shared->tenant[ring->tenant];
}

static inline struct cuslice_slot *ring_me(const struct ring *ring)
{
    return &ring->segment.shared->slot[ring->slot];
}

/* The cap on this process as it stands now, in bytes; CUSLICE_NO_LIMIT. */
static inline uint64_t ring_process_limit(const struct ring *ring)
{
    return tenant_process_limit(ring_tenant(ring), ring->process_limit);
}

/* The token word, and whether this client holds it. */
uint64_t ring_token(const struct ring *ring);
bool ring_holds(const struct ring *ring, uint64_t token);

/* The value of the futex word of this client's threads, to be read before a look and given to
 * ring_wait; and its keeper's word, which is to be read likewise. */
uint32_t ring_news(const struct ring *ring);
static inline const _Atomic(uint32_t) *ring_call_word(const struct ring *ring)
{
    return &ring_me(ring)->call;
}

/* Enters this client among the waiting, once; says so at each look, since a claim clears it. */
void ring_want(struct ring *ring);

/* The same at the end of its turn, for threads that still wait: who has just had the GPU is not
 * lifted to where sleepers are. */
void ring_want_more(struct ring *ring);

/* One look at the token: 1 and *token when this client holds it; 0 when another does. A free token
 * is granted, to whom policy names. */
int ring_look(struct ring *ring, uint64_t *token);

/* Before the holder's first submission of a turn: strikes it from the waiting, books what it
 * waited. */
void ring_claim(struct ring *ring, uint64_t token);

/* Sleeps until news, `deadline_ns`, or time for a look at the holder, and takes that look. Call
 * after ring_want and a ring_look that said 0. Blocking. */
void ring_wait(struct ring *ring, uint32_t news, struct watch *watch, uint64_t deadline_ns);

/* Gives up waiting; other threads of this process that still wait are woken to say so again. 1 and
 * *token when the token came meanwhile: the caller uses or passes it. */
int ring_unwant(struct ring *ring, uint64_t *token);

/* Whether this client is among the waiting. */
bool ring_waits(const struct ring *ring);

/* Wakes the holder's keeper where it would not look in time by itself. Part of ring_wait, for who
 * waits otherwise, and for who looks after those who wait. */
void ring_rouse(struct ring *ring);

/* Begins the turn of `token` anew, with all of its time before it; 1 and *token is the new word, or
 * -ESTALE. */
int ring_restart(struct ring *ring, uint64_t *token);

/* Whether another client waits that its limit lets have a turn; how many clients there are, this
 * one included. */
bool ring_wanted(const struct ring *ring);
unsigned ring_clients(const struct ring *ring);

/* Whether this client's tenant has a limit, and until when that holds it back (0: it does not). */
bool ring_limited(const struct ring *ring);
uint64_t ring_limit_until(const struct ring *ring);

/* When the turn of `token` must end before its slice is over, or although nobody waits: because of
 * the limit, or of a tenant of another class; CLOCK_NEVER. */
uint64_t ring_cut(const struct ring *ring, uint64_t token);

/* The holder's slice has ended, or is about to: charges it up to now and asks policy. 1: go on,
 * *token is the new word (a new turn of the same client; only when `busy` says that it wants one).
 * 0: another client is due, or the limit is used up: close, drain, ring_pass. -ESTALE: the token is
 * gone. */
int ring_renew(struct ring *ring, uint64_t *token, bool busy);

/* The holder's slice is about to end: charges it up to now; whether policy names another client
 * then. Nothing moves. */
bool ring_due(struct ring *ring, uint64_t token);

/* The token will go on at about `due_ns`: says so, and wakes the client that is likely to be next,
 * once, so that the token finds it awake. Only a hint. */
void ring_expect(struct ring *ring, uint64_t token, uint64_t due_ns);

/* A thread that waits and has had news: if the holder is about to pass, sleeps until shortly before
 * that and then looks closely; true when the token moved. False at once when the holder is said to
 * be dead; `watch` is ring_wait's. One thread of a process at a time. *slack, negative while
 * the thread has its own, is then what its timers are to have back (clock_give_slack), in any case.
 */
bool ring_wait_close(struct ring *ring, struct watch *watch, int *slack);

/* Charges and passes the token to whom policy names, or frees it. `busy` as above: if this client
 * is named itself, 1 is returned with its new *token. 0: passed. -ESTALE: it was gone already. */
int ring_pass(struct ring *ring, uint64_t *token, bool busy);

/* Charges the holder up to now, in the middle of a turn. */
void ring_charge(struct ring *ring, uint64_t token);

/* Work of this client has run for so long in others' turns: counted, and charged to its tenant. */
void ring_overrun(struct ring *ring, uint64_t ns);

/* Nobody waited and this client had no work since it was last charged: that time costs nothing. */
void ring_idle(struct ring *ring, uint64_t token);

/* The same, when the work is known to have ended at `since`: charges up to there and no further. */
void ring_rested(struct ring *ring, uint64_t token, uint64_t since);

/* Says to the waiting whether this client's keeper will end the slice of `token` in time. Answers
 * whether somebody waits: when armed is false and the answer is true, it must be armed. */
bool ring_arm(struct ring *ring, uint64_t token, bool armed);

/* Once a second: whether the ring's file still has its name (else -ESTALE), and whether the next
 * client in the ring is dead (then it is reaped); one that lately said that it is awake is not
 * asked for, since that opens the file. */
int ring_tend(struct ring *ring);

/* When the slice of `token` ends: grant plus quantum, or plus what paging makes of it; the grant
 * time too. */
uint64_t ring_slice_end(const struct ring *ring, uint64_t token, uint64_t *granted_ns);

/* Gives the token word `old` to whom policy names among the waiting, or frees it. True when it was
 * this call that moved it. */
bool ring_grant(struct cuslice_segment *shared, uint64_t old, uint64_t now);

/* Who waits now; whether another than `slot` does that no limit holds back. */
void ring_waiting(const struct cuslice_segment *shared, uint64_t set[CUSLICE_SLOT_WORDS]);
bool ring_others_wait(struct cuslice_segment *shared, unsigned slot, uint64_t now);

static inline uint64_t ring_bit(const struct ring *ring)
{
    return UINT64_C(1) << (ring->slot % 64);
}

/* Takes the token off a slot that its caller knows dead (holding its byte). */
void ring_evict(struct cuslice_segment *shared, unsigned slot, uint64_t now);

/* News for a client: its threads that wait look again, its keeper, or both. Each wake-up takes
 * time, and a CPU. */
void ring_wake(struct cuslice_segment *shared, unsigned slot);
void ring_call(struct cuslice_segment *shared, unsigned slot);
void ring_poke(struct cuslice_segment *shared, unsigned slot);

/* News for all threads that wait: a holder whose death nobody is told of any more is to be looked
 * at soon. */
void ring_wake_waiting(struct cuslice_segment *shared);

/* Text for people: who holds the token, or "nobody". */
void ring_holder_name(const struct ring *ring, char *text, size_t size);

#endif
