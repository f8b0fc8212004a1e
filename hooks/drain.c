/*
 * drain: the end of a turn (see turn.h). Runs in the keeper's thread.
 *
 * CLOSING, when the slice has ended, or is about to with work until then on the GPU, and another
 * client is due: the lease is exchanged, submissions under way return -> METERING, while the
 * meter's markers tell all there is to know, else DRAINING by an event over all streams, until the
 * work of this slice has left the GPU, or the allowance is used up -> passed. It may be revoked
 * between any two steps; every one of them begins by looking whether the token is still what it was
 * (turn.c). If the process dies here, others find the dead holder by its lock.
 *
 * Relenting. Work may wait for what a thread of this process would do next, and that thread stands
 * at the closed gate. So when a drain takes longer than the work should have and threads wait, the
 * gate opens for a moment, under the same turn; the launches that pass are few (meter.h).
 */
#include "turn.h"

#include <stdatomic.h>

#include "clock.h"
#include "contexts.h"
#include "gang.h"
#include "gate.h"
#include "log.h"
#include "meter.h"
#include "outside.h"
#include "slot.h"

/* What is not done so long after it should be is thought to wait for something outside, if there is
 * such a stream. */
#define DRAIN_OVERDUE_NS (10 * CLOCK_MS)
#define DRAIN_RELENT_NS (5 * CLOCK_MS)
/* What is booked of an overrun may be too long by this part of it. */
#define DRAIN_OVERRUN_SHARE 64
#define DRAIN_OVERRUN_MOST_NS (100 * CLOCK_MS)

/* Nothing of this process is on the GPU any more; or, not drained, what is there is lost count of.
 * Before the token moves: afterwards it may be back and new work under way. */
void drain_settle(struct gate *gate, struct turn *turn, bool drained)
{
    struct ring *ring = gate->ring;
    turn->overrun_ns = drained || atomic_exchange(&gate->queued_alone, false) ? 0 : clock_now();
    turn->step = TURN_HOLDING;
    turn->idle_ns = 0;
    turn->verifying = false;
    turn->relents -= drained && turn->relents;
    atomic_store(&ring_me(ring)->closing_ns, 0);
    atomic_fetch_add(&ring_shared(ring)->drain_ns, clock_now() - turn->closed_ns);
    if (drained)
        meter_clear(gate);
    if (drained)
        atomic_store(&gate->queued_alone, false);
    else
        contexts_drain_begin(gate); /* an event of an earlier drain does not tell of this work */
    meter_blind(gate, !drained);
    turn_books(gate);
}

/* The turn goes on under another token word. */
void drain_reopen(struct gate *gate, uint64_t token)
{
    struct ring *ring = gate->ring;
    ring_claim(ring, token);
    gate_open(gate, token);
    if (gate_waited(gate))
        ring_wake(ring_shared(ring), ring->slot);
}

/* Lets threads of this process pass that the work on the GPU may be waiting for. */
static uint64_t drain_relent(struct gate *gate, struct turn *turn, uint64_t now)
{
    if (gate->gang && !gang_again(gate->gang))
        return now; /* the gang's turn is over */
    gate_count_none(gate);
    meter_relent(gate);
    unsigned most = ring_wanted(gate->ring) ? TURN_RELENTS : 0; /* alone it harms nobody */
    turn->relents = turn->relents < most ? turn->relents + 1 : most;
    turn->relent_ns = now + DRAIN_RELENT_NS;
    turn->step = TURN_HOLDING;
    if (gate_relent(gate, turn->token))
        ring_wake(ring_shared(gate->ring), gate->ring->slot);
    return turn->relent_ns;
}

/* The drain is over, one way or the other. */
static uint64_t drain_pass(struct gate *gate, struct turn *turn, bool drained)
{
    struct ring *ring = gate->ring;
    uint64_t token = turn->token;
    if (gate->gang && !gang_drained(gate->gang))
        return gather_linger(gate, turn);
    if (turn->idle_ns && !ring_wanted(ring)) /* a limited tenant alone pays for what it used */
        ring_rested(ring, token, turn->idle_ns);
    drain_settle(gate, turn, drained);
    gate->gang_open = false;
    bool wants = gate_waited(gate) && (!gate->gang || gang_first(gate->gang));
    if (wants) /* a claim in this turn has struck the bit that stands for those who still wait */
        ring_want_more(ring);
    int rc = ring_pass(ring, &token, wants);
    turn->passed = ring_token(ring);
    turn->watch = (struct watch){0};
    if (gate->gang)
        return gather_passed(gate, turn);
    if (rc == 1)
        drain_reopen(gate, token);
    return clock_now() + (rc == 1 ? TURN_TICK_NS : WATCH_NS);
}

static uint64_t drain_overrun(struct gate *gate, struct turn *turn)
{
    struct ring *ring = gate->ring;
    unsigned out = meter_out(gate);
    if (gate->gang)
        gang_abandon(gate->gang);
    log_info("allowance", "work of this process outlasts its slice by more than the allowance; the "
                          "next client goes on beside it");
    if (!atomic_load(&gate->queued_alone))
        slot_count(ring_shared(ring), ring->slot, overruns, out ? out : 1);
    return drain_pass(gate, turn, false);
}

/* Books how long work went on after the token was passed or lost, up to now or to its end. When it
 * ends only a look tells; true while it has not. */
bool drain_overrunning(struct gate *gate, struct turn *turn, bool holding)
{
    if (turn->overrun_ns == 0)
        return false;
    bool over = holding || contexts_drain_poll(gate) == CONTEXTS_DONE;
    if (!over)
        return true;
    ring_overrun(gate->ring, clock_now() - turn->overrun_ns);
    turn->overrun_ns = 0;
    return false;
}

/* How long to sleep before the next look at something that will be over soon. */
static uint64_t drain_patient(uint64_t nap)
{
    return nap < TURN_LOOK_LEAST_NS  ? TURN_LOOK_LEAST_NS
           : nap > TURN_LOOK_MOST_NS ? TURN_LOOK_MOST_NS
                                     : nap;
}

/* All that is known of is done since a while. Nothing of it was in the way of what is not known of,
 * which would be done too, if it ran. */
static bool drain_overdue(struct gate *gate, const struct turn *turn)
{
    uint64_t done = turn_later(meter_should_end(gate), turn->closed_ns);
    return clock_now() > done + DRAIN_OVERDUE_NS;
}

/* One look: whether the work of this slice has left the GPU. What the meter is sure of needs no
 * event over all streams. */
static bool drain_done(struct gate *gate, struct turn *turn)
{
    bool metered = meter_poll(gate);
    enum outside_state outside = outside_poll(gate);
    if (outside == OUTSIDE_RUNNING)
        return false;
    if (metered && meter_sure(gate))
        return true;
    if (metered && outside == OUTSIDE_WAITING && drain_overdue(gate, turn))
        return true; /* an event over all streams would wait with the one that waits */
    if (turn->step != TURN_DRAINING && meter_sure(gate) && meter_unmarked(gate) == 0)
        return false; /* a marker will tell */
    if (turn->step != TURN_DRAINING)
        contexts_drain_begin(gate);
    turn->step = TURN_DRAINING;
    return contexts_drain_poll(gate) == CONTEXTS_DONE;
}

/* What can be done of a pass while there is still work: then less is left for when there is none,
 * and what that needs has been touched. */
static void drain_prepare(struct gate *gate, struct turn *turn)
{
    turn_books(gate);
    ring_due(gate->ring, turn->token);
    gate_waited(gate);
}

/* Looks again and again while the end is near, for a bounded time; true when it has come. */
static bool drain_look_closely(struct gate *gate, struct turn *turn, uint64_t until)
{
    struct ring *ring = gate->ring;
    uint64_t from = clock_now(), now = from, end = until + CLOSELY_AFTER_NS;
    bool done;
    drain_prepare(gate, turn);
    closely_begin(&turn->closely);
    while (!(done = drain_done(gate, turn)) && now < end && ring_token(ring) == turn->token)
        now = closely_next(&turn->closely);
    closely_end(&turn->closely, &ring_shared(ring)->crowded_ns, until);
    turn->looked_ns = end;
    atomic_fetch_add_explicit(&ring_shared(ring)->close_ns, clock_now() - from,
                              memory_order_relaxed);
    return done;
}

/* When to look at the drain next. The keeper is awake for its expected end; when that was in vain
 * it looks less and less often: each look may take a CPU from who has better use for it. `due` is
 * that end by what has been seen done; `until` moves on with the clock while it is overdue. */
static uint64_t drain_next(const struct turn *turn, uint64_t until, uint64_t due, uint64_t now,
                           bool may)
{
    uint64_t awake = may ? closely_wake(&turn->closely, until) : until - turn->closely.late_ns / 2;
    uint64_t next = now + drain_patient(now > due ? (now - due) / 4 : 0);
    if (awake > now && (now <= due || awake > next))
        next = awake - now < 2 * TURN_LOOK_MOST_NS ? awake : now + TURN_LOOK_MOST_NS;
    return next;
}

/* The allowance is used up. With a limit, but nobody to go on beside the work, it is waited for;
 * the threads at the gate are let through, in case the work waits for one of them. */
static uint64_t drain_give_up(struct gate *gate, struct turn *turn, uint64_t now)
{
    if (!ring_limited(gate->ring) || ring_wanted(gate->ring))
        return drain_overrun(gate, turn);
    turn->give_up_ns = now + segment_allowance(ring_shared(gate->ring));
    return gate_waited(gate) ? drain_relent(gate, turn, now) : now + TURN_TICK_NS;
}

/* An end that was looked for closely in vain is so again only once something has been done. */
uint64_t drain_look(struct gate *gate, struct turn *turn)
{
    if (gate->gang && gather_catch_up(gate, turn))
        return turn->relent_ns;
    if (drain_done(gate, turn))
        return drain_pass(gate, turn, true);
    uint64_t now = clock_now(), until = meter_busy_until(gate), due = meter_should_end(gate);
    bool may = closely_may(&ring_shared(gate->ring)->crowded_ns, now) && turn->looked_ns < due;
    if (now >= turn->give_up_ns || gather_late(gate, turn, now))
        return drain_give_up(gate, turn, now);
    if (may)
        ring_expect(gate->ring, turn->token, until);
    if (may && closely_wake(&turn->closely, until) <= now) {
        if (drain_look_closely(gate, turn, until))
            return drain_pass(gate, turn, true);
        now = clock_now();
    }
    due = meter_should_end(gate); /* it gets on when that has moved */
    turn->stuck_ns = turn_later(turn->stuck_ns, due + meter_stuck(gate, turn->relents));
    if (now >= turn->stuck_ns && gate_waited(gate))
        return drain_relent(gate, turn, now);
    return drain_next(turn, until, turn_later(due, turn->closed_ns), now, may);
}

uint64_t drain_closing(struct gate *gate, struct turn *turn)
{
    uint64_t now = clock_now();
    if (gate_inside(gate) && now < turn->give_up_ns) {
        if (now >= turn->stuck_ns && gate_waited(gate))
            return drain_relent(gate, turn, now);
        return now + drain_patient((now - turn->closed_ns) / 16);
    }
    turn->step = TURN_METERING;
    if (gate->gang)
        gang_closed(gate->gang, gate_count(gate) - turn->submitted);
    return drain_look(gate, turn);
}

uint64_t drain_begin(struct gate *gate, struct turn *turn, uint64_t token, uint64_t slice_end)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now();
    uint64_t until = meter_busy_until(gate);
    gate_close(gate, token);
    if (turn->token != token) { /* not again, after having relented */
        turn->nudge_ns = 0;
        turn->nudges = 0;
        turn->closed_ns = now;
        turn->give_up_ns = turn_later(slice_end, now) + segment_allowance(ring_shared(ring));
    }
    turn->token = token;
    turn->looked_ns = 0;
    turn->stuck_ns = turn_later(until, now) + meter_stuck(gate, turn->relents);
    turn->step = TURN_CLOSING;
    atomic_store(&ring_me(ring)->closing_ns, now);
    return drain_closing(gate, turn);
}

/* The longer an overrun lasts already, the less often is its end looked for. */
uint64_t drain_overrun_look(const struct turn *turn)
{
    uint64_t now = clock_now(), nap = (now - turn->overrun_ns) / DRAIN_OVERRUN_SHARE;
    nap = turn_later(nap, TURN_TICK_NS);
    return now + turn_sooner(nap, DRAIN_OVERRUN_MOST_NS);
}

/* Whether the gate is open for threads that the end of the turn may wait for, and some may still
 * pass. */
bool drain_relenting(const struct gate *gate, const struct turn *turn, uint64_t now)
{
    return now < turn->relent_ns && atomic_load(&gate->counted) != 1;
}
