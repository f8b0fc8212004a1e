/*
 * outside: a small table of streams that wait (see outside.h). An event goes right behind the wait,
 * from the thread that made the call: while it is not done the stream waits, and launches into it
 * are not counted as work. Another goes behind each of these launches: once the wait is over it
 * tells when they are done. Runs on submitting threads and the keeper; outside_lock covers the
 * table and no driver call. Events are made in the stream's context and go with it.
 */
#include "outside.h"

#include <stdatomic.h>
#include <string.h>

#include "contexts.h"
#include "gate.h"
#include "meter.h"
#include "own.h"
#include "real.h"
#include "slot.h"
#include "streams.h"

#define OUTSIDE_STREAMS 64u
#define OUTSIDE_EVENTS 256u

struct outside_stream {
    uintptr_t key;           /* 0: the stream is gone, its work may not be */
    struct context *context; /* NULL = free place */
    CUevent wait, tail;
    bool waiting;      /* the wait was not over when last asked */
    bool behind;       /* launches behind it were not done when last asked */
    unsigned launches; /* behind it */
    unsigned making;   /* waits whose event is on its way: what is asked meanwhile says nothing */
    unsigned recorded; /* tells an answer about an earlier event from a later one's */
};

static struct outside_stream outside_streams[OUTSIDE_STREAMS];
static _Atomic unsigned outside_used; /* places that wait or have work behind a wait */
static CUevent outside_events[OUTSIDE_EVENTS];
static _Atomic unsigned outside_imports;
static struct lock outside_lock;

void outside_reset(void)
{
    lock_reset(&outside_lock);
    memset(outside_streams, 0, sizeof outside_streams);
    memset(outside_events, 0, sizeof outside_events);
    outside_used = outside_imports = 0;
}

/* Under outside_lock: keeps outside_used true. */
static void outside_set(struct outside_stream *s, bool waiting, bool behind)
{
    bool was = s->waiting || s->behind, is = waiting || behind;
    s->waiting = waiting;
    s->behind = behind;
    if (was != is)
        outside_used += is ? 1u : -1u;
}

/* ---- The table ---- */

static struct outside_stream *outside_find(uintptr_t key)
{
    for (unsigned i = 0; i < OUTSIDE_STREAMS; i++)
        if (outside_streams[i].context && outside_streams[i].key == key)
            return &outside_streams[i];
    return NULL;
}

/* A place for a stream: its own, or a free one, or one of the same context that rests, whose events
 * serve again. NULL: there are too many; then the stream's work counts as any other. */
static struct outside_stream *outside_place(uintptr_t key, struct context *context)
{
    struct outside_stream *found = outside_find(key), *s;
    for (s = outside_streams; !found && s < outside_streams + OUTSIDE_STREAMS; s++)
        if (!s->context || (s->context == context && !s->waiting && !s->behind))
            found = s;
    if (!found)
        return NULL;
    if (found->context != context)
        *found = (struct outside_stream){.context = context};
    found->key = key;
    return found;
}

/* Makes an event of the place if it lacks one, and records it; false when that fails. */
static bool outside_record(CUevent *event, CUstream stream)
{
    CUevent made = NULL;
    if (!*event && real.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS)
        *event = made;
    return *event && real.cuEventRecord(*event, stream) == CUDA_SUCCESS;
}

/* ---- Hooked calls ---- */

/* What this call is about; false when it is none of ours. */
static bool outside_pass(struct gate_pass *pass, CUstream stream, bool per_thread)
{
    *pass = (struct gate_pass){.stream = streams_key(stream, per_thread)};
    if (!guest_attached() || !guest.turns || guest.mode != CONFIG_ENFORCE)
        return false;
    pass->mark = gate_mark_get();
    pass->gate = gate_current();
    pass->context = contexts_note();
    return pass->mark && pass->gate && pass->context &&
           !(guest.captures && streams_capturing(pass->stream));
}

void outside_before(bool waits, CUstream stream, bool per_thread)
{
    struct gate_pass pass;
    if (waits && outside_pass(&pass, stream, per_thread))
        meter_mark(pass.gate, &pass, true);
}

void outside_after(CUresult rc, bool waits, CUstream stream, bool per_thread)
{
    struct gate_pass pass;
    if (rc != CUDA_SUCCESS || !waits || !outside_pass(&pass, stream, per_thread))
        return;
    uintptr_t key = meter_key_of(&pass);
    lock_take(&outside_lock);
    struct outside_stream *s = outside_place(key, pass.context);
    if (s) {
        s->making++;
        outside_set(s, true, s->behind); /* before it is recorded: nobody takes the place */
    }
    lock_put(&outside_lock);
    if (!s)
        return;
    bool recorded = outside_record(&s->wait, pass.stream);
    lock_take(&outside_lock);
    s->making -= s->making > 0;
    s->recorded++;
    outside_set(s, recorded || s->making, s->behind);
    lock_put(&outside_lock);
}

bool outside_batch(unsigned count, const CUstreamBatchMemOpParams *ops)
{
    for (unsigned i = 0; ops && i < count; i++)
        if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
            ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            return true;
    return false;
}

bool outside_any(void)
{
    return outside_used > 0;
}

bool outside_event(CUevent event)
{
    bool imported = false;
    if (outside_any())
        return true;
    if (!outside_imports)
        return false;
    lock_take(&outside_lock);
    for (unsigned i = 0; i < OUTSIDE_EVENTS && !imported; i++)
        imported = outside_events[i] == event;
    lock_put(&outside_lock);
    return imported;
}

static void outside_exchange(CUevent from, CUevent to)
{
    unsigned i = 0;
    lock_take(&outside_lock);
    while (i < OUTSIDE_EVENTS && outside_events[i] != from)
        i++;
    if (i < OUTSIDE_EVENTS) {
        outside_events[i] = to;
        outside_imports += to ? 1u : -1u;
    }
    lock_put(&outside_lock);
}

void outside_imported(CUresult rc, const CUevent *event)
{
    if (rc == CUDA_SUCCESS && guest_attached())
        outside_exchange(NULL, *event);
}

void outside_event_gone(CUevent event)
{
    if (event && outside_imports)
        outside_exchange(event, NULL);
}

/* ---- What is known ---- */

/* The wait is over. What stood behind it runs, or has run, in whoever's turn that was. */
static void outside_begins(struct outside_stream *s)
{
    struct ring *ring = s->context->gate ? s->context->gate->ring : NULL;
    if (ring && s->launches && !ring_holds(ring, ring_token(ring)))
        slot_count(ring_shared(ring), ring->slot, overruns, s->launches);
    s->launches = 0;
}

/* Asks about one place, under guest.driver_lock. A call that fails for good counts as done. */
static void outside_ask(struct outside_stream *s)
{
    lock_take(&outside_lock);
    unsigned recorded = s->recorded;
    lock_put(&outside_lock);
    bool waiting = s->waiting && s->wait && !s->context->closing &&
                   real.cuEventQuery(s->wait) == CUDA_ERROR_NOT_READY;
    bool behind = s->behind && s->tail && !s->context->closing &&
                  real.cuEventQuery(s->tail) == CUDA_ERROR_NOT_READY;
    lock_take(&outside_lock);
    if (s->recorded == recorded) {
        waiting |= s->making > 0;
        if (s->waiting && !waiting)
            outside_begins(s);
        outside_set(s, waiting, behind);
    }
    lock_put(&outside_lock);
}

static bool outside_busy(const struct outside_stream *s)
{
    return s->context && (s->waiting || s->behind);
}

enum outside_state outside_poll(const struct gate *gate)
{
    enum outside_state state = OUTSIDE_NONE;
    if (!outside_used)
        return state;
    own_take();
    for (unsigned i = 0; i < OUTSIDE_STREAMS; i++) {
        struct outside_stream *s = &outside_streams[i];
        if (!outside_busy(s) || s->context->gate != gate)
            continue;
        outside_ask(s);
        if (s->waiting && state == OUTSIDE_NONE)
            state = OUTSIDE_WAITING;
        else if (s->behind && !s->waiting)
            state = OUTSIDE_RUNNING;
    }
    own_put();
    return state;
}

bool outside_holds(uintptr_t key)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!outside_used)
        return false;
    lock_take(&outside_lock);
    struct outside_stream *s = outside_find(key);
    bool waiting = s && s->waiting;
    lock_put(&outside_lock);
    if (!waiting || !own_try())
        return waiting;
    real.cuThreadExchangeStreamCaptureMode(&mode);
    outside_ask(s);
    waiting = s->waiting;
    real.cuThreadExchangeStreamCaptureMode(&mode);
    own_put();
    return waiting;
}

void outside_launched(const struct gate_pass *pass, uintptr_t key)
{
    lock_take(&outside_lock);
    struct outside_stream *s = outside_find(key);
    lock_put(&outside_lock);
    if (!s || !outside_record(&s->tail, pass->stream))
        return;
    lock_take(&outside_lock);
    s->recorded++;
    s->launches++;
    outside_set(s, s->waiting, true);
    lock_put(&outside_lock);
}

/* ---- Ends ---- */

void outside_stream_gone(uintptr_t key)
{
    if (!outside_used)
        return;
    lock_take(&outside_lock);
    struct outside_stream *s = outside_find(key);
    if (s)
        s->key = 0;
    lock_put(&outside_lock);
}

void outside_context_gone(const struct context *context)
{
    lock_take(&outside_lock);
    for (unsigned i = 0; i < OUTSIDE_STREAMS; i++)
        if (outside_streams[i].context == context) {
            outside_set(&outside_streams[i], false, false);
            outside_streams[i] = (struct outside_stream){0};
        }
    lock_put(&outside_lock);
}
