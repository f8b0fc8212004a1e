/*
 * turn: a device's token held, or another's (see turn.h). Runs in the keeper's thread. Owns the
 * states of all devices.
 *
 * HOLDING the token, or not -> the end of a turn (drain.c), when the slice has ended, or is about
 * to, and another client is due; a renewed turn skips all of that.
 *
 * Limits. A tenant with a limit has no time alone: its keeper ends the turn when the budget is used
 * up, or when the work is done, as if somebody waited, and then nobody holds the token.
 *
 * Early release. Work is known to be done when a synchronising call said so, or when nothing was
 * submitted since the last look and markers, or an event over all streams, are done. If others
 * wait, the token then goes on once the pause is longer than this client's short ones (gate.c). Of
 * a client that has only short ones or none, the end of its work is looked for closely.
 */
#include "turn.h"

#include <stdatomic.h>
#include <string.h>

#include "clock.h"
#include "contexts.h"
#include "gang.h"
#include "gate.h"
#include "meter.h"
#include "outside.h"
#include "slot.h"

#define TURN_CLAIM_NS CLOCK_MS
/* So long before the slice's end the gate closes, if what is on the GPU lasts until then. */
#define TURN_LEAD_NS (200 * CLOCK_US)
/* A client that holds the GPU no longer than this without work. */
#define TURN_BRIEF_NS (300 * CLOCK_US)
/* After having looked closely for the end of its work: not again for so many times as long. */
#define TURN_WATCH_SHARE 20

static struct turn turns[GATE_DEVICES];

struct turn *turn_of(const struct gate *gate)
{
    return &turns[gate - guest.gate];
}

void turn_reset(void)
{
    memset(turns, 0, sizeof turns);
}

void turn_books(struct gate *gate)
{
    struct ring *ring = gate->ring;
    struct turn *turn = turn_of(gate);
    uint64_t count = gate_count(gate), now = clock_now();
    if (count == turn->published)
        return;
    slot_count(ring_shared(ring), ring->slot, launches, count - turn->published);
    turn->published = count;
    atomic_store(&ring_me(ring)->books.last_launch_ns, now);
    atomic_store(&ring_tenant(ring)->books.last_launch_ns, now);
}

/* Whether the submitting threads have done anything since the last look. */
static bool turn_active(const struct gate *gate, struct turn *turn)
{
    uint64_t launches = gate_count(gate);
    bool active = launches != turn->launches;
    if (active) {
        turn->idle_ns = 0;
        turn->verifying = false;
    }
    turn->launches = launches;
    return active;
}

/* Whether no submission is under way, nor has been since the last look. */
static bool turn_quiet(const struct gate *gate, const struct turn *turn)
{
    return !gate_inside(gate) && gate_count(gate) == turn->launches;
}

/* Asks an event over all streams, for work that no marker tells of. */
static bool turn_verify(struct gate *gate, struct turn *turn, uint64_t now)
{
    if (!turn->verifying) {
        contexts_drain_begin(gate);
        turn->verify_ns = now;
    }
    turn->verifying = true;
    if (contexts_drain_poll(gate) != CONTEXTS_DONE)
        return false;
    turn->verifying = false;
    if (!(atomic_load(&gate->lease) & GATE_SLOW) || !turn_quiet(gate, turn))
        return true;
    meter_blind(gate, false);
    atomic_thread_fence(memory_order_seq_cst); /* as between a thread's mark and its look at it */
    if (!turn_quiet(gate, turn))
        meter_blind(gate, true);
    return true;
}

/* Says since when all work is done, where no thread has, for the one that submits next, which looks
 * for it on the slow way alone. 0: some submission has begun meanwhile and may not have seen it, so
 * it is taken back; not what a thread has said since then. */
static uint64_t turn_say_idle(struct gate *gate, const struct turn *turn, uint64_t synced,
                              uint64_t now)
{
    bool mine = !synced && (atomic_load(&gate->lease) & GATE_SLOW) &&
                atomic_compare_exchange_strong(&gate->synced_ns, &synced, now);
    atomic_thread_fence(memory_order_seq_cst); /* as between a thread's mark and its look for it */
    if (turn_quiet(gate, turn))
        return synced ? synced : now;
    if (mine)
        atomic_compare_exchange_strong(&gate->synced_ns, &now, 0);
    return 0;
}

/* Whether everything submitted is known to be done, and since when. */
static bool turn_idle(struct gate *gate, struct turn *turn, uint64_t now)
{
    uint64_t synced = atomic_load(&gate->synced_ns);
    if (turn->idle_ns)
        return true;
    if (gate_inside(gate) || (!meter_poll(gate) && meter_unmarked(gate) == 0))
        return false;
    if (outside_poll(gate) == OUTSIDE_RUNNING)
        return false;
    if ((gate->meter.blind || !meter_poll(gate)) && !turn_verify(gate, turn, now))
        return false;
    if (!synced && !meter_clear_quiet(gate, turn->launches))
        return false;
    turn->idle_ns = turn_say_idle(gate, turn, synced, now);
    return turn->idle_ns != 0;
}

static uint64_t turn_lead(const struct gate *gate)
{
    return turn_sooner(TURN_LEAD_NS, segment_quantum(ring_shared(gate->ring)) / 8);
}

/* The slice has run its length, or is about to with work until then, while somebody waits. */
static uint64_t turn_over(struct gate *gate, struct turn *turn, uint64_t token, uint64_t end)
{
    uint64_t renewed = token;
    if (gate->gang) {
        gang_end(gate->gang);
        return drain_begin(gate, turn, token, end);
    }
    int rc = ring_renew(gate->ring, &renewed, !turn->idle_ns || meter_out(gate));
    if (rc == 0)
        return drain_begin(gate, turn, token, end);
    if (rc == 1 && renewed != token)
        drain_reopen(gate, renewed);
    return clock_now() + TURN_LOOK_LEAST_NS;
}

/* Nobody waits. What a client does not use then is not charged. */
static uint64_t turn_alone(struct gate *gate, struct turn *turn, uint64_t token)
{
    turn->token = 0; /* a turn that goes on alone has its allowance still before it */
    turn->relent_ns = 0;
    if (turn_active(gate, turn))
        ring_charge(gate->ring, token);
    else if (!gate_inside(gate) && turn_verify(gate, turn, clock_now()))
        ring_idle(gate->ring, token);
    return CLOCK_NEVER;
}

uint64_t turn_end(struct gate *gate, struct turn *turn, uint64_t token)
{
    uint64_t granted;
    if (turn->held_token != token) {
        turn->held_token = token;
        turn->held_end_ns = ring_slice_end(gate->ring, token, &granted);
    }
    return turn->held_end_ns;
}

/* When to look at work that is being verified: soon, and less often the longer it lasts. */
static uint64_t turn_verify_look(const struct turn *turn, uint64_t now)
{
    uint64_t nap = (now - turn->verify_ns) / 16;
    nap = nap < 2 * TURN_LOOK_LEAST_NS ? 2 * TURN_LOOK_LEAST_NS : nap;
    return now + (nap < TURN_TICK_NS ? nap : TURN_TICK_NS);
}

/* When the turn has to end at the latest. Alone there are no slices, but a limit; and a client that
 * is idle then does not use it up. */
static uint64_t turn_due(struct gate *gate, const struct turn *turn, uint64_t token, bool wanted,
                         uint64_t end)
{
    if (!wanted && turn->idle_ns)
        return CLOCK_NEVER;
    return turn_sooner(wanted ? end : CLOCK_NEVER, ring_cut(gate->ring, token));
}

/* Shortly before the slice's end: whether what is on the GPU lasts until then. So the gate may
 * close now and the drain be prepared while there is still work; or, if nobody else is due, the
 * next slice begin before the threads may launch nothing more in this one. */
static bool turn_filled(struct gate *gate, uint64_t now, uint64_t end)
{
    return now + turn_lead(gate) >= end && meter_busy_until(gate) >= end;
}

/* The next look at a slice that goes on: at its end, before that, or at `then`. */
static uint64_t turn_next(const struct gate *gate, uint64_t now, uint64_t end, uint64_t then)
{
    uint64_t early = end - turn_lead(gate);
    return turn_sooner(now < early ? early : end, then);
}

/* Whether this client is likely to let the GPU go as soon as its work is done: then that moment is
 * looked for closely, since nothing tells of it in time. What that takes of a CPU is bounded. */
static bool turn_may_watch(struct gate *gate, const struct turn *turn, uint64_t now)
{
    return gate_patience(gate) <= TURN_BRIEF_NS && now >= turn->watch_ns && meter_sure(gate) &&
           meter_unmarked(gate) == 0 && closely_may(&ring_shared(gate->ring)->crowded_ns, now);
}

/* Looks closely for the end of all work, while nothing new is submitted. */
static void turn_watch(struct gate *gate, struct turn *turn, uint64_t until)
{
    uint64_t from = clock_now(), now = from, end = until + CLOSELY_AFTER_NS;
    ring_expect(gate->ring, ring_token(gate->ring), until + gate_patience(gate));
    closely_begin(&turn->closely);
    while (!meter_poll(gate) && now < end)
        now = closely_next(&turn->closely);
    closely_end(&turn->closely, &ring_shared(gate->ring)->crowded_ns, until);
    turn->watch_ns = now + TURN_WATCH_SHARE * (now - from);
    atomic_fetch_add_explicit(&ring_shared(gate->ring)->close_ns, now - from, memory_order_relaxed);
}

/* The next look while work is under way: when a client that then lets go will be done, or a tick
 * from now. */
static uint64_t turn_busy_look(struct gate *gate, struct turn *turn, uint64_t now)
{
    uint64_t until = meter_busy_until(gate), tick = now + TURN_TICK_NS;
    if (turn->verifying)
        return turn_verify_look(turn, now);
    if (!turn_may_watch(gate, turn, now) || until + CLOSELY_AFTER_NS < now)
        return tick;
    if (until <= now || gate_inside(gate)) /* a thread submits just now: it needs the CPU more */
        return now + CLOSELY_AFTER_NS;
    if (meter_out(gate) == 0) /* nothing to look closely for, and it may be done already */
        return outside_any() ? tick : now + CLOSELY_AFTER_NS;
    uint64_t wake = closely_wake(&turn->closely, until);
    return wake <= now ? now : turn_sooner(wake, tick);
}

/* How long the GPU is held without work. A gang's next turn costs as many hand-overs as it has
 * GPUs, one after the other. */
static uint64_t turn_patience(const struct gate *gate)
{
    uint64_t patience = gate_patience(gate);
    return gate->gang ? turn_later(patience, TURN_TICK_NS) : patience;
}

static uint64_t turn_hold(struct gate *gate, struct turn *turn, uint64_t token)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now(), end = turn_end(gate, turn, token);
    gate_set_slow(gate, gate_must_be_slow(gate));
    bool wanted = ring_wanted(ring) || ring_arm(ring, token, false) || gather_wanted(gate);
    if (gather_ends(gate, turn, token, now))
        return drain_begin(gate, turn, token, end);
    if (!wanted && !ring_limited(ring))
        return turn_alone(gate, turn, token);
    ring_arm(ring, token, true);
    uint64_t until = meter_busy_until(gate);
    if (turn_may_watch(gate, turn, now) && closely_wake(&turn->closely, until) <= now &&
        now < until + CLOSELY_AFTER_NS && !gate_inside(gate) && meter_out(gate) > 0)
        turn_watch(gate, turn, until);
    bool active = turn_active(gate, turn);
    if (active && gate->gang)
        gang_idle(gate->gang, false);
    if (turn->token == token && drain_relenting(gate, turn, now))
        return turn->relent_ns;
    uint64_t due = turn_due(gate, turn, token, wanted, end);
    if (now >= due)
        return turn_over(gate, turn, token, turn_sooner(due, end));
    if (wanted && !gate->gang && turn_filled(gate, now, due)) {
        if (due == end)
            return turn_over(gate, turn, token, end);
        if (ring_due(ring, token))
            return drain_begin(gate, turn, token, end);
    }
    if ((!active || atomic_load(&gate->synced_ns)) && turn_idle(gate, turn, now)) {
        /* Alone it costs nothing to let go, but holding on would use up the limit. */
        uint64_t leave = turn->idle_ns + (wanted ? turn_patience(gate) : TURN_TICK_NS);
        if (now < leave)
            return turn_next(gate, now, wanted ? due : CLOCK_NEVER, leave);
        if (gate->gang && !gang_idle(gate->gang, true))
            return turn_next(gate, now, due, now + GATHER_LOOK_NS);
        if (gate->gang)
            gang_end(gate->gang);
        atomic_fetch_add(&ring_shared(ring)->idle_wanted_ns, wanted ? now - turn->idle_ns : 0);
        return drain_begin(gate, turn, token, end);
    }
    return turn_next(gate, now, due, turn_busy_look(gate, turn, now));
}

/* Granted, and no thread of this process has opened the gate yet. */
static uint64_t turn_unclaimed(struct gate *gate, struct turn *turn, uint64_t token)
{
    uint64_t now = clock_now();
    if (turn->unclaimed_token != token) {
        turn->unclaimed_token = token;
        turn->unclaimed_ns = now;
    }
    if (now - turn->unclaimed_ns < TURN_CLAIM_NS)
        return turn->unclaimed_ns + TURN_CLAIM_NS;
    if (!ring_wanted(gate->ring) && !ring_limited(gate->ring))
        return now + CLOCK_S;
    return drain_begin(gate, turn, token, now);
}

/* The token is another's. What is left of a lost turn is forgotten; the client that got the token
 * from here is looked after while others wait. */
static uint64_t turn_away(struct gate *gate, struct turn *turn, uint64_t token)
{
    struct ring *ring = gate->ring;
    if (turn->step != TURN_HOLDING) {
        turn->closed_ns = clock_now();
        drain_settle(gate, turn, false);
    }
    uint64_t look = CLOCK_NEVER;
    if (drain_overrunning(gate, turn, false))
        look = drain_overrun_look(turn);
    gather_leave(gate, turn);
    bool asks = gather_joined(gate);
    if (asks)
        look = turn_sooner(look, gather_ask(gate, turn));
    if ((asks && ring_waits(ring)) || turn->passed != token || !ring_wanted(ring))
        return look;
    watch_look(ring, &turn->watch);
    ring_rouse(ring); /* those who wait may sleep for long */
    return turn_sooner(look, clock_now() + watch_after(ring, &turn->watch));
}

static uint64_t turn_step(struct gate *gate)
{
    struct turn *turn = turn_of(gate);
    struct ring *ring = gate->ring;
    uint64_t token = ring_token(ring);
    uint64_t lease = atomic_load(&gate->lease);
    if (!ring_holds(ring, token))
        return turn_away(gate, turn, token);
    drain_overrunning(gate, turn, true);
    if (turn->step != TURN_HOLDING && turn->token == token)
        return turn->step == TURN_CLOSING ? drain_closing(gate, turn) : drain_look(gate, turn);
    turn->step = TURN_HOLDING;
    if ((lease & ~GATE_SLOW) == token)
        return turn_hold(gate, turn, token);
    return gather_joined(gate) ? gather_hold(gate, turn, token) : turn_unclaimed(gate, turn, token);
}

/* When to look again; said aloud, for threads that wonder whether to wake the keeper. */
uint64_t turn_look(struct gate *gate)
{
    if (guest.mode != CONFIG_ENFORCE)
        return CLOCK_NEVER;
    uint64_t until = turn_step(gate);
    atomic_store(&gate->keeper_look_ns, until);
    return until;
}
