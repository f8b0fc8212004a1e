/*
 * Streams: made, found behind a handle, asked, waited for, ended. A destroyed stream's handle ends
 * at once; the stream itself stays in its context until its work is done, then its slot is free.
 * context->lock guards the list of streams; sim.lock the slots.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>

#include "capture.h"
#include "core.h"

enum { PRIORITY_LEAST = 0, PRIORITY_GREATEST = -5 };

static bool slot_used[SIM_STREAMS];

static int stream_take_slot(void)
{
    int slot = -1;

    pthread_mutex_lock(&sim.lock);
    for (unsigned i = 0; i < SIM_STREAMS && slot < 0; i++)
        if (!slot_used[i]) {
            slot_used[i] = true;
            slot = (int)i;
        }
    pthread_mutex_unlock(&sim.lock);
    return slot;
}

static void stream_put_slot(unsigned slot)
{
    pthread_mutex_lock(&sim.lock);
    slot_used[slot] = false;
    pthread_mutex_unlock(&sim.lock);
}

bool stream_done(const struct stream *stream, uint64_t seq)
{
    return atomic_load_explicit(&stream->shared->completed, memory_order_acquire) >= seq;
}

uint64_t stream_place(const struct stream *stream)
{
    uint64_t work = atomic_load_explicit(&stream->work, memory_order_acquire);

    return work ? work * SIM_STREAMS + stream->slot : 0;
}

bool stream_ended(uint64_t place, uint64_t *when)
{
    const struct stream_shared *shared = &sim.arena->stream[place % SIM_STREAMS];
    uint64_t work = place / SIM_STREAMS;

    if (!work || atomic_load(&shared->sure) != work)
        return false;
    *when = atomic_load(&shared->sure_end);
    return atomic_load(&shared->sure) == work && util_now() >= *when;
}

/* The same by what is published, or by the clock. */
static bool stream_over(struct stream *stream)
{
    uint64_t last = stream_last(stream), when;

    return stream_done(stream, last) || stream_ended(stream_place(stream), &when) ||
           stream_done(stream, last);
}

uint64_t stream_last(struct stream *stream)
{
    return atomic_load_explicit(&stream->shared->submitted, memory_order_acquire);
}

/* Frees the slots of destroyed streams whose work is done. */
static void stream_reclaim(struct context *context)
{
    struct stream *done = NULL;

    pthread_mutex_lock(&context->lock);
    for (struct stream **at = &context->streams; *at;) {
        struct stream *s = *at;

        if (s->retired && stream_done(s, s->submitted)) {
            *at = s->next;
            s->next = done;
            done = s;
        } else {
            at = &s->next;
        }
    }
    pthread_mutex_unlock(&context->lock);
    while (done) {
        struct stream *s = done;
        uint64_t in[] = {s->slot};

        done = s->next;
        call_device(CALL_STREAM_CLOSE, in, 1, NULL, NULL);
        stream_put_slot(s->slot);
        object_end(s);
    }
}

CUresult stream_make(struct context *context, struct green *green, unsigned flags, int priority,
                     struct stream **out)
{
    struct stream *stream;
    uint64_t in[3];
    CUresult result;
    int slot;

    stream_reclaim(context);
    slot = stream_take_slot();
    stream = slot < 0 ? NULL : object_new(OBJECT_STREAM, sizeof(*stream));
    if (!stream) {
        if (slot >= 0)
            stream_put_slot((unsigned)slot);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->context = context;
    stream->green = green;
    stream->slot = (unsigned)slot;
    stream->flags = flags;
    stream->priority = priority;
    stream->shared = &sim.arena->stream[slot];
    stream->ring = sim.arena_base + ARENA_RINGS + (uint64_t)slot * SIM_RING;
    stream->submitted = atomic_load(&stream->shared->submitted);
    stream->barrier_seen = stream->submitted;
    in[0] = stream->slot;
    in[1] = context->slot;
    in[2] = (uint64_t)(int64_t)priority;
    result = call_device(CALL_STREAM_OPEN, in, 3, NULL, NULL);
    if (result) {
        stream_put_slot(stream->slot);
        object_end(stream);
        return result;
    }
    pthread_mutex_lock(&context->lock);
    stream->next = context->streams;
    context->streams = stream;
    pthread_mutex_unlock(&context->lock);
    *out = stream;
    return CUDA_SUCCESS;
}

void stream_retire(struct stream *stream)
{
    pthread_mutex_lock(&stream->context->lock);
    stream->retired = true;
    atomic_store(&stream->object.kind, 0);
    pthread_mutex_unlock(&stream->context->lock);
    stream_reclaim(stream->context);
}

/* The context is being destroyed and the device has forgotten it. */
void stream_end_all(struct context *context)
{
    struct stream *stream;

    pthread_mutex_lock(&context->lock);
    stream = context->streams;
    context->streams = NULL;
    context->legacy = NULL;
    pthread_mutex_unlock(&context->lock);
    while (stream) {
        struct stream *next = stream->next;

        capture_forget_stream(stream);
        stream_put_slot(stream->slot);
        object_end(stream);
        stream = next;
    }
}

void stream_orphan_all(struct green *green)
{
    pthread_mutex_lock(&green->context->lock);
    for (struct stream *s = green->context->streams; s; s = s->next)
        if (s->green == green) {
            s->orphan = true;
            s->flags |= CU_STREAM_NON_BLOCKING; /* out of every default stream's barrier */
            s->green = NULL;
        }
    pthread_mutex_unlock(&green->context->lock);
}

struct stream *stream_check(CUstream handle)
{
    return object_check(handle, OBJECT_STREAM);
}

CUresult stream_find(CUstream handle, struct stream **out)
{
    struct context *context;
    struct stream *stream;
    CUresult result;

    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        result = sim_check();
        if (result)
            return result;
        stream = stream_check(handle);
        if (!stream)
            return CUDA_ERROR_INVALID_HANDLE;
        *out = stream;
        return stream->orphan ? CUDA_ERROR_CONTEXT_IS_DESTROYED : thread_check(stream->context);
    }
    result = sim_enter(&context);
    if (result)
        return result;
    if (handle == CU_STREAM_PER_THREAD)
        return thread_stream(context, out);
    *out = green_current() ? green_current()->legacy : context->legacy;
    return CUDA_SUCCESS;
}

CUresult green_wait(struct context *context, const struct green *green)
{
    struct {
        struct stream_shared *shared;
        uint64_t seq;
    } seen[64];
    bool spin = !(context->flags & CU_CTX_SCHED_BLOCKING_SYNC);
    bool more = true;

    while (more) {
        unsigned n = 0;

        pthread_mutex_lock(&context->lock);
        more = false;
        for (struct stream *s = context->streams; s; s = s->next) {
            if ((green && s->green != green) || stream_done(s, s->submitted))
                continue;
            if (n == 64) {
                more = true;
                break;
            }
            seen[n].shared = s->shared;
            seen[n++].seq = s->submitted;
        }
        pthread_mutex_unlock(&context->lock);
        for (unsigned i = 0; i < n; i++)
            if (!wait_word(&seen[i].shared->completed, seen[i].seq, &seen[i].shared->waiters, spin))
                return START_DEVICE_GONE;
    }
    stream_reclaim(context);
    return context_error(context);
}

CUresult context_wait(struct context *context)
{
    return green_wait(context, NULL);
}

/* --- entry points --- */

int stream_clamp_priority(int priority)
{
    return priority < PRIORITY_GREATEST ? PRIORITY_GREATEST
           : priority > PRIORITY_LEAST  ? PRIORITY_LEAST
                                        : priority;
}

static CUresult stream_create(CUstream *out, unsigned flags, int priority)
{
    struct context *context;
    struct stream *stream;
    CUresult result = sim_enter(&context);

    if (result)
        return result;
    if (!out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    result = stream_make(context, green_current(), flags, stream_clamp_priority(priority), &stream);
    if (!result)
        *out = (CUstream)stream;
    return result;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned Flags)
{
    ENTRY();
    return stream_create(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned flags, int priority)
{
    ENTRY();
    return stream_create(phStream, flags, priority);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (leastPriority)
        *leastPriority = PRIORITY_LEAST;
    if (greatestPriority)
        *greatestPriority = PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream handle)
{
    struct stream *stream;
    CUresult result = sim_check();

    if (result)
        return result;
    stream = stream_check(handle);
    if (!stream || stream->legacy || stream->per_thread)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->orphan)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    capture_forget_stream(stream);
    stream_retire(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream)
{
    ENTRY();
    return stream_destroy(hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream)
{
    ENTRY();
    return stream_destroy(hStream);
}

CUresult cuStreamQuery(CUstream hStream)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && capture_active())
        result = capture_check_stream(stream);
    if (result)
        return result;
    sim_spend(sim.query_cost);
    if (stream->legacy ? !submit_legacy_done(stream) : !stream_over(stream))
        return CUDA_ERROR_NOT_READY;
    return context_error(stream->context);
}

CUresult cuStreamQuery_ptsz(CUstream hStream)
{
    ENTRY();
    return cuStreamQuery(PER_THREAD(hStream));
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && capture_active())
        result = capture_check_stream(stream);
    /* To wait for the legacy stream is an action in it: it waits for the blocking ones first. */
    if (!result && stream->legacy && !submit_legacy_done(stream))
        result = submit_dependencies(stream, NULL, 0);
    if (!result)
        result = stream_wait(stream, stream_last(stream));
    if (!result)
        pool_trim_all();
    return result;
}

CUresult cuStreamSynchronize_ptsz(CUstream hStream)
{
    ENTRY();
    return cuStreamSynchronize(PER_THREAD(hStream));
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !priority)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *priority = stream->priority;
    return result;
}

CUresult cuStreamGetPriority_ptsz(CUstream hStream, int *priority)
{
    ENTRY();
    return cuStreamGetPriority(PER_THREAD(hStream), priority);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned *flags)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !flags)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *flags = stream->flags;
    return result;
}

CUresult cuStreamGetFlags_ptsz(CUstream hStream, unsigned *flags)
{
    ENTRY();
    return cuStreamGetFlags(PER_THREAD(hStream), flags);
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !streamId)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *streamId = stream->object.id;
    return result;
}

CUresult cuStreamGetId_ptsz(CUstream hStream, unsigned long long *streamId)
{
    ENTRY();
    return cuStreamGetId(PER_THREAD(hStream), streamId);
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !pctx)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *pctx = stream->green ? (CUcontext)stream->green->view : (CUcontext)stream->context;
    return result;
}

CUresult cuStreamGetCtx_ptsz(CUstream hStream, CUcontext *pctx)
{
    ENTRY();
    return cuStreamGetCtx(PER_THREAD(hStream), pctx);
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !pCtx)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    *pCtx = (CUcontext)stream->context;
    if (pGreenCtx)
        *pGreenCtx = (CUgreenCtx)stream->green;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    ENTRY();
    return cuStreamGetCtx_v2(PER_THREAD(hStream), pCtx, pGreenCtx);
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !device)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *device = (CUdevice)stream->context->device;
    return result;
}

CUresult cuStreamGetDevice_ptsz(CUstream hStream, CUdevice *device)
{
    ENTRY();
    return cuStreamGetDevice(PER_THREAD(hStream), device);
}

/* The attributes that say something here: the priority. Others read as zeros and are accepted. */
CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !value_out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    memset(value_out, 0, sizeof(*value_out));
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value_out->priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr,
                                   CUstreamAttrValue *value_out)
{
    ENTRY();
    return cuStreamGetAttribute(PER_THREAD(hStream), attr, value_out);
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && (!value || (unsigned)attr > 32))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

CUresult cuStreamSetAttribute_ptsz(CUstream hStream, CUstreamAttrID attr,
                                   const CUstreamAttrValue *value)
{
    ENTRY();
    return cuStreamSetAttribute(PER_THREAD(hStream), attr, value);
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(dst, &stream);
    return result ? result : stream_find(src, &stream);
}

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
    ENTRY();
    return cuStreamCopyAttributes(PER_THREAD(dst), PER_THREAD(src));
}
