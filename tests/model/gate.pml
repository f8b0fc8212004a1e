/*
 * gate: submitting threads against their own process's keeper and a revoker outside, with store
 * buffers. What hooks/gate.h, hooks/gate.c and hooks/drain.c do, one step per access to a shared
 * word. README.md says what is left out, and why that is enough.
 *
 * Every plain (relaxed or release) store waits in a one-entry buffer of its thread, which drains at
 * any time, at a fence, at a sequentially consistent operation, and at the keeper's membarrier. The
 * only plain stores here are those to the marks.
 *
 * Steps (hooks/gate.c and scheduler/ring.c have the same numbers):
 *   E1 mark up, plain           C1 lease := closed in this epoch     O1 lease := token, by
 *   E2 load the lease           C2 membarrier                           compare-exchange from an
 *   E3 load the token           C3 wait until every mark is down        earlier epoch
 *   E4 the driver is called     C4 compare-exchange the token on
 *   E5 mark down, release
 *
 * -DFULL_FENCE  membarrier is refused here: the fast way is shut, the slow way has a fence in E1
 */
#ifndef LAST_EPOCH
#define LAST_EPOCH 4
#endif

#define US 0
#define THEM 1
#define NO 0 /* states of the lease */
#define FAST 1
#define SLOW 2
#define CLOSED 3
#define KEPT 0 /* what became of a turn */
#define PASSED 1
#define LOST 2
#define THREADS 2 /* 0 goes the fast way when it can, 1 always the slow one */

byte token_epoch, token_holder = THEM;
byte lease_epoch, lease_state = NO;
bool mark[THREADS], listed;
bool buffered[THREADS], buffer[THREADS]; /* one store to the own mark */

/* Ghosts, for the claims alone. */
byte fate[LAST_EPOCH + 2]; /* of the turn of each epoch */
byte since;                /* first epoch of the holding that goes on; renewals extend it */
byte late[THREADS];        /* epoch of the thread's late submission */
bool slow_sure;            /* the keeper has made sure that no one is on the fast way */

#define STORE_MARK(t, value) \
    atomic { !buffered[t] -> buffered[t] = true; buffer[t] = value }
#define DRAIN(t) \
    if \
    :: buffered[t] -> mark[t] = buffer[t]; buffered[t] = false; buffer[t] = false \
    :: else \
    fi
#define FENCE(t) atomic { DRAIN(t) }

active proctype buffers()
{
    do
    :: atomic { buffered[0] -> DRAIN(0) }
    :: atomic { buffered[1] -> DRAIN(1) }
    od
}

/* I1: a submission is made under a lease that is the token; or its turn was taken away between E3
 * and E4, once for each thread and turn. A turn that its own keeper passed on is over for good. */
inline submit(t)
{
    atomic {
        if
        :: fate[epoch] == KEPT ->
            assert(token_holder == US && epoch >= since);
#ifndef ONLY_TURNS
            assert(!(state == FAST && slow_sure))
#endif
        :: else ->
            assert(fate[epoch] == LOST);
            assert(late[t] != epoch);
            late[t] = epoch
        fi;
        epoch = 0; state = NO
    }
}

/* Ends the holding, all turns of it, in this way. */
inline end_turn(how)
{
    do
    :: since <= token_epoch -> fate[since] = how; since++
    :: else -> since = 0; break
    od
}

inline load_lease()
{
    atomic { state = lease_state; known = lease_epoch }
}

/* O1. Which of the two ways it opens was decided before the exchange. */
inline open(to)
{
#ifdef FULL_FENCE
    state = SLOW;
#else
    if
    :: state = SLOW
    :: state = FAST
    fi;
#endif
    atomic {
        if
#ifdef M_PLAIN_OPEN
        :: true ->
#else
        :: lease_state == NO || lease_epoch < to ->
#endif
            lease_epoch = to; lease_state = state; slow_sure = false
        :: else
        fi;
        state = NO
    }
}

/* Waiting at the gate, reduced to its effect on the lease: ring_look, gate_try, ring_claim,
 * gate_open. What it acts on may have changed before each step. Wake-ups are ring.pml's. */
inline take()
{
    atomic { token_holder == US -> epoch = token_epoch }
    load_lease();
    if
    :: atomic { (token_epoch != epoch || token_holder != US ||
                 (state == CLOSED && known == epoch)) -> state = NO; known = 0 }
    :: atomic { else -> state = NO; known = 0 }
        open(epoch)
    fi;
    epoch = 0
}

/* Thread 0 is known from the start and goes the fast way when it may; thread 1 begins at any time
 * and always goes the slow way, with its fence. */
proctype thread(byte t)
{
    byte epoch, state, known;
    if
    :: t == 1 -> listed = true /* gate_mark_new */
    :: else
    fi;
again:
    STORE_MARK(t, true);                                  /* E1 */
#ifndef M_NO_SLOW_FENCE
    if
    :: t == 1 -> FENCE(t)
    :: t == 0
    fi;
#endif
    atomic { state = lease_state; epoch = lease_epoch }   /* E2 */
    if
#ifdef M_FAST_UNFENCED
    :: (state == FAST || state == SLOW) && token_holder == US && token_epoch == epoch ->
#else
    :: (state == FAST || (state == SLOW && t == 1)) && token_holder == US &&
       token_epoch == epoch ->                            /* E3 */
#endif
        submit(t);                                        /* E4 */
        STORE_MARK(t, false)                              /* E5 */
    :: atomic { else -> epoch = 0; state = NO }
        STORE_MARK(t, false);
        take()
    fi;
    goto again
}

proctype keeper()
{
    byte epoch, state, known, how;
again:
    atomic { token_holder == US -> epoch = token_epoch; how = KEPT }
    load_lease();
    if
    :: atomic { known == epoch && (state == FAST || state == SLOW) -> known = 0 }
        if
        :: goto close
        :: atomic { token_epoch < LAST_EPOCH -> state = NO }
            goto renew
        :: atomic { state == FAST -> state = NO }
            goto slow
        :: atomic { state == SLOW -> state = NO }
            goto fast
        fi
    :: atomic { else -> known = 0; state = NO } /* granted, and claimed by nobody in time */
        goto close
    fi;

renew: /* ring_again, drain_reopen */
    atomic {
        if
        :: token_epoch == epoch && token_holder == US -> token_epoch++; epoch++
        :: else -> goto again
        fi
    }
    open(epoch);
    goto again;

fast: /* gate_set_slow(false) */
#ifndef FULL_FENCE
    atomic {
        if
        :: lease_state == SLOW && lease_epoch == epoch -> lease_state = FAST; slow_sure = false
        :: else
        fi
    }
#endif
    goto again;

slow: /* gate_set_slow(true), and what turn_verify concludes from it */
    atomic {
        if
        :: lease_state == FAST && lease_epoch == epoch -> lease_state = SLOW
        :: else -> goto again
        fi
    }
#ifndef M_SLOW_NO_MEMBARRIER
    atomic { DRAIN(0); DRAIN(1) }
#endif
    !mark[0];
    atomic { !listed || !mark[1] -> slow_sure = (lease_state == SLOW && lease_epoch == epoch) }
    goto again;

close:
    atomic { lease_epoch = epoch; lease_state = CLOSED; slow_sure = false; state = NO } /* C1 */
#ifndef FULL_FENCE
#ifndef M_NO_MEMBARRIER
    atomic { DRAIN(0); DRAIN(1) }                                                       /* C2 */
#endif
#endif
wait: /* C3; every look begins with the token */
    if
    :: token_epoch != epoch || token_holder != US -> goto again
    :: else
    fi;
    if
#ifdef M_NO_MARKS
    :: how = PASSED; goto pass
#else
    :: !mark[0]
#endif
    :: how = LOST; goto pass /* the allowance is used up */
    :: atomic { lease_state == CLOSED && lease_epoch == epoch -> lease_state = SLOW } /* relent */
        goto again
    fi;
    if
    :: atomic { !listed || !mark[1] -> how = PASSED }
    :: listed && mark[1] -> goto wait
    fi;
pass:
    atomic {                                                                            /* C4 */
        if
        :: token_epoch == epoch && token_holder == US && token_epoch < LAST_EPOCH ->
            end_turn(how);
            token_epoch++; token_holder = THEM
        :: else
        fi
    }
    token_holder == THEM || token_epoch != epoch;
    goto again
}

/* All other clients: they get the token, pass it on, and revoke who does not. */
proctype others()
{
    do
    :: atomic { token_holder == THEM && token_epoch < LAST_EPOCH ->
            token_epoch++; token_holder = US; since = token_epoch }
    :: atomic { token_holder == US && token_epoch < LAST_EPOCH ->
            end_turn(LOST);
#ifndef M_SAME_EPOCH
            token_epoch++;
#endif
            token_holder = THEM }
#ifdef M_SAME_EPOCH
    :: atomic { token_holder == THEM -> token_holder = US; since = token_epoch }
#endif
    od
}

init
{
    atomic { run thread(0); run thread(1); run keeper(); run others() }
}
