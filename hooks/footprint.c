/*
 * footprint: see footprint.h. Runs on the program's threads, and once a second on the keeper's.
 *
 * What a context costs is in no call's answer; all that can be had is how much of the device is in
 * use, by everybody. So take what is in use and no client's books explain (U). A difference of U
 * between two moments belongs to one context if nothing else happened between them:
 *   - a client's first context: U now, less U as it was last measured before this client joined;
 *   - a call that loads code or sets a limit: U after it, less U before it.
 * "Nothing else" is told by a print of the ring's books: who is there, and for each slot its bytes,
 * announcements, contexts' cost, shares of other processes' memory, and its count of `changes`. A
 * client raises that count before, and again after, whatever changes U without a word in its books
 * (a context that ends, a module that loads) or at another moment than in them (an allocation is
 * booked before the driver takes it: large ones are told, small ones are within the noise). Prints
 * differ, or a call is under way: no difference. Nor is one taken while the memory of a client that
 * left may still be on its way back, or from a figure that is older than FOOTPRINT_FRESH_NS.
 *
 * U must be known before a client joins, and it has no context then that could be asked. So others
 * leave it in the ring: whoever measures, a program that asks cuMemGetInfo for its own purposes,
 * and the keeper of any client when the books have changed and then kept still for a second. In
 * a quiet ring that makes no calls at all. Figure and print are sealed by one hash: two writers who
 * mix theirs have written nothing.
 *
 * What is left to disturb are processes that have no cuslice, and code that a client loads unseen.
 * These mostly add, which is why the least of at least three differences is taken, for one version
 * of the driver. Until then a context counts as nothing. The least is charged for each context of
 * every client, changes within contexts as they were measured.
 *
 * Not seen: what NVIDIA's runtime loads by its private tables, functions loaded by their first
 * launch, local memory that a launch makes grow. Per-process figures of NVML are not used: they
 * come without the library's being loaded only where the program has it, and include all of these.
 *
 * Must never: ask the driver while anything is being captured, load anything, or fail a call of the
 * program. Nothing read from the ring is trusted: differences beyond half the device are none.
 */
#include "footprint.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "charge.h"
#include "clock.h"
#include "contexts.h"
#include "gate.h"
#include "real.h"
#include "slot.h"

#define FOOTPRINT_SAMPLES 3u
#define FOOTPRINT_FRESH_NS (60 * CLOCK_S)
/* The least time that a gone client's memory is waited for. */
#define FOOTPRINT_GONE_NS (500 * CLOCK_MS)
/* No context is smaller: its printf buffer alone is 1 MiB by default. A smaller difference is that
 * of a context which was there already. */
#define FOOTPRINT_LEAST (UINT64_C(1) << 20)
/* The most that one call is believed to load. */
#define FOOTPRINT_CODE (UINT64_C(128) << 20)
#define FOOTPRINT_FUNCTIONS 1024u

/* A device's contexts of this process. */
struct footprint {
    unsigned open;
    uint64_t each;            /* charged for each of them */
    uint64_t within;          /* charged for what they hold, all of them together */
    bool sampled;             /* the first one has been looked at */
    uint64_t last_print;      /* of the books, at the keeper's last look */
    _Atomic uint64_t changes; /* the slot's word of that name */
};

static struct footprint footprints[GATE_DEVICES];
static struct lock footprint_lock; /* over these figures; never held across a call of the driver */
static _Atomic uint64_t footprint_functions[FOOTPRINT_FUNCTIONS]; /* loaded before: their keys */
static unsigned footprint_driver;
static _Atomic bool footprint_manages;

static struct footprint *footprint_of(const struct gate *gate)
{
    return &footprints[gate - guest.gate];
}

/* ---- What is under way ---- */

/* Of two threads that publish at once, the one with the older figure sees so and does it again. */
static void footprint_count(struct gate *gate, uint64_t step)
{
    _Atomic uint64_t *mine = &footprint_of(gate)->changes;
    uint64_t now = atomic_fetch_add(mine, step) + step, said;
    do {
        said = now;
        atomic_store(&ring_me(gate->ring)->changes, said);
        now = atomic_load(mine);
    } while (now != said);
}

void footprint_begin(struct gate *gate)
{
    footprint_count(gate, UINT64_C(1) << 32);
}

void footprint_end(struct gate *gate)
{
    footprint_count(gate, 1);
}

static unsigned footprint_under_way(uint64_t changes)
{
    return (unsigned)(changes >> 32) - (unsigned)changes;
}

size_t footprint_managed(size_t bytes)
{
    if (__builtin_expect(!footprint_manages, 0) && guest_attached() &&
        !atomic_exchange(&footprint_manages, true))
        for (unsigned i = 0; i < guest.gates; i++)
            footprint_begin(&guest.gate[i]);
    return bytes;
}

/* ---- The books, and the device beside them ---- */

static uint64_t footprint_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* One slot's part of the print. */
static uint64_t footprint_slot(const struct cuslice_slot *s, unsigned slot, uint64_t *explained)
{
    uint64_t pending = atomic_load(&s->pending), bytes = atomic_load(&s->bytes);
    uint64_t context = atomic_load(&s->context_bytes);
    uint64_t hash = footprint_mix(slot + 1, atomic_load(&s->generation));
    hash = footprint_mix(footprint_mix(footprint_mix(hash, pending), bytes), context);
    hash = footprint_mix(hash, atomic_load(&s->changes));
    hash = footprint_mix(hash, atomic_load(&s->exported));
    *explained += pending + CUSLICE_BYTES_ANNOUNCED(bytes) + CUSLICE_BYTES_GRANTED(bytes) + context;
    return footprint_mix(hash, atomic_load(&s->imported));
}

void footprint_books(struct ring *ring, struct footprint_look *look)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t mine = 0;
    *look = (struct footprint_look){0};
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = atomic_load(&shared->attached[w]); left; left &= left - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(left);
            uint64_t hash = footprint_slot(&shared->slot[slot], slot, &look->explained);
            look->print += hash;
            mine = slot == ring->slot ? hash : mine;
        }
    look->others = look->print - mine;
}

/* Whether the memory of a client that left may still be on its way back. */
static bool footprint_returning(const struct ring *ring)
{
    uint64_t left_ns = atomic_load(&ring_shared(ring)->last_left_ns);
    uint64_t wait =
        guest_config.reap_wait > FOOTPRINT_GONE_NS ? guest_config.reap_wait : FOOTPRINT_GONE_NS;
    return left_ns && clock_now() < left_ns + wait;
}

/* Whether nothing is under way but `mine` calls of this process. */
static bool footprint_quiet(const struct ring *ring, unsigned mine)
{
    const struct cuslice_segment *shared = ring_shared(ring);
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = atomic_load(&shared->attached[w]); left; left &= left - 1) {
            unsigned slot = w * 64 + (unsigned)__builtin_ctzll(left);
            const struct cuslice_slot *s = &shared->slot[slot];
            if (atomic_load(&s->pending) || CUSLICE_BYTES_ANNOUNCED(atomic_load(&s->bytes)) ||
                footprint_under_way(atomic_load(&s->changes)) != (slot == ring->slot ? mine : 0))
                return false;
        }
    return true;
}

static bool footprint_used(uint64_t *used)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    size_t left = 0, total = 0;
    if (!REAL_HAS(cuThreadExchangeStreamCaptureMode) ||
        real.cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return false;
    CUresult rc = real.cuMemGetInfo_v2(&left, &total);
    real.cuThreadExchangeStreamCaptureMode(&mode);
    *used = total - left;
    return rc == CUDA_SUCCESS && left <= total;
}

/* The current context's device; false where it and the books do not stand still. */
static bool footprint_measure(struct ring *ring, unsigned mine, struct footprint_look *look)
{
    struct footprint_look again;
    uint64_t used;
    if (!footprint_quiet(ring, mine))
        return false;
    footprint_books(ring, look);
    if (!footprint_used(&used))
        return false;
    footprint_books(ring, &again);
    look->used = used;
    return again.print == look->print && footprint_quiet(ring, mine);
}

static int64_t footprint_unexplained(const struct footprint_look *look)
{
    return (int64_t)(look->used - look->explained);
}

/* ---- What is left in the ring for others ---- */

static uint64_t footprint_seal(uint64_t print, uint64_t unexplained, uint64_t when)
{
    return footprint_mix(footprint_mix(print, unexplained), when) | 1;
}

static void footprint_leave(struct ring *ring, const struct footprint_look *look)
{
    struct cuslice_segment *shared = ring_shared(ring);
    uint64_t unexplained = (uint64_t)footprint_unexplained(look), now = clock_now();
    if (footprint_returning(ring))
        return;
    atomic_store(&shared->unexplained_print, 0);
    atomic_store(&shared->unexplained, unexplained);
    atomic_store(&shared->unexplained_ns, now);
    atomic_store(&shared->unexplained_print, footprint_seal(look->print, unexplained, now));
}

/* What was left there, if the books had this print then. */
static bool footprint_found(const struct ring *ring, uint64_t print, int64_t *unexplained)
{
    const struct cuslice_segment *shared = ring_shared(ring);
    uint64_t seal = atomic_load(&shared->unexplained_print);
    uint64_t figure = atomic_load(&shared->unexplained);
    uint64_t when = atomic_load(&shared->unexplained_ns);
    *unexplained = (int64_t)figure;
    return seal == footprint_seal(print, figure, when) && clock_now() - when < FOOTPRINT_FRESH_NS;
}

/* After this client's books have changed by what `look` has shown: the same figure fits them. */
static void footprint_leave_changed(struct ring *ring, const struct footprint_look *look)
{
    struct footprint_look now;
    footprint_books(ring, &now);
    now.used = look->used;
    if (now.others == look->others && footprint_quiet(ring, 0))
        footprint_leave(ring, &now);
}

void footprint_told(struct gate *gate, const struct footprint_look *before, uint64_t used)
{
    struct footprint_look now;
    int error = errno;
    footprint_books(gate->ring, &now);
    now.used = used;
    if (now.print == before->print && footprint_quiet(gate->ring, 0))
        footprint_leave(gate->ring, &now);
    errno = error;
}

/* ---- What a context costs ---- */

static bool footprint_sane(const struct gate *gate, int64_t bytes)
{
    return bytes >= 0 && (uint64_t)bytes <= gate->total_bytes / 2;
}

/* What is known of it here and now; what was charged so far where that is of another driver. */
static uint64_t footprint_known(const struct gate *gate)
{
    const struct cuslice_segment *shared = ring_shared(gate->ring);
    uint64_t least = atomic_load(&shared->context_least);
    if (atomic_load(&shared->context_driver) != footprint_driver ||
        atomic_load(&shared->context_samples) < FOOTPRINT_SAMPLES ||
        !footprint_sane(gate, (int64_t)least))
        return footprint_of(gate)->each;
    return least;
}

/* Under the lock. */
static void footprint_charge(struct gate *gate)
{
    struct footprint *f = footprint_of(gate);
    f->each = footprint_known(gate);
    charge_context(gate, f->open * f->each + f->within);
}

static void footprint_learn(struct gate *gate, uint64_t bytes)
{
    struct cuslice_segment *shared = ring_shared(gate->ring);
    if (atomic_exchange(&shared->context_driver, footprint_driver) != footprint_driver)
        atomic_store(&shared->context_samples, 0);
    uint64_t least = atomic_load(&shared->context_least);
    if (atomic_load(&shared->context_samples) == 0)
        atomic_store(&shared->context_least, bytes);
    else
        while (bytes < least &&
               !atomic_compare_exchange_weak(&shared->context_least, &least, bytes))
            ;
    atomic_fetch_add(&shared->context_samples, 1);
}

/* The figure in the ring must be from before this client joined: a context that it had already, but
 * that no call had shown, would be in it. What a dead client had may be gone, though its books are
 * there. */
static void footprint_sample(struct gate *gate, const struct footprint_look *look)
{
    struct segment *segment = &gate->ring->segment;
    int64_t before, cost;
    if (footprint_returning(gate->ring) || !footprint_found(gate->ring, look->others, &before) ||
        slot_reap_set(segment, segment->shared->attached, gate->ring->slot) > 0)
        return;
    cost = footprint_unexplained(look) - before;
    if (cost >= (int64_t)FOOTPRINT_LEAST && footprint_sane(gate, cost))
        footprint_learn(gate, (uint64_t)cost);
}

void footprint_noted(struct context *context)
{
    struct footprint_look look;
    struct gate *gate = context->gate;
    int error = errno;
    if (!gate || guest.captures)
        return;
    lock_take(&footprint_lock);
    bool first = footprint_of(gate)->open == 1 && !footprint_of(gate)->sampled;
    footprint_of(gate)->sampled = true;
    lock_put(&footprint_lock);
    if (footprint_measure(gate->ring, 0, &look)) {
        if (first)
            footprint_sample(gate, &look);
        lock_take(&footprint_lock);
        footprint_charge(gate);
        lock_put(&footprint_lock);
        footprint_leave_changed(gate->ring, &look);
    }
    errno = error;
}

void footprint_opened(struct context *context)
{
    if (!context->gate)
        return;
    footprint_begin(context->gate); /* who measures sees that something has changed */
    lock_take(&footprint_lock);
    footprint_of(context->gate)->open++;
    footprint_charge(context->gate);
    lock_put(&footprint_lock);
    footprint_end(context->gate);
}

void footprint_closed(struct context *context)
{
    struct footprint *f;
    if (!context->gate)
        return;
    f = footprint_of(context->gate);
    lock_take(&footprint_lock);
    f->open -= f->open > 0;
    f->within -= context->within < f->within ? context->within : f->within;
    context->within = 0;
    footprint_charge(context->gate);
    lock_put(&footprint_lock);
    for (; context->closing; context->closing--)
        footprint_end(context->gate);
    footprint_forget_functions();
}

/* ---- What is loaded into a context ---- */

void footprint_before(struct footprint_call *call, enum footprint_change change)
{
    int error = errno;
    *call = (struct footprint_call){.change = change, .most = FOOTPRINT_CODE};
    if (!guest_attached() || guest.captures)
        return;
    struct context *context = contexts_note();
    if (context && context->gate) {
        call->context = context;
        call->handle = context->handle;
        call->gate = context->gate;
        footprint_begin(call->gate);
        call->measured = footprint_measure(call->gate->ring, 1, &call->before);
    }
    errno = error;
}

/* A call that loads gives nothing back: what does is a client that left, in the same moment. Nor is
 * code as large as a context, which a process without cuslice may just have made. */
static bool footprint_likely(const struct footprint_call *call, int64_t bytes)
{
    if (bytes > (int64_t)call->most)
        return false;
    return footprint_sane(call->gate, bytes < 0 ? -bytes : bytes) &&
           (bytes < 0 ? call->change != FOOTPRINT_GROWS : call->change != FOOTPRINT_SHRINKS);
}

/* Less is given back than was measured where part of it was not seen coming. */
static void footprint_add(struct footprint_call *call, int64_t bytes)
{
    struct footprint *f = footprint_of(call->gate);
    struct context *context = call->context;
    lock_take(&footprint_lock);
    if (context->handle == call->handle && footprint_likely(call, bytes)) {
        if (bytes < 0 && (uint64_t)-bytes > context->within)
            bytes = -(int64_t)context->within;
        context->within += (uint64_t)bytes;
        f->within += (uint64_t)bytes;
        footprint_charge(call->gate);
    }
    lock_put(&footprint_lock);
}

/* The most that a limit of this value can cost: stacks are for each thread that fits on a device of
 * up to 256 multiprocessors, what a pending launch takes is nowhere said. */
static uint64_t footprint_most(CUlimit limit, size_t value)
{
    uint64_t each = limit == CU_LIMIT_STACK_SIZE                         ? 2048 * 256
                    : limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT ? 16384
                                                                         : 1;
    uint64_t most;
    return __builtin_mul_overflow(each, (uint64_t)value, &most) || most > INT64_MAX / 2
               ? INT64_MAX / 2
               : most + FOOTPRINT_CODE / 4;
}

void footprint_before_limit(struct footprint_call *call, CUlimit limit, size_t value)
{
    footprint_before(call, FOOTPRINT_EITHER);
    call->most = footprint_most(limit, value);
}

static void footprint_remember(uint64_t key)
{
    if (key)
        atomic_store(&footprint_functions[key % FOOTPRINT_FUNCTIONS], key);
}

void footprint_after(struct footprint_call *call, CUresult rc)
{
    struct footprint_look after;
    int error = errno;
    if (!call->context)
        return;
    bool measured = rc == CUDA_SUCCESS && call->measured &&
                    footprint_measure(call->gate->ring, 1, &after) &&
                    after.print == call->before.print;
    if (measured && after.used != call->before.used)
        footprint_add(call, (int64_t)(after.used - call->before.used));
    footprint_end(call->gate);
    if (measured)
        footprint_leave_changed(call->gate->ring, &after);
    if (rc == CUDA_SUCCESS)
        footprint_remember(call->key);
    errno = error;
}

static uint64_t footprint_key(const void *owner, const char *name)
{
    CUcontext current = NULL;
    real.cuCtxGetCurrent(&current);
    uint64_t key = footprint_mix(footprint_mix(1, (uintptr_t)owner), (uintptr_t)current);
    for (const char *c = name; c && *c; c++)
        key = footprint_mix(key, (unsigned char)*c);
    return key | 1;
}

void footprint_before_function(struct footprint_call *call, const void *owner, const char *name)
{
    *call = (struct footprint_call){0};
    if (!guest_attached() || guest.captures)
        return;
    uint64_t key = footprint_key(owner, name);
    if (atomic_load(&footprint_functions[key % FOOTPRINT_FUNCTIONS]) == key)
        return;
    footprint_before(call, FOOTPRINT_GROWS);
    call->key = key;
}

void footprint_forget_functions(void)
{
    for (unsigned i = 0; i < FOOTPRINT_FUNCTIONS; i++)
        atomic_store_explicit(&footprint_functions[i], 0, memory_order_relaxed);
}

/* ---- Once a second ---- */

static void footprint_look_now(struct gate *gate)
{
    struct footprint_look look;
    if (footprint_measure(gate->ring, 0, &look))
        footprint_leave(gate->ring, &look);
}

void footprint_tend(struct gate *gate)
{
    struct footprint *f = footprint_of(gate);
    struct footprint_look now;
    int64_t unexplained;
    lock_take(&footprint_lock);
    if (footprint_known(gate) != f->each)
        footprint_charge(gate);
    lock_put(&footprint_lock);
    footprint_books(gate->ring, &now);
    bool still = now.print == f->last_print;
    f->last_print = now.print;
    if (still && !guest.captures && !footprint_returning(gate->ring) &&
        footprint_quiet(gate->ring, 0) && !footprint_found(gate->ring, now.print, &unexplained))
        contexts_within(gate, footprint_look_now);
}

void footprint_reset(void)
{
    int version = 0;
    memset(footprints, 0, sizeof footprints);
    footprint_forget_functions();
    lock_reset(&footprint_lock);
    footprint_manages = false;
    real.cuDriverGetVersion(&version);
    footprint_driver = (unsigned)version;
}
