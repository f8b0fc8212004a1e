/*
 * guard: the circle in which clients look after each other (see guard.h). Owns guard_ns. Run by
 * keepers, but for guard_has. Reaps; must never judge by a notice alone: the lock decides.
 *
 * A keeper walks from its own slot to the next ones that are in use and sleeps on their death
 * words, until it has two that are awake, that is, whose keepers said within 2.5 s that they sleep
 * likewise (guard_ns), and whose own deaths are told of. So a client has two guards that are awake,
 * also where some in between are stopped for hours, and one of them may stop or die at any moment.
 *
 * Any number may die at once. In the order of slots the dead form rows, and before each row stands
 * somebody alive, who sleeps on the word of its first. The kernel wakes one sleeper per word; who
 * is woken wakes the others, and all look. Who looks passes over the dead to the next ones, so it
 * gets to the end of the row: who is not marked yet is slept on. Reaping moves the token on if the
 * dead one held it (slot.c). A granter that died between moving the token and waking its new holder
 * (ring.c, G2 to G4) is found the same way: the reaper wakes a holder that has not claimed.
 *
 * A newcomer calls those before it, up to two that are awake, once its word has its value. One that
 * dies before that call has had no turn. One that leaves wakes who sleeps on its word, so that they
 * walk anew, and no longer counts as awake. Each walks anew once a second besides, which is the end
 * of every stale choice.
 *
 * What is left to looks: a neighbour that is frozen, or two that stop, within the last 3.5 s, and
 * then a death behind them; a notice that a damaged file swallows.
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
/* One that takes longer to die, or does not, is looked at this seldom. */
#define GUARD_LONG_NS (30 * CLOCK_S)
#define GUARD_SELDOM_NS (250 * CLOCK_MS)

/* The next slot in use, after `slot` or before it; `slot` when there is no other. */
static unsigned guard_next(const struct cuslice_segment *shared, unsigned slot, bool before)
{
    unsigned from = (before ? slot - 1 : slot + 1) % CUSLICE_SLOTS, bit = from % 64;
    uint64_t part = before ? UINT64_MAX >> (63 - bit) : UINT64_MAX << bit;
    for (unsigned k = 0; k <= CUSLICE_SLOT_WORDS; k++, part = UINT64_MAX) {
        unsigned w = (before ? from / 64 - k : from / 64 + k) % CUSLICE_SLOT_WORDS;
        uint64_t set = atomic_load_explicit(&shared->attached[w], memory_order_relaxed) & part;
        if (set)
            return w * 64 +
                   (before ? 63u - (unsigned)__builtin_clzll(set) : (unsigned)__builtin_ctzll(set));
    }
    return slot;
}

bool guard_awake(const struct cuslice_slot *s, uint64_t now)
{
    uint64_t said = atomic_load(&s->guard_ns);
    struct futex_watch word;
    return said && said <= now && said + GUARD_AWAKE_NS > now && notice_word(s, &word);
}

/* A keeper's way to those that it guards. */
struct guard_walk {
    uint64_t now;
    unsigned at, steps, living, awake;
};

static struct guard_walk guard_begin_walk(const struct ring *ring)
{
    return (struct guard_walk){.now = clock_now(), .at = ring->slot};
}

/* To the next; false at the end. The dead are passed over, however many. */
static bool guard_step(const struct ring *ring, struct guard_walk *walk)
{
    if (walk->awake == GUARD_TWO || walk->living == GUARD_WORDS || ++walk->steps == CUSLICE_SLOTS)
        return false;
    walk->at = guard_next(ring_shared(ring), walk->at, false);
    const struct cuslice_slot *s = &ring_shared(ring)->slot[walk->at];
    walk->living += !notice_given(s);
    walk->awake += guard_awake(s, walk->now);
    return walk->at != ring->slot;
}

unsigned guard_words(const struct ring *ring, struct futex_watch word[GUARD_WORDS])
{
    struct guard_walk walk = guard_begin_walk(ring);
    unsigned n = 0;
    while (n < GUARD_WORDS && guard_step(ring, &walk))
        n += notice_word(&ring_shared(ring)->slot[walk.at], &word[n]);
    return n;
}

/* Not when it has not changed: two guards would wake each other for ever. */
void guard_pass_on(const struct futex_watch *word)
{
    if (atomic_load(word->word) != word->expected)
        futex_wake(word->word, INT_MAX);
}

static bool guard_lapsed(const struct cuslice_slot *s, uint64_t now)
{
    uint64_t said = atomic_load(&s->guard_ns);
    return said && said + GUARD_AWAKE_NS <= now && !notice_given(s);
}

/* Takes those off the words behind them that are awake no longer: who was frozen in its sleep (by
 * the freezer of cgroup v1) still stands first there, and the one wake-up would be its. */
static void guard_relieve(const struct ring *ring)
{
    struct guard_walk walk = guard_begin_walk(ring);
    bool behind = false;
    while (guard_step(ring, &walk)) {
        const struct cuslice_slot *s = &ring_shared(ring)->slot[walk.at];
        if (behind)
            futex_wake(&s->death, INT_MAX);
        behind = behind || guard_lapsed(s, walk.now);
    }
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
    uint64_t since = now - guard->said_ns;
    return notice_period(since, since < GUARD_LONG_NS ? WATCH_NS : GUARD_SELDOM_NS);
}

uint64_t guard_look(struct ring *ring, struct guard *guard)
{
    struct guard_walk walk = guard_begin_walk(ring);
    uint64_t said = 0, lapsed = 0, now = walk.now;
    bool due = guard->said == 0 || now >= guard->next_ns;
    while (guard_step(ring, &walk)) {
        if (guard_lapsed(&ring_shared(ring)->slot[walk.at], now))
            lapsed = lapsed * CUSLICE_SLOTS + walk.at + 1;
        if (!notice_given(&ring_shared(ring)->slot[walk.at]))
            continue;
        if (due)
            guard_reap(ring, walk.at);
        said = said * CUSLICE_SLOTS + walk.at + 1;
    }
    if (lapsed && lapsed != guard->lapsed)
        guard_relieve(ring);
    guard->lapsed = lapsed;
    bool changed = said != guard->said;
    if (changed)
        guard->said_ns = now;
    guard->said = said;
    if (due || changed) /* one more is looked at soon, however long another takes */
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
    unsigned at = ring->slot, awake = 0;
    uint64_t now = clock_now();
    for (unsigned k = 0; k < GUARD_WORDS && awake < GUARD_TWO; k++) {
        at = guard_next(shared, at, true);
        if (at == ring->slot)
            return;
        ring_call(shared, at);
        awake += guard_awake(&shared->slot[at], now);
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
