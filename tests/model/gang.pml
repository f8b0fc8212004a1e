/*
 * gang: the turns of gangs on two rings, between members that gather, open, end, drain, take that
 * back, pass, join, leave, are killed and revoked. What scheduler/gang.c and the keeper's part of it
 * (hooks/gather.c, turn.c, drain.c) do, one step per access to a word of the gang's file; the steps'
 * numbers are those of the essay in scheduler/gang.c. README.md says what is left out.
 *
 * Client k < MEMBERS is a member of gang k / 2 on ring k % 2; ring 0 is the first in the order of
 * UUIDs. Each is its keeper; its threads are the `submit` of world(). The ring is its token, the
 * bits of who waits, and grants that are one step; ring.pml has what is behind them.
 *
 * Turns have no numbers but ages: 0 is no turn, 1 the present one, 2 the one before it, 3 any older.
 * All ages of a gang grow when its turn is over (D4).
 *
 * -DGANGS=1|2  -DROUNDS=n   so many submissions of each gang's members together
 * -DORDINARY=r -DTURNS=n    a client of no gang on ring r, which wants so many turns
 * -DKILLS=n -DBIRTHS=n      kill -9 of any member at any step; new members in their places
 * -DLATE=k                  member k is not there at the beginning; it may come, and is a birth
 * -DLEAVES=n                so many members exit
 * -DREVOKES=n               so many members lose their token at any step while others wait
 * -DEARLY=n                 so many slices end before those whose gate is open have moved
 * -DAGAINS=n                so many times a member that is drained lets one more through
 * -DGIVEUPS=n               so many allowances are used up: in gathering, in the drain, or behind it
 * -DTIMERS=0|1              whether the keepers' timed looks (10 ms) are there. They come when nobody
 *                           runs any more; no more than TICKS in a row may lead to nothing
 */
#ifndef GANGS
#define GANGS 2
#endif
#define MEMBERS (2 * GANGS)
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef TURNS
#define TURNS 1
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef BIRTHS
#define BIRTHS 0
#endif
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef REVOKES
#define REVOKES 0
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef AGAINS
#define AGAINS 0
#endif
#ifndef GIVEUPS
#define GIVEUPS 0
#endif
#ifndef TIMERS
#define TIMERS 1
#endif
#ifndef TICKS
#define TICKS 4
#endif

#define OTHER MEMBERS /* the ordinary client */
#define NOBODY (MEMBERS + 1)
#define RING(k) ((k) % 2)
#define GANG(k) ((k) / 2)
#define P(k) ((k) ^ 1) /* the other member of its gang */

#define NOW 1

/* ---- The rings ---- */
byte token[2] = NOBODY;
bool waiting[MEMBERS + 1];

/* ---- The gangs' files ---- */
bool used[MEMBERS], want[MEMBERS];
byte held[MEMBERS], drained[MEMBERS]; /* ages */
byte ending[GANGS];                   /* age */
byte lock[MEMBERS];                   /* the kernel's: 0, or 1 + the member that has it */

/* ---- What each keeper has read or keeps ---- */
byte seen[MEMBERS], again_seen[MEMBERS]; /* ages of the turns that it has read */
byte opened[MEMBERS];                    /* age */
bool same[MEMBERS];                      /* the word of the turn is what it has read */
#define SHUT 0
#define MAY 1 /* gang_open: a thread may open the gate */
#define OPEN 2
#define LET 3 /* one more is let through in the drain */
byte gate[MEMBERS];
bool wants[MEMBERS]; /* a thread stands at the gate */

#define RUNS 0
#define SLEEPS 1 /* until there is news */
#define NAPS 2   /* or 10 ms are over */
#define HOLDS 3  /* until news, or the slice's end */
#define GONE 4
byte state[MEMBERS];
bool news[MEMBERS]; /* the words that it sleeps on are no longer what it has read */

/* ---- For the checks ---- */
bool alive[MEMBERS];
bool member[MEMBERS];  /* alive, joined, and not about to leave */
bool lost[MEMBERS];    /* its token was taken, and it has not looked since */
bool excused[MEMBERS]; /* since it opened, another lost its token, came late, or gave up waiting */
bool overdue[MEMBERS]; /* its slice has run its length */
byte ticks;            /* in a row that led to nothing */
byte kills = KILLS, births = BIRTHS, leaves = LEAVES, revokes = REVOKES, early = EARLY;
byte agains = AGAINS, giveups = GIVEUPS, turns = TURNS;
byte rounds[GANGS] = ROUNDS;

#ifdef ORDINARY
#define OTHER_WAITS(r) ((r) == ORDINARY && waiting[OTHER])
#else
#define OTHER_WAITS(r) false
#endif
#if GANGS == 2
#define EACH(what) what(0) what(1) what(2) what(3)
#define WAITERS(r) (waiting[r] || waiting[(r) + 2] || OTHER_WAITS(r))
#define OTHERS_WAIT(k) (waiting[(k) ^ 2] || OTHER_WAITS(RING(k)))
#else
#define EACH(what) what(0) what(1)
#define WAITERS(r) (waiting[r] || OTHER_WAITS(r))
#define OTHERS_WAIT(k) OTHER_WAITS(RING(k))
#endif

/* Two gangs touch each other through the tokens alone: with two, a look is one step. */
#if GANGS == 2
#define WHOLE atomic
#else
#define WHOLE
#endif

/* ---- The ring ---- */

#define WAKE(k) \
    if \
    :: state[k] == RUNS && alive[k] -> news[k] = true \
    :: state[k] != RUNS && state[k] != GONE -> state[k] = RUNS \
    :: else \
    fi;

/* Within a step: to any who waits, or to nobody. */
inline grant(r)
{
    if
    :: waiting[r] -> token[r] = r; WAKE(r)
#if GANGS == 2
    :: waiting[(r) + 2] -> token[r] = (r) + 2; WAKE((r) + 2)
#endif
    :: OTHER_WAITS(r) -> token[r] = OTHER; waiting[OTHER] = false
    :: !WAITERS(r) -> token[r] = NOBODY
    fi
}

#define WAKE_HOLDER(r) if :: token[r] < MEMBERS -> WAKE(token[r]) :: else fi;

/* ---- The gang ---- */

#define OLDER(x) x = (x == 0 || x == 3 -> x : x + 1);
#define FORGET(x) x = (x == 0 || x >= 2 -> 0 : x + 1); /* no turn of age 3 is ever asked for */
#define AGE(k) \
    OLDER(held[k]) OLDER(seen[k]) OLDER(again_seen[k]) FORGET(drained[k]) FORGET(opened[k])
#define TURN_OVER(k) AGE(k) AGE(P(k)) FORGET(ending[GANG(k)]) same[k] = false; same[P(k)] = false;

/* N: gang_tell. */
inline tell()
{
    atomic {
        if
        :: used[P(me)] -> WAKE(P(me))
        :: else
        fi
    }
}

/* gang_end. */
inline end_turn()
{
    again_seen[me] = NOW;                                                           /* E1 */
    atomic {                                                                        /* E2 */
        change = (ending[GANG(me)] != again_seen[me]);
        ending[GANG(me)] = (again_seen[me] < 3 -> again_seen[me] : 0);
        again_seen[me] = 0
    }
#ifndef M_END_UNTOLD
    if
    :: atomic { change -> change = false }
        tell()
    :: !change
    fi
#else
    change = false
#endif
}

/* gang_advance. */
inline advance(force)
{
    atomic { same[me] = true; again_seen[me] = NOW }                                /* D2 */
    if
    :: atomic { force || !(held[me] == again_seen[me] && drained[me] != again_seen[me]) ->
            change = true }
    :: else
    fi;
#ifndef M_DRAINS_ALONE
    if
    :: atomic { !force && change && used[P(me)] && held[P(me)] == again_seen[me] -> skip } /* D3 */
        if
        :: atomic { drained[P(me)] != again_seen[me] -> change = false }
        :: drained[P(me)] == again_seen[me]
        fi
    :: atomic { force || !change || !used[P(me)] || held[P(me)] != again_seen[me] -> skip }
    fi;
#endif
    if
    :: change ->
        atomic {                                                                    /* D4 */
            change = false; again_seen[me] = 0;
            if
            :: same[me] ->
                excused[P(me)] = excused[P(me)] || (force && held[P(me)] == NOW);
                TURN_OVER(me)
                change = true
            :: else -> same[me] = false
            fi
        }
        if
        :: atomic { change -> change = false }
            tell()
        :: !change
        fi
    :: atomic { !change -> again_seen[me] = 0; same[me] = false }
    fi
}

/* gang_view, of the turn that was read as `seen`. A member's used and held may be one step: it
 * alone changes both, and clears used first. */
inline look_around()
{
    there = used[P(me)];                                                            /* S1 */
    if
    :: there ->
        atomic { its = used[P(me)] && held[P(me)] == seen[me] && seen[me] != 3 }    /* S2 */
        wanted = want[me] || want[P(me)]                                            /* S3 */
    :: !there -> wanted = want[me]
    fi
}
#ifdef M_NO_ORDER
#define BEFORE false
#define AFTER false
#else
#define BEFORE (there && RING(me) == 1 && !its)
#define AFTER (there && RING(me) == 0 && its)
#endif
#ifdef M_OPEN_EARLY
#define MISSING false
#else
#define MISSING (there && !its)
#endif
#ifndef M_POINTLESS
#define POINTLESS (MISSING && !wanted)
#else
#define POINTLESS false
#endif
#define BLIND there = false; its = false; wanted = false; seen[me] = 0

/* gang_reap. Who reaps is the only one who reads what is cleared: one step. */
inline reap()
{
#if (KILLS || BIRTHS) && !defined(M_NO_REAP)
    atomic {
        if
        :: used[P(me)] && lock[P(me)] == 0 ->
            used[P(me)] = false; want[P(me)] = false; held[P(me)] = 0; drained[P(me)] = 0;
            ticks = 0; news[me] = true
        :: else
        fi
    }
#else
    skip
#endif
}

/* gang_clear. */
inline clear()
{
    used[me] = false;
    want[me] = false;
    held[me] = 0;
    drained[me] = 0
}

/* A slice lasts until those of the gang have moved whose gate is open, or will be. */
#define MOVED(k) !(wants[k] && held[k] == NOW)
#define DUE (overdue[me] || (MOVED(me) && (!alive[P(me)] || MOVED(P(me)))))

proctype keeper(byte me)
{
    bool there, its, wanted, change, mine, drains;
    if
    :: state[me] == GONE -> goto end_dead
    :: else -> goto again
    fi;

birth:
    {
        lock[me] == 0 -> lock[me] = 1 + me;                                         /* J1 */
        atomic {
            waiting[me] = false; /* the ring's own join */
            if
            :: token[RING(me)] == me -> grant(RING(me))
            :: else
            fi
        }
        clear();                                                                    /* J2 */
        atomic {
            used[me] = true; member[me] = true;                                     /* J3 */
            excused[P(me)] = true
        }

again:
#if GANGS == 2
        skip; /* ends a WHOLE */
#endif
        /* turn_step. The words that it sleeps on are read first: what comes after that makes it look
         * once more. A claim strikes the bit. */
        atomic {
            news[me] = false;
            mine = (token[RING(me)] == me);
            if
            :: mine -> waiting[me] = false
            :: else -> drains = false; gate[me] = SHUT
            fi;
            if
            :: drains -> goto drain
            :: else
            fi
        }
#if LEAVES
        if
        :: atomic { leaves > 0 -> leaves-- }
            goto leave
        :: true
        fi;
#endif
look:   /* gang_look */
        WHOLE {
        if
        :: atomic { want[me] != wants[me] -> want[me] = wants[me]; change = wants[me] } /* L1 */
            if
            :: atomic { change -> change = false }
                tell()
            :: !change
            fi
        :: want[me] == wants[me]
        fi;
        atomic {
            seen[me] = NOW;                                                         /* L2 */
            excused[me] = excused[me] && (!mine || gate[me] != SHUT);
            if
            :: mine -> goto holding
            :: else
            fi
        }

        /* gang_look_away */
        if
        :: atomic { held[me] != 0 || opened[me] != 0 ->                             /* A1 */
#ifdef M_LOSS_UNSAID
                change = (held[me] == seen[me] && opened[me] == seen[me] && seen[me] < 3);
#else
                change = (held[me] == seen[me] && seen[me] < 3);
#endif
                held[me] = 0; opened[me] = 0;
                excused[P(me)] = excused[P(me)] || lost[me];
                excused[me] = false; lost[me] = false
            }
            if
            :: atomic { change -> change = false }
                end_turn()
            :: !change
            fi
        :: held[me] == 0 && opened[me] == 0 -> lost[me] = false
        fi;
        if
        :: ending[GANG(me)] == seen[me] && seen[me] < 3 ->                          /* A2 */
            advance(false);
            seen[me] = NOW
        :: else
        fi;
        look_around();

        /* gather_ask */
#ifdef M_LATE_OPENS
        if
        :: there && its && wants[me] -> gate[me] = MAY
        :: else
        fi;
#endif
        if
        :: atomic { wanted && !BEFORE && !AFTER ->
                BLIND;
                waiting[me] = true;
                if
                :: token[RING(me)] == NOBODY -> grant(RING(me))
                :: else -> WAKE_HOLDER(RING(me))
                fi
            }
            goto nap
        :: atomic { !wanted -> BLIND; waiting[me] = false }
            goto sleep
        :: atomic { wanted && (BEFORE || AFTER) -> BLIND; waiting[me] = false }
            reap();
            goto nap
        fi;

holding: /* gang_look_holding */
        if
        :: held[me] == seen[me] && opened[me] == seen[me] && seen[me] < 3 -> goto known
        :: else
        fi;
        look_around();
        change = (ending[GANG(me)] == seen[me] && seen[me] < 3);                    /* H1 */
        if
        :: atomic { held[me] != 0 && held[me] != seen[me] -> change = false; BLIND }
            goto drain
        :: atomic { held[me] == 0 && (BEFORE || AFTER) -> change = false; BLIND }
            goto drain
        :: atomic { held[me] != 0 && held[me] == seen[me] && BEFORE -> held[me] = 0 } /* H2 */
#ifndef M_DROPS_BLINDLY
            look_around();
            if
            :: !BEFORE -> goto joins
            :: BEFORE
            fi;
#endif
            atomic { change = false; BLIND }
            goto drain
        :: held[me] == 0 && !BEFORE && !AFTER ->
joins:      atomic { there = false; its = false; wanted = false }
#ifndef M_STILL_DRAINED
            if
            :: drained[me] != 0 -> drained[me] = 0
            :: else
            fi;
#endif
            held[me] = seen[me];                                                    /* H2 */
#ifndef M_JOINS_OVER
            if
            :: atomic { seen[me] == NOW -> same[P(me)] = false }                    /* H3 */
            :: atomic { seen[me] != NOW -> held[me] = 0; change = false; BLIND }
                goto drain
            fi;
#endif
            tell();
            look_around()
        :: held[me] != 0 && held[me] == seen[me] && !BEFORE
        fi;
        if
#ifdef M_OPENS_TO_END
        :: atomic { change -> change = false; BLIND }
            goto end_found
#else
        :: atomic { change && !MISSING -> change = false; opened[me] = (seen[me] < 3 -> seen[me] : 0); BLIND }
            goto end_found
        :: atomic { change && MISSING -> change = false; BLIND }
            goto drain
#endif
        :: atomic { !change && POINTLESS -> BLIND }
            end_turn();
            goto drain
        :: atomic { !change && MISSING && !POINTLESS -> BLIND }
            goto gathers
        :: atomic { !change && !MISSING -> opened[me] = (seen[me] < 3 -> seen[me] : 0); BLIND }
            goto open
        fi;
known:  if
        :: atomic { ending[GANG(me)] == seen[me] -> seen[me] = 0 }                  /* H1 */
            goto end_found
        :: atomic { ending[GANG(me)] != seen[me] -> seen[me] = 0 }
            goto open
        fi;

end_found: /* it may have ended before it opened here: others may wait for this one */
        if
        :: atomic { gate[me] == SHUT ->
                if
                :: token[RING(me)] == me -> gate[me] = MAY
                :: else
                fi
            }
            goto again
        :: gate[me] != SHUT -> goto drain
        fi;

open:   if
        :: atomic { gate[me] == SHUT ->
                if
                :: token[RING(me)] == me -> gate[me] = MAY
                :: else
                fi
            }
            goto again
        :: gate[me] != SHUT
        fi;
        /* turn_hold, gather_stand_by, gang_crowded. The bit is looked at behind the rest: a new
         * one, or news of the gang, wakes the keeper. */
        seen[me] = NOW;
        change = used[P(me)] && want[P(me)];
        if
        :: change -> change = (held[P(me)] != seen[me])
        :: else
        fi;
        if
        :: atomic { !change && !OTHERS_WAIT(me) -> seen[me] = 0 }
            goto sleep
        :: atomic { change || OTHERS_WAIT(me) -> change = false; seen[me] = 0;
                state[me] = (news[me] -> RUNS : HOLDS) }
        fi;
        if
        :: atomic { state[me] == RUNS -> skip }
            goto again
        :: atomic { state[me] == HOLDS && (DUE || early > 0) ->
                if
                :: DUE
                :: !DUE && early > 0 -> early--
                fi;
                state[me] = RUNS; overdue[me] = false
            }
        fi;
        end_turn();
        goto drain;

gathers:
#if GIVEUPS
        if
        :: atomic { giveups > 0 -> giveups-- }
            end_turn()
        :: true
        fi;
#endif
        reap();
        goto nap;

drain:  /* drain_begin, drain_look */
        atomic { gate[me] = SHUT; drains = true }
#if GIVEUPS
        if
        :: atomic { giveups > 0 && held[me] == NOW -> giveups-- }
            advance(true)
        :: true
        fi;
#endif
        /* gang_drained */
        if
        :: held[me] != NOW -> goto pass
        :: held[me] == NOW
        fi;
        if
        :: atomic { drained[me] != held[me] ->                                      /* D1 */
                drained[me] = (held[me] < 3 -> held[me] : 0)
            }
#ifndef M_END_UNTOLD
            tell()
#else
            skip
#endif
        :: drained[me] == held[me]
        fi;
        advance(false);
        if
        :: held[me] != NOW -> goto pass
        :: held[me] == NOW
        fi;
        /* gather_linger */
#if AGAINS
        if
        :: atomic { agains > 0 && wants[me] -> agains-- }
            goto back
        :: true
        fi;
#endif
        reap();
        goto nap;
#if AGAINS
back:   /* gang_again */
        drained[me] = 0;                                                            /* B1 */
        atomic { same[me] = true; seen[me] = NOW }
        do
        :: atomic { held[me] == seen[me] && same[me] ->                             /* B2 */
                same[me] = false; seen[me] = 0;
#ifndef M_AGAIN_UNSAID
                same[P(me)] = false;
#endif
                if
                :: token[RING(me)] == me -> gate[me] = LET
                :: else
                fi;
                drains = false; goto again
            }
        :: atomic { held[me] == seen[me] && !same[me] -> same[me] = true; seen[me] = NOW }
        :: atomic { held[me] != seen[me] -> same[me] = false; seen[me] = 0; goto drain }
        od;
#endif

pass:   /* drain_pass, gang_first */
        change = wants[me] && (RING(me) == 0 || !used[P(me)]);
        atomic {
            if
            :: token[RING(me)] == me ->
                waiting[me] = change;
                grant(RING(me))
            :: else
            fi;
            change = false; drains = false; mine = false
        }
        atomic { held[me] = 0; opened[me] = 0; excused[me] = false }                /* P1 */
        goto again
        } /* WHOLE */

nap:    atomic {
            if
            :: news[me]
            :: !news[me] && (token[RING(me)] != me || held[me] != 0) -> state[me] = NAPS
            :: !news[me] && token[RING(me)] == me && held[me] == 0
            fi;
            mine = false
        }
        goto asleep;
sleep:  atomic {
            if
            :: news[me]
            :: !news[me] && (token[RING(me)] != me || held[me] != 0) -> state[me] = SLEEPS
            :: !news[me] && token[RING(me)] == me && held[me] == 0
            fi;
            mine = false
        }
asleep:
end_asleep:
        if
        :: state[me] == RUNS
#if LEAVES
        :: atomic { leaves > 0 && state[me] != RUNS -> leaves--; state[me] = RUNS; goto leave }
#endif
        fi;
        goto again;

leave:  atomic { gate[me] = SHUT; wants[me] = false; member[me] = false; mine = false }
        clear();                                                                    /* X1 */
        opened[me] = 0;
        tell();                                                                     /* X2 */
        atomic {
            waiting[me] = false;
            if
            :: token[RING(me)] == me -> grant(RING(me))
            :: else
            fi;
            lock[me] = 0; alive[me] = false; state[me] = GONE; excused[me] = false; lost[me] = false
        }
    } unless { !alive[me] }

    atomic { there = false; its = false; wanted = false; change = false; mine = false;
        drains = false; news[me] = false }
end_dead:
    atomic {
        !alive[me] && births > 0 ->
            births--; alive[me] = true; state[me] = RUNS
    }
    goto birth
}

/* ---- Threads, other clients, the rings' watchers, kill -9 ---- */

#define RESTS(k) && (state[k] != RUNS)
#define TIMED(k) || state[k] == NAPS || state[k] == HOLDS
#define WANTING(k) || (alive[k] && wants[k])
#define MAY_SUBMIT(k) (gate[k] != SHUT && wants[k])
#define BUSY(k) || MAY_SUBMIT(k) || (state[k] == HOLDS && DUE_OF(k))
#define DUE_OF(k) (overdue[k] || (MOVED(k) && (!alive[P(k)] || MOVED(P(k)))))
#define FIRE(k) \
    if \
    :: state[k] == NAPS -> state[k] = RUNS \
    :: state[k] == HOLDS -> overdue[k] = true \
    :: else \
    fi;
#define DEAD_HOLDS(r) (token[r] < MEMBERS && !alive[token[r]] && WAITERS(r))
/* A ring is held in a turn that is open, and by all. */
#define HELD_WELL(k) && (token[RING(k)] != k || !alive[k] || \
    (held[k] == NOW && gate[k] != SHUT && (ending[GANG(k)] != NOW || kills < KILLS) && \
     (!member[P(k)] || held[P(k)] == NOW && token[RING(P(k))] == P(k) || !want[P(k)])))

#define SUBMIT(k) \
    :: atomic { MAY_SUBMIT(k) -> \
        assert(token[RING(k)] == k); \
        assert(excused[k] || held[k] == NOW); \
        assert(excused[k] || !member[P(k)] || lost[P(k)] || token[RING(P(k))] == P(k)); \
        wants[k] = false; gate[k] = (gate[k] == LET -> LET : OPEN); ticks = 0 }
#define ARRIVE(k) \
    :: atomic { rounds[GANG(k)] > 0 && member[k] && !wants[k] -> \
        rounds[GANG(k)]--; wants[k] = true; WAKE(k) }
/* Gangs are alike: members of the first one die. */
#define KILL(k) \
    :: atomic { kills > 0 && k < 2 && alive[k] -> \
        kills--; alive[k] = false; member[k] = false; state[k] = GONE; lock[k] = 0; \
        gate[k] = SHUT; wants[k] = false; seen[k] = 0; again_seen[k] = 0; opened[k] = 0; \
        same[k] = false; excused[k] = false; lost[k] = false; overdue[k] = false; news[k] = false }
#define REVOKE(k) \
    :: atomic { revokes > 0 && token[RING(k)] == k && alive[k] && OTHERS_WAIT(k) -> \
        revokes--; waiting[k] = false; lost[k] = true; gate[k] = SHUT; grant(RING(k)); WAKE(k) }
#define CLEAR_DEAD(r) \
    :: atomic { DEAD_HOLDS(r) -> waiting[token[r]] = false; grant(r); ticks = 0 }

proctype world()
{
end:
    do
    EACH(SUBMIT)
    EACH(ARRIVE)
#if KILLS
    EACH(KILL)
#endif
#if REVOKES
    EACH(REVOKE)
#endif
    CLEAR_DEAD(0)
    CLEAR_DEAD(1)
#ifdef ORDINARY
    :: atomic { turns > 0 && !waiting[OTHER] && token[ORDINARY] != OTHER ->
            turns--; waiting[OTHER] = true;
            if
            :: token[ORDINARY] == NOBODY -> grant(ORDINARY)
            :: else -> WAKE_HOLDER(ORDINARY)
            fi
        }
    :: atomic { token[ORDINARY] == OTHER -> ticks = 0; grant(ORDINARY) }
#endif
    :: atomic { true EACH(RESTS) && !(false EACH(BUSY)) && !DEAD_HOLDS(0) && !DEAD_HOLDS(1) &&
                token[0] != OTHER && token[1] != OTHER ->
            if
            :: !(false EACH(WANTING)) && !OTHER_WAITS(0) && !OTHER_WAITS(1) && (true EACH(HELD_WELL)) ->
                break
            :: else ->
                ticks++;
                assert(TIMERS && (false EACH(TIMED)) && ticks <= TICKS);
                EACH(FIRE)
            fi
        }
    od
}

#ifdef LATE
#define BEGIN(k) \
    if \
    :: k == LATE -> state[k] = GONE \
    :: else -> alive[k] = true; member[k] = true; used[k] = true; lock[k] = 1 + k \
    fi; \
    run keeper(k);
#else
#define BEGIN(k) alive[k] = true; member[k] = true; used[k] = true; lock[k] = 1 + k; run keeper(k);
#endif
init
{
    atomic {
        EACH(BEGIN)
        run world()
    }
}
