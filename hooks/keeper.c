/*
 * keeper: one thread, a state per device, no waiting but at the bottom of its loop (see keeper.h).
 *
 * Per device: HOLDING the token (or not) -> CLOSING, when the slice has ended, or is about to with
 * work until then on the GPU, and another client is due: the lease is exchanged, submissions under
 * way return -> METERING, while the meter's markers tell all there is to know, else DRAINING by an
 * event over all streams, until the work of this slice has left the GPU, or the allowance is used
 * up -> passed. A renewed turn skips all of it. It may be revoked between any two steps; every one
 * of them begins by looking whether the token is still what it was. If the process dies here,
 * others find the dead holder by its lock.
 *
 * Relenting. Work may wait for what a thread of this process would do next, and that thread stands
 * at the closed gate. So when a drain takes longer than the work should have and threads wait, the
 * gate opens for a moment, under the same turn; the launches that pass are few (meter.h).
 *
 * Limits. A tenant with a limit has no time alone: its keeper ends the turn when the budget is used
 * up, or when the work is done, as if somebody waited, and then nobody holds the token.
 *
 * Gangs (scheduler/gang.c). Where the client is in one, the keeper asks for the token in place of
 * the threads that wait, and holds it with the gate closed until the gang's other rings are held
 * too. One member's end of the turn is everybody's; who has drained keeps the token until all have.
 *
 * Early release. Work is known to be done when a synchronising call said so, or when nothing was
 * submitted since the last look and markers, or an event over all streams, are done. If others
 * wait, the token then goes on once the pause is longer than this client's short ones (gate.c). Of
 * a client that has only short ones or none, the end of its work is looked for closely.
 */
#include "keeper.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "attach.h"
#include "clock.h"
#include "closely.h"
#include "contexts.h"
#include "footprint.h"
#include "gang.h"
#include "gate.h"
#include "log.h"
#include "meter.h"
#include "notice.h"
#include "outside.h"
#include "real.h"
#include "ring.h"
#include "slot.h"

#define KEEPER_STACK (256 * 1024)
#define KEEPER_TEND_NS CLOCK_S
#define KEEPER_TICK_NS CLOCK_MS
#define KEEPER_CLAIM_NS CLOCK_MS
#define KEEPER_LOOK_LEAST_NS (15 * CLOCK_US)
/* So long before the slice's end the gate closes, if what is on the GPU lasts until then. */
#define KEEPER_LEAD_NS (200 * CLOCK_US)
#define KEEPER_LOOK_MOST_NS (500 * CLOCK_US)
#define KEEPER_EXIT_NS (50 * CLOCK_MS)
#define KEEPER_RELENTS 6u
/* What is not done so long after it should be is thought to wait for something outside, if there is
 * such a stream. */
#define KEEPER_OVERDUE_NS (10 * CLOCK_MS)
#define KEEPER_RELENT_NS (5 * CLOCK_MS)
/* What is booked of an overrun may be too long by this part of it. */
#define KEEPER_OVERRUN_SHARE 64
#define KEEPER_OVERRUN_MOST_NS (100 * CLOCK_MS)
/* How often who waits for others of its gang looks whether they live. */
#define KEEPER_GANG_NS (10 * CLOCK_MS)
/* How long threads have to submit what the others of the gang have submitted already; and for how
 * long after all is drained here the others are waited for before one more submission is let
 * through, at first. */
#define KEEPER_CATCH_UP_NS (2 * CLOCK_MS)
#define KEEPER_NUDGE_NS CLOCK_MS
/* How long a gang's turn that ends is held for its drain when a member that has no part in it waits
 * for the next: the drain may wait for that one. */
#define KEEPER_LATE_NS (100 * CLOCK_MS)

/* A client that holds the GPU no longer than this without work. */
#define KEEPER_BRIEF_NS (300 * CLOCK_US)
/* After having looked closely for the end of its work: not again for so many times as long. */
#define KEEPER_WATCH_SHARE 20

/* METERING: the meter's markers will tell when all is done. DRAINING: an event over all streams. */
enum keeper_step { KEEPER_HOLDING, KEEPER_CLOSING, KEEPER_METERING, KEEPER_DRAINING };

struct keeper {
    enum keeper_step step;
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
    uint64_t turn_token, turn_end_ns; /* of the turn being held; its end never moves */
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
    bool watches; /* whose holder is looked after */
    struct ring_watch watch;
};

static struct keeper keepers[GATE_DEVICES];
static pthread_t keeper_thread;
static _Atomic bool keeper_stopping;
static bool keeper_started;

static struct keeper *keeper_of(const struct gate *gate)
{
    return &keepers[gate - guest.gate];
}

static uint64_t keeper_sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t keeper_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- Passing the token ---- */

static void keeper_books(struct gate *gate)
{
    struct ring *ring = gate->ring;
    struct keeper *k = keeper_of(gate);
    uint64_t count = gate_count(gate), now = clock_now();
    if (count == k->published)
        return;
    slot_count(ring_shared(ring), ring->slot, launches, count - k->published);
    k->published = count;
    atomic_store(&ring_me(ring)->books.last_launch_ns, now);
    atomic_store(&ring_tenant(ring)->books.last_launch_ns, now);
}

/* Nothing of this process is on the GPU any more; or, not drained, what is there is lost count of.
 * Before the token moves: afterwards it may be back and new work under way. */
static void keeper_settle(struct gate *gate, struct keeper *k, bool drained)
{
    struct ring *ring = gate->ring;
    k->overrun_ns = drained || atomic_exchange(&gate->queued_alone, false) ? 0 : clock_now();
    k->step = KEEPER_HOLDING;
    k->idle_ns = 0;
    k->verifying = false;
    k->relents -= drained && k->relents;
    atomic_store(&ring_me(ring)->closing_ns, 0);
    atomic_fetch_add(&ring_shared(ring)->drain_ns, clock_now() - k->closed_ns);
    if (drained)
        meter_clear(gate);
    if (drained)
        atomic_store(&gate->queued_alone, false);
    else
        contexts_drain_begin(gate); /* an event of an earlier drain does not tell of this work */
    meter_blind(gate, !drained);
    keeper_books(gate);
}

/* The turn goes on under another token word. */
static void keeper_reopen(struct gate *gate, uint64_t token)
{
    struct ring *ring = gate->ring;
    ring_claim(ring, token);
    gate_open(gate, token);
    if (gate_waited(gate))
        ring_poke(ring_shared(ring), ring->slot);
}

/* Lets threads of this process pass that the work on the GPU may be waiting for. */
static uint64_t keeper_relent(struct gate *gate, struct keeper *k, uint64_t now)
{
    if (gate->gang && !gang_again(gate->gang))
        return now; /* the gang's turn is over */
    gate_count_none(gate);
    meter_relent(gate);
    unsigned most = ring_wanted(gate->ring) ? KEEPER_RELENTS : 0; /* alone it harms nobody */
    k->relents = k->relents < most ? k->relents + 1 : most;
    k->relent_ns = now + KEEPER_RELENT_NS;
    k->step = KEEPER_HOLDING;
    if (gate_relent(gate, k->token))
        ring_poke(ring_shared(gate->ring), gate->ring->slot);
    return k->relent_ns;
}

/* Lets so many submissions through in a gang's turn that ends; false when it is over. */
static bool keeper_let_through(struct gate *gate, struct keeper *k, unsigned submissions)
{
    if (!gang_again(gate->gang))
        return false;
    gate_count_off(gate, submissions);
    k->relent_ns = clock_now() + KEEPER_CATCH_UP_NS;
    k->step = KEEPER_HOLDING;
    if (gate_relent(gate, k->token))
        ring_poke(ring_shared(gate->ring), gate->ring->slot);
    return true;
}

/* Threads of this process stand at the gate, and others of the gang have submitted more. */
static bool keeper_catch_up(struct gate *gate, struct keeper *k)
{
    uint64_t behind = gang_behind(gate->gang);
    return behind && gate_waited(gate) &&
           keeper_let_through(gate, k, behind < UINT16_MAX ? (unsigned)behind : UINT16_MAX);
}

/* Drained, while others of the gang are not: what they have on their GPUs may wait for a thread of
 * this process that stands at the gate, though nobody has submitted more. */
static uint64_t keeper_linger(struct gate *gate, struct keeper *k)
{
    uint64_t now = clock_now();
    if (now >= k->give_up_ns) {
        gang_abandon(gate->gang);
        return now;
    }
    if (k->nudge_ns == 0)
        k->nudge_ns = now + (KEEPER_NUDGE_NS << k->nudges);
    if (now >= k->nudge_ns && gate_waited(gate)) {
        k->nudge_ns = 0;
        k->nudges += k->nudges < KEEPER_RELENTS;
        return keeper_let_through(gate, k, 1) ? k->relent_ns : now;
    }
    gang_reap(gate->gang);
    uint64_t look = keeper_sooner(now + KEEPER_GANG_NS, k->give_up_ns);
    return now < k->nudge_ns ? keeper_sooner(look, k->nudge_ns) : look;
}

/* What is to do for the gang's next turn is found at the next look, which is at once. */
static uint64_t keeper_passed_gang(struct gate *gate, struct keeper *k)
{
    gang_passed(gate->gang);
    k->gather_ns = 0;
    return clock_now();
}

/* The drain is over, one way or the other. */
static uint64_t keeper_pass(struct gate *gate, struct keeper *k, bool drained)
{
    struct ring *ring = gate->ring;
    uint64_t token = k->token;
    if (gate->gang && !gang_drained(gate->gang))
        return keeper_linger(gate, k);
    if (k->idle_ns && !ring_wanted(ring)) /* a limited tenant alone pays for what it used */
        ring_rested(ring, token, k->idle_ns);
    keeper_settle(gate, k, drained);
    gate->gang_open = false;
    bool wants = gate_waited(gate) && (!gate->gang || gang_first(gate->gang));
    if (wants) /* a claim in this turn has struck the bit that stands for those who still wait */
        ring_want_more(ring);
    int rc = ring_pass(ring, &token, wants);
    k->passed = ring_token(ring);
    k->watch = (struct ring_watch){0};
    k->watches = rc == 0;
    if (gate->gang)
        return keeper_passed_gang(gate, k);
    if (rc == 1)
        keeper_reopen(gate, token);
    return clock_now() + (rc == 1 ? KEEPER_TICK_NS : RING_WATCH_NS);
}

static uint64_t keeper_overrun(struct gate *gate, struct keeper *k)
{
    struct ring *ring = gate->ring;
    unsigned out = meter_out(gate);
    if (gate->gang)
        gang_abandon(gate->gang);
    log_info("allowance", "work of this process outlasts its slice by more than the allowance; the "
                          "next client goes on beside it");
    if (!atomic_load(&gate->queued_alone))
        slot_count(ring_shared(ring), ring->slot, overruns, out ? out : 1);
    return keeper_pass(gate, k, false);
}

/* Books how long work went on after the token was passed or lost, up to now or to its end. When it
 * ends only a look tells; true while it has not. */
static bool keeper_overrunning(struct gate *gate, struct keeper *k, bool holding)
{
    if (k->overrun_ns == 0)
        return false;
    bool over = holding || contexts_drain_poll(gate) == CONTEXTS_DONE;
    if (!over)
        return true;
    ring_overrun(gate->ring, clock_now() - k->overrun_ns);
    k->overrun_ns = 0;
    return false;
}

/* ---- Closing and draining ---- */

/* How long to sleep before the next look at something that will be over soon. */
static uint64_t keeper_patient(uint64_t nap)
{
    return nap < KEEPER_LOOK_LEAST_NS  ? KEEPER_LOOK_LEAST_NS
           : nap > KEEPER_LOOK_MOST_NS ? KEEPER_LOOK_MOST_NS
                                       : nap;
}

/* All that is known of is done since a while. Nothing of it was in the way of what is not known of,
 * which would be done too, if it ran. */
static bool keeper_overdue(struct gate *gate, const struct keeper *k)
{
    uint64_t done = keeper_later(meter_should_end(gate), k->closed_ns);
    return clock_now() > done + KEEPER_OVERDUE_NS;
}

/* One look: whether the work of this slice has left the GPU. What the meter is sure of needs no
 * event over all streams. */
static bool keeper_drained(struct gate *gate, struct keeper *k)
{
    bool metered = meter_poll(gate);
    enum outside_state outside = outside_poll(gate);
    if (outside == OUTSIDE_RUNNING)
        return false;
    if (metered && meter_sure(gate))
        return true;
    if (metered && outside == OUTSIDE_WAITING && keeper_overdue(gate, k))
        return true; /* an event over all streams would wait with the one that waits */
    if (k->step != KEEPER_DRAINING && meter_sure(gate) && meter_unmarked(gate) == 0)
        return false; /* a marker will tell */
    if (k->step != KEEPER_DRAINING)
        contexts_drain_begin(gate);
    k->step = KEEPER_DRAINING;
    return contexts_drain_poll(gate) == CONTEXTS_DONE;
}

/* What can be done of a pass while there is still work: then less is left for when there is none,
 * and what that needs has been touched. */
static void keeper_prepare(struct gate *gate, struct keeper *k)
{
    keeper_books(gate);
    ring_due(gate->ring, k->token);
    gate_waited(gate);
}

/* Looks again and again while the end is near, for a bounded time; true when it has come. */
static bool keeper_look_closely(struct gate *gate, struct keeper *k, uint64_t until)
{
    struct ring *ring = gate->ring;
    uint64_t from = clock_now(), now = from, end = until + CLOSELY_AFTER_NS;
    bool done;
    keeper_prepare(gate, k);
    closely_begin(&k->closely);
    while (!(done = keeper_drained(gate, k)) && now < end && ring_token(ring) == k->token) {
        if (now < until && !ring_awaited(ring)) /* who is next may have woken on this CPU */
            sched_yield();
        now = closely_next(&k->closely);
    }
    closely_end(&k->closely, &ring_shared(ring)->crowded_ns, until);
    k->looked_ns = end;
    atomic_fetch_add_explicit(&ring_shared(ring)->close_ns, clock_now() - from,
                              memory_order_relaxed);
    return done;
}

/* When to look at the drain next. The keeper is awake for its expected end; when that was in vain
 * it looks less and less often: each look may take a CPU from who has better use for it. `due` is
 * that end by what has been seen done; `until` moves on with the clock while it is overdue. */
static uint64_t keeper_drain_look(const struct keeper *k, uint64_t until, uint64_t due,
                                  uint64_t now, bool may)
{
    uint64_t awake = may ? closely_wake(&k->closely, until) : until - k->closely.late_ns / 2;
    uint64_t next = now + keeper_patient(now > due ? (now - due) / 4 : 0);
    if (awake > now && (now <= due || awake > next))
        next = awake - now < 2 * KEEPER_LOOK_MOST_NS ? awake : now + KEEPER_LOOK_MOST_NS;
    return next;
}

/* The allowance is used up. With a limit, but nobody to go on beside the work, it is waited for;
 * the threads at the gate are let through, in case the work waits for one of them. */
static uint64_t keeper_give_up(struct gate *gate, struct keeper *k, uint64_t now)
{
    if (!ring_limited(gate->ring) || ring_wanted(gate->ring))
        return keeper_overrun(gate, k);
    k->give_up_ns = now + segment_allowance(ring_shared(gate->ring));
    return gate_waited(gate) ? keeper_relent(gate, k, now) : now + KEEPER_TICK_NS;
}

static bool keeper_late(const struct gate *gate, const struct keeper *k, uint64_t now)
{
    return gate->gang && now >= k->closed_ns + KEEPER_LATE_NS && gang_crowded(gate->gang);
}

/* An end that was looked for closely in vain is so again only once something has been done. */
static uint64_t keeper_drain(struct gate *gate, struct keeper *k)
{
    if (gate->gang && keeper_catch_up(gate, k))
        return k->relent_ns;
    if (keeper_drained(gate, k))
        return keeper_pass(gate, k, true);
    uint64_t now = clock_now(), until = meter_busy_until(gate), due = meter_should_end(gate);
    bool may = closely_may(&ring_shared(gate->ring)->crowded_ns, now) && k->looked_ns < due;
    if (now >= k->give_up_ns || keeper_late(gate, k, now))
        return keeper_give_up(gate, k, now);
    if (may)
        ring_expect(gate->ring, k->token, until);
    if (may && closely_wake(&k->closely, until) <= now) {
        if (keeper_look_closely(gate, k, until))
            return keeper_pass(gate, k, true);
        now = clock_now();
    }
    due = meter_should_end(gate); /* it gets on when that has moved */
    k->stuck_ns = keeper_later(k->stuck_ns, due + meter_stuck(gate, k->relents));
    if (now >= k->stuck_ns && gate_waited(gate))
        return keeper_relent(gate, k, now);
    return keeper_drain_look(k, until, keeper_later(due, k->closed_ns), now, may);
}

static uint64_t keeper_closing(struct gate *gate, struct keeper *k)
{
    uint64_t now = clock_now();
    if (gate_inside(gate) && now < k->give_up_ns) {
        if (now >= k->stuck_ns && gate_waited(gate))
            return keeper_relent(gate, k, now);
        return now + keeper_patient((now - k->closed_ns) / 16);
    }
    k->step = KEEPER_METERING;
    if (gate->gang)
        gang_closed(gate->gang, gate_count(gate) - k->submitted);
    return keeper_drain(gate, k);
}

static uint64_t keeper_close(struct gate *gate, struct keeper *k, uint64_t token,
                             uint64_t slice_end)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now();
    uint64_t until = meter_busy_until(gate);
    gate_close(gate, token);
    if (k->token != token) { /* not again, after having relented */
        k->nudge_ns = 0;
        k->nudges = 0;
        k->closed_ns = now;
        k->give_up_ns = keeper_later(slice_end, now) + segment_allowance(ring_shared(ring));
    }
    k->token = token;
    k->looked_ns = 0;
    k->stuck_ns = keeper_later(until, now) + meter_stuck(gate, k->relents);
    k->step = KEEPER_CLOSING;
    atomic_store(&ring_me(ring)->closing_ns, now);
    return keeper_closing(gate, k);
}

/* ---- Holding ---- */

/* Whether the submitting threads have done anything since the last look. */
static bool keeper_active(const struct gate *gate, struct keeper *k)
{
    uint64_t launches = gate_count(gate);
    bool active = launches != k->launches;
    if (active) {
        k->idle_ns = 0;
        k->verifying = false;
    }
    k->launches = launches;
    return active;
}

/* Asks an event over all streams, for work that no marker tells of. */
static bool keeper_verify(struct gate *gate, struct keeper *k, uint64_t now)
{
    if (!k->verifying) {
        contexts_drain_begin(gate);
        k->verify_ns = now;
    }
    k->verifying = true;
    if (contexts_drain_poll(gate) != CONTEXTS_DONE)
        return false;
    k->verifying = false;
    if ((atomic_load(&gate->lease) & GATE_SLOW) && !gate_inside(gate) &&
        gate_count(gate) == k->launches)
        meter_blind(gate, false);
    return true;
}

/* Whether everything submitted is known to be done, and since when. */
static bool keeper_idle(struct gate *gate, struct keeper *k, uint64_t now)
{
    uint64_t synced = atomic_load(&gate->synced_ns);
    if (k->idle_ns)
        return true;
    if (gate_inside(gate) || (!meter_poll(gate) && meter_unmarked(gate) == 0))
        return false;
    if (outside_poll(gate) == OUTSIDE_RUNNING)
        return false;
    if ((gate->meter.blind || !meter_poll(gate)) && !keeper_verify(gate, k, now))
        return false;
    k->idle_ns = synced ? synced : now;
    if (!synced && !meter_clear_quiet(gate, k->launches)) {
        k->idle_ns = 0;
        return false;
    }
    if (!synced)
        atomic_store(&gate->synced_ns, now);
    return true;
}

static uint64_t keeper_lead(const struct gate *gate)
{
    return keeper_sooner(KEEPER_LEAD_NS, segment_quantum(ring_shared(gate->ring)) / 8);
}

/* The slice has run its length while somebody waits. */
static uint64_t keeper_slice_end(struct gate *gate, struct keeper *k, uint64_t token, uint64_t end)
{
    uint64_t renewed = token;
    if (gate->gang) {
        gang_end(gate->gang);
        return keeper_close(gate, k, token, end);
    }
    int rc = ring_renew(gate->ring, &renewed, !k->idle_ns);
    if (rc == 0)
        return keeper_close(gate, k, token, end);
    if (rc == 1 && renewed != token)
        keeper_reopen(gate, renewed);
    return clock_now() + KEEPER_LOOK_LEAST_NS;
}

/* Nobody waits. What a client does not use then is not charged. */
static uint64_t keeper_alone(struct gate *gate, struct keeper *k, uint64_t token)
{
    k->token = 0; /* a turn that goes on alone has its allowance still before it */
    k->relent_ns = 0;
    if (keeper_active(gate, k))
        ring_charge(gate->ring, token);
    else if (!gate_inside(gate) && keeper_verify(gate, k, clock_now()))
        ring_idle(gate->ring, token);
    return CLOCK_NEVER;
}

static uint64_t keeper_turn_end(struct gate *gate, struct keeper *k, uint64_t token)
{
    uint64_t granted;
    if (k->turn_token != token) {
        k->turn_token = token;
        k->turn_end_ns = ring_slice_end(gate->ring, token, &granted);
    }
    return k->turn_end_ns;
}

/* When to look at work that is being verified: soon, and less often the longer it lasts. */
static uint64_t keeper_verify_look(const struct keeper *k, uint64_t now)
{
    uint64_t nap = (now - k->verify_ns) / 16;
    nap = nap < 2 * KEEPER_LOOK_LEAST_NS ? 2 * KEEPER_LOOK_LEAST_NS : nap;
    return now + (nap < KEEPER_TICK_NS ? nap : KEEPER_TICK_NS);
}

/* When the turn has to end at the latest. Alone there are no slices, but a limit; and a client that
 * is idle then does not use it up. */
static uint64_t keeper_due(struct gate *gate, const struct keeper *k, uint64_t token, bool wanted,
                           uint64_t end)
{
    if (!wanted && k->idle_ns)
        return CLOCK_NEVER;
    return keeper_sooner(wanted ? end : CLOCK_NEVER, ring_cut(gate->ring, token));
}

/* Shortly before the slice's end: whether what is on the GPU lasts until then, so that the gate may
 * close now and the drain be prepared while there is still work. */
static bool keeper_filled(struct gate *gate, uint64_t token, uint64_t now, uint64_t end)
{
    return now + keeper_lead(gate) >= end && meter_busy_until(gate) >= end &&
           ring_due(gate->ring, token);
}

/* The next look at a slice that goes on: at its end, before that, or at `then`. */
static uint64_t keeper_next(const struct gate *gate, uint64_t now, uint64_t end, uint64_t then)
{
    uint64_t early = end - keeper_lead(gate);
    return keeper_sooner(now < early ? early : end, then);
}

/* Whether this client is likely to let the GPU go as soon as its work is done: then that moment is
 * looked for closely, since nothing tells of it in time. What that takes of a CPU is bounded. */
static bool keeper_may_watch(struct gate *gate, const struct keeper *k, uint64_t now)
{
    return gate_patience(gate) <= KEEPER_BRIEF_NS && now >= k->watch_ns && meter_sure(gate) &&
           meter_unmarked(gate) == 0 && closely_may(&ring_shared(gate->ring)->crowded_ns, now);
}

/* Looks closely for the end of all work, while nothing new is submitted. */
static void keeper_watch(struct gate *gate, struct keeper *k, uint64_t until)
{
    uint64_t from = clock_now(), now = from, end = until + CLOSELY_AFTER_NS;
    ring_expect(gate->ring, ring_token(gate->ring), until + gate_patience(gate));
    closely_begin(&k->closely);
    while (!meter_poll(gate) && now < end)
        now = closely_next(&k->closely);
    closely_end(&k->closely, &ring_shared(gate->ring)->crowded_ns, until);
    k->watch_ns = now + KEEPER_WATCH_SHARE * (now - from);
    atomic_fetch_add_explicit(&ring_shared(gate->ring)->close_ns, now - from, memory_order_relaxed);
}

/* The next look while work is under way: when a client that then lets go will be done, or a tick
 * from now. */
static uint64_t keeper_busy_look(struct gate *gate, struct keeper *k, uint64_t now)
{
    uint64_t until = meter_busy_until(gate), tick = now + KEEPER_TICK_NS;
    if (k->verifying)
        return keeper_verify_look(k, now);
    if (!keeper_may_watch(gate, k, now) || until + CLOSELY_AFTER_NS < now)
        return tick;
    if (until <= now || gate_inside(gate)) /* a thread submits just now: it needs the CPU more */
        return now + CLOSELY_AFTER_NS;
    uint64_t wake = closely_wake(&k->closely, until);
    return wake <= now ? now : keeper_sooner(wake, tick);
}

/* How long the GPU is held without work. A gang's next turn costs as many hand-overs as it has
 * GPUs, one after the other. */
static uint64_t keeper_patience(const struct gate *gate)
{
    uint64_t patience = gate_patience(gate);
    return gate->gang ? keeper_later(patience, KEEPER_TICK_NS) : patience;
}

/* Whether the gate is open for threads that the end of the turn may wait for, and some may still
 * pass. */
static bool keeper_relenting(const struct gate *gate, const struct keeper *k, uint64_t now)
{
    return now < k->relent_ns && atomic_load(&gate->counted) != 1;
}

/* Whether others of the gang wait for the end of its turn, or for news of this one's idleness. */
static bool keeper_gang_wants(const struct gate *gate)
{
    return gate->gang && (gang_crowded(gate->gang) || gang_resting(gate->gang));
}

/* Whether the gang's turn ends; not while threads are let through in it. */
static bool keeper_gang_ends(struct gate *gate, const struct keeper *k, uint64_t token,
                             uint64_t now)
{
    if (!gate->gang || (k->token == token && keeper_relenting(gate, k, now)))
        return false;
    return gang_look(gate->gang, gate_waited(gate), true) != GANG_OPEN;
}

static uint64_t keeper_hold(struct gate *gate, struct keeper *k, uint64_t token)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now(), end = keeper_turn_end(gate, k, token);
    gate_set_slow(gate, gate_must_be_slow(gate));
    bool wanted = ring_wanted(ring) || ring_arm(ring, token, false) || keeper_gang_wants(gate);
    if (keeper_gang_ends(gate, k, token, now))
        return keeper_close(gate, k, token, end);
    if (!wanted && !ring_limited(ring))
        return keeper_alone(gate, k, token);
    ring_arm(ring, token, true);
    uint64_t until = meter_busy_until(gate);
    if (keeper_may_watch(gate, k, now) && closely_wake(&k->closely, until) <= now &&
        now < until + CLOSELY_AFTER_NS && !gate_inside(gate))
        keeper_watch(gate, k, until);
    bool active = keeper_active(gate, k);
    if (active && gate->gang)
        gang_idle(gate->gang, false);
    if (k->token == token && keeper_relenting(gate, k, now))
        return k->relent_ns;
    uint64_t due = keeper_due(gate, k, token, wanted, end);
    if (now >= due)
        return keeper_slice_end(gate, k, token, keeper_sooner(due, end));
    if (wanted && !gate->gang && keeper_filled(gate, token, now, due))
        return keeper_close(gate, k, token, end);
    if ((!active || atomic_load(&gate->synced_ns)) && keeper_idle(gate, k, now)) {
        /* Alone it costs nothing to let go, but holding on would use up the limit. */
        uint64_t leave = k->idle_ns + (wanted ? keeper_patience(gate) : KEEPER_TICK_NS);
        if (now < leave)
            return keeper_next(gate, now, wanted ? due : CLOCK_NEVER, leave);
        if (gate->gang && !gang_idle(gate->gang, true))
            return keeper_next(gate, now, due, now + KEEPER_GANG_NS);
        if (gate->gang)
            gang_end(gate->gang);
        atomic_fetch_add(&ring_shared(ring)->idle_wanted_ns, wanted ? now - k->idle_ns : 0);
        return keeper_close(gate, k, token, end);
    }
    return keeper_next(gate, now, due, keeper_busy_look(gate, k, now));
}

/* Whether this device's gate opens with a gang's; joins it when the device is first used. */
static bool keeper_ganged(struct gate *gate)
{
    if (!gate->ganged || gate->gang || !gate_waited(gate))
        return gate->gang != NULL;
    gate->ganged = attach_gang(gate) == 0;
    /* The keeper has another word to watch; or else the threads are to ask for themselves. */
    ring_poke(ring_shared(gate->ring), gate->ring->slot);
    return gate->ganged;
}

/* The token is another's, or nobody's, and the gang may want it. */
static uint64_t keeper_ask(struct gate *gate, struct keeper *k)
{
    struct ring *ring = gate->ring;
    uint64_t token, now = clock_now();
    gate->gang_open = false;
    k->gather_ns = 0;
    enum gang_step step = gang_look(gate->gang, gate_waited(gate), false);
    if (step == GANG_ASK) {
        ring_want(ring);
        if (ring_look(ring, &token))
            return now;
        ring_rouse(ring);
        ring_watch(ring, &k->watch);
        return now + RING_WATCH_NS;
    }
    if (ring_waits(ring) && ring_unwant(ring, &token))
        return now;
    if (step == GANG_REST)
        return CLOCK_NEVER;
    gang_reap(gate->gang);
    return now + KEEPER_GANG_NS;
}

/* All of the gang hold their rings: the turn begins now. */
static uint64_t keeper_open_gang(struct gate *gate, struct keeper *k, uint64_t token)
{
    struct ring *ring = gate->ring;
    if (ring_restart(ring, &token) != 1)
        return clock_now();
    gate_count_none(gate);
    k->submitted = gate_count(gate);
    gate->gang_open = true;
    if (gate_waited(gate))
        ring_poke(ring_shared(ring), ring->slot);
    return clock_now() + KEEPER_TICK_NS;
}

/* The gang's turn is open, and no thread of this process has opened the gate in it. */
static uint64_t keeper_stand_by(struct gate *gate, struct keeper *k, uint64_t token)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now();
    uint64_t end = keeper_turn_end(gate, k, token);
    if (!ring_wanted(ring) && !ring_arm(ring, token, false) && !keeper_gang_wants(gate))
        return CLOCK_NEVER;
    ring_arm(ring, token, true);
    if (now < end && !gang_idle(gate->gang, !gate_waited(gate)))
        return keeper_sooner(end, now + KEEPER_GANG_NS);
    gang_end(gate->gang);
    return keeper_close(gate, k, token, now);
}

/* The token is held for the gang, and no thread of this process has opened the gate. */
static uint64_t keeper_gather(struct gate *gate, struct keeper *k, uint64_t token)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now(), most = segment_allowance(ring_shared(ring));
    enum gang_step step = gang_look(gate->gang, gate_waited(gate), true);
    if (k->gather_ns == 0) {
        k->gather_ns = now;
        ring_claim(ring, token);
    }
    /* It may have opened for the others and end already: they may wait for what this one submits.
     */
    if ((step == GANG_OPEN || step == GANG_END) && !gate->gang_open)
        return keeper_open_gang(gate, k, token);
    if (step == GANG_OPEN)
        return keeper_stand_by(gate, k, token);
    if (step != GANG_GATHER)
        return keeper_close(gate, k, token, now);
    if (now - k->gather_ns > most)
        gang_end(gate->gang); /* one of them does not come: others may have the GPUs meanwhile */
    ring_arm(ring, token, true);
    gang_reap(gate->gang);
    return now + KEEPER_GANG_NS;
}

/* Granted, and no thread of this process has opened the gate yet. */
static uint64_t keeper_unclaimed(struct gate *gate, struct keeper *k, uint64_t token)
{
    uint64_t now = clock_now();
    if (k->unclaimed_token != token) {
        k->unclaimed_token = token;
        k->unclaimed_ns = now;
    }
    if (now - k->unclaimed_ns < KEEPER_CLAIM_NS)
        return k->unclaimed_ns + KEEPER_CLAIM_NS;
    if (!ring_wanted(gate->ring) && !ring_limited(gate->ring))
        return now + KEEPER_TEND_NS;
    return keeper_close(gate, k, token, now);
}

/* The longer an overrun lasts already, the less often is its end looked for. */
static uint64_t keeper_overrun_look(const struct keeper *k)
{
    uint64_t now = clock_now(), nap = (now - k->overrun_ns) / KEEPER_OVERRUN_SHARE;
    nap = keeper_later(nap, KEEPER_TICK_NS);
    return now + keeper_sooner(nap, KEEPER_OVERRUN_MOST_NS);
}

/* The token is another's. What is left of a lost turn is forgotten; the client that got the token
 * from here is looked after while others wait. */
static uint64_t keeper_away(struct gate *gate, struct keeper *k, uint64_t token)
{
    struct ring *ring = gate->ring;
    if (k->step != KEEPER_HOLDING) {
        k->closed_ns = clock_now();
        keeper_settle(gate, k, false);
    }
    uint64_t look = CLOCK_NEVER;
    if (keeper_overrunning(gate, k, false))
        look = keeper_overrun_look(k);
    bool asks = keeper_ganged(gate);
    if (asks)
        look = keeper_sooner(look, keeper_ask(gate, k));
    if ((asks && ring_waits(ring)) || k->passed != token || !ring_wanted(ring))
        return look;
    ring_watch(ring, &k->watch);
    /* Threads that wait sleep on the holder's word themselves. A keeper that does is woken with
     * them when the token is about to come, and is in their way. */
    k->watches = !gate_waited(gate);
    return keeper_sooner(look, clock_now() + ring_watch_after(ring, &k->watch));
}

static uint64_t keeper_step(struct gate *gate)
{
    struct keeper *k = keeper_of(gate);
    struct ring *ring = gate->ring;
    uint64_t token = ring_token(ring);
    uint64_t lease = atomic_load(&gate->lease);
    k->watches = false;
    if (!ring_holds(ring, token))
        return keeper_away(gate, k, token);
    keeper_overrunning(gate, k, true);
    if (k->step != KEEPER_HOLDING && k->token == token)
        return k->step == KEEPER_CLOSING ? keeper_closing(gate, k) : keeper_drain(gate, k);
    k->step = KEEPER_HOLDING;
    if ((lease & ~GATE_SLOW) == token)
        return keeper_hold(gate, k, token);
    return keeper_ganged(gate) ? keeper_gather(gate, k, token) : keeper_unclaimed(gate, k, token);
}

/* When to look again; said aloud, for threads that wonder whether to wake the keeper. */
static uint64_t keeper_look(struct gate *gate)
{
    if (guest.mode != CONFIG_ENFORCE)
        return CLOCK_NEVER;
    uint64_t until = keeper_step(gate);
    atomic_store(&gate->keeper_look_ns, until);
    return until;
}

/* ---- Once a second ---- */

/* A gang's file that lost its name is left likewise; what is held for it goes back first. */
static void keeper_regroup(struct gate *gate)
{
    struct gang *gang = gate->gang;
    gate->gang_open = false;
    gate->gang = NULL; /* joined anew when threads wait; the mapping may still be slept on */
    gang_abandon(gang);
    gang_passed(gang);
}

/* A ring that lost its name is left for the one that has it now. While there is none (the directory
 * is gone, say) the old one goes on; that is tried again less and less often. */
static void keeper_tend(struct gate *gate)
{
    struct keeper *k = keeper_of(gate);
    keeper_books(gate);
    footprint_tend(gate);
    if (gate->gang && !gang_current(gate->gang))
        keeper_regroup(gate);
    if (k->move_skip > 0 && k->move_skip-- > 1)
        return;
    if (ring_tend(gate->ring) != -ESTALE)
        return;
    notice_drop(gate->ring);
    if (attach_move(gate) == 0)
        *k = (struct keeper){.published = k->published};
    else
        k->move_skip = k->move_wait = k->move_wait < 64 ? 2 * k->move_wait + 1 : 64;
    notice_add(gate->ring);
}

/* ---- The loop ---- */

#define KEEPER_WATCHES (GATE_DEVICES + 1)
_Static_assert(KEEPER_WATCHES <= FUTEX_WATCH_MAX, "all is watched at once");

/* Beside news: that the clients die that got the token from here. Before Linux 5.16 one word at a
 * time can be watched: with several devices that takes a look every millisecond. */
static void keeper_nap_till(struct futex_watch watch[FUTEX_WATCH_MAX], unsigned n, uint64_t until)
{
    unsigned all = n;
    for (unsigned i = 0; i < guest.gates && all < FUTEX_WATCH_MAX; i++)
        if (keepers[i].watches &&
            ring_watch_word(guest.gate[i].ring, keepers[i].passed, &watch[all]))
            all++;
    if (all > 1 && futex_wait_many(watch, all, until) != -ENOSYS)
        return;
    if (n > 1)
        until = keeper_sooner(until, clock_after(KEEPER_TICK_NS));
    futex_wait_behind(watch[0].word, watch[0].expected, until);
}

/* What has news for the keeper, as it stands before a look: the devices' words, and the gang's. */
static unsigned keeper_watches(struct futex_watch watch[FUTEX_WATCH_MAX])
{
    unsigned n = 0;
    const struct gang *gang = NULL;
    for (unsigned i = 0; i < guest.gates; i++) {
        const struct ring *ring = guest.gate[i].ring;
        watch[n++] = (struct futex_watch){&ring_me(ring)->wake, ring_news(ring), false};
        gang = gang ? gang : guest.gate[i].gang;
    }
    if (gang) { /* all of this process sleep on one */
        const _Atomic uint32_t *word = gang_news_word(gang);
        watch[n++] = (struct futex_watch){word, atomic_load(word), false};
    }
    return n;
}

/* Sleeps, and learns how late a sleep ends. */
static void keeper_nap(struct futex_watch watch[FUTEX_WATCH_MAX], unsigned n, uint64_t until)
{
    keeper_nap_till(watch, n, until);
    uint64_t now = clock_now();
    for (unsigned i = 0; now >= until && i < guest.gates; i++)
        closely_slept(&keepers[i].closely, until, now);
}

/* This thread lives as long as the process: its end is what others are told of. */
static void keeper_notices(void)
{
    int rc = notice_begin();
    if (rc < 0)
        log_info("no-notice",
                 "a robust list is refused here (%s): others find this process's death up to 4 ms "
                 "later",
                 strerror(-rc));
    for (unsigned i = 0; i < guest.gates; i++)
        notice_add(guest.gate[i].ring);
}

static void *keeper_main(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    uint64_t tend = clock_after(KEEPER_TEND_NS);
    (void)unused;
    prctl(PR_SET_NAME, "cuslice");
    prctl(PR_SET_TIMERSLACK, 1);
    if (REAL_HAS(cuThreadExchangeStreamCaptureMode))
        real.cuThreadExchangeStreamCaptureMode(&mode);
    keeper_notices();
    while (!atomic_load(&keeper_stopping)) {
        struct futex_watch watch[FUTEX_WATCH_MAX];
        uint64_t until = tend;
        unsigned watches = keeper_watches(watch);
        for (unsigned i = 0; i < guest.gates; i++)
            until = keeper_sooner(until, keeper_look(&guest.gate[i]));
        if (clock_now() >= tend) {
            for (unsigned i = 0; i < guest.gates; i++)
                keeper_tend(&guest.gate[i]);
            tend = clock_after(KEEPER_TEND_NS);
            continue;
        }
        keeper_nap(watch, watches, until);
    }
    for (unsigned i = 0; i < guest.gates; i++)
        notice_drop(guest.gate[i].ring);
    return NULL;
}

int keeper_start(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    memset(keepers, 0, sizeof keepers);
    keeper_stopping = false;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, KEEPER_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&keeper_thread, &attributes, keeper_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    keeper_started = rc == 0;
    return -rc;
}

/* What is under way gets a short time to leave the GPU before the token goes on. */
static void keeper_finish(struct gate *gate, uint64_t deadline)
{
    struct ring *ring = gate->ring;
    uint64_t token = ring_token(ring);
    if (guest.mode == CONFIG_ENFORCE && ring_holds(ring, token)) {
        gate_close(gate, token);
        contexts_drain_begin(gate);
        while ((gate_inside(gate) || contexts_drain_poll(gate) != CONTEXTS_DONE) &&
               clock_now() < deadline)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    keeper_books(gate);
    if (gate->gang)
        gang_leave(gate->gang);
    slot_leave(&ring->segment, ring->slot);
}

void keeper_forget(void)
{
    keeper_started = false;
}

/* Whether the thread has ended in time. Asked again and again: the one timed join that older libcs
 * have goes by the time of day, which may jump. */
static bool keeper_join(uint64_t deadline)
{
    while (pthread_tryjoin_np(keeper_thread, NULL) != 0) {
        if (clock_now() >= deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return true;
}

void keeper_stop(void)
{
    uint64_t deadline = clock_after(KEEPER_EXIT_NS);
    if (!keeper_started)
        return;
    atomic_store(&keeper_stopping, true);
    for (unsigned i = 0; i < guest.gates; i++)
        ring_poke(ring_shared(guest.gate[i].ring), guest.gate[i].ring->slot);
    if (!keeper_join(clock_after(CLOCK_S)))
        return; /* it is inside the driver: the lock tells the others when the process is gone */
    for (unsigned i = 0; i < guest.gates; i++)
        keeper_finish(&guest.gate[i], deadline);
}
