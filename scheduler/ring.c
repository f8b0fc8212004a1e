/*
 * ring: the token's way from process to process (see ring.h). Runs in threads that wait at a gate
 * and in keepers; takes no lock, and leaves nothing half-done that the next reader cannot finish.
 *
 * THE PROTOCOL
 * The token word is (epoch, holder). Whoever moves it adds one to the epoch by a compare-exchange
 * on the exact old word, so of two movers one wins, and a lease taken under an old word never
 * equals the word again. Steps, each one atomic instruction:
 *
 *   Waiter   W0 read my wake word                Granter  G1 write grant time to next slot
 *            W1 set my bit in `waiting`                   G2 compare-exchange the token
 *            W2 load the token: mine? free?               G3 add 1 to the next slot's wake words
 *            W3 (another's) is its keeper armed?          G4 futex wake: its threads, its keeper
 *               else G3, G4, its keeper alone    Releaser R1 compare-exchange to (e+1, nobody)
 *            W4 futex wait on my wake word                R2 scan `waiting`; anybody: grant
 *            W5 (mine) clear my bit, then open   Keeper   K1 disarm
 *            W6 (giving up) clear my bit, wake            K2 scan `waiting`; nobody: sleep
 *               my keeper, who looks at the token         K3 arm; end the slice in time
 *   Reaper   D1 lock the dead slot's byte        Joiner   J1 lock a slot's byte
 *            D2 clear its bit                             J2 clear the slot: D2 to D5
 *            D3 its token: grant or free                  J3 mark it in use
 *            D4 its bytes and the rest                    J4 wake the holder's keeper
 *            D5 clear the mark that it is in use Revoker  V1 clear the holder's bit
 *            D6 unlock                                    V2 grant or free; V3 wake the holder
 *   Watcher  A1 (the holder's slot is empty) clear its bit, A2 grant or free
 *   Keeper   N1 write my id to my death word     Kernel   N2 (that thread ends) mark it, wake one
 *   Guard or waiter  N3 (its sleep ends by it) look at the lock, and again: a reaper once it is
 * gone
 *
 * tests/model/ring.pml is these steps in Promela, tests/model/gate.pml those of the gate (E, C, O
 * in hooks/gate.c); `make check-model` visits every interleaving of them for a few clients, and
 * takes out one order after the other to see that it is missed. tests/model/README.md says what
 * that shows and what not.
 *
 * No lost wake-up: W1 before W2 and R1 before R2 are sequentially consistent, so either the
 * releaser sees the bit or the waiter sees the free token. W1 before W3, and a keeper's disarm
 * before its scan (ring_arm), likewise: K1 before K2. W0 comes before W1, so that a G3 in between
 * makes W4 return at once. None of this needs the timed end of W4. What does: a death (below); A1
 * of a watcher that was stopped, which strikes the bit of a client that has joined there since; a
 * claim (W5) by another thread of the same process, whose turn then ends before this one looks
 * (W2).
 *
 * Close looks. A holder that is about to pass says when it expects to (due_ns) and wakes the
 * client that is likely to be next. One thread of that one sets `looking` and reads the token again
 * and again. A passer that finds the flag after G2 does G3 without G4: who sees the token move
 * tells the rest of its process itself. The flag comes down before that thread's last look at the
 * token; flag and token are sequentially consistent on both sides, so either it sees the new token,
 * or the passer sees no flag and wakes. A thread that dies or stops with the flag up is found as
 * any holder is that does not claim; whoever joins in its slot takes the flag down.
 *
 * Death. Before G2: nothing happened. After G2, before G4: the granted client sleeps on; who reaps
 * the granter sees a token that its holder has not claimed and does G3, G4 again, and so does
 * whoever watches; the granted client's own W4 has an end too. After R1, before R2: the next look
 * of any waiter finds the token free and grants it. A holder's death is seen by its lock (slot.h)
 * at the first look of anybody after it. Its guards look as soon as the kernel tells them (N2, N3;
 * guard.h); while they are awake, who waits looks four times a second. Else the first of those who
 * wait looks every WATCH_NS, and so does the client that passed the token last, as long as its
 * successor's turn goes on; each further one half as often as the one before it, in case these are
 * dead as well. Who finds the holder dead clears away the dead among the waiting before the token
 * goes on: a container dies as a whole. A reaper that dies is followed by another. A granter that
 * saw the bit of a client which then left names an empty slot; the next look moves the token on and
 * clears the bit.
 *
 * Notices. The kernel marks a client's death word (N2) as it begins to take the process apart, and
 * drops the lock when that is done, so whoever is told looks at the lock at once and then at
 * intervals of a quarter of the time since, until these are WATCH_NS: not much later than it
 * falls, however large the process was. Only the lock reaps; the word is cleared behind D5, so that
 * a reaper which dies leaves it to be seen. Where the holder has no guards, who
 * sleeps in W4 sleeps on the holder's death word as well. A notice is but one more reason for W4 to
 * end, which it may at any time, so it can break nothing that is said here; a wrong one costs some
 * thirty looks in a turn, with a sleep before each but the first. One sleeper is woken. If it is
 * dead or stopped too, if it sleeps on the word of an earlier holder, or where there is no
 * futex_waitv or no robust list, the looks above find what they find: at the word of a holder that
 * has one, which is marked before its lock falls, and ten times a second at its lock as well, in
 * case the word is damaged.
 *
 * A holder that lives but does not move is revoked: slice, allowance and grace after its grant,
 * or allowance and grace after somebody began to wait if that is later. Only close looks in a row
 * blame, and the observer counts its own absences out (struct watch), so that after a freeze
 * nobody is blamed; who looks seldom looks closely once the holder seems overdue. The revoked one
 * is struck from the waiting too, and woken: its threads ask again when they move, and until then
 * it is not given turns that would be waited for in vain.
 *
 * Limits. A client that its tenant's limit holds back stays among the waiting but is passed over,
 * is not looked for, and sleeps on its own timer until the limit lets it go on; then it does W2 and
 * W3 like one that has just come. A token that nobody may take stays free. What changes with time
 * alone is no store that could be missed: a keeper takes the time after its disarm, a waiter
 * after its timer, and of the two the later one sees the other.
 *
 * Classes. W3 wakes the keeper also when it is armed but of a lower class, since it then passes the
 * token at once.
 *
 * A late G1, of a granter that was stopped in between, may leave a wrong grant time in a slot; its
 * epoch then does not fit the token, and the holder takes its own time (ring_claim).
 */
#include "ring.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "class.h"
#include "clock.h"
#include "guard.h"
#include "histogram.h"
#include "limit.h"
#include "log.h"
#include "notice.h"
#include "paging.h"
#include "policy.h"
#include "slot.h"
#include "waiters.h"
#include "watch.h"

/* Passes that are further off than this are not waited for closely. */
#define RING_SOON_NS (5 * CLOCK_MS)
/* A pass that is put off by more than this is told of again. */
#define RING_AGAIN_NS CLOCK_MS
/* How often the expected time of a pass may move on while one waits for it closely. */
#define RING_CLOSE_TRIES 32u

#define RING_LAST_EPOCH ((UINT64_C(1) << 48) - 1)

void ring_waiting(const struct cuslice_segment *shared, uint64_t set[CUSLICE_SLOT_WORDS])
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        set[w] = atomic_load(&shared->waiting[w]);
}

bool ring_others_wait(struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    uint64_t set[CUSLICE_SLOT_WORDS];
    ring_waiting(shared, set);
    set[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
    return limit_spares(shared, set, now);
}

void ring_wake(struct cuslice_segment *shared, unsigned slot)
{
    atomic_fetch_add(&shared->slot[slot].wake, 1); /* G3 */
    futex_wake(&shared->slot[slot].wake, INT_MAX); /* G4 */
}

void ring_call(struct cuslice_segment *shared, unsigned slot)
{
    atomic_fetch_add(&shared->slot[slot].call, 1); /* G3 */
    futex_wake(&shared->slot[slot].call, INT_MAX); /* G4 */
}

void ring_poke(struct cuslice_segment *shared, unsigned slot)
{
    ring_wake(shared, slot);
    ring_call(shared, slot);
}

void ring_wake_waiting(struct cuslice_segment *shared)
{
    uint64_t set[CUSLICE_SLOT_WORDS];
    ring_waiting(shared, set);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (; set[w]; set[w] &= set[w] - 1)
            ring_wake(shared, w * 64 + (unsigned)__builtin_ctzll(set[w]));
}

/* 0 is no epoch: a word that was wiped must not look like a turn of slot 0. */
static uint64_t ring_next_epoch(uint64_t token)
{
    uint64_t epoch = CUSLICE_TOKEN_EPOCH(token);
    return epoch < RING_LAST_EPOCH ? epoch + 1 : 1;
}

static bool ring_move(struct cuslice_segment *shared, uint64_t old, unsigned next, bool below,
                      uint64_t now)
{
    uint64_t epoch = ring_next_epoch(old);
    if (atomic_load(&shared->token) != old) /* else G1 might spoil the turn of a later winner */
        return false;
    if (next < CUSLICE_SLOTS) { /* G1 */
        atomic_store(&shared->slot[next].grant_ns, now);
        atomic_store(&shared->slot[next].grant_epoch, epoch);
    }
    if (below)
        atomic_store(&shared->class_epoch, epoch);
    if (!atomic_compare_exchange_strong(&shared->token, &old, CUSLICE_TOKEN(epoch, next))) /* G2 */
        return false;
    atomic_store_explicit(&shared->passed_ns, now, memory_order_relaxed);
    return true;
}

bool ring_grant(struct cuslice_segment *shared, uint64_t old, uint64_t now)
{
    struct waiters waiters;
    unsigned after = CUSLICE_TOKEN_HOLDER(old);
    bool moved = false, below = class_below(shared, CUSLICE_TOKEN_EPOCH(old));
    waiters_look(&waiters, shared, now);
    unsigned next = policy_next(&waiters, after, &below);
    if (next == CUSLICE_NOBODY) {
        moved = after != CUSLICE_NOBODY && ring_move(shared, old, next, false, now); /* R1 */
        if (!moved)
            return false;
        old = CUSLICE_TOKEN(ring_next_epoch(old), CUSLICE_NOBODY);
        waiters_look(&waiters, shared, now); /* R2 */
        next = policy_next(&waiters, after, &below);
    }
    if (next == CUSLICE_NOBODY || !ring_move(shared, old, next, below, now))
        return moved;
    ring_poke(shared, next);
    return true;
}

void ring_evict(struct cuslice_segment *shared, unsigned slot, uint64_t now)
{
    for (unsigned tries = 0; tries < CUSLICE_SLOTS; tries++) {
        uint64_t token = atomic_load(&shared->token);
        if (CUSLICE_TOKEN_HOLDER(token) != slot)
            return;
        slot_charge(shared, slot, CUSLICE_TOKEN_EPOCH(token), now);
        ring_grant(shared, token, now);
    }
}

static int ring_enter(struct ring *ring, const struct tenant_spec *tenant)
{
    int slot = slot_join(&ring->segment, tenant);
    if (slot < 0) {
        log_error("ring-full", "no place in the ring %s: %s", ring->segment.path,
                  slot == -ENOSPC ? "256 clients or 128 tenants are there" : strerror(-slot));
        segment_close(&ring->segment);
        return slot;
    }
    ring->slot = (unsigned)slot;
    atomic_store(&ring->notice, 0);
    ring->tenant = atomic_load(&ring_me(ring)->tenant) % CUSLICE_TENANTS;
    uint64_t token = ring_token(ring);
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    if (holder < CUSLICE_SLOTS)
        ring_call(ring_shared(ring), holder);
    return 0;
}

int ring_join(struct ring *ring, const char *directory, const struct segment_spec *device,
              const struct tenant_spec *tenant)
{
    int rc = segment_open(&ring->segment, directory, device);
    if (rc < 0)
        return rc;
    const struct cuslice_segment *shared = ring_shared(ring);
    if (shared->quantum_ns != device->quantum_ns || shared->allowance_ns != device->allowance_ns)
        log_warn("ring-settings",
                 "the ring of %.*s already has a quantum of %.1f ms and an allowance "
                 "of %.0f ms; what is asked here is not used",
                 (int)sizeof shared->device_name, shared->device_name,
                 (double)segment_quantum(shared) / 1e6, (double)segment_allowance(shared) / 1e6);
    return ring_enter(ring, tenant);
}

int ring_join_private(struct ring *ring, const struct segment_spec *device,
                      const struct tenant_spec *tenant)
{
    int rc = segment_open_private(&ring->segment, device);
    return rc < 0 ? rc : ring_enter(ring, tenant);
}

void ring_leave(struct ring *ring)
{
    slot_leave(&ring->segment, ring->slot);
    segment_close(&ring->segment);
}

uint64_t ring_token(const struct ring *ring)
{
    return atomic_load(&ring_shared(ring)->token);
}

bool ring_holds(const struct ring *ring, uint64_t token)
{
    return CUSLICE_TOKEN_HOLDER(token) == ring->slot;
}

uint32_t ring_news(const struct ring *ring)
{
    return atomic_load(&ring_me(ring)->wake);
}

/* How long the holder's turn has gone on without being charged. */
static uint64_t ring_held(struct cuslice_segment *shared, unsigned holder, uint64_t now)
{
    if (holder >= CUSLICE_SLOTS)
        return 0;
    uint64_t from = atomic_load(&shared->slot[holder].grant_ns);
    uint64_t charged = atomic_load(&shared->slot[holder].charged_to_ns);
    from = charged > from ? charged : from;
    return from < now ? now - from : 0;
}

/* Says again what a damaged file may have lost: that this slot is in use, and whose it is. */
static void ring_heal(struct ring *ring, uint64_t now)
{
    struct cuslice_segment *shared = ring_shared(ring);
    struct cuslice_slot *me = ring_me(ring);
    unsigned word = ring->slot / 64;
    if (atomic_load(&me->tenant) != ring->tenant)
        atomic_store_explicit(&me->tenant, ring->tenant, memory_order_release);
    if (!(atomic_load(&ring_tenant(ring)->members[word]) & ring_bit(ring)))
        atomic_fetch_or(&ring_tenant(ring)->members[word], ring_bit(ring));
    if (!(atomic_load(&shared->attached[word]) & ring_bit(ring)))
        atomic_fetch_or(&shared->attached[word], ring_bit(ring));
    if (atomic_load(&me->joined_ns) == 0)
        atomic_store(&me->joined_ns, now);
    notice_heal(ring);
    if (!ring->pages && atomic_load(&me->slice_ns)) /* its debts would be larger than they can be */
        atomic_store(&me->slice_ns, 0);
    if (atomic_load(&me->last_grant_ns) > now) /* would never be this client's turn in its tenant */
        atomic_store(&me->last_grant_ns, 0);
}

void ring_want(struct ring *ring)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t waiting[CUSLICE_SLOT_WORDS], now = clock_now();
    unsigned holder = CUSLICE_TOKEN_HOLDER(ring_token(ring));
    ring_heal(ring, now); /* damage may come while one waits, and make it wait for ever */
    if (atomic_load(&shared->waiting[ring->slot / 64]) & ring_bit(ring))
        return;
    ring_waiting(shared, waiting);
    bool moment = now < ring->left_ns + segment_quantum(shared);
    policy_lift(shared, ring->slot, waiting, holder, ring_held(shared, holder, now),
                moment ? ring->owed : 0, now);
    atomic_store(&ring_me(ring)->waiting_since_ns, now);
    atomic_fetch_or(&shared->waiting[ring->slot / 64], ring_bit(ring)); /* W1 */
}

void ring_want_more(struct ring *ring)
{
    _Atomic(uint64_t) *word = &ring_shared(ring)->waiting[ring->slot / 64];
    if (atomic_load(word) & ring_bit(ring))
        return;
    atomic_store(&ring_me(ring)->waiting_since_ns, clock_now());
    atomic_fetch_or(word, ring_bit(ring)); /* W1 */
}

int ring_look(struct ring *ring, uint64_t *token)
{
    struct cuslice_segment *shared = ring_shared(ring);
    for (unsigned tries = 0; tries < CUSLICE_SLOTS; tries++) {
        uint64_t now_token = ring_token(ring); /* W2 */
        bool damaged =
            CUSLICE_TOKEN_EPOCH(now_token) == 0; /* no grant ever made it: held by nobody */
        if (ring_holds(ring, now_token) && !damaged) {
            *token = now_token;
            return 1;
        }
        if (CUSLICE_TOKEN_HOLDER(now_token) < CUSLICE_SLOTS && !damaged)
            return 0;
        if (!ring_grant(shared, now_token, clock_now()) && ring_token(ring) == now_token)
            return 0; /* free, and this client's limit holds it back */
    }
    return 0;
}

/* From the pass to the first thread that uses the token: the GPU has nothing to do meanwhile. */
static void ring_handover(struct cuslice_segment *shared, uint64_t now)
{
    uint64_t passed = atomic_load_explicit(&shared->passed_ns, memory_order_relaxed);
    if (passed == 0 || passed > now)
        return;
    atomic_fetch_add_explicit(&shared->handovers, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&shared->handover_ns, now - passed, memory_order_relaxed);
    atomic_fetch_add_explicit(&shared->idle_wanted_ns, now - passed, memory_order_relaxed);
    histogram_add(&shared->handover, now - passed);
}

/* How long the turn may be, written down for those who wait. */
static void ring_begin_pages(struct ring *ring, uint64_t now)
{
    if (ring->pages)
        paging_begin(ring_shared(ring), ring->slot, now);
    else if (atomic_load(&ring_me(ring)->slice_ns))
        atomic_store(&ring_me(ring)->slice_ns, 0);
}

void ring_claim(struct ring *ring, uint64_t token)
{
    struct cuslice_segment *shared = ring_shared(ring);
    struct cuslice_slot *me = ring_me(ring);
    uint64_t now = clock_now();
    atomic_store(&me->claimed_epoch, CUSLICE_TOKEN_EPOCH(token));
    atomic_store(&me->last_grant_ns, now);
    atomic_store(&ring_tenant(ring)->last_grant_ns, now);
    ring_begin_pages(ring, now);
    if (ring_token(ring) != token)
        return; /* that turn is over: the caller will find the gate closed */
    if (atomic_load(&me->grant_epoch) != CUSLICE_TOKEN_EPOCH(token)) { /* a late granter's G1 */
        atomic_store(&me->grant_ns, now);
        atomic_store(&me->grant_epoch, CUSLICE_TOKEN_EPOCH(token));
    }
    if (!(atomic_fetch_and(&shared->waiting[ring->slot / 64], ~ring_bit(ring)) & ring_bit(ring)))
        return; /* W5 was done by another thread */
    uint64_t since = atomic_exchange(&me->waiting_since_ns, 0);
    if (since == 0 || since >= now)
        return;
    slot_count(shared, ring->slot, waited_ns, now - since);
    histogram_add(&ring_tenant(ring)->wait, now - since);
    ring_handover(shared, now);
}

/* The keeper that is armed looks within a millisecond; too late for who ends its slice at once. */
static bool ring_must_poke(const struct ring *ring, uint64_t token)
{
    struct cuslice_segment *shared = ring_shared(ring);
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    return holder < CUSLICE_SLOTS && holder != ring->slot &&
           (atomic_load(&shared->slot[holder].armed_epoch) != CUSLICE_TOKEN_EPOCH(token) ||
            class_outranks(shared, ring->slot, holder));
}

void ring_rouse(struct ring *ring)
{
    uint64_t token = ring_token(ring);
    if (ring_must_poke(ring, token))
        ring_call(ring_shared(ring), CUSLICE_TOKEN_HOLDER(token)); /* W3 */
}

bool ring_waits(const struct ring *ring)
{
    return atomic_load(&ring_shared(ring)->waiting[ring->slot / 64]) & ring_bit(ring);
}

/* Sleeps until news or `until`, which is so near that the thread's timers must not be late. */
static void ring_nap(const struct ring *ring, uint32_t news, uint64_t until)
{
    int slack = clock_slack(1);
    futex_wait(&ring_me(ring)->wake, news, until);
    clock_give_slack(slack);
}

/* Sleeps until news, `until`, or a notice. */
static int ring_sleep(const struct ring *ring, uint64_t token, uint32_t news, uint64_t until)
{
    struct futex_watch word[2] = {{&ring_me(ring)->wake, news, false}};
    int rc = -ENOSYS;
    if (watch_word(ring, token, &word[1]))
        rc = futex_wait_many(word, 2, until);
    return rc == -ENOSYS ? futex_wait(word[0].word, news, until) : rc;
}

/* Its limit holds this client back: the token is no business of its own before `until`. */
static void ring_wait_limit(struct ring *ring, uint32_t news, struct watch *watch, uint64_t until,
                            uint64_t deadline_ns)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t waiting[CUSLICE_SLOT_WORDS], now;
    *watch = (struct watch){0};
    futex_wait(&ring_me(ring)->wake, news, until < deadline_ns ? until : deadline_ns);
    now = clock_now();
    if (limit_until(shared, ring_tenant(ring), now))
        return;
    unsigned holder = CUSLICE_TOKEN_HOLDER(ring_token(ring));
    ring_waiting(shared, waiting);
    policy_return(shared, ring->slot, waiting, holder, ring_held(shared, holder, now), now);
}

void ring_wait(struct ring *ring, uint32_t news, struct watch *watch, uint64_t deadline_ns)
{
    uint64_t token = ring_token(ring), now = clock_now();
    uint64_t until = ring_holds(ring, token) ? 0 : ring_limit_until(ring);
    if (until) {
        ring_wait_limit(ring, news, watch, until, deadline_ns);
        return;
    }
    ring_rouse(ring);
    uint64_t from = watch->heard_ns ? watch->heard_ns : now;
    uint64_t look = from + watch_period(ring, watch, token, now);
    watch->due_ns = look;
    bool known = watch_noticed(ring, token);
    look = look < deadline_ns ? look : deadline_ns;
    if (known && look < now + CLOCK_MS)
        ring_nap(ring, news, look);
    else
        ring_sleep(ring, token, news, look); /* W4 */
    if (!known && watch_noticed(ring, token))
        watch_told(watch, token, clock_now());
    /* News are for who waits to look at, the holder once that has not been for a while. */
    else if (ring_news(ring) != news) {
        watch->heard_ns = watch->heard_ns ? watch->heard_ns : now;
        if (clock_now() < watch->heard_ns + WATCH_NS)
            return;
    }
    watch_look(ring, watch);
}

int ring_unwant(struct ring *ring, uint64_t *token)
{
    atomic_fetch_and(&ring_shared(ring)->waiting[ring->slot / 64], ~ring_bit(ring));
    atomic_store(&ring_me(ring)->waiting_since_ns, 0);
    *token = ring_token(ring);
    ring_poke(ring_shared(ring), ring->slot);
    return ring_holds(ring, *token);
}

bool ring_wanted(const struct ring *ring)
{
    return ring_others_wait(ring_shared(ring), ring->slot, clock_now());
}

bool ring_limited(const struct ring *ring)
{
    return limit_of(ring_tenant(ring)) != 0;
}

uint64_t ring_limit_until(const struct ring *ring)
{
    return limit_until(ring_shared(ring), ring_tenant(ring), clock_now());
}

unsigned ring_clients(const struct ring *ring)
{
    unsigned n = 0;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        n += (unsigned)__builtin_popcountll(atomic_load(&ring_shared(ring)->attached[w]));
    return n;
}

/* Charges the holder up to now and lets policy choose, this client among the candidates if it wants
 * another turn. All by one look at those who wait. */
static unsigned ring_choose(struct ring *ring, struct waiters *waiters, uint64_t token, bool busy,
                            bool *below)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t waiting[CUSLICE_SLOT_WORDS], epoch = CUSLICE_TOKEN_EPOCH(token), now = clock_now();
    uint64_t used = slot_bill(shared, ring->slot, epoch, now);
    ring_waiting(shared, waiting);
    if (busy)
        waiting[ring->slot / 64] |= ring_bit(ring);
    waiters_gather(waiters, shared, waiting, now);
    class_spend(waiters, ring->slot, epoch, used);
    *below = class_below(shared, epoch);
    return policy_next(waiters, ring->slot, below);
}

static int ring_again(struct ring *ring, uint64_t *token, bool below, uint64_t now)
{
    if (!ring_move(ring_shared(ring), *token, ring->slot, below, now))
        return -ESTALE;
    *token = CUSLICE_TOKEN(ring_next_epoch(*token), ring->slot);
    slot_count(ring_shared(ring), ring->slot, slices, 1);
    atomic_store(&ring_me(ring)->claimed_epoch, CUSLICE_TOKEN_EPOCH(*token));
    atomic_store(&ring_me(ring)->last_grant_ns, now);
    atomic_store(&ring_tenant(ring)->last_grant_ns, now);
    ring_begin_pages(ring, now);
    return 1;
}

int ring_restart(struct ring *ring, uint64_t *token)
{
    uint64_t now = clock_now(), epoch = CUSLICE_TOKEN_EPOCH(*token);
    if (ring_token(ring) != *token)
        return -ESTALE;
    slot_charge(ring_shared(ring), ring->slot, epoch, now);
    return ring_again(ring, token, class_below(ring_shared(ring), epoch), now);
}

int ring_renew(struct ring *ring, uint64_t *token, bool busy)
{
    struct waiters waiters;
    bool below;
    if (ring_token(ring) != *token)
        return -ESTALE;
    unsigned next = ring_choose(ring, &waiters, *token, busy, &below);
    if (next == ring->slot)
        return ring_again(ring, token, below, waiters.now);
    return next == CUSLICE_NOBODY && !ring_limit_until(ring) ? 1 : 0;
}

bool ring_due(struct ring *ring, uint64_t token)
{
    struct waiters waiters;
    bool below;
    return ring_token(ring) == token &&
           ring_choose(ring, &waiters, token, true, &below) != ring->slot;
}

void ring_expect(struct ring *ring, uint64_t token, uint64_t due_ns)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t waiting[CUSLICE_SLOT_WORDS];
    atomic_store(&ring_me(ring)->due_ns, due_ns);
    atomic_store_explicit(&ring_me(ring)->due_cpu, (uint32_t)sched_getcpu() + 1,
                          memory_order_relaxed);
    if (ring->expected == token && due_ns < ring->expected_ns + RING_AGAIN_NS)
        return;
    ring->expected = token;
    ring->expected_ns = due_ns;
    ring_waiting(shared, waiting);
    waiting[ring->slot / 64] &= ~ring_bit(ring);
    unsigned next = policy_expect(shared, waiting, ring->slot, clock_now());
    if (next < CUSLICE_SLOTS)
        ring_wake(shared, next);
}

/* Whether the keeper that is to pass was on this CPU when it last said so. */
static bool ring_in_its_way(const struct cuslice_slot *holder)
{
    return atomic_load_explicit(&holder->due_cpu, memory_order_relaxed) ==
           (uint32_t)sched_getcpu() + 1;
}

/* Looks closely for what is due then, and a little longer; true when the token moved. What that
 * took is written down: CPU time for a shorter hand-over. Who is to pass may have woken on this
 * CPU: likely where it was, or when it is late. The flag comes down before the last look at the
 * token, and who passes it looks at the flag after that: so either this thread sees the token or it
 * is woken. */
static bool ring_close_look(struct ring *ring, uint64_t token, uint64_t due)
{
    struct cuslice_segment *shared = ring_shared(ring);
    const struct cuslice_slot *holder = &shared->slot[CUSLICE_TOKEN_HOLDER(token) % CUSLICE_SLOTS];
    uint64_t from = clock_now(), now = from, until = due + CLOSELY_AFTER_NS;
    closely_begin(&ring->closely);
    atomic_store(&ring_me(ring)->looking, 1);
    while (ring_token(ring) == token && now < until) {
        if (now > due || ring_in_its_way(holder))
            closely_yield(&ring->closely);
        now = closely_next(&ring->closely);
    }
    atomic_store(&ring_me(ring)->looking, 0);
    bool moved = ring_token(ring) != token;
    closely_end(&ring->closely, &shared->crowded_ns, moved ? atomic_load(&shared->passed_ns) : due);
    atomic_fetch_add_explicit(&shared->close_ns, now - from, memory_order_relaxed);
    return moved;
}

/* When the holder of `token` expects to pass; 0: it does not say, or not soon. */
static uint64_t ring_due_time(const struct ring *ring, uint64_t token, uint64_t now)
{
    unsigned holder = CUSLICE_TOKEN_HOLDER(token);
    const struct cuslice_slot *its = &ring_shared(ring)->slot[holder % CUSLICE_SLOTS];
    uint64_t due = atomic_load(&its->due_ns);
    return holder < CUSLICE_SLOTS && due + CLOSELY_AFTER_NS > now && due < now + RING_SOON_NS ? due
                                                                                              : 0;
}

/* Sleeps until `wake`, until there is news, or a notice. One that outlasts `wake` tells how late
 * sleeps end, whatever has ended it. */
static void ring_close_sleep(struct ring *ring, uint64_t token, uint32_t news, uint64_t wake)
{
    ring_sleep(ring, token, news, wake);
    uint64_t now = clock_now();
    if (now >= wake)
        closely_slept(&ring->closely, wake, now);
}

static bool ring_wait_due(struct ring *ring, struct watch *watch, uint64_t token)
{
    for (unsigned tries = 0; tries < RING_CLOSE_TRIES; tries++) {
        uint32_t news = ring_news(ring);
        uint64_t now = clock_now(), due = ring_due_time(ring, token, now);
        if (ring_token(ring) != token || due == 0)
            return ring_token(ring) != token;
        if (watch_noticed(ring, token)) { /* the one wake-up of it may have been this thread's */
            watch_told(watch, token, now);
            return false;
        }
        uint64_t wake = closely_wake(&ring->closely, due);
        if (wake <= now)
            return ring_close_look(ring, token, due);
        ring_close_sleep(ring, token, news, wake);
    }
    return false;
}

bool ring_wait_close(struct ring *ring, struct watch *watch, int *slack)
{
    uint64_t token = ring_token(ring);
    if (ring_holds(ring, token) || !closely_may(&ring_shared(ring)->crowded_ns, clock_now()))
        return false; /* its own pass is nothing to wait for */
    if (*slack < 0)
        *slack = clock_slack(1);
    return ring_wait_due(ring, watch, token);
}

/* The token has gone to `next`, which may have seen that already. */
static void ring_poke_next(struct cuslice_segment *shared, unsigned next)
{
    if (atomic_load(&shared->slot[next].looking))
        atomic_fetch_add(&shared->slot[next].wake, 1);
    else
        ring_poke(shared, next);
    sched_yield(); /* it may be on this very CPU */
}

/* It pauses. What it is owed is not lost by that, nor does it grow meanwhile. */
static void ring_leave_turn(struct ring *ring, const struct waiters *waiters)
{
    ring->owed = policy_owed(waiters, ring->slot);
    ring->left_ns = waiters->now;
}

int ring_pass(struct ring *ring, uint64_t *token, bool busy)
{
    struct cuslice_segment *shared = ring_shared(ring);
    struct waiters waiters;
    bool below;
    if (ring_token(ring) != *token)
        return -ESTALE;
    unsigned next = ring_choose(ring, &waiters, *token, busy, &below);
    uint64_t now = waiters.now;
    if (next == ring->slot)
        return ring_again(ring, token, below, now);
    if (!busy)
        ring_leave_turn(ring, &waiters);
    if (next == CUSLICE_NOBODY) {
        if (!ring_grant(shared, *token, now))
            return -ESTALE;
    } else {
        if (!ring_move(shared, *token, next, below, now))
            return -ESTALE;
        ring_poke_next(shared, next);
    }
    slot_count(shared, ring->slot, slices, 1);
    return 0;
}

bool ring_arm(struct ring *ring, uint64_t token, bool armed)
{
    atomic_store(&ring_me(ring)->armed_epoch, armed ? CUSLICE_TOKEN_EPOCH(token) : 0);
    return ring_wanted(ring);
}

uint64_t ring_slice_end(const struct ring *ring, uint64_t token, uint64_t *granted_ns)
{
    uint64_t now = clock_now(), from = atomic_load(&ring_me(ring)->grant_ns);
    if (atomic_load(&ring_me(ring)->grant_epoch) != CUSLICE_TOKEN_EPOCH(token) || from > now)
        from = now;
    *granted_ns = from;
    return from + (ring->pages ? paging_slice(ring_shared(ring), ring->slot)
                               : segment_quantum(ring_shared(ring)));
}

uint64_t ring_cut(const struct ring *ring, uint64_t token)
{
    struct cuslice_segment *shared = ring_shared(ring);
    struct waiters waiters;
    uint64_t granted, now = clock_now();
    ring_slice_end(ring, token, &granted);
    uint64_t from = now - ring_held(shared, ring->slot, now);
    from = from > granted ? from : granted;
    waiters_look(&waiters, shared, now);
    uint64_t limit = limit_end(shared, ring_tenant(ring), from);
    uint64_t class = class_end(&waiters, ring->slot, CUSLICE_TOKEN_EPOCH(token), granted, from);
    return limit < class ? limit : class;
}

void ring_charge(struct ring *ring, uint64_t token)
{
    if (ring_token(ring) == token)
        slot_charge(ring_shared(ring), ring->slot, CUSLICE_TOKEN_EPOCH(token), clock_now());
}

void ring_overrun(struct ring *ring, uint64_t ns)
{
    struct cuslice_segment *shared = ring_shared(ring);
    slot_count(shared, ring->slot, overrun_ns, ns);
    slot_count(shared, ring->slot, charged_ns, ns);
    policy_charge(tenant_of(shared, ring->slot), ns);
    limit_spend(shared, tenant_of(shared, ring->slot), ns, clock_now());
}

void ring_idle(struct ring *ring, uint64_t token)
{
    struct cuslice_slot *me = ring_me(ring);
    uint64_t now = clock_now(), to = atomic_load(&me->charged_to_ns);
    if (ring_token(ring) == token && atomic_load(&me->grant_epoch) == CUSLICE_TOKEN_EPOCH(token) &&
        to < now)
        atomic_compare_exchange_strong(&me->charged_to_ns, &to, now);
}

void ring_rested(struct ring *ring, uint64_t token, uint64_t since)
{
    if (ring_token(ring) == token)
        slot_charge(ring_shared(ring), ring->slot, CUSLICE_TOKEN_EPOCH(token), since);
    ring_idle(ring, token);
}

int ring_tend(struct ring *ring)
{
    struct cuslice_segment *shared = ring_shared(ring);
    if (!segment_current(&ring->segment))
        return -ESTALE;
    notice_heal(ring);
    for (unsigned k = 1; k < CUSLICE_SLOTS; k++) {
        unsigned slot = (ring->slot + k) % CUSLICE_SLOTS;
        if (!(atomic_load(&shared->attached[slot / 64]) >> (slot % 64) & 1))
            continue;
        if (!guard_awake(&shared->slot[slot], clock_now()) && slot_dead(&ring->segment, slot) == 1)
            slot_reap(&ring->segment, slot);
        break;
    }
    return 0;
}

void ring_holder_name(const struct ring *ring, char *text, size_t size)
{
    struct cuslice_segment *shared = ring_shared(ring);
    unsigned holder = CUSLICE_TOKEN_HOLDER(ring_token(ring));
    struct cuslice_tenant *tenant = holder < CUSLICE_SLOTS ? tenant_of(shared, holder) : NULL;
    if (!tenant)
        snprintf(text, size, "nobody");
    else
        snprintf(text, size, "%.*s", (int)sizeof tenant->display - 1, tenant->display);
}
