/*
 * guard: the circle in which clients look after each other (see guard.h). Owns guard_ns. Run by
 * keepers, but for guard_has. Reaps; must never judge by a notice alone: the lock decides.
 *
 * A keeper walks from its own slot to the next ones that are in use and sleeps on their death
 * words, until it has two that are awake, that is, whose keepers said within 2.5 s that they sleep
 * likewise (guard_ns). So a client has two guards that are awake, also where some in between are
 * stopped for hours, and one of them may stop or die at any moment.
 *
 * Any number may die at once. In the order of slots the dead form rows, and before each row stands
 * somebody alive, who sleeps on the word of its first. The kernel wakes one sleeper per word; who
 * is woken wakes the others, and all look. Who looks passes over the dead to the next ones, so it
 * gets to the end of the row: who is not marked yet is slept on. Reaping moves the token on if the
 * dead one held it (slot.c). A granter that died between moving the token and waking its new holder
 * (ring.c, G2 to G4) is found the same way: the reaper wakes a holder that has not claimed.
 *
 * A newcomer calls the two before it once its word has its value. One that dies before that call
 * has had no turn. One that leaves wakes who sleeps on its word, so that they walk anew. Each walks
 * anew once a second besides, which is the end of every stale choice.
 *
 * What is left to looks: two neighbours that stop within 2.5 s, and then a death behind them; a
 * notice that a damaged file swallows.
 */
#include "guard.h"

#include <limits.h>
#include <stdatomic.h>

#include "clock.h"
#include "notice.h"
#include "slot.h"
#include "watch.h"

#define GUARD_TWO 2u
#define GUARD_SAY_NS CLOCK_S
#define GUARD_AWAKE_NS (2500 * CLOCK_MS)
/* The first looks at the lock of one said to be dead; later ones are further apart, by this part of
 * the time since, up to the way of one that takes long to die, or does not. */
#define GUARD_FIRST_NS (20 * CLOCK_US)
#define GUARD_SHARE 4
#define GUARD_LONG_NS (30 * CLOCK_S)
#define GUARD_SELDOM_NS (250 * CLOCK_MS)

/* The next slot in use, after `slot` or before it; `slot` when there is no other. */
static unsigned guard_next(const struct cuslice_segment *shared, unsigned slot, bool before)
{
    for (unsigned k = 1; k < CUSLICE_SLOTS; k++) {
        unsigned at = (before ? slot - k : slot + k) % CUSLICE_SLOTS;
        uint64_t word = atomic_load_explicit(&shared->attached[at / 64], memory_order_relaxed);
        if (word == 0)
            k += before ? at % 64 : 63 - at % 64;
        else if (word >> (at % 64) & 1)
            return at;
    }
    return slot;
}

static bool guard_awake(const struct cuslice_slot *s, uint64_t now)
{
    uint64_t said = atomic_load(&s->guard_ns);
    return said && said + GUARD_AWAKE_NS > now && !notice_given(s);
}

unsigned guard_words(const struct ring *ring, struct futex_watch word[GUARD_WORDS])
{
    const struct cuslice_segment *shared = ring_shared(ring);
    unsigned at = ring->slot, awake = 0, n = 0;
    uint64_t now = clock_now();
    for (unsigned k = 0; k < CUSLICE_SLOTS && n < GUARD_WORDS && awake < GUARD_TWO; k++) {
        at = guard_next(shared, at, false);
        if (at == ring->slot)
            break;
        n += notice_word(&shared->slot[at], &word[n]);
        awake += guard_awake(&shared->slot[at], now);
    }
    return n;
}

/* Reaps who is dead among those that the walk comes to, with the dead among the waiting: a
 * container dies as a whole. */
static void guard_reap(struct ring *ring, unsigned slot)
{
    struct cuslice_segment *shared = ring_shared(ring);
    if (slot_dead(&ring->segment, slot) != 1)
        return;
    slot_reap_set(&ring->segment, shared->waiting, slot);
    slot_reap(&ring->segment, slot);
    uint64_t token = ring_token(ring);
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    if (holder < CUSLICE_SLOTS &&
        atomic_load(&shared->slot[holder].claimed_epoch) != CUSLICE_TOKEN_EPOCH(token))
        ring_poke(shared, holder);
}

static uint64_t guard_period(const struct guard *guard, uint64_t now)
{
    uint64_t since = now - guard->said_ns, period = since / GUARD_SHARE;
    uint64_t most = since < GUARD_LONG_NS ? WATCH_NS : GUARD_SELDOM_NS;
    return period < GUARD_FIRST_NS ? GUARD_FIRST_NS : period < most ? period : most;
}

uint64_t guard_look(struct ring *ring, struct guard *guard)
{
    const struct cuslice_segment *shared = ring_shared(ring);
    unsigned at = ring->slot, awake = 0;
    uint64_t said = 0, now = clock_now();
    bool due = guard->said == 0 || now >= guard->next_ns;
    for (unsigned k = 0; k < CUSLICE_SLOTS && awake < GUARD_TWO; k++) {
        at = guard_next(shared, at, false);
        if (at == ring->slot)
            break;
        awake += guard_awake(&shared->slot[at], now);
        if (!notice_given(&shared->slot[at]))
            continue;
        if (due)
            guard_reap(ring, at);
        said = said * CUSLICE_SLOTS + at + 1;
    }
    if (said != guard->said)
        guard->said_ns = now;
    guard->said = said;
    if (due)
        guard->next_ns = now + guard_period(guard, now);
    return said ? guard->next_ns : CLOCK_NEVER;
}

void guard_say(struct ring *ring, bool able)
{
    struct cuslice_slot *me = ring_me(ring);
    uint64_t now = clock_now(), said = atomic_load_explicit(&me->guard_ns, memory_order_relaxed);
    if (!able && said)
        atomic_store(&me->guard_ns, 0);
    else if (able && (said > now || said + GUARD_SAY_NS <= now))
        atomic_store(&me->guard_ns, now);
}

void guard_begin(const struct ring *ring)
{
    struct cuslice_segment *shared = ring_shared(ring);
    unsigned at = ring->slot;
    for (unsigned k = 0; k < GUARD_TWO; k++) {
        at = guard_next(shared, at, true);
        if (at == ring->slot)
            return;
        ring_call(shared, at);
    }
}

/* The walk of guard_words backwards: how many come as far as `slot`. */
bool guard_has(const struct ring *ring, unsigned slot)
{
    const struct cuslice_segment *shared = ring_shared(ring);
    unsigned at = slot, awake = 0;
    uint64_t now = clock_now();
    for (unsigned k = 0; k < GUARD_WORDS && awake < GUARD_TWO; k++) {
        at = guard_next(shared, at, true);
        if (at == slot)
            return awake > 0; /* all the others there are */
        awake += guard_awake(&shared->slot[at], now);
    }
    return awake == GUARD_TWO;
}
