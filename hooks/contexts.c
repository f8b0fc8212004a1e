/*
 * contexts: see contexts.h. Records are added by submitting threads and by hooked calls, used by
 * the keeper, all under guest.driver_lock. The keeper's thread is in relaxed capture mode for good;
 * a submitting thread makes no call here that a capture could mind.
 */
#include "contexts.h"

#include <string.h>

#include "allocs.h"
#include "attach.h"
#include "charge.h"
#include "footprint.h"
#include "gate.h"
#include "outside.h"
#include "own.h"
#include "real.h"
#include "slot.h"
#include "streams.h"

static struct context contexts[CONTEXTS_MAX];

__thread struct contexts_last contexts_last;
static __thread CUgreenCtx contexts_green; /* whose handle is this thread's current context */

/* The number of a record, to remember who owns an allocation. */
static unsigned contexts_number(const struct context *context)
{
    return (unsigned)(context - contexts);
}

static struct context *contexts_find(CUcontext handle)
{
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (contexts[i].handle == handle)
            return &contexts[i];
    return NULL;
}

/* Which context is the primary one can be learnt only by retaining it; done while it is active, so
 * that nothing comes to life by the question. */
static bool contexts_primary(CUcontext handle, CUdevice device)
{
    CUcontext primary = NULL;
    unsigned flags = 0;
    int active = 0;
    if (!REAL_HAS(cuDevicePrimaryCtxRelease_v2) ||
        real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        real.cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return false;
    real.cuDevicePrimaryCtxRelease_v2(device);
    return primary == handle;
}

static struct context *contexts_add(CUcontext handle, CUdevice device)
{
    struct context *context = contexts_find(handle);
    if (context)
        return context;
    context = contexts_find(NULL);
    if (!context) {
        log_warn("contexts-full",
                 "more than %u contexts in one process: further ones are not "
                 "waited for when a slice ends",
                 CONTEXTS_MAX);
        return NULL;
    }
    struct gate *gate = gate_of_device(device);
    unsigned number = gate ? (unsigned)(gate - guest.gate) : 0;
    *context = (struct context){.device = device,
                                .gate = gate,
                                .whose = allocs_whose(number, contexts_number(context)),
                                .primary = contexts_primary(handle, device)};
    context->handle = handle;
    footprint_opened(context);
    return context;
}

/* The handle of a green context may be current to one thread only and dies with it, while its work
 * is the primary context's as well: that one is noted. */
CUresult contexts_current(CUcontext *handle)
{
    CUcontext owner = NULL;
    CUresult rc = real.cuCtxGetCurrent(handle);
    contexts_green = NULL;
    if (rc != CUDA_SUCCESS || !*handle || contexts_known(*handle) || !REAL_HAS(cuStreamGetCtx_v2))
        return rc;
    if (real.cuStreamGetCtx_v2(CU_STREAM_LEGACY, &owner, &contexts_green) == CUDA_SUCCESS &&
        contexts_green)
        *handle = owner;
    return rc;
}

static struct context *contexts_note_new(CUcontext handle)
{
    CUdevice device;
    if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return NULL;
    own_take();
    struct context *context = contexts_add(handle, device);
    bool new = context && !context->noted;
    if (new)
        context->noted = true;
    own_put();
    if (new)
        footprint_noted(context);
    if (new && context->gate)
        attach_used(context->gate);
    return context;
}

/* One that has a record already is found without the lock, which the keeper may hold while it is
 * blocked in the driver: a thread that changes between contexts does not wait for that. */
struct context *contexts_note(void)
{
    CUcontext handle = NULL;
    if (contexts_current(&handle) != CUDA_SUCCESS || !handle)
        return NULL;
    if (contexts_known(handle))
        return contexts_last.record;
    struct context *context = contexts_find(handle);
    if (!context || !context->noted)
        context = contexts_note_new(handle);
    if (context)
        contexts_last = (struct contexts_last){handle, context};
    return context;
}

unsigned contexts_owner(void)
{
    struct context *context = contexts_note();
    return context ? contexts_number(context) : ALLOCS_NOBODY;
}

uintptr_t contexts_part(const struct context *context)
{
    return contexts_green ? (uintptr_t)contexts_green : (uintptr_t)context;
}

CUevent contexts_marker(struct context *context, unsigned number)
{
    CUevent *event = &context->marker[number % METER_MARKERS];
    if (*event || real.cuCtxPushCurrent_v2(context->handle) != CUDA_SUCCESS)
        return *event;
    if (real.cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) /* timed: lengths are learnt */
        *event = NULL;
    real.cuCtxPopCurrent_v2(&(CUcontext){0});
    return *event;
}

void context_enter(CUresult rc)
{
    if (rc == CUDA_SUCCESS && guest_attached())
        contexts_note();
}

static unsigned contexts_on(const struct gate *gate)
{
    unsigned n = 0;
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        n += contexts[i].handle && contexts[i].gate == gate;
    return n;
}

/* What the context owned is gone with it. */
static void contexts_drop(struct context *context)
{
    struct gate *gate = context->gate;
    charge_context_gone(gate, contexts_number(context));
    footprint_closed(context);
    streams_context_gone(context->handle);
    outside_context_gone(context);
    if (gate) {
        meter_forget(gate, context);
        gate_set_slow(gate, true); /* the next submission notes its context anew */
    }
    *context = (struct context){.handle = NULL};
    if (gate && contexts_on(gate) == 0)
        attach_unused(gate);
}

/* What is closed is opened again where it failed; a record made in between has not been closed. */
static void contexts_change_closing(struct context *context, bool closing)
{
    if (!closing && context->closing == 0)
        return;
    context->closing += closing ? 1 : -1u;
    if (context->gate && closing)
        footprint_begin(context->gate);
    else if (context->gate)
        footprint_end(context->gate);
}

static void contexts_mark_closing(CUcontext handle, CUdevice device, bool closing)
{
    if (!guest_attached())
        return;
    own_take();
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (contexts[i].handle && (handle ? contexts[i].handle == handle
                                          : contexts[i].primary && contexts[i].device == device))
            contexts_change_closing(&contexts[i], closing);
    own_put();
}

void context_close(CUcontext handle)
{
    if (handle)
        contexts_mark_closing(handle, 0, true);
}

void context_closed(CUcontext handle, CUresult rc)
{
    if (!handle || !guest_attached())
        return;
    if (rc != CUDA_SUCCESS) {
        contexts_mark_closing(handle, 0, false);
        return;
    }
    own_take();
    struct context *context = contexts_find(handle);
    if (context)
        contexts_drop(context);
    own_put();
}

void context_close_primary(CUdevice device)
{
    contexts_mark_closing(NULL, device, true);
}

/* A release may leave the context alive; a reset never does, even if somebody has made it anew. */
void context_closed_primary(CUdevice device, CUresult rc, bool reset)
{
    unsigned flags = 0;
    int active = 0;
    if (!guest_attached())
        return;
    bool alive =
        rc != CUDA_SUCCESS ||
        (!reset && real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active);
    if (alive) {
        contexts_mark_closing(NULL, device, false);
        return;
    }
    own_take();
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (contexts[i].handle && contexts[i].primary && contexts[i].device == device)
            contexts_drop(&contexts[i]);
    own_put();
}

/* Asked of the driver only where there are several devices. */
static CUdevice contexts_green_device(CUgreenCtx green)
{
    CUcontext handle = NULL;
    CUdevice device = guest.gate[0].device;
    if (guest.gates == 1 || real.cuCtxFromGreenCtx(&handle, green) != CUDA_SUCCESS ||
        real.cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS)
        return device;
    real.cuCtxGetDevice(&device);
    real.cuCtxPopCurrent_v2(&handle);
    return device;
}

CUdevice context_close_green(CUgreenCtx green)
{
    CUdevice device = guest_attached() ? contexts_green_device(green) : 0;
    streams_green_gone(green);
    context_close_primary(device);
    return device;
}

void contexts_note_owner(CUstream stream, CUcontext *owner)
{
    CUgreenCtx green;
    CUdevice device;
    *owner = NULL;
    if (!REAL_HAS(cuStreamGetCtx_v2) ||
        real.cuStreamGetCtx_v2(stream, owner, &green) != CUDA_SUCCESS ||
        real.cuCtxPushCurrent_v2(*owner) != CUDA_SUCCESS)
        return;
    CUresult rc = real.cuCtxGetDevice(&device);
    real.cuCtxPopCurrent_v2(&(CUcontext){0});
    own_take();
    if (rc == CUDA_SUCCESS)
        contexts_add(*owner, device);
    own_put();
}

void contexts_drain_begin(struct gate *gate)
{
    own_take();
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (contexts[i].gate == gate)
            contexts[i].draining = false;
    own_put();
}

static bool contexts_sticky(CUresult rc)
{
    switch (rc) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return true;
    default:
        return false;
    }
}

static void contexts_fault(struct context *context)
{
    struct ring *ring = context->gate ? context->gate->ring : NULL;
    if (context->faulted)
        return;
    context->faulted = true;
    if (ring)
        slot_count(ring_shared(ring), ring->slot, faults, 1);
}

/* A destroyed context need not be the current one: a green context's streams say so after its end.
 */
bool contexts_check(CUresult rc)
{
    if (!contexts_sticky(rc) || rc == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return false;
    struct context *context = contexts_note();
    own_take();
    if (context && context->handle)
        contexts_fault(context);
    own_put();
    return true;
}

/* Makes the collector wait for what a stream of the current context has been given so far. */
static CUresult contexts_collect(struct context *context, CUstream stream)
{
    CUevent event;
    CUresult rc = CUDA_SUCCESS;
    if (!context->collector)
        rc = real.cuStreamCreate(&context->collector, CU_STREAM_NON_BLOCKING);
    if (rc == CUDA_SUCCESS)
        rc = real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = real.cuEventRecord(event, stream);
    if (rc == CUDA_SUCCESS)
        rc = real.cuStreamWaitEvent(context->collector, event, 0);
    real.cuEventDestroy_v2(event);
    return rc;
}

struct contexts_plain {
    struct context *context;
    CUresult rc;
};

static void contexts_collect_one(CUstream stream, void *arg)
{
    struct contexts_plain *plain = arg;
    if (plain->rc == CUDA_SUCCESS)
        plain->rc = contexts_collect(plain->context, stream);
}

/* Without cuCtxRecordEvent: the collector waits for each non-blocking stream and for the legacy
 * stream, which as a barrier comes behind all blocking ones; an event in it then stands for all. */
static CUresult contexts_record_plain(struct context *context)
{
    struct contexts_plain plain = {.context = context};
    streams_each(context->handle, contexts_collect_one, &plain);
    contexts_collect_one(CU_STREAM_LEGACY, &plain);
    return plain.rc == CUDA_SUCCESS ? real.cuEventRecord(context->drain_event, context->collector)
                                    : plain.rc;
}

void contexts_stream_dying(CUcontext handle, CUstream stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct context *context = handle ? contexts_find(handle) : NULL;
    if (!context || (REAL_HAS(cuCtxRecordEvent) && !context->plain_drain) || context->closing ||
        real.cuCtxPushCurrent_v2(handle) != CUDA_SUCCESS)
        return;
    real.cuThreadExchangeStreamCaptureMode(&mode);
    if (!streams_capturing(stream))
        contexts_collect(context, stream);
    real.cuThreadExchangeStreamCaptureMode(&mode);
    real.cuCtxPopCurrent_v2(&(CUcontext){0});
}

static CUresult contexts_record(struct context *context)
{
    CUresult rc = real.cuCtxPushCurrent_v2(context->handle);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!context->drain_event)
        rc = real.cuEventCreate(&context->drain_event, CU_EVENT_DISABLE_TIMING);
    if (rc == CUDA_SUCCESS) {
        rc = context->plain_drain || !REAL_HAS(cuCtxRecordEvent)
                 ? CUDA_ERROR_NOT_SUPPORTED
                 : real.cuCtxRecordEvent(context->handle, context->drain_event);
        if (rc == CUDA_ERROR_NOT_SUPPORTED) {
            context->plain_drain = true;
            rc = contexts_record_plain(context);
        }
    }
    real.cuCtxPopCurrent_v2(&(CUcontext){0});
    return rc;
}

/* A refusal that says nothing about the work (a capture that was not seen, no memory) is no answer:
 * the allowance ends the asking. A lost or destroyed context has nothing left to wait for. */
static enum contexts_drain contexts_drain_one(struct context *context)
{
    CUresult rc = CUDA_SUCCESS;
    if (context->faulted)
        return CONTEXTS_DONE;
    if (context->closing)
        return CONTEXTS_BUSY; /* its work ends before the call that destroys it does */
    if (!context->draining) {
        if (guest.captures)
            return CONTEXTS_BLOCKED;
        rc = contexts_record(context);
        context->draining = rc == CUDA_SUCCESS;
    }
    if (rc == CUDA_SUCCESS)
        rc = real.cuEventQuery(context->drain_event);
    if (rc == CUDA_ERROR_NOT_READY)
        return CONTEXTS_BUSY;
    if (rc == CUDA_SUCCESS || rc == CUDA_ERROR_INVALID_CONTEXT)
        return CONTEXTS_DONE;
    if (!contexts_sticky(rc))
        return CONTEXTS_BLOCKED;
    contexts_fault(context);
    return CONTEXTS_DONE;
}

enum contexts_drain contexts_drain_poll(struct gate *gate)
{
    enum contexts_drain answer = CONTEXTS_DONE;
    own_take();
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        if (!contexts[i].handle || contexts[i].gate != gate)
            continue;
        enum contexts_drain one = contexts_drain_one(&contexts[i]);
        answer = one > answer ? one : answer;
    }
    own_put();
    return answer;
}

bool contexts_alone(const struct gate *gate)
{
    return contexts_on(gate) <= 1 && !contexts_green;
}

void contexts_within(struct gate *gate, void (*look)(struct gate *gate))
{
    own_take();
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        if (!contexts[i].handle || contexts[i].gate != gate || contexts[i].closing ||
            contexts[i].faulted || real.cuCtxPushCurrent_v2(contexts[i].handle) != CUDA_SUCCESS)
            continue;
        look(gate);
        real.cuCtxPopCurrent_v2(&(CUcontext){0});
        break;
    }
    own_put();
}

void contexts_reset(void)
{
    memset(contexts, 0, sizeof contexts);
    contexts_last = (struct contexts_last){0};
    contexts_green = NULL;
}
