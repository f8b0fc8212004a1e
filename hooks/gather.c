/*
 * gather: the turns of a gang (see turn.h; scheduler/gang.c has the rules). Runs in the keeper's
 * thread, which asks for the token in place of the threads that wait, holds it with the gate closed
 * until the gang's other rings are held too, and then begins its slice anew. One member's end of
 * the turn is everybody's; who has drained keeps the token until all have, and meanwhile lets
 * through what the others may be waiting for.
 */
#include "turn.h"

#include <stdatomic.h>

#include "attach.h"
#include "clock.h"
#include "gang.h"
#include "gate.h"

/* How long threads have to submit what the others of the gang have submitted already; and for how
 * long after all is drained here the others are waited for before one more submission is let
 * through, at first. */
#define GATHER_CATCH_UP_NS (2 * CLOCK_MS)
#define GATHER_NUDGE_NS CLOCK_MS
/* How long a gang's turn that ends is held for its drain when a member that can have no part in it
 * waits for the next: the drain may wait for that one. */
#define GATHER_LATE_NS (100 * CLOCK_MS)

/* Lets so many submissions through in a gang's turn that ends; false when it is over. */
static bool gather_let_through(struct gate *gate, struct turn *turn, unsigned submissions)
{
    if (!gang_again(gate->gang))
        return false;
    gate_count_off(gate, submissions);
    turn->relent_ns = clock_now() + GATHER_CATCH_UP_NS;
    turn->step = TURN_HOLDING;
    gate->gang_open = true; /* the turn may not have opened here, but for the others */
    if (gate_relent(gate, turn->token))
        ring_wake(ring_shared(gate->ring), gate->ring->slot);
    return true;
}

/* Threads of this process stand at the gate, and others of the gang have submitted more. */
bool gather_catch_up(struct gate *gate, struct turn *turn)
{
    uint64_t behind = gang_behind(gate->gang);
    return behind && gate_waited(gate) &&
           gather_let_through(gate, turn, behind < UINT16_MAX ? (unsigned)behind : UINT16_MAX);
}

/* Drained, while others of the gang are not: what they have on their GPUs may wait for a thread of
 * this process that stands at the gate, though nobody has submitted more. */
uint64_t gather_linger(struct gate *gate, struct turn *turn)
{
    uint64_t now = clock_now();
    if (now >= turn->give_up_ns) {
        gang_abandon(gate->gang);
        return now;
    }
    if (turn->nudge_ns == 0)
        turn->nudge_ns = now + (GATHER_NUDGE_NS << turn->nudges);
    if (now >= turn->nudge_ns && gate_waited(gate)) {
        turn->nudge_ns = 0;
        turn->nudges += turn->nudges < TURN_RELENTS;
        return gather_let_through(gate, turn, 1) ? turn->relent_ns : now;
    }
    gang_reap(gate->gang);
    uint64_t look = turn_sooner(now + GATHER_LOOK_NS, turn->give_up_ns);
    return now < turn->nudge_ns ? turn_sooner(look, turn->nudge_ns) : look;
}

/* What is to do for the gang's next turn is found at the next look, which is at once. */
uint64_t gather_passed(struct gate *gate, struct turn *turn)
{
    gang_passed(gate->gang);
    turn->gather_ns = 0;
    return clock_now();
}

bool gather_late(const struct gate *gate, const struct turn *turn, uint64_t now)
{
    return gate->gang && now >= turn->closed_ns + GATHER_LATE_NS && gang_barred(gate->gang);
}

/* Whether others of the gang wait for the end of its turn, or for news of this one's idleness. */
bool gather_wanted(const struct gate *gate)
{
    return gate->gang && (gang_crowded(gate->gang) || gang_resting(gate->gang));
}

/* Whether the gang's turn ends; not while threads are let through in it. */
bool gather_ends(struct gate *gate, const struct turn *turn, uint64_t token, uint64_t now)
{
    if (!gate->gang || (turn->token == token && drain_relenting(gate, turn, now)))
        return false;
    return gang_look(gate->gang, gate_waited(gate), true) != GANG_OPEN;
}

/* The last context is gone from a device whose token is not held here, and nothing that outlasted a
 * turn is left: the gang's others need its ring no more. */
void gather_leave(struct gate *gate, struct turn *turn)
{
    uint64_t token;
    if (!gate->gang || gate->used || turn->overrun_ns || gate_inside(gate) || gate_waited(gate))
        return;
    if (ring_waits(gate->ring) && ring_unwant(gate->ring, &token))
        return; /* it comes just now: the next look holds it for the gang */
    gate->gang_open = false;
    turn->gather_ns = 0;
    attach_ungang(gate);
}

/* Whether this device's gate opens with a gang's. Joined when the device is used, and again where
 * the gang's file has lost its name. */
bool gather_joined(struct gate *gate)
{
    if (gate->ganged && !gate->gang && (gate->used || gate_waited(gate)))
        attach_gang(gate);
    return gate->gang != NULL;
}

/* The token is another's, or nobody's, and the gang may want it. */
uint64_t gather_ask(struct gate *gate, struct turn *turn)
{
    struct ring *ring = gate->ring;
    uint64_t token, now = clock_now();
    gate->gang_open = false;
    turn->gather_ns = 0;
    enum gang_step step = gang_look(gate->gang, gate_waited(gate), false);
    if (step == GANG_ASK) {
        ring_want(ring);
        if (ring_look(ring, &token))
            return now;
        ring_rouse(ring);
        watch_look(ring, &turn->watch);
        return now + watch_after(ring, &turn->watch);
    }
    if (ring_waits(ring) && ring_unwant(ring, &token))
        return now;
    if (step == GANG_REST)
        return CLOCK_NEVER;
    gang_reap(gate->gang);
    return now + GATHER_LOOK_NS;
}

/* All of the gang hold their rings: the turn begins now. */
static uint64_t gather_open(struct gate *gate, struct turn *turn, uint64_t token)
{
    struct ring *ring = gate->ring;
    if (ring_restart(ring, &token) != 1)
        return clock_now();
    gate_count_none(gate);
    /* What an earlier turn has left on the GPU may wait for as much from the others; what has ended
     * since does not, and nobody has looked. */
    meter_poll(gate);
    turn->submitted = gate_count(gate) - meter_out(gate);
    gate->gang_open = true;
    if (gate_waited(gate))
        ring_wake(ring_shared(ring), ring->slot);
    return clock_now() + TURN_TICK_NS;
}

/* The gang's turn is open, and no thread of this process has opened the gate in it. */
static uint64_t gather_stand_by(struct gate *gate, struct turn *turn, uint64_t token)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now();
    uint64_t end = turn_end(gate, turn, token);
    if (!ring_wanted(ring) && !ring_arm(ring, token, false) && !gather_wanted(gate))
        return CLOCK_NEVER;
    ring_arm(ring, token, true);
    if (now < end && !gang_idle(gate->gang, !gate_waited(gate)))
        return turn_sooner(end, now + GATHER_LOOK_NS);
    gang_end(gate->gang);
    return drain_begin(gate, turn, token, now);
}

/* The token is held for the gang, and no thread of this process has opened the gate. */
uint64_t gather_hold(struct gate *gate, struct turn *turn, uint64_t token)
{
    struct ring *ring = gate->ring;
    uint64_t now = clock_now(), most = segment_allowance(ring_shared(ring));
    enum gang_step step = gang_look(gate->gang, gate_waited(gate), true);
    if (turn->gather_ns == 0) {
        turn->gather_ns = now;
        ring_claim(ring, token);
    }
    /* It may have opened for the others and end already: they may wait for what this one submits.
     */
    if ((step == GANG_OPEN || step == GANG_END) && !gate->gang_open)
        return gather_open(gate, turn, token);
    if (step == GANG_OPEN)
        return gather_stand_by(gate, turn, token);
    if (step != GANG_GATHER)
        return drain_begin(gate, turn, token, now);
    if (now - turn->gather_ns > most)
        gang_end(gate->gang); /* one of them does not come: others may have the GPUs meanwhile */
    ring_arm(ring, token, true);
    gang_reap(gate->gang);
    return now + GATHER_LOOK_NS;
}

/* A gang's file that lost its name is left likewise; what is held for it goes back first. */
void gather_regroup(struct gate *gate)
{
    struct gang *gang = gate->gang;
    gate->gang_open = false;
    gate_count_none(gate);
    gate->gang = NULL; /* joined anew at the next look; the mapping may still be slept on */
    gang_abandon(gang);
    gang_passed(gang);
}
