/*
 * ring: the token's way between clients that wait, pass, stop, are killed, and come again; and who
 * wakes whom. What scheduler/ring.c, scheduler/slot.c, the waiting in hooks/gate.c and the keeper
 * (hooks/keeper.c, turn.c, drain.c) do, one step per access to a shared word; the steps' numbers are those of the
 * essay in scheduler/ring.c. README.md says what is left out, and why that is enough.
 *
 * Each client is two threads: one that submits, and its keeper. A token word is unique (its epoch
 * never comes back), so all that can be asked of a word that was read before is whether it is still
 * the token: `fresh`. A move makes every word that was read, every lease and every armed_epoch
 * stale at once. gate.pml has the epochs themselves.
 *
 * -DCLIENTS=2|3  -DROUNDS=n    so many submissions of each
 * -DKILLS=n -DSTOPS=n           kill -9 and SIGSTOP for good, of any client (-DONLY=k: of this one)
 *                               at any step
 * -DBIRTHS=n    so many of the killed are followed by a new client in their slot
 * -DQUITS=n     so many times a waiter gives up; it comes back, or is done
 * -DLEAVE       who is done exits
 * -DEARLY=n     so many slices end, or are given back unclaimed, before their thread has moved
 * -DRENEWS=n    so many turns are renewed although others wait
 * -DHELD        client 0 holds at the beginning; -DQUEUED: the others wait already, asleep
 * -DTIMERS=0    the timed end of a waiter's sleep (W4) is not there: no wake-up may need it
 * -DTIMERS=1    it fires when nobody runs any more, the slowest that a timer can be, and
 *               -DEAGER=n so many times earlier; -DREVOKES=n: so many holders that live are revoked
 * -DNOTICE      it also ends at any time while the holder is dead (N2); a wrong notice is an EAGER
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef BIRTHS
#define BIRTHS 0
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef RENEWS
#define RENEWS 0
#endif
#ifndef EAGER
#define EAGER 0
#endif
#ifndef REVOKES
#define REVOKES 0
#endif
#ifndef QUITS
#define QUITS 0
#endif
#ifndef TICKS
#define TICKS 4
#endif

#define NOBODY CLIENTS
#define KEEPER(k) (CLIENTS + (k))

/* ---- The segment ---- */
byte token = NOBODY;
bool waiting[CLIENTS], attached[CLIENTS], joined[CLIENTS], bytes[CLIENTS];
bool armed[CLIENTS], claimed[CLIENTS]; /* in the epoch of the token */
byte lock[CLIENTS]; /* the kernel's, on the slot's byte: 0, or 1 + the client that has it */

/* ---- Each process's own ---- */
#define OLD 0 /* the lease is of an earlier epoch, or none */
#define OPEN 1
#define SHUT 2
byte lease[CLIENTS];
bool inside[CLIENTS]; /* a submission is under way */

/* ---- Threads: k submits, KEEPER(k) keeps ---- */
#define RUNS 0
#define SLEEPS 1
#define GONE 2
byte thread[2 * CLIENTS];
bool news[2 * CLIENTS];  /* its wake word is no longer what the thread read */
bool reads[2 * CLIENTS]; /* it has read the wake word, and will sleep on it */
bool fresh[2 * CLIENTS]; /* the token is still what the thread read */

#define ALIVE 0
#define DEAD 1
#define STOPPED 2
byte life[CLIENTS];
bool down[CLIENTS];   /* a dead client's keeper is gone */
bool leaving[CLIENTS];   /* its thread will submit nothing more */
bool taken[CLIENTS];  /* the turn was taken away while a submission was under way */
byte ticks;           /* in a row that led to nothing */
bool late[CLIENTS];   /* a keeper's 1 ms for a token that nobody claims */
bool used[CLIENTS];   /* something was submitted in this turn */
byte kills = KILLS, stops = STOPS, births = BIRTHS, early = EARLY, renews = RENEWS;
byte quits = QUITS, eager = EAGER, revokes = REVOKES;

#if CLIENTS == 3
#define EACH(what) what(0) what(1) what(2)
#define OTHERS_WAIT(k) (waiting[((k) + 1) % 3] || waiting[((k) + 2) % 3])
#else
#define EACH(what) what(0) what(1)
#define OTHERS_WAIT(k) (waiting[1 - (k)])
#endif

#if TIMERS
#define UNCLAIM(k) claimed[k] = false;
#define CLAIM(k) claimed[k] = fresh[self];
#else /* only watchers ask */
#define UNCLAIM(k)
#define CLAIM(k)
#endif
#define STALE(k) \
    fresh[k] = false; fresh[KEEPER(k)] = false; lease[k] = OLD; armed[k] = false; \
    UNCLAIM(k)
#define TAKE_AWAY(k) if :: token == k && k != me && inside[k] -> taken[k] = true :: else fi;

/* ---- Store buffers; for mutants only: none of the ring's own stores is plain ---- */
#ifdef M_PLAIN
#define BIT 1
#define FREED 2
#define DISARMED 3
byte stored[2 * CLIENTS];
#define DRAIN(t, k) \
    if \
    :: stored[t] == BIT -> waiting[k] = true; stored[t] = 0 \
    :: stored[t] == FREED -> token = NOBODY; stored[t] = 0; EACH(STALE) \
    :: stored[t] == DISARMED -> armed[k] = false; stored[t] = 0 \
    :: else \
    fi;
proctype buffer(byte t; byte k)
{
end:
    do
    :: atomic { stored[t] != 0 -> DRAIN(t, k) }
    od
}
#else
#define DRAIN(t, k)
#endif

/* ---- The ring ---- */

inline load()
{
    atomic { who = token; fresh[self] = true }
}

/* G3, G4: ring_poke. Where nobody dies between them, they may be one step: otherwise who sleeps
 * sleeps a little longer. */
#define WAKE(t) if :: thread[t] == SLEEPS -> thread[t] = RUNS; reads[t] = false :: else fi;
inline poke(slot)
{
    atomic {
        DRAIN(self, me)
        news[slot] = reads[slot]; news[KEEPER(slot)] = reads[KEEPER(slot)];
#if KILLS || STOPS
    }
    atomic {
#endif
        WAKE(slot)
        WAKE(KEEPER(slot))
    }
}

/* The same for the keeper alone: ring_call. */
inline call(slot)
{
    atomic {
        DRAIN(self, me)
        news[KEEPER(slot)] = reads[KEEPER(slot)];
#if KILLS || STOPS
    }
    atomic {
#endif
        WAKE(KEEPER(slot))
    }
}

/* One look at the waiting, and policy's choice: whoever it is. */
#define PICKS(k) :: waiting[k] -> next = k
inline pick()
{
    atomic {
        if
        EACH(PICKS)
        :: else -> next = NOBODY
        fi
    }
}

/* R1, G2: ring_move. Who moved the token knows the new word. */
inline move(to)
{
    atomic {
        DRAIN(self, me)
        if
        :: fresh[self] ->
            EACH(TAKE_AWAY)
            token = to;
            EACH(STALE)
            fresh[self] = true; ok = true
        :: else -> ok = false
        fi
    }
}

/* ring_grant, of the word that was read from `holder`. */
inline grant(holder)
{
    pick();
    if
    :: next == NOBODY && holder != NOBODY ->
#ifdef M_PLAIN_FREE
        atomic {
            ok = fresh[self];
            if :: ok -> stored[self] = FREED :: else fi
        }
#else
        move(NOBODY); /* R1 */
#endif
        if
        :: ok ->
#ifdef M_NO_RESCAN
            skip
#else
            pick() /* R2 */
#endif
        :: else
        fi
    :: else
    fi;
    if
    :: next != NOBODY ->
        move(next); /* G1, G2 */
        if
        :: ok -> poke(next)
        :: else
        fi
    :: else
    fi;
    atomic { next = 0; ok = false; fresh[self] = false }
}

/* slot_clear; the caller holds the slot's byte. */
inline clear(slot)
{
    waiting[slot] = false;  /* D2 */
    do
    :: atomic { token == slot -> fresh[self] = true }
        grant(slot)         /* D3 */
    :: token != slot -> break
    od;
    bytes[slot] = false;    /* D4 */
    joined[slot] = false;
    attached[slot] = false  /* D5 */
}

#define DEAD_SLOT(slot) (attached[slot] && lock[slot] == 0)

/* slot_reap. */
inline reap(slot)
{
#ifdef M_REAP_UNLOCKED
    if
    :: attached[slot] -> clear(slot)
    :: else
    fi
#else
    if
    :: atomic { lock[slot] == 0 -> lock[slot] = 1 + me; ticks = 0 } /* D1 */
        if
        :: attached[slot] -> clear(slot)
        :: else
        fi;
        lock[slot] = 0 /* D6 */
    :: lock[slot] != 0
    fi
#endif
}

/* Slowness is a matter of clocks, which are not here. Who has stopped is blamed at once; who
 * lives, so many times at most, since else a revocation would cover up a wake-up that was lost. */

/* watch_look: one look at the holder. */
inline watch()
{
    load();
    if
    :: who == me
    :: who == NOBODY -> grant(NOBODY)
    :: who != me && who != NOBODY ->
        if
        :: DEAD_SLOT(who) ->
            fresh[self] = false;
#if CLIENTS == 3
            third = 3 - me - who; /* slot_reap_set */
            if
            :: waiting[third] && DEAD_SLOT(third) -> reap(third)
            :: else
            fi;
#endif
            reap(who)
#ifndef M_NO_ABSENT
        :: !DEAD_SLOT(who) && (!joined[who] || !attached[who]) ->
            waiting[who] = false;     /* A1 */
            grant(who)                /* A2 */
#endif
        :: else ->
            if
            :: !claimed[who] || !fresh[self] -> poke(who)
            :: else
            fi;
            if
            :: atomic { OTHERS_WAIT(who) && (life[who] != ALIVE || revokes > 0) ->
                    if :: life[who] == ALIVE -> revokes-- :: else fi }
                waiting[who] = false; /* V1 */
                grant(who);           /* V2 */
                poke(who)             /* V3 */
            :: !OTHERS_WAIT(who) || life[who] == ALIVE
            fi
        fi
    fi;
    atomic { who = 0; third = 0; fresh[self] = false }
}

/* ---- A submitting thread, and what its process does at its beginning and its end ---- */
proctype submitter(byte me; byte self)
{
    byte next, who, third, shut, rounds;
    bool ok, heir;
    if /* the first generation has joined already */
    :: thread[me] == SLEEPS -> goto asleep
    :: else -> goto gate
    fi;

birth:
    {
        /* slot_join. A newcomer that cannot have the byte takes another slot; all slots are alike,
         * so it waits for this one. */
        do
        :: atomic { lock[me] == 0 -> lock[me] = 1 + me; break }                     /* J1 */
        :: atomic { lock[me] != 0 && life[(lock[me] - 1)] == STOPPED -> goto gone }
        od;
        atomic { heir = (token == me); fresh[me] = heir }
#ifndef M_JOIN_NO_REAP
        clear(me);                                                                  /* J2 */
#endif
        atomic {
            assert(!heir || !fresh[me]);        /* it inherits no turn, */
            assert(!waiting[me] && !bytes[me]); /* no wish and no bytes */
            heir = false; fresh[me] = false
        }
        attached[me] = true;                                                        /* J3 */
        joined[me] = true;
        who = token;
        if
        :: who != NOBODY -> call(who)                                               /* J4 */
        :: else
        fi;
        atomic { who = 0; thread[KEEPER(me)] = RUNS }
gate:
        bytes[me] = true;
pass:   /* gate_pass_in_turn: gate.pml shows that the look at lease and token may be one step */
        atomic {
            if
            :: token == me && lease[me] == OPEN -> inside[me] = true
            :: else -> goto take
            fi
        }
        atomic {
            assert(token == me || taken[me]);
            assert(bytes[me] && attached[me]); /* nobody clears up after the living */
            taken[me] = false; inside[me] = false; ticks = 0; used[me] = true; rounds++;
            if
            :: rounds < ROUNDS -> goto pass
            :: else -> goto finish
            fi
        }

take:   /* gate_take */
#ifndef M_NEWS_LATE
        atomic { news[me] = false; reads[me] = true }                               /* W0 */
#endif
#ifdef M_PLAIN_BIT
        atomic { stored[me] == 0 -> if :: !waiting[me] -> stored[me] = BIT :: else fi }
#else
        waiting[me] = true;                                                         /* W1 */
#endif
look:   /* ring_look, gate_try */
        load();                                                                     /* W2 */
        if
        :: who == NOBODY -> who = 0; grant(NOBODY); goto look
        :: who == me -> who = 0;
            shut = lease[me];
            if
            :: atomic { !fresh[me] -> shut = 0 }
                goto take
            :: atomic { fresh[me] && shut == SHUT -> shut = 0; fresh[me] = false }
                goto rest
            :: atomic { fresh[me] && shut != SHUT -> shut = 0 }
            fi;
            CLAIM(me)                                             /* W5 */
            if
            :: fresh[me] -> waiting[me] = false
            :: else
            fi;
            atomic {                                                                /* O1 */
                if
                :: fresh[me] && lease[me] == OLD -> lease[me] = OPEN; used[me] = false
                :: else
                fi;
                fresh[me] = false; news[me] = false; reads[me] = false; goto pass
            }
        :: else -> atomic { who = 0; fresh[me] = false }
        fi;
rest:
#if QUITS
        if
        :: atomic { quits > 0 -> quits--; who = 0 }
            waiting[me] = false;                                                    /* W6 */
            poke(me);
            if
            :: goto take /* has second thoughts */
            :: goto finish
            fi
        :: true
        fi;
#endif
        /* ring_wait */
#ifndef M_NO_W3
        load();
        if
        :: who != NOBODY && who != me && (!fresh[me] || !armed[who]) -> call(who)   /* W3 */
        :: else
        fi;
#endif
#ifdef M_NEWS_LATE
        atomic { news[me] = false; reads[me] = true }
#endif
        atomic {                                                                    /* W4 */
            who = 0; fresh[me] = false;
            if
            :: !news[me] -> thread[me] = SLEEPS
            :: else -> news[me] = false; reads[me] = false
            fi
        }
asleep: if
        :: atomic { thread[me] == RUNS -> news[me] = false }
#if EAGER
        :: atomic { thread[me] == SLEEPS && eager > 0 -> eager--; thread[me] = RUNS;
                news[me] = false; reads[me] = false }
#endif
#ifdef NOTICE
        :: atomic { thread[me] == SLEEPS && token != NOBODY && token != me && DEAD_SLOT(token) ->
                thread[me] = RUNS; news[me] = false; reads[me] = false }            /* N2 */
#endif
        fi;
#if TIMERS
        watch();
#endif
        goto take;

finish: leaving[me] = true;
#ifdef LEAVE
        call(me);                             /* keeper_stop */
        thread[KEEPER(me)] == GONE;
        lease[me] = (token == me -> SHUT : OLD);
        clear(me);                            /* slot_leave */
        lock[me] = 0;
#endif
gone:
        atomic { thread[me] = GONE; rounds = 0; goto end }
    } unless { life[me] != ALIVE }

    atomic { next = 0; who = 0; third = 0; shut = 0; ok = false; heir = false; rounds = 0;
        fresh[me] = false }
end_dead:
    atomic {
        life[me] == DEAD && births > 0 && down[me] ->
            births--; life[me] = ALIVE; down[me] = false; leaving[me] = false;
            thread[me] = RUNS
    }
    goto birth;
end:
    skip
}

/* A slice may end before its thread has done anything, so many times. */
#define SLICE_OVER(due) (due || leaving[me] || early > 0) -> \
    if :: due || leaving[me] :: else -> early-- fi

/* ---- The keeper. Its look at the wake word, the token and the lease is one step: the wake word is
 * read first, so what comes between would only make it look once more ---- */
proctype keeper(byte me; byte self)
{
    byte next, who, shut;
    bool ok;
again:
    {
        atomic {
            DRAIN(self, me)
            news[self] = false; reads[self] = true;
            who = token; fresh[self] = true; shut = lease[me]
        }
#ifdef LEAVE
        if
        :: atomic { leaving[me] -> who = 0; shut = 0; fresh[self] = false;
                thread[self] = GONE; goto end }
        :: else
        fi;
#endif
        if
        :: atomic { who != me -> who = 0; shut = 0; fresh[self] = false }
            goto nap
        :: atomic { who == me && shut == OPEN -> who = 0; shut = 0; }
            goto hold
        :: atomic { who == me && shut != OPEN -> who = 0; shut = 0 }
        fi;

        /* turn_unclaimed: 1 ms is over when there is no thread that might claim, or too soon */
#ifdef M_NO_UNCLAIMED
        goto nap;
#endif
        if
        :: !fresh[self] || lease[me] == OPEN -> late[me] = false; goto again
        :: atomic { OTHERS_WAIT(me) &&
                SLICE_OVER((late[me] || (thread[me] != RUNS && !waiting[me])));
                late[me] = false }
            goto close
        :: (thread[me] != RUNS || leaving[me]) && !OTHERS_WAIT(me) -> late[me] = false; goto nap
        :: atomic { thread[me] == SLEEPS && waiting[me] && OTHERS_WAIT(me) && !late[me] ->
                thread[self] = SLEEPS }
            atomic {
                thread[self] == RUNS || !fresh[self] || lease[me] == OPEN ->
                    thread[self] = RUNS; news[self] = false; reads[self] = false
            }
            goto again
        fi;

nap:    /* keeper_nap */
        atomic {
            fresh[self] = false;
            if
            :: !news[self] -> thread[self] = SLEEPS
            :: else -> news[self] = false; reads[self] = false
            fi
        }
end_nap:
        thread[self] == RUNS;
        goto again;

hold:   /* turn_hold, ring_arm, turn_alone */
        if
        :: OTHERS_WAIT(me)
        :: !OTHERS_WAIT(me) ->
#ifdef M_PLAIN_DISARM
            atomic { stored[self] == 0 -> stored[self] = DISARMED }                 /* K1 */
#else
            armed[me] = false;                                                      /* K1 */
#endif
            if
            :: OTHERS_WAIT(me)                                                      /* K2 */
            :: !OTHERS_WAIT(me) -> goto nap
            fi
        fi;
        atomic { DRAIN(self, me) armed[me] = fresh[self] }                          /* K3 */
        /* the slice goes on for a while: turn_over, ring_renew */
        if
        :: !fresh[self] -> goto again
        :: atomic { fresh[self] && OTHERS_WAIT(me) && SLICE_OVER(used[me]) }
            goto close
        :: atomic { fresh[self] && OTHERS_WAIT(me) && renews > 0 && used[me] -> renews-- }
            goto turn
        :: !OTHERS_WAIT(me) -> fresh[self] = false; goto again
        fi;

close:  /* drain_begin, drain_closing; gate.pml has the steps */
        lease[me] = (fresh[self] -> SHUT : OLD);                                    /* C1, C2 */
        !inside[me] || !fresh[self];                                                /* C3 */
choose: pick();                                                                     /* C4 */
        if
        :: atomic { next == me && (renews > 0 || !OTHERS_WAIT(me)) -> next = 0;
                if :: renews > 0 -> renews-- :: else fi }
            goto turn
        :: next == me && OTHERS_WAIT(me) -> goto choose
        :: next == NOBODY -> next = 0; grant(me)
        :: next != me && next != NOBODY ->
            move(next);
            if
            :: ok -> poke(next)
            :: else
            fi;
            atomic { next = 0; ok = false; fresh[self] = false }
        fi;
        goto again;

turn:   /* ring_again, drain_reopen */
        move(me);
        if
        :: ok -> ok = false;
            CLAIM(me)
            if
            :: fresh[self] -> waiting[me] = false
            :: else
            fi;
            atomic {
                if
                :: fresh[self] && lease[me] == OLD -> lease[me] = OPEN
                :: else
                fi;
                fresh[self] = false
            }
            poke(me)
        :: else
        fi;
        goto again
    } unless { life[me] != ALIVE }

    atomic { next = 0; who = 0; shut = 0; ok = false; fresh[self] = false;
        down[me] = true }
end_dead:
    life[me] == ALIVE && thread[self] == RUNS;
    goto again;
end:
    skip
}

/* ---- kill -9 and SIGSTOP, at any instruction. The kernel drops the locks of the dead ---- */
#define FREE(x) if :: lock[x] == 1 + k -> lock[x] = 0 :: else fi;
#ifdef ONLY /* this one is the victim; 1 and 2 are alike */
#define VICTIM(x) :: x == ONLY && life[x] == ALIVE && thread[x] != GONE -> k = x
#else
#define VICTIM(x) :: life[x] == ALIVE && thread[x] != GONE -> k = x
#endif

proctype fate()
{
    byte k;
    do
    :: atomic {
            kills > 0 -> kills--;
            if EACH(VICTIM) :: else -> goto no_more fi;
            life[k] = DEAD; down[k] = false;
            thread[k] = GONE; thread[KEEPER(k)] = GONE;
            EACH(FREE)
            lease[k] = OLD; inside[k] = false; taken[k] = false;
            news[k] = false; news[KEEPER(k)] = false; used[k] = false; late[k] = false;
            reads[k] = false; reads[KEEPER(k)] = false;
            fresh[k] = false; fresh[KEEPER(k)] = false; k = 0
        }
    :: atomic {
            stops > 0 -> stops--;
            if EACH(VICTIM) :: else -> goto no_more fi;
            life[k] = STOPPED; thread[k] = GONE; thread[KEEPER(k)] = GONE; k = 0
        }
    :: break
    od;
no_more:
    skip
}

#if TIMERS
/* When nobody runs, the timers of all who wait fire. Nothing may need more than so many of these in
 * a row without a submission. */
#define AT_REST(k) && thread[k] != RUNS && thread[KEEPER(k)] != RUNS
#define ASLEEP(k) || thread[k] == SLEEPS
#define ROUSE(k) if :: thread[k] == SLEEPS -> thread[k] = RUNS; reads[k] = false :: else fi; \
    if :: thread[KEEPER(k)] == SLEEPS && token == k && lease[k] != OPEN && OTHERS_WAIT(k) -> \
        late[k] = true; thread[KEEPER(k)] = RUNS; reads[KEEPER(k)] = false :: else fi;
proctype timers()
{
end:
    do
    :: atomic { true EACH(AT_REST) && (false EACH(ASLEEP)) ->
            ticks++;
            assert(ticks <= TICKS);
            EACH(ROUSE)
        }
    od
}
#endif

#define BEGIN(k) attached[k] = true; joined[k] = true; lock[k] = 1 + k; \
    run submitter(k, k); run keeper(k, KEEPER(k));
#ifdef M_PLAIN
#define BUFFERS(k) run buffer(k, k); run buffer(KEEPER(k), k);
#endif
init
{
    atomic {
#ifdef HELD
        token = 0; lease[0] = OPEN;
#endif
#ifdef QUEUED
        waiting[1] = true; thread[1] = SLEEPS; waiting[CLIENTS - 1] = true;
        thread[CLIENTS - 1] = SLEEPS; bytes[1] = true; bytes[CLIENTS - 1] = true;
#endif
        EACH(BEGIN)
#ifdef M_PLAIN
        EACH(BUFFERS)
#endif
#if KILLS || STOPS
        run fate();
#endif
#if TIMERS
        run timers();
#endif
        skip
    }
}
