/*
 * watch: the observer of a turn (see watch.h). Run by threads that wait at a gate and by keepers.
 * Owns what each remembers between two looks; moves the token off a holder that is dead, absent or
 * overdue, and never for less: death is what the lock says, slowness what several close looks have
 * seen. The steps D, A, V and N3 are those of the essay in ring.c.
 */
#include "watch.h"

#include <stdatomic.h>
#include <string.h>

#include "clock.h"
#include "guard.h"
#include "limit.h"
#include "log.h"
#include "notice.h"
#include "paging.h"
#include "slot.h"

/* How often those look who stand further back. */
#define WATCH_FAR_NS (250 * CLOCK_MS)
/* A look that comes this late tells that the observer did not run. */
#define WATCH_LATE_NS (8 * WATCH_NS)
#define WATCH_LOOKS 4
/* How often a holder's lock is looked at although the kernel would tell of its death. */
#define WATCH_ASK_NS (100 * CLOCK_MS)

/* How many others stand before this client among the waiting, in the order of slots. Those that
 * their limits hold back do not watch. */
static unsigned watch_rank(const struct ring *ring, uint64_t now)
{
    uint64_t before[CUSLICE_SLOT_WORDS];
    unsigned rank = 0, words = ring->slot / 64 + 1;
    ring_waiting(ring_shared(ring), before);
    before[words - 1] &= ring_bit(ring) - 1;
    memset(&before[words], 0, (CUSLICE_SLOT_WORDS - words) * sizeof before[0]);
    limit_strike(ring_shared(ring), before, now);
    for (unsigned w = 0; w < words; w++)
        rank += (unsigned)__builtin_popcountll(before[w]);
    return rank;
}

static bool watch_is_other(const struct ring *ring, unsigned holder)
{
    return holder < CUSLICE_SLOTS && holder != ring->slot;
}

bool watch_noticed(const struct ring *ring, uint64_t token)
{
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    return watch_is_other(ring, holder) && notice_given(&ring_shared(ring)->slot[holder]);
}

static bool watch_has_word(const struct ring *ring, uint64_t token, struct futex_watch *word)
{
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    return watch_is_other(ring, holder) && notice_word(&ring_shared(ring)->slot[holder], word);
}

/* Whether the holder of `token` knows of its turn, and that somebody waits, and has guards who are
 * told of its death: then who waits need not look for that. One that has not claimed may have been
 * granted by somebody who died before he could wake it; one whose keeper is not armed may have lost
 * the thread that found the token and was to tell it. */
static bool watch_guarded(const struct ring *ring, uint64_t token)
{
    uint64_t epoch = CUSLICE_TOKEN_EPOCH(token);
    const struct cuslice_slot *s =
        &ring_shared(ring)->slot[CUSLICE_TOKEN_HOLDER(token) % CUSLICE_SLOTS];
    struct futex_watch word;
    return watch_has_word(ring, token, &word) && atomic_load(&s->claimed_epoch) == epoch &&
           atomic_load(&s->armed_epoch) == epoch && guard_has(ring, CUSLICE_TOKEN_HOLDER(token));
}

bool watch_word(const struct ring *ring, uint64_t token, struct futex_watch *word)
{
    return watch_has_word(ring, token, word) &&
           (ring_clients(ring) <= 2 || !guard_has(ring, CUSLICE_TOKEN_HOLDER(token)));
}

/* N3: until the kernel has dropped the lock, or the notice has proved wrong. At once for a
 * turn only once, whatever the word says. */
uint64_t watch_told(struct watch *watch, uint64_t token, uint64_t now)
{
    if (watch->told != token) {
        watch->told = token;
        watch->told_ns = now;
        return 0;
    }
    return notice_period(now - watch->told_ns, WATCH_NS);
}

/* When the turn is longer than any may be, as this observer sees it. */
static uint64_t watch_overdue(struct cuslice_segment *shared, const struct watch *watch)
{
    unsigned holder = CUSLICE_TOKEN_HOLDER(watch->token);
    const struct cuslice_slot *s = &shared->slot[holder];
    uint64_t end = watch->since_ns, slice = paging_slice(shared, holder), latest = end + slice;
    if (atomic_load(&s->grant_epoch) == CUSLICE_TOKEN_EPOCH(watch->token)) {
        uint64_t slice_end = atomic_load(&s->grant_ns) + slice;
        slice_end = slice_end > latest ? latest : slice_end;
        end = slice_end > end ? slice_end : end;
    } else {
        end = latest;
    }
    return end + segment_allowance(shared) + WATCH_GRACE_NS + watch->lost_ns;
}

/* Of a holder that has guards only its slowness is left to see: from some looks before it is
 * overdue, by those further back a little later each. */
static uint64_t watch_guarded_period(uint64_t overdue, unsigned rank, uint64_t now)
{
    uint64_t from = overdue + rank * WATCH_NS - (WATCH_LOOKS + 1) * WATCH_NS;
    uint64_t period = from > now + WATCH_NS ? from - now : WATCH_NS;
    return period < WATCH_FAR_NS ? period : WATCH_FAR_NS;
}

/* The further back, the more seldom; but who finds the holder overdue looks closely, since only
 * close looks may blame, and those in front may have stopped too. */
uint64_t watch_period(const struct ring *ring, struct watch *watch, uint64_t token, uint64_t now)
{
    unsigned rank = watch_rank(ring, now);
    if ((rank == 0 || watch->told == token) && watch_noticed(ring, token))
        return watch_told(watch, token, now);
    bool known = CUSLICE_TOKEN_HOLDER(token) < CUSLICE_SLOTS && token == watch->token;
    uint64_t overdue = known ? watch_overdue(ring_shared(ring), watch) : CLOCK_NEVER;
    if (now > overdue)
        return WATCH_NS;
    /* A limit may hold it back soon, and then let it go: nobody wakes it for that. */
    if (known && !ring_limited(ring) && watch_guarded(ring, token))
        return watch_guarded_period(overdue, rank, now);
    return rank < 6 ? WATCH_NS << rank : WATCH_FAR_NS;
}

/* Takes one look's time into account; false while the looks are too few to blame anybody. A look
 * that comes later than it was meant to is the observer's own absence. */
static bool watch_time(struct watch *watch, uint64_t now)
{
    uint64_t gap = now - watch->last_ns;
    uint64_t due = watch->due_ns > watch->last_ns ? watch->due_ns : watch->last_ns;
    bool late = now > due + WATCH_LATE_NS;
    watch->last_ns = now;
    watch->due_ns = 0;
    if (late)
        watch->lost_ns += gap;
    watch->looks = gap > WATCH_LATE_NS ? 0 : watch->looks + 1;
    return watch->looks >= WATCH_LOOKS;
}

static void watch_strike(struct cuslice_segment *shared, unsigned slot)
{
    atomic_fetch_and(&shared->waiting[slot / 64], ~(UINT64_C(1) << (slot % 64)));
}

/* A granter may have seen the bit of a client that has left or been reaped meanwhile. */
static bool watch_absent(struct cuslice_segment *shared, unsigned slot)
{
    return atomic_load(&shared->slot[slot].joined_ns) == 0 ||
           !(atomic_load(&shared->attached[slot / 64]) >> (slot % 64) & 1);
}

/* The holder is struck from the waiting as well: one that does not move must not be given the next
 * turns too. When it moves again its threads, woken here, say that they wait. */
static bool watch_revoke(struct ring *ring, uint64_t token, uint64_t now)
{
    struct cuslice_segment *shared = ring_shared(ring);
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    char name[CUSLICE_TEXT];
    ring_holder_name(ring, name, sizeof name);
    slot_charge(shared, holder, CUSLICE_TOKEN_EPOCH(token), now);
    watch_strike(shared, holder);
    bool revoked = ring_grant(shared, token, now);
    ring_poke(shared, holder);
    if (!revoked)
        return false;
    slot_count(shared, holder, revocations, 1);
    slot_count(shared, holder, overruns, 1);
    log_info("revoked", "%s did not give the GPU back in time; the next client goes on", name);
    return true;
}

/* What it was told of stays: a wrong notice is looked into once. */
static void watch_afresh(struct watch *watch, uint64_t token, uint64_t since, uint64_t now)
{
    *watch = (struct watch){.token = token,
                            .since_ns = since,
                            .last_ns = now,
                            .told = watch->told,
                            .told_ns = watch->told_ns,
                            .asked_ns = watch->asked_ns};
}

/* While only the holder itself wants the token, it may hold it as long as it likes. */
static bool watch_wanted(struct cuslice_segment *shared, struct watch *watch, unsigned holder,
                         uint64_t now)
{
    if (ring_others_wait(shared, holder, now))
        return true;
    watch_afresh(watch, watch->token, now, now);
    return false;
}

/* Since when the turn that is seen for the first time keeps this client waiting: from its
 * beginning, if it waited by then and this look is not late. */
static uint64_t watch_since(const struct ring *ring, const struct watch *watch, uint64_t token,
                            uint64_t now)
{
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    const struct cuslice_slot *s = &ring_shared(ring)->slot[holder % CUSLICE_SLOTS];
    uint64_t granted = atomic_load(&s->grant_ns);
    uint64_t since = atomic_load(&ring_me(ring)->waiting_since_ns);
    bool waited = since && since <= granted && granted < now && watch->due_ns &&
                  now <= watch->due_ns + WATCH_LATE_NS;
    return waited && atomic_load(&s->grant_epoch) == CUSLICE_TOKEN_EPOCH(token) ? granted : now;
}

/* Whether the holder is dead, by its lock. One that the kernel will say is dead, and has not, is
 * not asked for at each look: that opens the file. Its word may be a damaged file's, so from time
 * to time it is. */
static bool watch_dead(struct ring *ring, struct watch *watch, unsigned holder, uint64_t now)
{
    struct futex_watch word;
    if (notice_word(&ring_shared(ring)->slot[holder], &word) && now < watch->asked_ns)
        return false;
    watch->asked_ns = now + WATCH_ASK_NS;
    return slot_dead(&ring->segment, holder) == 1;
}

/* Death and absence show at the first look at a token, slowness only after several. */
static bool watch_holder(struct ring *ring, struct watch *watch, bool first, uint64_t now)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t token = watch->token;
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    bool may_blame = !first && watch_time(watch, now);
    if (holder == ring->slot)
        return false;
    if (holder >= CUSLICE_SLOTS)
        return ring_grant(shared, token, now);
    if (watch_dead(ring, watch, holder, now)) {
        slot_reap_set(&ring->segment, shared->waiting, holder);
        return slot_reap(&ring->segment, holder) == 0;
    }
    if (watch_absent(shared, holder)) {
        watch_strike(shared, holder);
        bool moved = ring_grant(shared, token, now);
        ring_poke(shared, holder); /* one may have joined there meanwhile: it says again */
        return moved;
    }
    if (!first && atomic_load(&shared->slot[holder].claimed_epoch) != CUSLICE_TOKEN_EPOCH(token))
        ring_poke(shared, holder);
    return watch_wanted(shared, watch, holder, now) && may_blame &&
           now > watch_overdue(shared, watch) && watch_revoke(ring, token, now);
}

bool watch_look(struct ring *ring, struct watch *watch)
{
    uint64_t now = clock_now(), token = ring_token(ring);
    bool first = token != watch->token || watch->since_ns == 0;
    watch->heard_ns = 0;
    if (first)
        watch_afresh(watch, token, watch_since(ring, watch, token, now), now);
    return watch_holder(ring, watch, first, now) || first;
}

uint64_t watch_after(struct ring *ring, struct watch *watch)
{
    uint64_t token = ring_token(ring), now = clock_now();
    if (watch_noticed(ring, token))
        return watch_told(watch, token, now);
    if (token != watch->token || !watch_guarded(ring, token))
        return WATCH_NS;
    uint64_t period = watch_guarded_period(watch_overdue(ring_shared(ring), watch), 0, now);
    watch->due_ns = now + period;
    return period;
}
