/*
 * Events. A record gives the event a new generation, which the device publishes as done in the
 * arena, or on the board for an event that processes share. A query is two loads, or a
 * look at the clock where the device has said when the work in front of it ends. event->lock keeps
 * the generation and the place of the last record together.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "core.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/* Slots of the arena, and the last generation that each of them has seen. */
static uint32_t free_slots[SIM_EVENTS];
static unsigned free_count;
static unsigned fresh; /* slots never used yet start here */
static uint64_t slot_generation[SIM_EVENTS];

/* --- slots: under sim.lock --- */

static bool event_take_slot(struct event *event)
{
    bool taken = true;

    pthread_mutex_lock(&sim.lock);
    if (free_count)
        event->slot = free_slots[--free_count];
    else if (fresh < SIM_EVENTS)
        event->slot = fresh++;
    else
        taken = false;
    if (taken) {
        event->base = slot_generation[event->slot];
        atomic_store(&event->generation, event->base);
    }
    pthread_mutex_unlock(&sim.lock);
    return taken;
}

static void event_put_slot(const struct event *event)
{
    pthread_mutex_lock(&sim.lock);
    slot_generation[event->slot] = atomic_load(&event->generation);
    free_slots[free_count++] = event->slot;
    pthread_mutex_unlock(&sim.lock);
}

/* --- state --- */

static struct event *event_check(CUevent handle)
{
    return object_check(handle, OBJECT_EVENT);
}

/* An event outlives its context as a handle only. */
static CUresult event_enter(CUevent handle, struct event **out)
{
    CUresult result = sim_check();
    struct event *event;

    if (result)
        return result;
    event = event_check(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!atomic_load_explicit(&event->context->alive, memory_order_acquire) ||
        atomic_load_explicit(&event->context->generation, memory_order_acquire) !=
            event->generation_of_context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = event;
    return CUDA_SUCCESS;
}

static bool event_recorded(const struct event *event)
{
    if (event->shared)
        return atomic_load(&sim.board->event[event->slot].recorded) > event->base;
    return atomic_load_explicit(&event->generation, memory_order_acquire) > event->base;
}

static bool event_published(const struct event *event)
{
    return atomic_load_explicit(&sim.arena->event[event->slot].done, memory_order_acquire) >=
           atomic_load_explicit(&event->generation, memory_order_acquire);
}

bool event_done(const struct event *event)
{
    uint64_t when;

    if (event->shared) {
        const struct board_event *shared = &sim.board->event[event->slot];

        return atomic_load(&shared->done) >= atomic_load(&shared->recorded);
    }
    if (!event_recorded(event))
        return true;
    return event_published(event) || stream_ended(atomic_load(&event->behind), &when) ||
           event_published(event);
}

/* Of an event that is done. */
static uint64_t event_time(const struct event *event)
{
    uint64_t when;

    if (event->shared)
        return atomic_load(&sim.board->event[event->slot].time);
    if (!event_published(event) && stream_ended(atomic_load(&event->behind), &when))
        return when;
    return atomic_load(&sim.arena->event[event->slot].time);
}

static CUresult event_wait_host(const struct event *event)
{
    bool spin = !(event->flags & CU_EVENT_BLOCKING_SYNC);
    bool lives;

    if (event->shared) {
        struct board_event *shared = &sim.board->event[event->slot];

        lives = wait_word(&shared->done, atomic_load(&shared->recorded), &shared->waiters, spin);
    } else {
        struct event_shared *shared = &sim.arena->event[event->slot];
        uint64_t generation = atomic_load(&event->generation);

        lives = generation == event->base ||
                wait_word(&shared->done, generation, &shared->waiters, spin);
    }
    return lives ? context_error(event->context) : START_DEVICE_GONE;
}

/* --- in stream order --- */

CUresult event_record(struct event *event, struct stream *stream)
{
    struct command_record record = {.slot = event->slot, .shared = event->shared};
    uint64_t seq, old;
    CUresult result;

    pthread_mutex_lock(&event->lock);
    old = atomic_load(&event->generation);
    if (event->shared)
        record.generation = atomic_fetch_add(&sim.board->event[event->slot].recorded, 1) + 1;
    else
        record.generation = old + 1;
    atomic_store(&event->behind, 0);
    atomic_store_explicit(&event->generation, record.generation, memory_order_release);
    result = submit_record(stream, &record, &seq);
    if (result) {
        atomic_store(&event->generation, old);
    } else {
        atomic_store(&event->behind, stream_place(stream));
        event->stream = stream->slot;
        event->seq = seq;
    }
    pthread_mutex_unlock(&event->lock);
    return result;
}

/* What a wait for the event's last record waits for; false: nothing. */
static bool event_dependency(struct event *event, struct dependency *dep)
{
    bool any;

    pthread_mutex_lock(&event->lock);
    any = event_recorded(event) && !event_done(event);
    if (event->shared)
        *dep = (struct dependency){.kind = DEPENDENCY_EVENT,
                                   .slot = event->slot,
                                   .seq = atomic_load(&sim.board->event[event->slot].recorded)};
    else
        *dep = (struct dependency){
            .kind = DEPENDENCY_STREAM, .slot = event->stream, .seq = event->seq};
    pthread_mutex_unlock(&event->lock);
    return any;
}

CUresult event_wait(struct stream *stream, struct event *event)
{
    struct dependency dep;

    if (event_dependency(event, &dep))
        return submit_dependencies(stream, &dep, 1);
    /* Even a wait that is over at once is an action, which the legacy stream's barrier sees. */
    return stream->legacy ? submit_dependencies(stream, NULL, 0) : CUDA_SUCCESS;
}

/* --- entry points --- */

static CUresult event_make(struct context *context, unsigned flags, struct event **out)
{
    struct event *event = object_new(OBJECT_EVENT, sizeof(*event));
    uint64_t in[2] = {0, 0}, got[4];
    CUresult result = CUDA_SUCCESS;

    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->generation_of_context = atomic_load(&context->generation);
    event->flags = flags;
    pthread_mutex_init(&event->lock, NULL);
    event->shared = flags & CU_EVENT_INTERPROCESS;
    if (event->shared) {
        result = call_device(CALL_EVENT_OPEN, in, 2, got, NULL);
        if (!result) {
            event->slot = (unsigned)got[0];
            event->base = atomic_load(&sim.board->event[event->slot].recorded);
        }
    } else if (!event_take_slot(event)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        object_end(event);
        return result;
    }
    *out = event;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *phEvent, unsigned Flags)
{
    struct context *context;
    struct event *event;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!phEvent || (Flags & ~(unsigned)EVENT_FLAGS) ||
        ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    result = event_make(context, Flags, &event);
    if (!result)
        *phEvent = (CUevent)event;
    return result;
}

static CUresult event_destroy(CUevent handle)
{
    CUresult result = sim_check();
    struct event *event;
    uint64_t in[1];

    if (result)
        return result;
    event = event_check(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    capture_forget_event(event);
    if (event->shared) {
        in[0] = event->slot;
        call_device(CALL_EVENT_CLOSE, in, 1, NULL, NULL);
    } else {
        event_put_slot(event);
    }
    object_end(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent)
{
    ENTRY();
    return event_destroy(hEvent);
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    ENTRY();
    return event_destroy(hEvent);
}

static CUresult event_record_entry(CUevent handle, CUstream stream_handle, unsigned flags)
{
    struct stream *stream;
    struct event *event;
    bool taken = false;
    CUresult result;

    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    result = event_enter(handle, &event);
    if (!result)
        result = stream_find(stream_handle, &stream);
    if (result)
        return result;
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_spend(sim.record_cost);
    if (capture_active() || atomic_load_explicit(&event->captured, memory_order_relaxed))
        result = capture_take_record(stream, event, flags, &taken);
    return result || taken ? result : event_record(event, stream);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    ENTRY();
    return event_record_entry(hEvent, hStream, 0);
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
    ENTRY();
    return event_record_entry(hEvent, PER_THREAD(hStream), 0);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned flags)
{
    ENTRY();
    return event_record_entry(hEvent, hStream, flags);
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned flags)
{
    ENTRY();
    return event_record_entry(hEvent, PER_THREAD(hStream), flags);
}

static CUresult event_wait_entry(CUstream stream_handle, CUevent handle, unsigned flags)
{
    struct stream *stream;
    struct event *event;
    bool taken = false;
    CUresult result;

    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    result = event_enter(handle, &event);
    if (!result)
        result = stream_find(stream_handle, &stream);
    if (result)
        return result;
    if (capture_active() || atomic_load_explicit(&event->captured, memory_order_relaxed))
        result = capture_take_wait(stream, event, flags, &taken);
    return result || taken ? result : event_wait(stream, event);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned Flags)
{
    ENTRY();
    return event_wait_entry(hStream, hEvent, Flags);
}

CUresult cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned Flags)
{
    ENTRY();
    return event_wait_entry(PER_THREAD(hStream), hEvent, Flags);
}

CUresult cuEventQuery(CUevent hEvent)
{
    struct event *event;
    CUresult result;

    ENTRY();
    result = event_enter(hEvent, &event);
    if (!result && __builtin_expect(capture_active(), 0))
        result = capture_check_unsafe();
    if (!result && atomic_load_explicit(&event->captured, memory_order_relaxed))
        result = capture_check_event(event);
    if (result)
        return result;
    sim_spend(sim.query_cost);
    result = context_error(event->context);
    if (result)
        return result;
    return event_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    struct event *event;
    CUresult result;

    ENTRY();
    result = event_enter(hEvent, &event);
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (!result && atomic_load_explicit(&event->captured, memory_order_relaxed))
        result = capture_check_event(event);
    if (!result)
        result = event_wait_host(event);
    if (!result)
        pool_trim_all();
    return result;
}

static CUresult event_elapsed(float *ms, CUevent start_handle, CUevent end_handle)
{
    struct event *start, *end;
    CUresult result = event_enter(start_handle, &start);

    if (!result)
        result = event_enter(end_handle, &end);
    if (result)
        return result;
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&start->captured) || atomic_load(&end->captured)) {
        result = capture_check_event(start);
        return result ? result : capture_check_event(end);
    }
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || start->context != end->context ||
        !event_recorded(start) || !event_recorded(end))
        return CUDA_ERROR_INVALID_HANDLE;
    result = context_error(start->context);
    if (result)
        return result;
    if (!event_done(start) || !event_done(end))
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(event_time(end) - event_time(start)) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    ENTRY();
    return event_elapsed(pMilliseconds, hStart, hEnd);
}

CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    ENTRY();
    return event_elapsed(pMilliseconds, hStart, hEnd);
}

/* --- events of a whole context --- */

/* Collects one dependency per stream of the context (or of one green context) with work under way,
 * in batches. */
static CUresult event_gather(struct context *context, const struct green *green,
                             struct stream *into)
{
    struct dependency deps[SIM_DEPS / 2];
    unsigned n = 0;
    CUresult result = CUDA_SUCCESS;
    uint64_t seen = 0; /* streams come newest first; ids tell how far we got */
    bool more = true;

    while (more && !result) {
        uint64_t last = 0;

        n = 0;
        more = false;
        pthread_mutex_lock(&context->lock);
        for (struct stream *s = context->streams; s && !more; s = s->next) {
            if (s == into || (green && s->green != green) || (seen && s->object.id >= seen) ||
                stream_done(s, s->submitted))
                continue;
            more = n == SIM_DEPS / 2;
            if (!more) {
                deps[n++] = (struct dependency){.slot = s->slot, .seq = s->submitted};
                last = s->object.id;
            }
        }
        pthread_mutex_unlock(&context->lock);
        seen = last;
        if (n)
            result = submit_dependencies(into, deps, n);
    }
    return result;
}

CUresult green_event_record(struct context *context, struct green *green, CUevent handle)
{
    struct stream *own;
    struct event *event;
    CUresult result = event_enter(handle, &event);

    if (result)
        return result;
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    result = thread_check(context);
    if (!result && capture_active())
        result = capture_check_context(context);
    if (!result)
        result = context_side_stream(context, &own);
    if (result)
        return result;
    pthread_mutex_lock(&context->side_lock);
    result = event_gather(context, green, own);
    if (!result)
        result = event_record(event, own);
    pthread_mutex_unlock(&context->side_lock);
    return result;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(hCtx, &context, &green);
    return result ? result : green_event_record(context, green, hEvent);
}

CUresult green_event_wait(struct context *context, struct green *green, CUevent handle)
{
    struct stream *streams[SIM_STREAMS];
    struct event *event;
    unsigned n = 0;
    CUresult result = event_enter(handle, &event);

    if (!result)
        result = thread_check(context);
    if (!result && capture_active())
        result = capture_check_context(context);
    if (result)
        return result;
    pthread_mutex_lock(&context->lock);
    for (struct stream *s = context->streams; s; s = s->next)
        if (!s->retired && !s->orphan && (!green || s->green == green) && n < SIM_STREAMS)
            streams[n++] = s;
    pthread_mutex_unlock(&context->lock);
    for (unsigned i = 0; i < n && !result; i++)
        result = event_wait(streams[i], event);
    return result;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(hCtx, &context, &green);
    return result ? result : green_event_wait(context, green, hEvent);
}

/* --- between processes --- */

struct event_handle {
    uint32_t magic;
    uint32_t slot;
    uint64_t base;
    int32_t device_pid;
};

CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
    struct event_handle inside = {.magic = SIM_MAGIC};
    struct event *e;
    CUresult result;

    ENTRY();
    result = event_enter(event, &e);
    if (result)
        return result;
    if (!pHandle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!e->shared || e->imported)
        return CUDA_ERROR_INVALID_HANDLE;
    inside.slot = e->slot;
    inside.base = e->base;
    memset(pHandle, 0, sizeof(*pHandle));
    memcpy(pHandle, &inside, sizeof(inside));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
    struct event_handle inside;
    struct context *context;
    struct event *event;
    uint64_t in[2] = {0, 1};
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    memcpy(&inside, &handle, sizeof(inside));
    if (!phEvent || inside.magic != SIM_MAGIC || inside.slot >= SIM_IPC_EVENTS)
        return CUDA_ERROR_INVALID_VALUE;
    event = object_new(OBJECT_EVENT, sizeof(*event));
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    in[0] = inside.slot;
    result = call_device(CALL_EVENT_OPEN, in, 2, NULL, NULL);
    if (result) {
        object_end(event);
        return result;
    }
    event->context = context;
    event->generation_of_context = atomic_load(&context->generation);
    event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    event->shared = event->imported = true;
    event->slot = inside.slot;
    event->base = inside.base;
    atomic_store(&event->generation, inside.base);
    pthread_mutex_init(&event->lock, NULL);
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}
