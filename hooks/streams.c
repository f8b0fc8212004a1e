/*
 * streams: two small tables (see streams.h), under guest.driver_lock. Kept on pages that forked
 * children find wiped would be nicer than needed: a child that attaches anew starts them afresh.
 */
#include "streams.h"

#include <string.h>

#include "contexts.h"
#include "gate.h"
#include "real.h"

struct streams_entry {
    CUstream stream; /* NULL = free */
    CUcontext context;
};

static struct streams_entry streams_free[STREAMS_MAX]; /* non-blocking ones: free of the barrier */
static CUstream streams_captured[STREAMS_MAX];
static unsigned streams_lost; /* captures that found no place in the table */
static uint64_t streams_instance;

static void streams_refresh(void)
{
    if (streams_instance == guest.instance)
        return;
    memset(streams_free, 0, sizeof streams_free);
    memset(streams_captured, 0, sizeof streams_captured);
    streams_lost = 0;
    streams_instance = guest.instance;
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

void streams_put(CUresult rc, const CUstream *stream, unsigned flags)
{
    CUcontext context = NULL;
    if (rc != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING) || !guest_attached() ||
        real.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return;
    lock_take(&guest.driver_lock);
    streams_refresh();
    bool kept = streams_add(*stream, context);
    lock_put(&guest.driver_lock);
    if (!kept && !real_has((const void *)real.cuEventQuery))
        log_warn("streams-full", "more than %u non-blocking streams", STREAMS_MAX);
}

static void streams_uncapture(CUstream stream)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (streams_captured[i] == stream) {
            streams_captured[i] = NULL;
            guest.captures--;
            return;
        }
    if (streams_lost) {
        streams_lost--;
        guest.captures--;
    }
}

void streams_drop(CUstream stream)
{
    if (!guest_attached() || !stream)
        return;
    lock_take(&guest.driver_lock);
    streams_refresh();
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (streams_free[i].stream == stream)
            streams_free[i].stream = NULL;
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (streams_captured[i] == stream)
            streams_uncapture(stream);
    lock_put(&guest.driver_lock);
}

void streams_each(CUcontext context, void (*each)(CUstream stream, void *arg), void *arg)
{
    streams_refresh();
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (streams_free[i].stream && streams_free[i].context == context)
            each(streams_free[i].stream, arg);
}

void streams_capture_begin(void)
{
    if (!guest_attached())
        return;
    lock_take(&guest.driver_lock);
    streams_refresh();
    guest.captures++;
    lock_put(&guest.driver_lock);
    for (unsigned i = 0; i < guest.gates; i++)
        gate_set_slow(&guest.gate[i], true);
}

void streams_capture_begun(CUresult rc, CUstream stream)
{
    if (!guest_attached())
        return;
    lock_take(&guest.driver_lock);
    unsigned place = 0;
    while (place < STREAMS_MAX && streams_captured[place])
        place++;
    if (rc != CUDA_SUCCESS)
        guest.captures--;
    else if (place < STREAMS_MAX)
        streams_captured[place] = stream;
    else
        streams_lost++;
    lock_put(&guest.driver_lock);
}

void streams_capture_end(CUstream stream)
{
    if (!guest_attached())
        return;
    lock_take(&guest.driver_lock);
    streams_uncapture(stream);
    lock_put(&guest.driver_lock);
}

bool streams_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == CU_STREAM_LEGACY)
        return false;
    CUresult rc = real.cuStreamIsCapturing(stream, &status);
    return rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}
