/*
 * Contexts: created ones, each device's primary one, and the current one of a thread. A context
 * takes a slot in the arena and some device memory; its end waits for its work, then everything
 * that was made in it ends. sim.lock guards slots and primary contexts.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>

#include "capture.h"
#include "core.h"
#include "module.h"

static bool slot_used[SIM_CONTEXTS];
static struct context *primary[SIM_DEVICES];
static unsigned primary_flags[SIM_DEVICES];

static const size_t limit_defaults[] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1048576,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0,
};
enum { LIMITS = sizeof(limit_defaults) / sizeof(limit_defaults[0]) };

/* --- beginning and end --- */

static int context_take_slot(void)
{
    int slot = -1;

    pthread_mutex_lock(&sim.lock);
    for (unsigned i = 0; i < SIM_CONTEXTS && slot < 0; i++)
        if (!slot_used[i]) {
            slot_used[i] = true;
            slot = (int)i;
        }
    pthread_mutex_unlock(&sim.lock);
    return slot;
}

static void context_put_slot(unsigned slot)
{
    pthread_mutex_lock(&sim.lock);
    slot_used[slot] = false;
    pthread_mutex_unlock(&sim.lock);
}

CUresult context_begin(struct context *context)
{
    int slot = context_take_slot();
    uint64_t in[2] = {(uint64_t)slot, context->device};
    CUresult result;

    if (slot < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->slot = (unsigned)slot;
    memcpy(context->limits, limit_defaults, sizeof(limit_defaults));
    context->limit_cost = 0;
    context->heap_used = context->fifo_used = false;
    result = call_device(CALL_CONTEXT_CREATE, in, 2, NULL, NULL);
    if (result) {
        context_put_slot(context->slot);
        return result;
    }
    atomic_fetch_add(&context->generation, 1);
    result = stream_make(context, NULL, 0, 0, &context->legacy);
    if (result) {
        call_device(CALL_CONTEXT_DESTROY, in, 1, NULL, NULL);
        context_put_slot(context->slot);
        return result;
    }
    context->legacy->legacy = true;
    atomic_store(&context->alive, true);
    return CUDA_SUCCESS;
}

/* Everything made in the context ends with it. Its last work is waited for; a sticky error is no
 * reason to stay. */
CUresult context_finish(struct context *context)
{
    uint64_t in[1] = {context->slot};
    CUresult result;

    if (context_wait(context) == START_DEVICE_GONE)
        sim_log("context %u ends without its device", context->slot);
    module_end_context(context);
    pool_end_context(context);
    external_end_context(context);
    region_forget_context(context);
    sparse_end_context(context);
    pthread_mutex_lock(&context->lock);
    atomic_store(&context->alive, false);
    pthread_mutex_unlock(&context->lock);
    result = call_device(CALL_CONTEXT_DESTROY, in, 1, NULL, NULL);
    stream_end_all(context);
    context->side = NULL;
    context_put_slot(context->slot);
    return result;
}

static struct context *context_new(unsigned device, unsigned flags)
{
    struct context *context = object_new(OBJECT_CONTEXT, sizeof(*context));

    if (!context)
        return NULL;
    context->device = device;
    context->flags = flags;
    context->api_version = 3020;
    context->cache = CU_FUNC_CACHE_PREFER_NONE;
    pthread_mutex_init(&context->lock, NULL);
    pthread_mutex_init(&context->side_lock, NULL);
    return context;
}

struct context *context_check(CUcontext handle, struct green **green)
{
    const struct view *view = handle ? object_check(handle, OBJECT_VIEW) : NULL;

    *green = handle ? NULL : green_current();
    if (!handle)
        return context_current();
    if (!view)
        return object_check(handle, OBJECT_CONTEXT);
    *green = view->green;
    return view->green->generation == atomic_load(&view->green->context->generation)
               ? view->green->context
               : NULL;
}

CUresult context_enter(CUcontext handle, struct context **context, struct green **green)
{
    CUresult result = sim_check();

    if (result)
        return result;
    *context = context_check(handle, green);
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_side_stream(struct context *context, struct stream **stream)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&context->side_lock);
    if (!context->side)
        result = stream_make(context, NULL, CU_STREAM_NON_BLOCKING, 0, &context->side);
    *stream = context->side;
    pthread_mutex_unlock(&context->side_lock);
    return result;
}

/* --- created contexts --- */

#define CONTEXT_FLAGS (CU_CTX_FLAGS_MASK | CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE)

static CUresult context_create(CUcontext *out, unsigned flags, CUdevice device)
{
    CUresult result = sim_check();
    struct context *context;

    if (result)
        return result;
    if (!out || (flags & ~(unsigned)CONTEXT_FLAGS))
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    context = context_new((unsigned)device, flags);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = context_begin(context);
    if (!result)
        result = thread_push(context, NULL);
    if (result) {
        object_end(context);
        return result;
    }
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    ENTRY();
    return context_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned flags, CUdevice dev)
{
    ENTRY();
    return context_create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned flags, CUdevice dev)
{
    ENTRY();
    if (numParams > 0 && paramsArray)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return context_create(pctx, flags, dev);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned flags,
                        CUdevice dev)
{
    ENTRY();
    if (ctxCreateParams && ctxCreateParams->execAffinityParams)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return context_create(pctx, flags, dev);
}
#endif

static CUresult context_destroy(CUcontext handle)
{
    CUresult result = sim_check();
    struct context *context;
    CUcontext popped;

    if (result)
        return result;
    context = object_check(handle, OBJECT_CONTEXT);
    if (!context || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (capture_active())
        result = capture_check_context(context);
    if (result)
        return result;
    if (context_current() == context)
        thread_pop(&popped);
    result = context_finish(context);
    object_end(context);
    return result;
}

CUresult cuCtxDestroy(CUcontext ctx)
{
    ENTRY();
    return context_destroy(ctx);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    ENTRY();
    return context_destroy(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned flags)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!pctx || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim.lock);
    context->uses++;
    pthread_mutex_unlock(&sim.lock);
    *pctx = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
    struct context *context;
    bool last;

    ENTRY();
    if (sim_check())
        return sim_check();
    context = object_check(ctx, OBJECT_CONTEXT);
    if (!context || context != context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&sim.lock);
    last = !context->uses && !context->primary;
    if (context->uses && !context->primary)
        context->uses--;
    pthread_mutex_unlock(&sim.lock);
    return last ? context_destroy(ctx) : CUDA_SUCCESS;
}

/* --- the current one --- */

static CUresult context_push(CUcontext handle)
{
    CUresult result = sim_check();
    struct context *context;
    struct green *green;

    if (result)
        return result;
    context = handle ? context_check(handle, &green) : NULL;
    return context ? thread_push(context, green) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    ENTRY();
    return context_push(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    ENTRY();
    return context_push(ctx);
}

static CUresult context_pop(CUcontext *out)
{
    CUresult result = sim_check();
    CUcontext handle;

    if (!result)
        result = thread_pop(&handle);
    if (!result && out)
        *out = handle;
    return result;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    ENTRY();
    return context_pop(pctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    ENTRY();
    return context_pop(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    struct context *context = NULL;
    struct green *green = NULL;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (ctx) {
        context = context_check(ctx, &green);
        if (!context)
            return CUDA_ERROR_INVALID_CONTEXT;
    }
    thread_set(context, green);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = thread_handle();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    context = context_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = (CUdevice)context->device;
    return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(ctx, &context, &green);
    if (result)
        return result;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = (CUdevice)context->device;
    return CUDA_SUCCESS;
}
#endif

static CUresult context_synchronize(struct context *context, const struct green *green)
{
    CUresult result = thread_check(context);

    if (!result && capture_active())
        result = capture_check_context(context);
    if (!result)
        result = green_wait(context, green);
    if (!result)
        pool_trim_all();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    return result ? result : context_synchronize(context, green_current());
}

#if CUDA_VERSION >= 13000
CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(ctx, &context, &green);
    return result ? result : context_synchronize(context, green);
}
#endif

CUresult cuCtxGetFlags(unsigned *flags)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (flags & ~(unsigned)CONTEXT_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(ctx, &context, &green);
    if (result)
        return result;
    if (!ctxId)
        return CUDA_ERROR_INVALID_VALUE;
    *ctxId = (green ? green->object.id : context->object.id) << 16 |
             (atomic_load(&context->generation) & 0xffff);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned *version)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(ctx, &context, &green);
    if (result)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = context->api_version;
    return CUDA_SUCCESS;
}

/* --- limits: what stands above a default costs device memory, the default is in the context's own
 * --- */

enum { RESIDENT_THREADS = 2048, PENDING_LAUNCH = 4096 };
#define LIMIT_GRAIN (UINT64_C(2) << 20)
#define STACK_MOST (UINT64_C(512) << 10)

static uint64_t limit_above(CUlimit limit, size_t value)
{
    return value > limit_defaults[limit] ? value - limit_defaults[limit] : 0;
}

/* A stack for every thread that fits on the device, a place for every pending launch. */
static uint64_t limit_cost(const size_t *limits)
{
    uint64_t threads = (uint64_t)device_multiprocessors() * RESIDENT_THREADS;

    return SIM_ALIGN(limit_above(CU_LIMIT_STACK_SIZE, limits[CU_LIMIT_STACK_SIZE]) * threads,
                     LIMIT_GRAIN) +
           SIM_ALIGN(limit_above(CU_LIMIT_PRINTF_FIFO_SIZE, limits[CU_LIMIT_PRINTF_FIFO_SIZE]),
                     LIMIT_GRAIN) +
           SIM_ALIGN(limit_above(CU_LIMIT_MALLOC_HEAP_SIZE, limits[CU_LIMIT_MALLOC_HEAP_SIZE]),
                     LIMIT_GRAIN) +
           SIM_ALIGN(limit_above(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
                                 limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT]) *
                         PENDING_LAUNCH,
                     LIMIT_GRAIN);
}

static CUresult limit_check(const struct context *context, CUlimit limit, size_t *value)
{
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        *value = SIM_ALIGN(*value, 16);
        return *value <= STACK_MOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        return context->fifo_used ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        return context->heap_used ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        return *value <= UINT32_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        *value = *value <= 128 ? *value : 128;
        return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        return CUDA_SUCCESS;
    default: /* the depth of synchronisation: not from compute capability 9.0 on */
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!pvalue)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

/* Under the context's lock. */
static CUresult limit_set(struct context *context, CUlimit limit, size_t value)
{
    size_t old = context->limits[limit];
    uint64_t cost;
    CUresult result;

    context->limits[limit] = value;
    cost = limit_cost(context->limits);
    result = cost == context->limit_cost
                 ? CUDA_SUCCESS
                 : memory_adjust(context, (int64_t)cost - (int64_t)context->limit_cost);
    if (result)
        context->limits[limit] = old;
    else
        context->limit_cost = cost;
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if ((unsigned)limit >= LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    result = limit_check(context, limit, &value);
    if (!result && value > UINT64_C(1) << 46)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && limit == CU_LIMIT_STACK_SIZE)
        result = context_wait(context);
    if (result)
        return result;
    pthread_mutex_lock(&context->lock);
    result = limit_set(context, limit, value);
    pthread_mutex_unlock(&context->lock);
    return result;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = context->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (!result)
        context->cache = config;
    return result;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!pConfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pConfig = context->shared;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (!result)
        context->shared = config;
    return result;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    struct context *context;

    ENTRY();
    return sim_enter(&context);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    return pExecAffinity && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT
               ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
               : CUDA_ERROR_INVALID_VALUE;
}

/* --- primary contexts: begun by the first retain, ended by the last release or a reset --- */

static CUresult primary_enter(CUdevice device)
{
    CUresult result = sim_check();

    if (!result && (device < 0 || (unsigned)device >= sim.devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

/* One thread at a time begins or ends primary contexts; outermost of this file's locks. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult primary_retain(CUdevice dev, struct context **out)
{
    struct context *context;
    CUresult result = primary_enter(dev);

    if (result)
        return result;
    pthread_mutex_lock(&primary_lock);
    context = primary[dev];
    if (!context)
        context = primary[dev] = context_new((unsigned)dev, primary_flags[dev]);
    if (!context) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (!atomic_load(&context->alive)) {
        context->primary = true;
        context->flags = primary_flags[dev];
        result = context_begin(context);
    }
    if (!result) {
        context->uses++;
        *out = context;
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = primary_enter(dev);
    if (!result && !pctx)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = primary_retain(dev, &context);
    if (!result)
        *pctx = (CUcontext)context;
    return result;
}

CUresult primary_release(CUdevice device, bool reset)
{
    struct context *context;
    CUresult result = primary_enter(device);

    if (result)
        return result;
    pthread_mutex_lock(&primary_lock);
    context = primary[device];
    if (!context || !atomic_load(&context->alive)) {
        result = reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    } else if (reset && capture_active() && capture_check_context(context)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else {
        if (context->uses && !reset)
            context->uses--;
        if (reset || !context->uses) {
            context->uses = 0;
            result = context_finish(context);
        }
    }
    pthread_mutex_unlock(&primary_lock);
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    ENTRY();
    return primary_release(dev, false);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    ENTRY();
    return primary_release(dev, false);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    ENTRY();
    return primary_release(dev, true);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    ENTRY();
    return primary_release(dev, true);
}

static CUresult primary_set_flags(CUdevice device, unsigned flags)
{
    CUresult result = primary_enter(device);

    if (result)
        return result;
    if (flags & ~(unsigned)CONTEXT_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary_lock);
    primary_flags[device] = flags;
    if (primary[device])
        primary[device]->flags = flags;
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags)
{
    ENTRY();
    return primary_set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags)
{
    ENTRY();
    return primary_set_flags(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    CUresult result;

    ENTRY();
    result = primary_enter(dev);
    if (result)
        return result;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&primary_lock);
    *flags = primary_flags[dev];
    *active = primary[dev] && atomic_load(&primary[dev]->alive);
    pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}
