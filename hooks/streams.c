/*
 * streams: two small tables (see streams.h), under guest.driver_lock. Runs on the program's
 * threads, around hooked calls; the keeper reads. Guesses nothing about a capture: what the driver
 * refused to end goes on.
 */
#include "streams.h"

#include <string.h>

#include "contexts.h"
#include "gate.h"
#include "log.h"
#include "outside.h"
#include "own.h"
#include "real.h"

struct streams_entry {
    CUstream stream; /* NULL = free */
    CUcontext context;
};

static struct streams_entry streams_free[STREAMS_MAX]; /* non-blocking ones: free of the barrier */
static struct lock streams_lock; /* of streams_free, so that no program's thread waits in
                                    cuStreamCreate for a keeper that is blocked in the driver */

struct streams_capture {
    CUstream stream;               /* NULL = free */
    const struct gate_mark *owner; /* whose per-thread stream it is */
    CUcontext context;
};

static struct streams_capture streams_captured[STREAMS_MAX];

void streams_reset(void)
{
    lock_reset(&streams_lock);
    memset(streams_free, 0, sizeof streams_free);
    memset(streams_captured, 0, sizeof streams_captured);
}

static bool streams_add(CUstream stream, CUcontext context)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (!streams_free[i].stream) {
            streams_free[i] = (struct streams_entry){stream, context};
            return true;
        }
    return false;
}

static void streams_keep(CUstream stream, CUcontext context)
{
    lock_take(&streams_lock);
    bool kept = streams_add(stream, context);
    lock_put(&streams_lock);
    if (!kept)
        log_info("streams-full",
                 "more than %u non-blocking streams: on drivers before 12.5 the end "
                 "of a slice does not wait for further ones",
                 STREAMS_MAX);
}

void streams_put(CUresult rc, const CUstream *stream, unsigned flags)
{
    CUcontext context = NULL;
    if (rc == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) && guest_attached() &&
        contexts_current(&context) == CUDA_SUCCESS)
        streams_keep(*stream, context);
}

void streams_put_green(CUresult rc, const CUstream *stream)
{
    CUcontext context;
    if (rc != CUDA_SUCCESS || !guest_attached())
        return;
    contexts_note_owner(*stream, &context);
    if (context)
        streams_keep(*stream, context);
}

static const struct gate_mark *streams_owner(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? gate_mark_get() : NULL;
}

/* The place of a stream in capture; STREAMS_MAX when it is not known. */
static unsigned streams_place(CUstream stream, const struct gate_mark *owner)
{
    unsigned place = 0;
    while (place < STREAMS_MAX &&
           (streams_captured[place].stream != stream || streams_captured[place].owner != owner))
        place++;
    return place;
}

static void streams_uncapture(CUstream stream, const struct gate_mark *owner)
{
    unsigned place = streams_place(stream, owner);
    if (place == STREAMS_MAX)
        return;
    streams_captured[place] = (struct streams_capture){0};
    guest.captures--;
}

/* Without a capture no thread waits here, where the keeper may be blocked in the driver. */
void streams_thread_gone(const struct gate_mark *mark)
{
    if (!guest_attached() || !guest.captures)
        return;
    own_take();
    streams_uncapture(CU_STREAM_PER_THREAD, mark);
    own_put();
}

/* Takes a non-blocking stream out; its context, NULL for another stream. */
static CUcontext streams_remove(CUstream stream)
{
    CUcontext context = NULL;
    lock_take(&streams_lock);
    for (unsigned i = 0; i < STREAMS_MAX && !context; i++)
        if (streams_free[i].stream == stream) {
            context = streams_free[i].context;
            streams_free[i] = (struct streams_entry){0};
        }
    lock_put(&streams_lock);
    return context;
}

void streams_drop(CUstream stream)
{
    if (!guest_attached() || !stream)
        return;
    own_take();
    contexts_stream_dying(streams_remove(stream), stream);
    streams_uncapture(stream, NULL);
    own_put();
    outside_stream_gone((uintptr_t)stream);
}

void streams_green_gone(CUgreenCtx green)
{
    if (!guest_attached() || !REAL_HAS(cuStreamGetCtx_v2))
        return;
    own_take();
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        CUgreenCtx of = NULL;
        CUcontext context;
        CUstream stream = streams_free[i].stream;
        if (stream && real.cuStreamGetCtx_v2(stream, &context, &of) == CUDA_SUCCESS && of == green)
            contexts_stream_dying(streams_remove(stream), stream);
    }
    own_put();
}

/* Called under guest.driver_lock. A capture that nobody has ended ends with its context. */
void streams_context_gone(CUcontext context)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (streams_captured[i].stream && streams_captured[i].context == context)
            streams_uncapture(streams_captured[i].stream, streams_captured[i].owner);
    lock_take(&streams_lock);
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (streams_free[i].context == context)
            streams_free[i] = (struct streams_entry){0};
    lock_put(&streams_lock);
}

static CUstream streams_at(unsigned place, CUcontext context)
{
    lock_take(&streams_lock);
    CUstream stream = streams_free[place].context == context ? streams_free[place].stream : NULL;
    lock_put(&streams_lock);
    return stream;
}

void streams_each(CUcontext context, void (*each)(CUstream stream, void *arg), void *arg)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        CUstream stream = streams_at(i, context);
        if (stream)
            each(stream, arg);
    }
}

void streams_capture_begin(void)
{
    if (!guest_attached())
        return;
    own_take();
    guest.captures++;
    own_put();
    for (unsigned i = 0; i < guest.gates; i++)
        gate_set_slow(&guest.gate[i], true);
}

static CUcontext streams_context(CUstream stream)
{
    CUcontext context = NULL;
    CUgreenCtx green;
    CUresult rc = REAL_HAS(cuStreamGetCtx_v2) ? real.cuStreamGetCtx_v2(stream, &context, &green)
                                              : real.cuStreamGetCtx(stream, &context);
    return rc == CUDA_SUCCESS ? context : NULL;
}

void streams_capture_begun(CUresult rc, CUstream stream, bool per_thread)
{
    if (!guest_attached())
        return;
    stream = streams_key(stream, per_thread);
    const struct gate_mark *owner = streams_owner(stream);
    CUcontext context = rc == CUDA_SUCCESS ? streams_context(stream) : NULL;
    own_take();
    unsigned place = rc == CUDA_SUCCESS ? streams_place(NULL, NULL) : STREAMS_MAX;
    if (place < STREAMS_MAX) {
        streams_captured[place] = (struct streams_capture){stream, owner, context};
    } else {
        guest.captures--; /* refused; or one more than anybody makes: then it is not protected */
    }
    own_put();
}

void streams_capture_end(CUresult rc, CUstream stream, bool per_thread)
{
    if (!guest_attached())
        return;
    stream = streams_key(stream, per_thread);
    if (rc != CUDA_SUCCESS && streams_capturing(stream))
        return;
    const struct gate_mark *owner = streams_owner(stream);
    own_take();
    streams_uncapture(stream, owner);
    own_put();
}

bool streams_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == CU_STREAM_LEGACY)
        return false;
    CUresult rc = real.cuStreamIsCapturing(stream, &status);
    return rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}
