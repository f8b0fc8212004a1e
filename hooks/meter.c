/*
 * meter: the bound on run-ahead (see meter.h). Runs on submitting threads, in company only; the
 * keeper polls. The bound is the larger of one launch and min(quantum / 4, 1 ms) of work. With
 * launches longer than that the next one may go a little before the running one's expected end, so
 * that the GPU does not run dry while a thread wakes up.
 *
 * A program may queue work that waits for what the same thread does later; then no waiting here
 * helps. So the wait ends 10 ms after the work should have, the launch passes and is counted; the
 * next waits twice as long, and so on up to two thirds of a second each; for a program that was
 * seen to need it the bound is then off until something is seen done or the program synchronises.
 * Since the wait grows with what is out beyond the bound, a GPU that is merely slower than expected
 * does not fill up.
 */
#include "meter.h"

#include <stdatomic.h>
#include <time.h>

#include "clock.h"
#include "contexts.h"
#include "gate.h"
#include "real.h"
#include "slot.h"

#define METER_BOUND_NS CLOCK_MS
#define METER_EARLY_NS (150 * CLOCK_US)
#define METER_PATIENCE_NS (10 * CLOCK_MS)
/* The wait doubles with each launch beyond the bound, so often. */
#define METER_BEYOND 6u
/* Being kept off the CPUs for longer than this is no waiting in vain. */
#define METER_ABSENT_NS CLOCK_MS
/* Work that ends so soon after a launch was let through had been waiting for its thread. */
#define METER_PROOF_NS CLOCK_MS
/* So many times in a row is no coincidence. */
#define METER_PROOFS 2u
/* So many launches in a row to one stream tell that there is but one. */
#define METER_STREAK 64u
#define METER_NAP_LEAST_NS (50 * CLOCK_US)
#define METER_NAP_MOST_NS (500 * CLOCK_US)

static uint64_t meter_bound(const struct gate *gate)
{
    struct ring *ring = gate->ring;
    uint64_t quarter = segment_quantum(ring_shared(ring)) / 4;
    return quarter < METER_BOUND_NS ? quarter : METER_BOUND_NS;
}

/* How many launches may be out at once. */
static unsigned meter_room(const struct meter *meter, uint64_t bound)
{
    if (meter->unit_ns == 0)
        return 1;
    uint64_t room = bound / meter->unit_ns;
    return room < 1 ? 1 : room > 1000 ? 1000 : (unsigned)room;
}

/* How long a launch should wait now; 0: not at all. */
static uint64_t meter_excess(const struct meter *meter, uint64_t bound, uint64_t now)
{
    unsigned room = meter_room(meter, bound);
    uint64_t left = meter->busy_until_ns > now ? meter->busy_until_ns - now : 0;
    bool full = meter->mixed && meter->count == METER_MARKERS;
    if (meter->relaxed || (meter->out < room && !full))
        return 0;
    bool early = meter->out == room && meter->unit_ns && left <= METER_EARLY_NS;
    bool unknowable = meter->count == 0 && left == 0;
    if (early || unknowable)
        return 0;
    uint64_t nap = room > 1 ? 0 : left / 2;
    return nap < METER_NAP_LEAST_NS  ? METER_NAP_LEAST_NS
           : nap > METER_NAP_MOST_NS ? METER_NAP_MOST_NS
                                     : nap;
}

/* Late looks and an idle GPU make a sample too long, so short ones count for more. */
static uint64_t meter_mean(uint64_t mean, uint64_t sample)
{
    if (mean == 0)
        return sample;
    return sample < mean ? (mean + 3 * sample) / 4 : (15 * mean + sample) / 16;
}

/* All markers that one look found done make one sample: `launches` since `from`. */
static void meter_learn(struct meter *meter, unsigned launches, uint64_t from, uint64_t number,
                        uint64_t now)
{
    from = from > meter->done_ns ? from : meter->done_ns;
    bool let_through = number <= meter->given_up;
    bool waited_for = let_through && now - meter->given_up_ns < METER_PROOF_NS;
    if (let_through)
        meter->proofs = waited_for ? meter->proofs + (meter->proofs < METER_PROOFS) : 0;
    if (launches && now > from && !waited_for)
        meter->unit_ns = meter_mean(meter->unit_ns, (now - from) / launches);
    meter->done_ns = now;
    meter->out -= launches < meter->out ? launches : meter->out;
    meter->busy_until_ns = now + meter->out * meter->unit_ns;
    meter->relenting = false;
    meter->relaxed = false;
}

static bool meter_oldest(struct meter *meter, struct meter_marker *marker)
{
    lock_take(&meter->lock);
    bool have = meter->count > 0 && meter->marker[meter->first].ready;
    if (have)
        *marker = meter->marker[meter->first];
    lock_put(&meter->lock);
    return have;
}

/* What one look has found done. */
struct meter_found {
    unsigned launches;
    uint64_t from, number;
    uint64_t resets; /* of the meter when the look began */
};

/* Takes the first marker off if it is still this one. */
static void meter_pop(struct meter *meter, const struct meter_marker *marker,
                      struct meter_found *found)
{
    lock_take(&meter->lock);
    if (meter->count > 0 && meter->resets == found->resets &&
        meter->marker[meter->first].number == marker->number) {
        found->from = found->launches ? found->from : marker->recorded_ns;
        found->number = marker->number;
        found->launches += marker->launches;
        meter->first = (meter->first + 1) % METER_MARKERS;
        meter->count--;
    }
    lock_put(&meter->lock);
}

static bool meter_account(struct meter *meter, const struct meter_found *found)
{
    lock_take(&meter->lock);
    if (found->launches && meter->resets == found->resets)
        meter_learn(meter, found->launches, found->from, found->number, clock_now());
    lock_put(&meter->lock);
    return found->launches > 0;
}

/* Under guest.driver_lock: no context dies and no capture begins meanwhile. */
static bool meter_collect_locked(struct meter *meter)
{
    struct meter_marker marker = {0};
    struct meter_found found = {0};
    lock_take(&meter->lock);
    found.resets = meter->resets;
    lock_put(&meter->lock);
    while (meter_oldest(meter, &marker)) {
        if (marker.event &&
            (marker.context->closing || real.cuEventQuery(marker.event) == CUDA_ERROR_NOT_READY))
            break;
        unsigned before = found.launches;
        meter_pop(meter, &marker, &found);
        if (found.launches == before)
            break; /* a synchronise has emptied it meanwhile */
    }
    return meter_account(meter, &found);
}

/* Takes off the markers that are done; true when there were any. The calling thread may be in a
 * capture mode in which a query would break another thread's capture. */
static bool meter_collect(struct meter *meter)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!lock_try(&guest.driver_lock))
        return false;
    bool relax = guest.captures > 0;
    if (relax)
        real.cuThreadExchangeStreamCaptureMode(&mode);
    bool any = meter_collect_locked(meter);
    if (relax)
        real.cuThreadExchangeStreamCaptureMode(&mode);
    lock_put(&guest.driver_lock);
    return any;
}

/* Kernels of this program have been seen to wait for later actions of its threads. */
static bool meter_dependent(const struct meter *meter)
{
    return meter->proofs >= METER_PROOFS;
}

/* How many launches are out beyond the bound. */
static unsigned meter_beyond(const struct meter *meter, uint64_t bound)
{
    unsigned room = meter_room(meter, bound);
    return meter->out > room ? meter->out - room : 0;
}

/* How long beyond its expected end work is waited for; twice as long for each launch that has been
 * let through already. Work of unknown length gets more, unless this program has shown that its
 * kernels wait for it; less while a drain waits for threads at the gate. */
static uint64_t meter_patience(const struct meter *meter, uint64_t bound)
{
    unsigned beyond = meter_beyond(meter, bound);
    uint64_t first = meter->unit_ns ? METER_PATIENCE_NS : 10 * METER_PATIENCE_NS;
    if (meter->relenting || meter_dependent(meter))
        first = METER_PATIENCE_NS / (meter->relenting && meter_dependent(meter) ? 100 : 10);
    return first << (beyond < METER_BEYOND ? beyond : METER_BEYOND);
}

/* Waiting did not help: this launch passes. What ends now says nothing about how long launches
 * take. */
static void meter_give_up(struct gate *gate)
{
    struct meter *meter = &gate->meter;
    struct ring *ring = gate->ring;
    lock_take(&meter->lock);
    meter->relaxed =
        meter_dependent(meter) && meter_beyond(meter, meter_bound(gate)) > METER_BEYOND;
    meter->given_up = meter->number;
    meter->given_up_ns = clock_now();
    lock_put(&meter->lock);
    slot_count(ring_shared(ring), ring->slot, let_through, 1);
}

/* One look: how long to sleep before the next (0: pass), and when to give up, which moves on as
 * long as work gets done. */
static uint64_t meter_look(struct meter *meter, uint64_t bound, uint64_t *give_up, uint64_t *done)
{
    uint64_t now = clock_now();
    lock_take(&meter->lock);
    uint64_t nap = meter_excess(meter, bound, now);
    if (*give_up == 0 || meter->done_ns != *done) {
        *done = meter->done_ns;
        *give_up = (meter->busy_until_ns > now ? meter->busy_until_ns : now) +
                   meter_patience(meter, bound);
    }
    lock_put(&meter->lock);
    return nap;
}

/* Sleeps; how much longer than that the thread was away. */
static uint64_t meter_nap(uint64_t nap)
{
    uint64_t from = clock_now();
    nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    uint64_t away = clock_now() - from;
    return away > nap + METER_ABSENT_NS ? away - nap : 0;
}

void meter_before(struct gate *gate)
{
    struct meter *meter = &gate->meter;
    uint64_t bound = meter_bound(gate), give_up = 0, done = 0;
    if (meter->relaxed)
        meter_collect(meter);
    for (;;) {
        uint64_t nap = meter_look(meter, bound, &give_up, &done);
        if (nap == 0)
            return;
        if (!(atomic_load(&gate->lease) & GATE_SLOW))
            return; /* the slice has ended: the gate will do the waiting */
        if (meter_collect(meter))
            continue;
        if (clock_now() > give_up) {
            meter_give_up(gate);
            return;
        }
        give_up += meter_nap(nap);
    }
}

/* One name for each stream: 0x2 is another one in every thread, 0x1 in every context, and both
 * in a green context, which one thread at a time is in. */
static uintptr_t meter_stream(CUstream stream, const struct gate_mark *mark,
                              const struct context *context)
{
    uintptr_t part = contexts_part(context);
    if (stream == CU_STREAM_PER_THREAD)
        return (part == (uintptr_t)context ? (uintptr_t)mark : part) + 2;
    return stream == CU_STREAM_LEGACY ? part + 1 : (uintptr_t)stream;
}

/* Counts a launch; the place of a marker that is due behind it, or NULL. */
static struct meter_marker *meter_due(struct meter *meter, uintptr_t stream, uint64_t bound,
                                      bool may_mark)
{
    uint64_t now = clock_now();
    if (stream != meter->last) {
        meter->last = stream;
        meter->streak = 0;
        if (meter->unmarked) /* a marker in this stream does not tell of them */
            atomic_store(&meter->blind, true);
    }
    if (meter->out == 0 && !meter->mixed)
        meter->stream = stream;
    meter->mixed |= stream != meter->stream;
    bool each = guest.captures || meter->mixed || meter->streak++ < METER_STREAK;
    unsigned every = each ? 1 : (meter_room(meter, bound) + 3) / 4;
    meter->out++;
    meter->total++;
    meter->unmarked++;
    meter->busy_until_ns =
        (meter->busy_until_ns > now ? meter->busy_until_ns : now) + meter->unit_ns;
    if (!may_mark || meter->unmarked < every || meter->count == METER_MARKERS)
        return NULL;
    struct meter_marker *marker = &meter->marker[(meter->first + meter->count) % METER_MARKERS];
    *marker = (struct meter_marker){
        .number = ++meter->number, .recorded_ns = now, .launches = meter->unmarked};
    meter->count++;
    meter->unmarked = 0;
    return marker;
}

void meter_after(struct gate *gate, const struct gate_pass *pass, bool may_mark)
{
    struct meter *meter = &gate->meter;
    uint64_t bound = meter_bound(gate);
    lock_take(&meter->lock);
    struct meter_marker *marker =
        meter_due(meter, meter_stream(pass->stream, pass->mark, pass->context), bound,
                  may_mark && pass->context);
    uint64_t number = marker ? marker->number : 0;
    unsigned place = marker ? (unsigned)(marker - meter->marker) : 0;
    lock_put(&meter->lock);
    if (!marker)
        return;
    CUevent event = contexts_marker(pass->context, place);
    if (event && real.cuEventRecord(event, pass->stream) != CUDA_SUCCESS)
        event = NULL;
    lock_take(&meter->lock);
    if (marker->number == number) {
        marker->event = event; /* NULL counts as done here, so only the drain is sure any more */
        meter->mixed |= event == NULL;
        marker->context = pass->context;
        marker->ready = true;
    }
    lock_put(&meter->lock);
}

static void meter_reset(struct meter *meter, uint64_t now)
{
    for (unsigned i = 0; i < METER_MARKERS && meter->count; i++)
        meter->marker[i].number = 0; /* markers still on their way find their number gone */
    meter->resets++;
    meter->first = (meter->first + meter->count) % METER_MARKERS; /* their events rest a while */
    meter->mixed = false;
    meter->count = 0;
    meter->out = 0;
    meter->unmarked = 0;
    meter->relaxed = false;
    meter->relenting = false;
    meter->done_ns = now;
    meter->busy_until_ns = now;
}

void meter_clear(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    meter_reset(&gate->meter, clock_now());
    lock_put(&gate->meter.lock);
}

/* A launch is counted here before its mark comes down, and counts for the gate after. So with no
 * mark up and the gate's count unchanged under the lock, the next one is counted after this. */
bool meter_clear_quiet(struct gate *gate, uint64_t launches)
{
    lock_take(&gate->meter.lock);
    bool quiet = !gate_inside(gate) && gate_count(gate) == launches;
    if (quiet)
        meter_reset(&gate->meter, clock_now());
    lock_put(&gate->meter.lock);
    return quiet;
}

void meter_relent(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    gate->meter.relenting = true;
    if (gate->meter.unit_ns == 0)
        gate->meter.busy_until_ns = 0;
    gate->meter.given_up = gate->meter.number;
    gate->meter.given_up_ns = clock_now();
    lock_put(&gate->meter.lock);
}

void meter_blind(struct gate *gate, bool blind)
{
    atomic_store(&gate->meter.blind, blind);
}

bool meter_poll(struct gate *gate)
{
    struct meter *meter = &gate->meter;
    meter_collect(meter);
    lock_take(&meter->lock);
    bool done = meter->out == 0;
    lock_put(&meter->lock);
    return done;
}

bool meter_synced(struct gate *gate, uint64_t before, CUstream done, const struct gate_mark *mark,
                  const struct context *context)
{
    struct meter *meter = &gate->meter;
    uint64_t now = clock_now();
    lock_take(&meter->lock);
    bool covers = (done == GATE_ALL && contexts_alone(gate)) ||
                  (!meter->mixed && meter_stream(done, mark, context) == meter->stream);
    bool all = covers && meter->total == before;
    if (all && meter->count == 1 && meter->marker[meter->first].ready)
        meter_learn(meter, meter->out, meter->marker[meter->first].recorded_ns, meter->number, now);
    if (all)
        meter_reset(meter, now);
    meter->relaxed = false;
    meter->relenting = false;
    lock_put(&meter->lock);
    return all || meter_poll(gate);
}

bool meter_sure(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    bool sure = !gate->meter.mixed && !gate->meter.blind;
    lock_put(&gate->meter.lock);
    return sure;
}

unsigned meter_unmarked(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    unsigned unmarked = gate->meter.unmarked;
    lock_put(&gate->meter.lock);
    return unmarked;
}

uint64_t meter_stuck(struct gate *gate, unsigned relents)
{
    const struct meter *meter = &gate->meter;
    lock_take(&gate->meter.lock);
    uint64_t stuck = meter_dependent(meter) ? METER_PATIENCE_NS
                     : meter->unit_ns       ? METER_PATIENCE_NS << relents
                                            : 10 * METER_PATIENCE_NS << relents;
    lock_put(&gate->meter.lock);
    return stuck;
}

uint64_t meter_busy_until(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    uint64_t until = gate->meter.busy_until_ns;
    lock_put(&gate->meter.lock);
    return until;
}

void meter_forget(struct gate *gate, const struct context *context)
{
    struct meter *meter = &gate->meter;
    lock_take(&meter->lock);
    for (unsigned i = 0; i < METER_MARKERS; i++)
        if (meter->marker[i].context == context)
            meter->marker[i].event = NULL;
    lock_put(&meter->lock);
}
