/*
 * meter: the bound on run-ahead (see meter.h). Runs on submitting threads, in company only; the
 * keeper polls. The bound is the larger of one launch and min(quantum / 4, 1 ms) of work. With
 * launches longer than that the next one may go a little before the running one's expected end, so
 * that the GPU does not run dry while a thread wakes up.
 *
 * A program may queue work that waits for what the same thread does later; then no waiting here
 * helps. So the wait ends 10 ms after the work should have, the launch passes and is counted; the
 * next waits twice as long, and so on for about a second in all; then the bound is off until
 * something is seen done or the program synchronises.
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
#define METER_PATIENCE_MOST_NS (640 * CLOCK_MS)
/* Work that ends so soon after a launch was let through had been waiting for its thread. */
#define METER_PROOF_NS (5 * CLOCK_MS)
#define METER_NAP_LEAST_NS (50 * CLOCK_US)
#define METER_NAP_MOST_NS (500 * CLOCK_US)

static uint64_t meter_bound(const struct gate *gate)
{
    struct ring *ring = gate->ring;
    uint64_t quarter = atomic_load(&ring_shared(ring)->quantum_ns) / 4;
    return quarter < METER_BOUND_NS ? quarter : METER_BOUND_NS;
}

/* How many launches may be out at once. */
static unsigned meter_room(const struct meter *meter, uint64_t bound)
{
    if (meter->unit_ns == 0)
        return 2;
    uint64_t room = bound / meter->unit_ns;
    return room < 1 ? 1 : room > 1000 ? 1000 : (unsigned)room;
}

/* How long a launch should wait now; 0: not at all. */
static uint64_t meter_excess(const struct meter *meter, uint64_t bound, uint64_t now)
{
    unsigned room = meter_room(meter, bound);
    uint64_t left = meter->busy_until_ns > now ? meter->busy_until_ns - now : 0;
    if (meter->relaxed || meter->out < room)
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

/* Late looks and an idle GPU only ever make a sample too long, so short ones count for more. */
static uint64_t meter_mean(uint64_t mean, uint64_t sample)
{
    if (mean == 0)
        return sample;
    return sample < mean ? (mean + 3 * sample) / 4 : (15 * mean + sample) / 16;
}

static void meter_learn(struct meter *meter, const struct meter_marker *marker, uint64_t now)
{
    uint64_t from = marker->recorded_ns > meter->done_ns ? marker->recorded_ns : meter->done_ns;
    uint64_t unit = marker->launches && now > from ? (now - from) / marker->launches : 0;
    bool waited_for = marker->number <= meter->given_up;
    if (waited_for && now - meter->given_up_ns < METER_PROOF_NS)
        meter->dependent = true;
    if (unit && !waited_for)
        meter->unit_ns = meter_mean(meter->unit_ns, unit);
    meter->done_ns = now;
    meter->out -= marker->launches < meter->out ? marker->launches : meter->out;
    meter->busy_until_ns = now + meter->out * meter->unit_ns;
    meter->patience_ns = 0;
    meter->relaxed = false;
}

/* Takes the first marker off if it is still the one with this number. */
static void meter_pop(struct meter *meter, uint64_t number, uint64_t now)
{
    struct meter_marker *marker = &meter->marker[meter->first];
    if (meter->count == 0 || marker->number != number)
        return;
    meter_learn(meter, marker, now);
    meter->first = (meter->first + 1) % METER_MARKERS;
    meter->count--;
}

static bool meter_oldest(struct meter *meter, struct meter_marker *marker)
{
    if (meter->count == 0 || !meter->marker[meter->first].ready)
        return false;
    *marker = meter->marker[meter->first];
    return true;
}

/* Whether a marker is done. The thread may be in a capture mode in which a query would break
 * another thread's capture, and the marker's context may be about to go. */
static bool meter_done(const struct meter_marker *marker)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool done = true;
    lock_take(&guest.driver_lock); /* no capture begins meanwhile */
    bool relax = guest.captures > 0;
    if (relax)
        real.cuThreadExchangeStreamCaptureMode(&mode);
    if (marker->event && !marker->context->closing)
        done = real.cuEventQuery(marker->event) != CUDA_ERROR_NOT_READY;
    if (relax)
        real.cuThreadExchangeStreamCaptureMode(&mode);
    lock_put(&guest.driver_lock);
    return done;
}

/* One query of the oldest marker; true when it was done and another look is worth while. */
static bool meter_advance(struct meter *meter)
{
    struct meter_marker marker;
    lock_take(&meter->lock);
    bool have = meter_oldest(meter, &marker);
    lock_put(&meter->lock);
    if (!have || !meter_done(&marker))
        return false;
    lock_take(&meter->lock);
    meter_pop(meter, marker.number, clock_now());
    lock_put(&meter->lock);
    return true;
}

/* How long beyond its expected end work is waited for; doubles with each launch that waited in
 * vain. Work of unknown length gets more, unless this program has shown that its kernels wait for
 * it. */
static uint64_t meter_patience(const struct meter *meter)
{
    if (meter->patience_ns)
        return meter->patience_ns;
    return meter->dependent ? METER_PATIENCE_NS / 10
           : meter->unit_ns ? METER_PATIENCE_NS
                            : METER_PATIENCE_NS * 10;
}

/* Waiting did not help: this launch passes. After a second or so of that the bound is off until
 * something is seen done. What ends now says nothing about how long launches take. */
static void meter_give_up(struct gate *gate)
{
    struct meter *meter = &gate->meter;
    struct ring *ring = gate->ring;
    lock_take(&meter->lock);
    meter->patience_ns = 2 * meter_patience(meter);
    meter->relaxed = meter->patience_ns > METER_PATIENCE_MOST_NS;
    meter->given_up = meter->number;
    meter->given_up_ns = clock_now();
    lock_put(&meter->lock);
    slot_count(ring_shared(ring), ring->slot, overruns, 1);
}

void meter_before(struct gate *gate)
{
    struct meter *meter = &gate->meter;
    uint64_t bound = meter_bound(gate), give_up = 0;
    for (;;) {
        uint64_t now = clock_now();
        lock_take(&meter->lock);
        uint64_t nap = meter_excess(meter, bound, now);
        if (give_up == 0)
            give_up =
                (meter->busy_until_ns > now ? meter->busy_until_ns : now) + meter_patience(meter);
        lock_put(&meter->lock);
        if (nap == 0)
            return;
        if (meter_advance(meter))
            continue;
        if (now > give_up) {
            meter_give_up(gate);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    }
}

/* Counts a launch; the place of a marker that is due behind it, or NULL. */
static struct meter_marker *meter_due(struct meter *meter, CUstream stream, uint64_t bound,
                                      bool may_mark)
{
    uint64_t now = clock_now();
    unsigned every = (meter_room(meter, bound) + 3) / 4;
    if (meter->out == 0) {
        meter->stream = stream;
        meter->mixed = false;
    }
    meter->mixed |= stream != meter->stream;
    meter->out++;
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

void meter_after(struct gate *gate, CUstream stream, bool may_mark)
{
    struct meter *meter = &gate->meter;
    struct context *context = contexts_note();
    uint64_t bound = meter_bound(gate);
    lock_take(&meter->lock);
    struct meter_marker *marker = meter_due(meter, stream, bound, may_mark && context);
    uint64_t number = marker ? marker->number : 0;
    unsigned place = marker ? (unsigned)(marker - meter->marker) : 0;
    lock_put(&meter->lock);
    if (!marker)
        return;
    CUevent event = contexts_marker(context, place);
    if (event && real.cuEventRecord(event, stream) != CUDA_SUCCESS)
        event = NULL;
    lock_take(&meter->lock);
    if (marker->number == number) {
        marker->event = event; /* NULL counts as done: the drain covers what it stood for */
        marker->context = context;
        marker->ready = true;
    }
    lock_put(&meter->lock);
}

static void meter_reset(struct meter *meter, uint64_t now)
{
    if (meter->count) /* markers still on their way find their number gone */
        for (unsigned i = 0; i < METER_MARKERS; i++)
            meter->marker[i].number = 0;
    meter->count = 0;
    meter->out = 0;
    meter->unmarked = 0;
    meter->relaxed = false;
    meter->patience_ns = 0;
    meter->done_ns = now;
    meter->busy_until_ns = now;
}

void meter_blind(struct gate *gate, bool blind)
{
    atomic_store(&gate->meter.blind, blind);
}

void meter_clear(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    meter_reset(&gate->meter, clock_now());
    lock_put(&gate->meter.lock);
}

bool meter_poll(struct gate *gate)
{
    struct meter *meter = &gate->meter;
    for (unsigned i = 0; i < METER_MARKERS && meter_advance(meter); i++)
        ;
    lock_take(&meter->lock);
    bool done = meter->out == 0;
    lock_put(&meter->lock);
    return done;
}

bool meter_synced(struct gate *gate, CUstream done)
{
    struct meter *meter = &gate->meter;
    uint64_t now = clock_now();
    lock_take(&meter->lock);
    bool all = done == GATE_ALL || (done == meter->stream && !meter->mixed);
    if (all && meter->count == 1 && meter->marker[meter->first].ready)
        meter_pop(meter, meter->marker[meter->first].number, now);
    if (all)
        meter_reset(meter, now);
    meter->relaxed = false;
    meter->patience_ns = 0;
    lock_put(&meter->lock);
    return all || meter_poll(gate);
}

unsigned meter_unmarked(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    unsigned unmarked = gate->meter.unmarked;
    lock_put(&gate->meter.lock);
    return unmarked;
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
