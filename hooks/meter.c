/*
 * meter: the bound on run-ahead (see meter.h). Runs on submitting threads, in company only; the
 * keeper polls. The bound is the larger of one launch and METER_BOUND_NS, or a quarter of the
 * quantum, of work; and nothing is submitted that would begin after the slice's end. Where launches
 * take about as long as the bound, or longer, the next one may go 0.2 ms before the running one's
 * expected end, so that the GPU does not run dry while a thread wakes up.
 *
 * When work will end is computed, not observed: `begun_ns` is when the oldest launch that is out
 * has begun, and each kind of launch (kind.h) has a learnt length, in its stream or else in any. A
 * look that comes late learns nothing about the time: the end was where it was expected, unless a
 * look in between has said otherwise. Lengths are learnt from the time between two markers, as the
 * GPU noted it, if the GPU did not pause in between, which is known when the first was not done yet
 * after the second was recorded, and if what is between them is of one kind. Of kinds that were
 * never seen one launch at a time is out, with a marker of its own. So one long kernel is queued
 * behind short ones, and no more behind it than the bound.
 *
 * Several threads. Each bit of room would go to those that need little; so who has waited for some
 * time goes first, and the others wait for that one.
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
#include "closely.h"
#include "contexts.h"
#include "gate.h"
#include "kind.h"
#include "outside.h"
#include "own.h"
#include "real.h"
#include "slot.h"

#define METER_BOUND_NS CLOCK_MS
#define METER_EARLY_NS (200 * CLOCK_US)
#define METER_PATIENCE_NS (10 * CLOCK_MS)
/* The wait doubles with each launch beyond the bound, so often. */
#define METER_BEYOND 6u
/* Less than the keeper lets the gate stay open for when it relents, so that a launch can pass. */
#define METER_RELENTING_NS (3 * CLOCK_MS)
/* Being kept off the CPUs for longer than this is no waiting in vain. */
#define METER_ABSENT_NS CLOCK_MS
/* Work that ends so soon after a launch was let through had been waiting for its thread. */
#define METER_PROOF_NS CLOCK_MS
/* So many times in a row is no coincidence. */
#define METER_PROOFS 2u
/* So many launches in a row to one stream tell that there is but one. */
#define METER_STREAK 64u
/* No marker stands for more launches. */
#define METER_MOST 250u
/* What several launches may take longer or shorter than they should, besides half of it. */
#define METER_DOUBT_NS (20 * CLOCK_US)
/* So many launches in a row that the program has waited for tell that it will for the next. */
#define METER_STEPS 8u
/* Who has waited longer goes before other threads; who has not been seen for longer is gone. */
#define METER_LINE_NS (2 * CLOCK_MS)
#define METER_NAP_LEAST_NS (20 * CLOCK_US)
#define METER_NAP_MOST_NS (500 * CLOCK_US)

static uint64_t meter_bound(const struct gate *gate)
{
    struct ring *ring = gate->ring;
    uint64_t quarter = segment_quantum(ring_shared(ring)) / 4;
    return quarter < METER_BOUND_NS ? quarter : METER_BOUND_NS;
}

/* ---- Streams ---- */

/* One name for each stream: 0x2 is another one in every thread, 0x1 in every context, and both
 * in a green context, which one thread at a time is in. */
static uintptr_t meter_key(CUstream stream, const struct gate_mark *mark,
                           const struct context *context)
{
    uintptr_t part = contexts_part(context);
    if (stream == CU_STREAM_PER_THREAD)
        return (part == (uintptr_t)context ? (uintptr_t)mark : part) + 2;
    return stream == CU_STREAM_LEGACY ? part + 1 : (uintptr_t)stream;
}

uintptr_t meter_key_of(const struct gate_pass *pass)
{
    return meter_key(pass->stream, pass->mark, pass->context);
}

static struct meter_stream *meter_find(struct meter *meter, uintptr_t key)
{
    for (unsigned i = 0; i < METER_STREAMS; i++)
        if (meter->stream[i].key == key)
            return &meter->stream[i];
    return NULL;
}

/* The stream's place, made when it is new; then the stream that has been still longest goes. */
static struct meter_stream *meter_stream(struct meter *meter, uintptr_t key)
{
    struct meter_stream *stream = meter_find(meter, key);
    if (stream)
        return stream;
    stream = &meter->stream[0];
    for (unsigned i = 1; i < METER_STREAMS; i++)
        if (meter->stream[i].used < stream->used)
            stream = &meter->stream[i];
    *stream = (struct meter_stream){.key = key};
    return stream;
}

/* ---- Kinds ---- */

/* What a launch of one kind takes, as learnt. Not among what a forked child finds wiped: it is no
 * secret and no state, and not a page of it need be touched. */
struct meter_kind {
    uint64_t kind; /* 0 = free */
    uint64_t unit_ns;
};

#define METER_KINDS 2048u
#define METER_WAYS 4u /* places that a kind may have: a cache line */

static _Alignas(64) struct meter_kind meter_kinds[GATE_DEVICES][METER_KINDS];

static struct meter_kind *meter_table(const struct meter *meter)
{
    size_t at = (size_t)((const char *)meter - (const char *)&guest.gate[0].meter);
    return meter_kinds[at / sizeof guest.gate[0]];
}

/* A kind in one stream: the same function may have more to do there than elsewhere. */
static uint64_t meter_kind_in(uint64_t kind, uintptr_t key)
{
    return kind_spread(kind ^ key) | 1;
}

/* Where this kind is, or would be put in place of another. */
static struct meter_kind *meter_place_of(const struct meter *meter, uint64_t kind)
{
    struct meter_kind *first = meter_table(meter);
    unsigned i = 0;
    first += (kind >> 8) % (METER_KINDS / METER_WAYS) * METER_WAYS;
    while (i < METER_WAYS && first[i].kind && first[i].kind != kind)
        i++;
    return &first[i < METER_WAYS ? i : (unsigned)(meter->number % METER_WAYS)];
}

static uint64_t meter_kind_ns(const struct meter *meter, uint64_t kind)
{
    const struct meter_kind *place = meter_place_of(meter, kind);
    return place->kind == kind ? place->unit_ns : 0;
}

/* What a launch of this kind takes in this stream; 0: not known. */
static uint64_t meter_known(const struct meter *meter, uint64_t kind, uintptr_t key)
{
    uint64_t here = meter_kind_ns(meter, meter_kind_in(kind, key));
    return here ? here : meter_kind_ns(meter, kind);
}

/* ---- When work will end ---- */

/* What the oldest marker stands for, or what is behind the last one when there is none. */
static uint64_t meter_first_ns(const struct meter *meter)
{
    return meter->count ? meter->marker[meter->first].work_ns : meter->tail_ns;
}

/* When all that is out should be done; in the past when it is overdue. What is behind an overdue
 * launch begins now at the earliest. */
static uint64_t meter_due_ns(const struct meter *meter, uint64_t now)
{
    uint64_t end = meter->begun_ns + meter->out_ns, rest = meter->out_ns - meter_first_ns(meter);
    if (meter->out == 0)
        return now;
    return rest && end < now + rest ? now + rest : end;
}

/* The same, but not before now: what should be over and is not may be over any time. */
static uint64_t meter_end(const struct meter *meter, uint64_t now)
{
    uint64_t end = meter_due_ns(meter, now);
    return end > now ? end : now;
}

/* ---- Whether a launch has to wait ---- */

/* When this slice ends, if somebody waits for that. */
static uint64_t meter_slice_end(const struct gate *gate)
{
    uint64_t granted, lease = atomic_load(&gate->lease);
    if (!ring_wanted(gate->ring))
        return CLOCK_NEVER;
    return ring_slice_end(gate->ring, lease & ~GATE_SLOW, &granted);
}

/* To wake when `ns` have passed, by what sleeps are wont to overshoot. */
static uint64_t meter_nap_length(const struct meter *meter, uint64_t ns)
{
    uint64_t nap = ns > meter->closely.late_ns ? ns - meter->closely.late_ns : 0;
    return nap < METER_NAP_LEAST_NS  ? METER_NAP_LEAST_NS
           : nap > METER_NAP_MOST_NS ? METER_NAP_MOST_NS
                                     : nap;
}

/* What a launch of this kind takes; 0: not known, and a marker will tell. Where none can, in a
 * stream whose launches overlap, it is what launches take that are known. */
static uint64_t meter_length(struct meter *meter, uint64_t kind, uintptr_t key)
{
    uint64_t known = meter_known(meter, kind, key);
    const struct meter_stream *stream = known ? NULL : meter_find(meter, key);
    return stream && stream->overlaps ? meter->unit_ns : known;
}

/* How long a launch of this kind into the stream should wait now; 0: not at all. */
static uint64_t meter_excess(struct meter *meter, uint64_t kind, uintptr_t key, uint64_t bound,
                             uint64_t slice_end, uint64_t now)
{
    uint64_t end = meter_end(meter, now), left = end - now;
    bool full = meter->mixed && meter->count >= METER_MARKERS - 1;
    if (meter->relaxed)
        return 0;
    if (slice_end == CLOCK_NEVER)
        bound -= bound / 4; /* who comes unannounced has to be noticed within the millisecond too */
    if (end >= slice_end && !meter->relenting)
        return METER_NAP_LEAST_NS; /* it would begin in another's slice */
    if (meter->out == 0)
        return 0;
    bool unknowable = meter->count == 0 && left == 0;
    uint64_t own = meter_length(meter, kind, key);
    if (unknowable || (own == 0 && !full && left <= bound && meter->unknown == 0))
        return 0;
    if (full || own == 0)
        return METER_NAP_LEAST_NS;
    uint64_t room = own < bound ? bound - own : 0; /* for what is out before it */
    room = room > METER_EARLY_NS ? room : METER_EARLY_NS;
    if (left <= room + METER_NAP_LEAST_NS) /* a sleep for the rest of it would take far longer */
        return 0;
    return meter_nap_length(meter, left - room);
}

/* ---- Learning ---- */

/* Late looks and an idle GPU make a sample too long, so short ones count for more. */
static uint64_t meter_mean(uint64_t mean, uint64_t sample, bool exact)
{
    if (mean == 0)
        return sample;
    if (exact)
        return (3 * mean + sample) / 4;
    return sample < mean ? (mean + 3 * sample) / 4 : (15 * mean + sample) / 16;
}

static void meter_learn_kind(struct meter *meter, uint64_t kind, uint64_t unit, bool exact)
{
    struct meter_kind *place = meter_place_of(meter, kind);
    if (place->kind != kind)
        *place = (struct meter_kind){.kind = kind};
    place->unit_ns = meter_mean(place->unit_ns, unit, exact);
}

static void meter_learn_unit(struct meter *meter, uint64_t kind, uintptr_t key, uint64_t unit,
                             bool exact)
{
    unit = unit ? unit : 1;
    meter->unit_ns = meter_mean(meter->unit_ns, unit, exact);
    if (kind == 0)
        return;
    meter_learn_kind(meter, kind, unit, exact);
    meter_learn_kind(meter, meter_kind_in(kind, key), unit, exact);
}

/* Launches of several kinds whose sum is not what is known of them: one lasts longer now, or
 * shorter. */
static void meter_doubt(struct meter *meter, const struct meter_marker *marker, uint64_t took)
{
    if (marker->kind == 0 && (took > marker->work_ns + marker->work_ns / 2 + METER_DOUBT_NS ||
                              marker->work_ns > took + took / 2 + METER_DOUBT_NS))
        meter->doubt = METER_STREAK;
}

/* A marker is done; `took` is what the GPU says that lasted, 0 when it is not known. What is found
 * `again` in one look has ended at some time since the look before: that tells no length. */
static void meter_learn(struct meter *meter, const struct meter_marker *marker, uint64_t took,
                        bool again, uint64_t now)
{
    uint64_t from = meter->begun_ns; /* not when its predecessor was found done: that may be late */
    bool let_through = marker->number <= meter->given_up;
    bool waited_for = let_through && now - meter->given_up_ns < METER_PROOF_NS;
    if (let_through)
        meter->proofs = waited_for ? meter->proofs + (meter->proofs < METER_PROOFS) : 0;
    if (marker->launches && !waited_for && (took || (!again && now > from)))
        meter_learn_unit(meter, marker->kind, marker->stream,
                         (took ? took : now - from) / marker->launches, took != 0);
    if (took)
        meter_doubt(meter, marker, took);
    meter->done_ns = now;
    meter->relenting = false;
    meter->relaxed = false;
}

/* The oldest marker's work has ended: when, as far as can be told. */
static void meter_advance(struct meter *meter, const struct meter_marker *marker, uint64_t took,
                          uint64_t now)
{
    uint64_t ended = meter->begun_ns + (took ? took : marker->work_ns);
    ended = ended > meter->undone_ns ? ended : meter->undone_ns;
    ended = ended < now ? ended : now;
    uint64_t next = meter->count ? meter->marker[meter->first].recorded_ns : 0;
    meter->begun_ns = next > ended ? next : ended;
    meter->unknown -= marker->unknown < meter->unknown ? marker->unknown : meter->unknown;
    meter->out -= marker->launches < meter->out ? marker->launches : meter->out;
    meter->out_ns -= marker->work_ns < meter->out_ns ? marker->work_ns : meter->out_ns;
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

/* Takes the first marker off if it is still this one. */
static bool meter_pop(struct meter *meter, const struct meter_marker *marker, uint64_t took,
                      bool again)
{
    uint64_t now = clock_now();
    lock_take(&meter->lock);
    bool same = meter->count > 0 && meter->marker[meter->first].number == marker->number;
    if (same) {
        meter->popped = marker->event;
        meter->first = (meter->first + 1) % METER_MARKERS;
        meter->count--;
        meter_learn(meter, marker, took, again, now);
        meter_advance(meter, marker, took, now);
    }
    lock_put(&meter->lock);
    return same;
}

static void meter_undone(struct meter *meter, uint64_t asked_ns)
{
    lock_take(&meter->lock);
    meter->undone_ns = asked_ns;
    lock_put(&meter->lock);
}

/* What the GPU says passed between the marker before and this one, which are done; 0: unknown. */
static uint64_t meter_took(const struct meter *meter, const struct meter_marker *marker)
{
    float ms = 0;
    if (!marker->chained || !marker->event || !meter->popped ||
        real.cuEventElapsedTime(&ms, meter->popped, marker->event) != CUDA_SUCCESS || ms <= 0)
        return 0;
    return (uint64_t)((double)ms * 1e6);
}

/* Under guest.driver_lock: no context dies and no capture begins meanwhile. */
static bool meter_collect_locked(struct meter *meter)
{
    struct meter_marker marker = {0};
    bool any = false;
    while (meter_oldest(meter, &marker)) {
        uint64_t asked = clock_now();
        if (marker.event &&
            (marker.context->closing || real.cuEventQuery(marker.event) == CUDA_ERROR_NOT_READY)) {
            meter_undone(meter, asked);
            break;
        }
        if (!meter_pop(meter, &marker, meter_took(meter, &marker), any))
            break; /* a synchronise has emptied it meanwhile */
        any = true;
    }
    return any;
}

/* Takes off the markers that are done; true when there were any. The calling thread may be in a
 * capture mode in which a query would break another thread's capture. */
static bool meter_collect(struct meter *meter)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!own_try())
        return false;
    bool relax = guest.captures > 0;
    if (relax)
        real.cuThreadExchangeStreamCaptureMode(&mode);
    bool any = meter_collect_locked(meter);
    if (relax)
        real.cuThreadExchangeStreamCaptureMode(&mode);
    own_put();
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
    if (meter->unit_ns == 0)
        return meter->out > 1 ? meter->out - 1 : 0;
    uint64_t room = bound / meter->unit_ns;
    return meter->out > room + 1 ? (unsigned)(meter->out - room - 1) : 0;
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
    uint64_t patience = first << (beyond < METER_BEYOND ? beyond : METER_BEYOND);
    return meter->relenting && patience > METER_RELENTING_NS ? METER_RELENTING_NS : patience;
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

/* Whether another launch has waited for so long that this one, which would have to wait for so long
 * by itself, lets it go first. A thread that waits looks every METER_NAP_MOST_NS. */
static bool meter_behind(struct meter *meter, const struct gate_pass *pass, uint64_t nap,
                         uint64_t now)
{
    bool mine = meter->line == pass;
    if (!mine && meter->line && now < meter->line_seen_ns + METER_LINE_NS)
        return now > meter->line_ns + METER_LINE_NS;
    if (!mine)
        meter->line_ns = now;
    meter->line_seen_ns = now;
    meter->line = nap ? pass : NULL;
    return false;
}

/* One look: how long to sleep before the next (0: pass), and when to give up, which moves on as
 * long as work gets done. */
static uint64_t meter_look(struct gate *gate, const struct gate_pass *pass, uintptr_t key,
                           uint64_t *give_up, uint64_t *done)
{
    struct meter *meter = &gate->meter;
    uint64_t now = clock_now(), bound = meter_bound(gate), slice_end = meter_slice_end(gate);
    lock_take(&meter->lock);
    bool free = gate_counts(gate) || meter->relaxed || meter->relenting;
    uint64_t nap =
        gate_counts(gate) ? 0 : meter_excess(meter, pass->kind, key, bound, slice_end, now);
    if (!free && meter_behind(meter, pass, nap, now) && nap == 0)
        nap = METER_NAP_LEAST_NS;
    if (*give_up == 0 || meter->done_ns != *done) {
        *done = meter->done_ns;
        /* In a drain that is stuck its expected end means nothing; and the gate closes again soon.
         */
        *give_up = (meter->relenting ? now : meter_end(meter, now)) + meter_patience(meter, bound);
    }
    lock_put(&meter->lock);
    return nap;
}

/* Sleeps; how much longer than that the thread was away. What sleeps overshoot by is learnt. */
static uint64_t meter_nap(struct meter *meter, uint64_t nap)
{
    uint64_t from = clock_now();
    nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
    uint64_t away = clock_now() - from;
    lock_take(&meter->lock);
    closely_slept(&meter->closely, nap, away);
    lock_put(&meter->lock);
    return away > nap + METER_ABSENT_NS ? away - nap : 0;
}

/* A thread that naps here wants the next turn as well, if this one ends meanwhile. */
static void meter_say_waits(struct gate *gate, const struct gate_pass *pass)
{
    if (pass->mark && atomic_load_explicit(&pass->mark->waits, memory_order_relaxed) != gate)
        gate_wait_begin(pass->mark, gate, clock_now());
}

void meter_before(struct gate *gate, const struct gate_pass *pass)
{
    struct meter *meter = &gate->meter;
    uintptr_t key = meter_key_of(pass);
    uint64_t give_up = 0, done = 0;
    own_left(pass->here);
    if (meter->relaxed)
        meter_collect(meter);
    for (;;) {
        uint64_t nap = meter_look(gate, pass, key, &give_up, &done);
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
        meter_say_waits(gate, pass);
        give_up += meter_nap(meter, nap);
    }
}

/* Counts a launch, which takes so long; 0: not known. */
static struct meter_stream *meter_count(struct meter *meter, uint64_t kind, uintptr_t key,
                                        uint64_t known, uint64_t now)
{
    struct meter_stream *stream = meter_stream(meter, key);
    uint64_t unit = known ? known : meter->unit_ns;
    unsigned unknown = known == 0 && !stream->overlaps;
    if (key != meter->last) {
        meter->last = key;
        meter->streak = 0;
        if (meter->unmarked) /* a marker in this stream does not tell of them */
            atomic_store(&meter->blind, true);
    }
    if (meter->out && meter->count == 0 && meter->begun_ns + meter->out_ns < now)
        meter->begun_ns = now - meter->out_ns; /* no marker will tell: by time it is done */
    if (meter->out == 0) {
        meter->begun_ns = now;
        meter->out_ns = meter->tail_ns = 0;
        meter->only = meter->mixed ? meter->only : key;
    }
    meter->mixed |= key != meter->only;
    meter->tail_kind = meter->unmarked == 0 || meter->tail_kind == kind ? kind : 0;
    meter->doubt -= meter->doubt > 0;
    meter->unknown += unknown;
    meter->tail_unknown += unknown;
    meter->out++;
    meter->total++;
    meter->unmarked++;
    meter->out_ns += unit;
    meter->tail_ns += unit;
    stream->used = meter->total;
    return stream;
}

/* Whether the program is likely to wait for this launch before it makes another, and nobody else
 * waits for its end: then it needs no marker. If it makes another after all, that one gets it. */
static bool meter_step(const struct gate *gate)
{
    const struct meter *meter = &gate->meter;
    return meter->out == 1 && meter->steps >= METER_STEPS && !ring_wanted(gate->ring);
}

/* Whether a marker goes behind the launch that was counted last: of a kind that is not known, and
 * where there is more than one stream, behind each; else where a quarter of the bound is unmarked.
 */
static bool meter_due(struct gate *gate, uint64_t known, uint64_t bound)
{
    struct meter *meter = &gate->meter;
    if (guest.captures || meter->mixed || outside_any() || meter->doubt || known == 0)
        return true;
    if (meter_step(gate))
        return meter->unmarked >= 2;
    return meter->streak++ < METER_STREAK || 4 * meter->tail_ns >= bound ||
           meter->unmarked >= METER_MOST;
}

/* A marker on its way: its place, and the event of the marker in front, if that can be asked. */
struct meter_place {
    struct meter_marker *marker; /* NULL: none is due, or there is no room */
    uint64_t number;
    CUevent before;
};

/* Takes a place for a marker behind the unmarked launches, all of them to one stream. */
static struct meter_place meter_take_place(struct meter *meter, uintptr_t key,
                                           const struct context *context)
{
    struct meter_place place = {0};
    if (!context || meter->unmarked == 0 || meter->count >= METER_MARKERS - 1)
        return place;
    struct meter_marker *last =
        &meter->marker[(meter->first + meter->count + METER_MARKERS - 1) % METER_MARKERS];
    if (meter->count && last->ready && last->context == context && !guest.captures)
        place.before = last->event;
    place.marker = &meter->marker[(meter->first + meter->count) % METER_MARKERS];
    place.number = ++meter->number;
    *place.marker = (struct meter_marker){.number = place.number,
                                          .stream = key,
                                          .kind = meter->tail_kind,
                                          .recorded_ns = clock_now(),
                                          .work_ns = meter->tail_ns,
                                          .launches = meter->unmarked,
                                          .unknown = meter->tail_unknown};
    meter->count++;
    meter->unmarked = 0;
    meter->tail_unknown = 0;
    meter->tail_ns = 0;
    return place;
}

/* Whether the marker in front is not done yet. Under guest.driver_lock, so that no capture begins
 * meanwhile which the question would break. */
static bool meter_front_undone(CUevent before)
{
    if (!before || !own_try())
        return false;
    bool undone = !guest.captures && real.cuEventQuery(before) == CUDA_ERROR_NOT_READY;
    own_put();
    return undone;
}

/* Records the marker; without the meter's lock, since the driver may block. */
static void meter_record(struct meter *meter, const struct gate_pass *pass,
                         const struct meter_place *place)
{
    struct meter_marker *marker = place->marker;
    CUevent event = contexts_marker(pass->context, (unsigned)(marker - meter->marker));
    if (event && real.cuEventRecord(event, pass->stream) != CUDA_SUCCESS)
        event = NULL;
    bool chained = event && meter_front_undone(place->before);
    lock_take(&meter->lock);
    if (marker->number == place->number) {
        marker->event = event; /* NULL counts as done here, so only the drain is sure any more */
        if (!event)
            atomic_store(&meter->blind, true);
        marker->context = pass->context;
        marker->chained = chained;
        marker->ready = true;
    }
    lock_put(&meter->lock);
}

void meter_after(struct gate *gate, const struct gate_pass *pass)
{
    struct meter *meter = &gate->meter;
    uintptr_t key = meter_key_of(pass);
    uint64_t bound = meter_bound(gate);
    struct meter_place place = {0};
    lock_take(&meter->lock);
    uint64_t known = meter_known(meter, pass->kind, key);
    struct meter_stream *stream = meter_count(meter, pass->kind, key, known, clock_now());
    stream->overlaps |= pass->overlaps;
    if (!stream->overlaps && meter_due(gate, known, bound))
        place = meter_take_place(meter, key, pass->context);
    lock_put(&meter->lock);
    if (place.marker)
        meter_record(meter, pass, &place);
}

void meter_mark(struct gate *gate, const struct gate_pass *pass, bool waits)
{
    struct meter *meter = &gate->meter;
    uintptr_t key = meter_key_of(pass);
    struct meter_place place = {0};
    lock_take(&meter->lock);
    const struct meter_stream *stream = meter_find(meter, key);
    if (meter->last == key && (waits || (stream && stream->overlaps)))
        place = meter_take_place(meter, key, pass->context);
    lock_put(&meter->lock);
    if (place.marker)
        meter_record(meter, pass, &place);
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
    meter->out_ns = meter->tail_ns = 0;
    meter->unknown = meter->tail_unknown = 0;
    meter->relaxed = false;
    meter->relenting = false;
    meter->done_ns = now;
}

/* All that is out has just been found done. Where no marker tells how long launches take, that is
 * what there is to learn from. */
static void meter_learn_all(struct meter *meter, uint64_t now)
{
    if (meter->out && meter->count == 0 && !meter->mixed && now > meter->begun_ns)
        meter_learn_unit(meter, meter->tail_kind, meter->only, (now - meter->begun_ns) / meter->out,
                         false);
}

void meter_clear(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    meter_learn_all(&gate->meter, clock_now());
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
                  (!meter->mixed && meter_key(done, mark, context) == meter->only);
    bool all = covers && meter->total == before;
    if (all && meter->count == 1 && meter->unmarked == 0 && meter->marker[meter->first].ready)
        meter_learn(meter, &meter->marker[meter->first], 0, false, now);
    if (all) {
        meter->steps = meter->out == 1 ? meter->steps + 1 : 0;
        meter_learn_all(meter, now);
        meter_reset(meter, now);
    }
    meter->relaxed = false;
    meter->relenting = false;
    lock_put(&meter->lock);
    return all || meter_poll(gate);
}

bool meter_sure(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    bool sure = !gate->meter.blind;
    lock_put(&gate->meter.lock);
    return sure;
}

unsigned meter_out(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    unsigned out = gate->meter.out;
    lock_put(&gate->meter.lock);
    return out;
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
    uint64_t until = meter_due_ns(&gate->meter, clock_now());
    lock_put(&gate->meter.lock);
    return until;
}

uint64_t meter_should_end(struct gate *gate)
{
    lock_take(&gate->meter.lock);
    uint64_t end = gate->meter.begun_ns + gate->meter.out_ns;
    lock_put(&gate->meter.lock);
    return end;
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
