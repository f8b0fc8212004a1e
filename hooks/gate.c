/*
 * gate: the slow way in, and the keeper's side of the gate (see gate.h).
 *
 * Entering: mark up (E1, a plain store), then lease (E2) and token (E3) are loaded and compared,
 * the driver is called (E4), the mark goes down (E5). Closing: the lease is exchanged (C1), then
 * membarrier makes every running thread of this process pass a full barrier (C2), then the marks
 * are read (C3), and the token is passed (C4). Opening (O1) is a compare-exchange from an earlier
 * epoch. The model of these steps is tests/model/gate.pml. So a thread either had its mark up
 * before and is waited for, or loads the closed lease after and turns back. Where membarrier is
 * refused the slow way is taken always, with a full fence behind the mark. Marks mean nothing to
 * other processes: a revoker relies on the epoch alone.
 *
 * A thread may die (its process with it) or stop at any instruction here; the others see it in the
 * ring, through the lock, the epoch, or the allowance. Nothing here allocates on the way of a
 * launch, but for a thread's first.
 */
#include "gate.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contexts.h"
#include "gang.h"
#include "histogram.h"
#include "log.h"
#include "outside.h"
#include "paging.h"
#include "pools.h"
#include "real.h"
#include "slot.h"
#include "streams.h"
#include "watch.h"

struct guest guest;
struct config guest_config;
struct gate_mark gate_nobody = {.inside = UINTPTR_MAX};
__thread struct gate_mark *gate_mark_mine = &gate_nobody;
__thread bool gate_overlaps_mine;

/* Where on the stack this thread entered the slow way, 0 = it is not in it, and whether it could be
 * cancelled before. */
struct gate_slow {
    uintptr_t here;
    int cancel;
};
static __thread struct gate_slow gate_slow_mine;
/* The slack of this thread's timers while they have less of it; else negative. */
static __thread int gate_slack_mine = -1;

static pthread_key_t gate_key;
static bool gate_key_made;

#define GATE_SAY_NS (5 * CLOCK_S)
#define GATE_AWAY_NS (2 * CLOCK_S)
/* What a hand-over for a pause is taken to cost. */
#define GATE_COST_LEAST_NS (500 * CLOCK_US)
#define GATE_COST_MOST_NS (20 * CLOCK_MS)
/* Longer pauses are all alike. */
#define GATE_LONG_US 1000000u
#define GATE_LONG_NS (GATE_LONG_US * CLOCK_US)
/* So much longer than the learnt pauses the GPU is held. */
#define GATE_SPARE_US 50u
/* Fewer pauses than this tell nothing. */
#define GATE_PAUSES_KNOWN 3u

/* What its wait at the gate left, that it did not leave by itself. */
static struct gate *gate_wait_end(struct gate_mark *mark)
{
    struct gate *gate = atomic_exchange(&mark->waits, NULL);
    if (gate && mark->looks) {
        atomic_store(&ring_me(gate->ring)->looking, 0);
        atomic_store(&gate->looking, false);
    }
    mark->looks = false;
    return gate;
}

/* A thread that was ended inside the driver leaves its mark up: it submits nothing more. For one
 * that was ended at the gate nobody wants a turn, unless others, who are woken here, say so again.
 */
static void gate_mark_drop(void *value)
{
    struct gate_mark *mark = value;
    struct gate *gate = gate_wait_end(mark);
    uint64_t token;
    gate_mark_mine = &gate_nobody;
    if (gate && guest_attached())
        ring_unwant(gate->ring, &token);
    streams_thread_gone(mark);
    atomic_store(&mark->inside, 0);
    atomic_store(&mark->books, (atomic_load(&mark->books) + 1) & ~UINT64_C(1));
    atomic_store(&mark->taken, false);
}

static struct gate_mark *gate_mark_reuse(void)
{
    for (struct gate_mark *m = guest.marks; m; m = m->next) {
        bool taken = false;
        if (atomic_compare_exchange_strong(&m->taken, &taken, true))
            return m;
    }
    return NULL;
}

_Static_assert(sizeof(struct gate_mark) <= 64, "a record is one cache line");

static struct gate_mark *gate_mark_new(void)
{
    struct gate_mark *mark = aligned_alloc(64, 64);
    if (!mark)
        return NULL;
    *mark = (struct gate_mark){.taken = true, .next = guest.marks};
    while (!atomic_compare_exchange_weak(&guest.marks, &mark->next, mark))
        ;
    return mark;
}

struct gate_mark *gate_mark_get(void)
{
    struct gate_mark *mark = gate_mark_mine;
    if (mark != &gate_nobody)
        return mark;
    mark = gate_mark_reuse();
    if (!mark)
        mark = gate_mark_new();
    if (!mark)
        return NULL;
    pthread_setspecific(gate_key, mark);
    gate_mark_mine = mark;
    return mark;
}

/* Who has the token gives it back once the GPU has work. What the driver starts in between, in its
 * first launch, say, inherits the little slack. */
static void gate_give_slack(void)
{
    if (gate_slack_mine < 0)
        return;
    clock_give_slack(gate_slack_mine);
    gate_slack_mine = -1;
}

/* What the unwinder's ABI calls these. */
#define GATE_UNWIND_CLEANUP 2
#define GATE_UNWIND_ON 8

int gate_unwind(int version, int actions, uint64_t class, void *exception, void *context)
{
    struct gate_mark *mark = gate_mark_mine;
    (void)version, (void)class, (void)exception, (void)context;
    if (!(actions & GATE_UNWIND_CLEANUP) || mark == &gate_nobody || !mark->inside)
        return GATE_UNWIND_ON;
    gate_give_slack();
    gate_leave(mark, mark->nested ? mark->inside : 0);
    mark->nested -= mark->nested > 0;
    return GATE_UNWIND_ON;
}

int gate_start(void)
{
    if (!gate_key_made && pthread_key_create(&gate_key, gate_mark_drop) != 0)
        return -EAGAIN;
    gate_key_made = true;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) {
        guest.full_fence = true;
        log_info("no-membarrier", "membarrier is refused here: a launch costs a full fence");
    }
    return 0;
}

static void gate_barrier(void)
{
    if (!guest.full_fence)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    atomic_thread_fence(memory_order_seq_cst);
}

/* ---- Which gate ---- */

struct gate *gate_of_device(CUdevice device)
{
    for (unsigned i = 0; i < guest.gates; i++)
        if (guest.gate[i].device == device)
            return &guest.gate[i];
    return NULL;
}

struct gate *gate_current(void)
{
    CUdevice device;
    if (guest.gates == 1)
        return &guest.gate[0];
    return real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? gate_of_device(device) : NULL;
}

/* With several devices: the one that the stream's context is on. */
struct gate *gate_of_stream(CUstream stream)
{
    CUcontext context;
    CUgreenCtx green; /* its handle must not become current here: the primary context's may */
    CUdevice device;
    if (guest.gates == 1)
        return &guest.gate[0];
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        (REAL_HAS(cuStreamGetCtx_v2) ? real.cuStreamGetCtx_v2(stream, &context, &green)
                                     : real.cuStreamGetCtx(stream, &context)) != CUDA_SUCCESS ||
        real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return gate_current();
    CUresult rc = real.cuCtxGetDevice(&device);
    real.cuCtxPopCurrent_v2(&context);
    return rc == CUDA_SUCCESS ? gate_of_device(device) : NULL;
}

/* ---- The lease ---- */

bool gate_must_be_slow(const struct gate *gate)
{
    return guest.gates > 1 || guest.captures > 0 || guest.full_fence ||
           ring_clients(gate->ring) > 1 || ring_limited(gate->ring);
}

/* What goes the fast way is not counted, and nobody was there to be kept waiting by it. */
static void gate_uncounted(struct gate *gate)
{
    meter_blind(gate, true);
    atomic_store(&gate->synced_ns, 0);
    atomic_store(&gate->queued_alone, true);
}

bool gate_open(struct gate *gate, uint64_t token)
{
    uint64_t lease = atomic_load(&gate->lease);
    uint64_t open = token | (gate_must_be_slow(gate) ? GATE_SLOW : 0);
    bool was_fast = lease && !(CUSLICE_TOKEN_HOLDER(lease) & (GATE_SLOW | GATE_CLOSED));
    if (was_fast || !(open & GATE_SLOW))
        gate_uncounted(gate);
    while (lease == 0 || CUSLICE_TOKEN_EPOCH(lease) < CUSLICE_TOKEN_EPOCH(token))
        if (atomic_compare_exchange_weak(&gate->lease, &lease, open))
            return true;
    return (lease & ~GATE_SLOW) == token;
}

void gate_close(struct gate *gate, uint64_t token)
{
    atomic_store(&gate->lease, CUSLICE_TOKEN(CUSLICE_TOKEN_EPOCH(token), GATE_CLOSED));
    gate_barrier();
}

bool gate_relent(struct gate *gate, uint64_t token)
{
    uint64_t closed = CUSLICE_TOKEN(CUSLICE_TOKEN_EPOCH(token), GATE_CLOSED);
    return atomic_compare_exchange_strong(&gate->lease, &closed, token | GATE_SLOW);
}

void gate_count_off(struct gate *gate, unsigned submissions)
{
    atomic_store(&gate->counted, submissions + 1);
}

void gate_count_none(struct gate *gate)
{
    atomic_store(&gate->counted, 0);
}

/* Whether one more submission may pass, and counts it. */
static bool gate_count_one(struct gate *gate)
{
    unsigned counted = atomic_load(&gate->counted);
    while (counted > 1)
        if (atomic_compare_exchange_weak(&gate->counted, &counted, counted - 1))
            return true;
    return counted == 0;
}

void gate_set_slow(struct gate *gate, bool slow)
{
    uint64_t lease = atomic_load(&gate->lease);
    while (lease && !(CUSLICE_TOKEN_HOLDER(lease) & GATE_CLOSED)) {
        uint64_t wanted = slow ? lease | GATE_SLOW : lease & ~GATE_SLOW;
        if (wanted == lease)
            return;
        gate_uncounted(gate);
        if (atomic_compare_exchange_weak(&gate->lease, &lease, wanted)) {
            if (slow)
                gate_barrier(); /* who saw the fast lease has its mark up by now */
            return;
        }
    }
}

bool gate_inside(const struct gate *gate)
{
    for (struct gate_mark *m = guest.marks; m; m = m->next)
        if (atomic_load_explicit(&m->inside, memory_order_acquire) &&
            (guest.gates == 1 || !m->gate || m->gate == gate))
            return true;
    return false;
}

bool gate_waited(const struct gate *gate)
{
    uint64_t now = clock_now();
    for (struct gate_mark *m = guest.marks; m; m = m->next)
        if (atomic_load(&m->waits) == gate && atomic_load(&m->waits_ns) + GATE_AWAY_NS > now)
            return true;
    return false;
}

uint64_t gate_count(const struct gate *gate)
{
    uint64_t n = 0;
    if (guest.gates > 1)
        return atomic_load_explicit(&gate->passed, memory_order_relaxed);
    for (struct gate_mark *m = guest.marks; m; m = m->next)
        n += atomic_load_explicit(&m->submissions, memory_order_relaxed);
    return n;
}

bool gate_books_quiet(void)
{
    uint64_t deadline = clock_after(50 * CLOCK_MS);
    gate_barrier();
    for (struct gate_mark *m = guest.marks; m; m = m->next)
        while (atomic_load_explicit(&m->books, memory_order_acquire) & 1)
            if (clock_now() > deadline)
                return false;
    return true;
}

/* ---- The slow way ---- */

/* How long a thread has waited in this process's own time: looks are a second apart at most, and
 * what is more was spent frozen or stopped. */
struct gate_wait {
    uint64_t since, seen;
    bool said;
};

static void gate_say(const struct gate *gate, struct gate_wait *wait, uint64_t now)
{
    char name[CUSLICE_TEXT];
    if (now - wait->seen > GATE_AWAY_NS)
        wait->since += now - wait->seen;
    wait->seen = now;
    if (wait->said || now - wait->since < GATE_SAY_NS)
        return;
    wait->said = true;
    double seconds = (double)(now - wait->since) / 1e9;
    unsigned index = (unsigned)(gate - guest.gate);
    if (ring_limit_until(gate->ring)) {
        log_warn("waiting", "waiting %.1f s, GPU %u: the tenant's CUSLICE_LIMIT is used up",
                 seconds, index);
        return;
    }
    ring_holder_name(gate->ring, name, sizeof name);
    log_warn("waiting", "waiting %.1f s, GPU %u held by %s", seconds, index, name);
}

/* One look. What it acts on must still be the token when it acts: a thread that was away meanwhile
 * would undo what the keeper did in the next turn. */
static enum gate_look gate_try(struct gate *gate, struct ring *ring)
{
    uint64_t token;
    if (!ring_look(ring, &token) || !gate_may_open(gate) || atomic_load(&gate->counted) == 1)
        return GATE_WAIT;
    uint64_t lease = atomic_load(&gate->lease);
    if (ring_token(ring) != token)
        return GATE_AGAIN;
    if (lease != 0 && (lease & ~GATE_SLOW) != token &&
        CUSLICE_TOKEN_EPOCH(lease) == CUSLICE_TOKEN_EPOCH(token))
        return GATE_WAIT; /* the keeper has closed it in this turn */
    if (lease != 0 && CUSLICE_TOKEN_EPOCH(lease) > CUSLICE_TOKEN_EPOCH(token)) {
        if (!guest.moving) /* somebody damaged the ring: its epochs have begun anew */
            atomic_compare_exchange_strong(&gate->lease, &lease, 0);
        return GATE_AGAIN;
    }
    ring_claim(ring, token);
    return gate_open(gate, token) ? GATE_OPEN : GATE_AGAIN;
}

/* Woken while the holder is about to pass: one thread of this process looks closely, so that the
 * GPU need not wait for a wake-up. True when the token moved. */
static bool gate_look_closely(struct gate *gate, struct ring *ring, struct watch *watch,
                              struct gate_mark *mark)
{
    bool looking = false;
    if (!atomic_compare_exchange_strong(&gate->looking, &looking, true))
        return false;
    mark->looks = true;
    bool moved = ring_wait_close(ring, watch, &gate_slack_mine);
    atomic_store(&gate->unsaid, moved);
    atomic_store(&gate->looking, false);
    mark->looks = false;
    if (!moved)
        gate_give_slack();
    return moved;
}

/* A gang's members ask for their turn through their keepers. */
static void gate_ask_gang(struct gate *gate, struct gate_mark *mark, uint64_t now)
{
    gate_wait_begin(mark, gate, now);
    ring_call(ring_shared(gate->ring), gate->ring->slot);
}

/* Waits until the gate is open. */
static void gate_take(struct gate *gate, struct gate_mark *mark)
{
    struct watch watch = {0};
    uint64_t since = clock_now(), token;
    struct gate_wait wait = {.since = since, .seen = since};
    uint32_t last = ring_news(gate->ring);
    gate_wait_end(mark); /* an earlier one, left by a jump */
    if (gate->ganged)
        gate_ask_gang(gate, mark, since);
    while (guest_attached()) {
        struct ring *ring = gate->ring;
        gate_wait_begin(mark, gate, wait.seen);
        uint32_t news = ring_news(ring);
        bool alerted = news != last;
        last = news;
        if (!gate->ganged) /* else the keeper does, when it is this ring's time */
            ring_want(ring);
        enum gate_look look = gate_try(gate, ring);
        if (look == GATE_WAIT && alerted && gate_look_closely(gate, ring, &watch, mark))
            look = gate_try(gate, ring) == GATE_OPEN ? GATE_OPEN : GATE_AGAIN;
        if (look == GATE_OPEN)
            break;
        if (!guest_attached())
            ring_unwant(ring, &token);
        else if (look == GATE_WAIT)
            ring_wait(ring, news, &watch, clock_after(CLOCK_S));
        gate_say(gate, &wait, clock_now());
    }
    atomic_fetch_add(&gate->burst_wait_ns, clock_now() - since);
    atomic_store(&mark->waits, NULL);
}

/* Inside of another submission its mark stays, which stands for both. */
static void gate_mark_up(struct gate_pass *pass)
{
    struct gate_mark *mark = pass->mark;
    bool both =
        pass->outer && atomic_load_explicit(&mark->gate, memory_order_relaxed) != pass->gate;
    atomic_store_explicit(&mark->gate, both ? NULL : pass->gate, memory_order_relaxed);
    atomic_store_explicit(&mark->inside, pass->outer ? pass->outer : pass->here,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

/* Takes the mark down without a submission; also that of an outer one, which cannot go on either
 * while its thread waits here. */
static void gate_mark_undo(struct gate_pass *pass)
{
    atomic_store_explicit(&pass->mark->inside, 0, memory_order_release);
}

/* What letting the GPU go for a pause costs at least: some hand-overs there and back, as measured
 * in this ring, and the client's place in the turn. */
static uint64_t gate_pause_cost(const struct gate *gate)
{
    struct cuslice_segment *shared = ring_shared(gate->ring);
    uint64_t n = atomic_load_explicit(&shared->handovers, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&shared->handover_ns, memory_order_relaxed);
    uint64_t cost = n ? 8 * (ns / n) : 0;
    return cost < GATE_COST_LEAST_NS  ? GATE_COST_LEAST_NS
           : cost > GATE_COST_MOST_NS ? GATE_COST_MOST_NS
                                      : cost;
}

/* What the remembered pauses would have cost, had the GPU been held for so long in each. */
static uint64_t gate_pause_total(const uint32_t *pause_us, unsigned n, uint64_t hold_us,
                                 uint64_t cost_us)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < n; i++)
        total += pause_us[i] <= hold_us ? pause_us[i] : hold_us + cost_us;
    return total;
}

/* Holds as long as would have been best in the last pauses: not at all, or as long as one of them,
 * with some to spare. */
static uint64_t gate_pause_best(const uint32_t *pause_us, unsigned n, uint64_t cost_us)
{
    uint64_t best = 0, least = gate_pause_total(pause_us, n, 0, cost_us);
    for (unsigned i = 0; i < n; i++) {
        uint64_t total = gate_pause_total(pause_us, n, pause_us[i], cost_us);
        if (total < least) {
            least = total;
            best = pause_us[i];
        }
    }
    return best ? best + best / 2 + GATE_SPARE_US : 0;
}

/* The first submission after all work was known to be done: this client's pause has ended. Learnt
 * before any waiting, which is not the program's doing. Two threads that note one each at the same
 * time may mix them up, which costs a little time and no more. */
static void gate_busy_again(struct gate *gate)
{
    uint32_t pause_us[GATE_PAUSES];
    if (atomic_load_explicit(&gate->synced_ns, memory_order_relaxed) == 0)
        return;
    uint64_t since = atomic_exchange(&gate->synced_ns, 0), now = clock_now();
    if (since == 0 || now <= since)
        return;
    struct gang *gang = gate->gang;
    if (gang)
        gang_idle(gang, false);
    atomic_store(&gate->burst_wait_ns, 0);
    atomic_store(&gate->burst_ns, now);
    uint64_t pause = now - since < GATE_LONG_NS ? (now - since) / CLOCK_US : GATE_LONG_US;
    unsigned n = atomic_fetch_add_explicit(&gate->pauses, 1, memory_order_relaxed);
    atomic_store_explicit(&gate->pause_us[n % GATE_PAUSES], (uint32_t)pause, memory_order_relaxed);
    n = n + 1 < GATE_PAUSES ? n + 1 : GATE_PAUSES;
    for (unsigned i = 0; i < n; i++)
        pause_us[i] = atomic_load_explicit(&gate->pause_us[i], memory_order_relaxed);
    uint64_t best = gate_pause_best(pause_us, n, gate_pause_cost(gate) / CLOCK_US);
    atomic_store_explicit(&gate->patience_ns, best * CLOCK_US, memory_order_relaxed);
}

/* Where memory pages, letting go costs the pages' way out and in: a pause shorter than that is
 * held.
 */
uint64_t gate_patience(const struct gate *gate)
{
    const struct ring *ring = gate->ring;
    uint64_t paging = ring->pages ? paging_patience(ring_shared(ring), ring->slot) : 0;
    uint64_t own = atomic_load_explicit(&gate->pauses, memory_order_relaxed) < GATE_PAUSES_KNOWN
                       ? GATE_COST_LEAST_NS
                       : atomic_load_explicit(&gate->patience_ns, memory_order_relaxed);
    return paging > own ? paging : own;
}

/* Whether nobody is there whom its work could keep waiting, on the slow way for another reason:
 * other devices, a capture, no membarrier. Then it is bounded and counted as little as on the fast
 * way. */
static bool gate_alone(const struct gate *gate)
{
    return !gate->gang && ring_clients(gate->ring) == 1 && !ring_limited(gate->ring);
}

/* With the mark up, so that the keeper, which may find the opposite, waits for this submission. */
static void gate_pass_alone(struct gate_pass *pass)
{
    struct gate *gate = pass->gate;
    pass->lease &= ~GATE_SLOW;
    if (!atomic_load(&gate->queued_alone) || !atomic_load(&gate->meter.blind))
        gate_uncounted(gate);
}

static void gate_pass_in_turn(struct gate_pass *pass)
{
    struct gate *gate = pass->gate;
    gate_busy_again(gate);
    for (;;) {
        pass->outside = outside_any() && outside_holds(meter_key_of(pass));
        bool alone = !pass->outside && gate_alone(gate);
        if ((atomic_load(&gate->lease) & GATE_SLOW) && !pass->outside && !alone)
            meter_before(gate, pass);
        gate_mark_up(pass);
        uint64_t lease = atomic_load(&gate->lease);
        if (lease && (lease & ~GATE_SLOW) == atomic_load(gate->token) && gate_count_one(gate)) {
            pass->lease = lease;
            if (atomic_load_explicit(&gate->synced_ns, memory_order_relaxed))
                atomic_store(&gate->synced_ns, 0); /* said meanwhile; not to be believed later */
            if (atomic_load_explicit(&pass->mark->waits, memory_order_relaxed))
                atomic_store(&pass->mark->waits, NULL); /* in the bound on run-ahead */
            if (alone)
                gate_pass_alone(pass);
            if ((pass->lease & GATE_SLOW) && !pass->overlaps && !pass->outside)
                meter_mark(gate, pass, false); /* what could not be marked behind */
            return;
        }
        gate_mark_undo(pass);
        gate_take(gate, pass->mark);
        if (!guest_attached()) {
            pass->gate = NULL;
            return;
        }
    }
}

void gate_enter_slow(struct gate_pass *pass, CUstream stream, bool per_thread)
{
    int error = errno, cancel;
    struct gate_slow outer = gate_slow_mine;
    *pass = (struct gate_pass){.here = pass->here,
                               .kind = pass->kind,
                               .stream = streams_key(stream, per_thread),
                               .overlaps = gate_overlaps_mine};
    gate_overlaps_mine = false;
    if (!guest_attached() || !guest.turns)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (outer.here && outer.here <= pass->here) { /* left by a jump, without its last lines */
        cancel = outer.cancel;
        outer.here = 0;
    }
    gate_slow_mine.here = pass->here;
    gate_slow_mine.cancel = cancel;
    pass->mark = gate_mark_get();
    if (pass->mark && pass->mark->inside > pass->here)
        pass->outer = pass->mark->inside;
    if (pass->mark)
        pass->mark->nested = pass->outer ? pass->mark->nested + 1 : 0;
    pass->gate = pass->mark ? gate_of_stream(pass->stream) : NULL;
    pass->context = contexts_note();
    if (pass->gate && guest.captures && streams_capturing(pass->stream))
        pass->gate = NULL;
    if (pass->gate && guest.mode == CONFIG_OBSERVE)
        gate_mark_up(pass);
    else if (pass->gate)
        gate_pass_in_turn(pass);
    gate_slow_mine = outer;
    pthread_setcancelstate(cancel, NULL);
    errno = error;
}

/* The token was taken away between the check and the driver's answer: a late submission. */
static void gate_late(const struct gate_pass *pass)
{
    struct ring *ring = pass->gate->ring;
    if (!ring_holds(ring, atomic_load(pass->gate->token)))
        slot_count(ring_shared(ring), ring->slot, overruns, 1);
}

/* A thread that looked closely found the token, and nobody was woken for it: now that the GPU has
 * work the keeper and other waiting threads hear of it. */
static void gate_say_taken(struct gate *gate)
{
    if (atomic_load_explicit(&gate->unsaid, memory_order_relaxed) &&
        atomic_exchange(&gate->unsaid, false))
        ring_poke(ring_shared(gate->ring), gate->ring->slot);
}

void gate_leave_slow(struct gate_pass *pass, CUresult rc)
{
    int error = errno;
    struct gate *gate = pass->gate;
    if (gate) {
        if (rc == CUDA_SUCCESS && (pass->lease & GATE_SLOW)) { /* as it was on entering */
            if (pass->outside)
                outside_launched(pass, meter_key_of(pass));
            else
                meter_after(gate, pass);
            gate_late(pass);
        }
        if (guest.gates > 1)
            atomic_fetch_add_explicit(&gate->passed, 1, memory_order_relaxed);
        gate_leave(pass->mark, pass->outer);
        gate_say_taken(gate);
        if (gate_counts(gate)) /* the keeper waits for the last of them */
            ring_call(ring_shared(gate->ring), gate->ring->slot);
    }
    if (pass->outer)
        pass->mark->nested -= pass->mark->nested > 0;
    gate_give_slack();
    if (rc != CUDA_SUCCESS && guest_attached())
        contexts_check(rc);
    errno = error;
}

/* A synchronise has ended a burst: how long it took from its first launch, and what of that was
 * waiting. Threads that wait at once count once. */
static void gate_burst_end(struct gate *gate, uint64_t now)
{
    uint64_t from = atomic_exchange(&gate->burst_ns, 0);
    uint64_t waited = atomic_load(&gate->burst_wait_ns);
    if (from == 0 || now <= from)
        return;
    histogram_add(&ring_tenant(gate->ring)->burst, now - from);
    histogram_add(&ring_tenant(gate->ring)->burst_wait, waited < now - from ? waited : now - from);
}

/* Tells the keeper that the GPU may go to another, if it would look too late by itself. */
static void gate_idle(struct gate *gate)
{
    uint64_t now = clock_now(), never = 0;
    gate_burst_end(gate, now);
    /* The keeper may have seen the end of the work before this thread was told: the pause began
     * then. */
    atomic_compare_exchange_strong(&gate->synced_ns, &never, now);
    if (ring_wanted(gate->ring) && atomic_load(&gate->keeper_look_ns) > now + gate_patience(gate))
        ring_call(ring_shared(gate->ring), gate->ring->slot);
}

uint64_t gate_sync_begin(void)
{
    struct gate *gate = guest_attached() ? gate_current() : NULL;
    return gate ? atomic_load(&gate->meter.total) : 0;
}

void gate_synced(CUresult rc, uint64_t before, CUstream done)
{
    int error = errno;
    if (!guest_attached())
        return;
    pools_synced(done == GATE_ALL);
    if (!guest.turns)
        return;
    bool lost = rc != CUDA_SUCCESS && contexts_check(rc);
    struct gate *gate = gate_current();
    if (!gate || (rc != CUDA_SUCCESS && !lost) || guest.mode != CONFIG_ENFORCE) {
        errno = error;
        return;
    }
    uint64_t lease = atomic_load(&gate->lease);
    if (lease & GATE_SLOW) {
        if (meter_synced(gate, before, lost ? GATE_ALL : done, gate_mark_mine, contexts_note()))
            gate_idle(gate);
    } else if ((lease & GATE_CLOSED) && meter_out(gate) == 0 &&
               atomic_load(&gate->meter.total) == before) {
        gate_burst_end(gate, clock_now()); /* the keeper knew sooner, and has passed already */
    }
    errno = error;
}
