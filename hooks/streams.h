/*
 * streams: which streams are non-blocking (a legacy-stream event does not cover them), and which
 * are being captured. Fed by hooked create, destroy and capture calls.
 */
#ifndef CUSLICE_HOOKS_STREAMS_H
#define CUSLICE_HOOKS_STREAMS_H

#include <stdbool.h>

#include "driver.h"

/* One name for each stream: 0 becomes what it means in this flavour of the call. */
#define LEGACY false
#define PER_THREAD true
static inline CUstream streams_key(CUstream stream, bool per_thread)
{
    return stream ? stream : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

#define STREAMS_MAX 256u

void streams_put(CUresult rc, const CUstream *stream, unsigned flags);
/* A green context's are all non-blocking, and their handles end with it; its work goes on. */
void streams_put_green(CUresult rc, const CUstream *stream);
void streams_green_gone(CUgreenCtx green);
void streams_drop(CUstream stream);

/* Calls `each` for every non-blocking stream of a context; under guest.driver_lock. */
void streams_each(CUcontext context, void (*each)(CUstream stream, void *arg), void *arg);

/* A thread is gone, and with it the capture of its per-thread stream. */
struct gate_mark;
void streams_thread_gone(const struct gate_mark *mark);

/* A context is gone, and its streams with it. */
void streams_context_gone(CUcontext context);

/* Captures: before the begin call (afterwards the keeper makes no call that would disturb one), its
 * result, and the end call's. */
void streams_capture_begin(void);
void streams_capture_begun(CUresult rc, CUstream stream, bool per_thread);
void streams_capture_end(CUresult rc, CUstream stream, bool per_thread);

/* Whether this stream records instead of running. Asks the driver; call only while
 * guest.captures is not 0. */
bool streams_capturing(CUstream stream);

/* Starts afresh, for a process that attaches. */
void streams_reset(void);

#endif
