/*
 * Green contexts: parts of a device's multiprocessors, and streams that belong to them. A green
 * context keeps the primary context alive and shares everything with it but its streams; on this
 * device all streams compete for the same places. The counts are what a GPU of compute capability
 * 9.0 answers. Like a graph, a green context is one thread's at a time.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>

#include "capture.h"
#include "core.h"

/* Least and step of a part, and the same without regard to what is scheduled together. */
enum { PART = 8, PART_FINE = 2 };

/* What a resource remembers in the bytes that only its maker may touch. */
struct origin {
    uint32_t magic;
    uint32_t device;
    uint32_t part; /* least size of a part of it */
    uint32_t spare;
    uint64_t split; /* number of the split that made it, 0: it may be split */
};

struct descriptor {
    struct object object;
    unsigned device;
    CUdevResource resource;
};

static _Atomic uint64_t splits;

/* --- resources --- */

static void resource_fill(CUdevResource *resource, unsigned device, unsigned count, unsigned part,
                          uint64_t split)
{
    struct origin origin = {.magic = SIM_MAGIC, .device = device, .part = part, .split = split};

    memset(resource, 0, sizeof(*resource));
    if (!count)
        return;
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    resource->sm.smCount = count;
#if CUDA_VERSION >= 13000
    resource->sm.minSmPartitionSize = part;
    resource->sm.smCoscheduledAlignment = part;
#endif
    memcpy(resource->_internal_padding, &origin, sizeof(origin));
}

static CUresult resource_read(const CUdevResource *resource, struct origin *origin)
{
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    memcpy(origin, resource->_internal_padding, sizeof(*origin));
    return origin->magic == SIM_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult resource_answer(const CUdevResource *from, CUdevResource *to,
                                CUdevResourceType type)
{
    if (!to)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *to = *from;
    return CUDA_SUCCESS;
}

static CUresult resource_answer_device(unsigned device, CUdevResource *to, CUdevResourceType type)
{
    CUdevResource whole;

    resource_fill(&whole, device, (unsigned)device_multiprocessors(), PART, 0);
    return resource_answer(&whole, to, type);
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    return resource_answer_device((unsigned)device, resource, type);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    struct context *context;
    struct green *green;
    CUresult result;

    ENTRY();
    result = context_enter(hCtx, &context, &green);
    if (result)
        return result;
    return green ? resource_answer(&green->resource, resource, type)
                 : resource_answer_device(context->device, resource, type);
}

/* Equal parts of at least minCount multiprocessors, as many as were asked for and fit. */
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *nbGroups,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned useFlags, unsigned minCount)
{
    unsigned fine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
    unsigned part = useFlags & fine ? PART_FINE : PART;
    unsigned size, groups;
    struct origin origin;
    uint64_t split;
    CUresult error;

    ENTRY();
    error = sim_check();
    if (!error)
        error = resource_read(input, &origin);
    if (error)
        return error;
    if (!nbGroups || minCount > input->sm.smCount ||
        (useFlags & ~(fine | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)))
        return CUDA_ERROR_INVALID_VALUE;
    if (origin.split)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    size = minCount ? (minCount + part - 1) / part * part : part;
    groups = input->sm.smCount / size;
    if (result && *nbGroups < groups)
        groups = *nbGroups;
    split = atomic_fetch_add(&splits, 1) + 1;
    for (unsigned i = 0; result && i < groups; i++)
        resource_fill(&result[i], origin.device, size, part, split);
    if (remaining)
        resource_fill(remaining, origin.device, input->sm.smCount - groups * size, part, split);
    *nbGroups = groups;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
                                   unsigned nbResources)
{
    struct descriptor *descriptor;
    struct origin first = {0}, origin;
    unsigned count = 0;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && (!phDesc || !resources || !nbResources))
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < nbResources && !result; i++) {
        result = resource_read(&resources[i], &origin);
        if (!i)
            first = origin;
        if (!result && (origin.device != first.device || origin.split != first.split ||
                        (nbResources > 1 && !origin.split)))
            result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        count += resources[i].sm.smCount;
    }
    if (result)
        return result;
    descriptor = object_new(OBJECT_DESCRIPTOR, sizeof(*descriptor));
    if (!descriptor)
        return CUDA_ERROR_OUT_OF_MEMORY;
    descriptor->device = first.device;
    resource_fill(&descriptor->resource, first.device, count, first.part, 0);
    *phDesc = (CUdevResourceDesc)descriptor;
    return CUDA_SUCCESS;
}

/* --- green contexts --- */

static CUresult green_check(CUgreenCtx handle, struct green **green)
{
    CUresult result = sim_check();

    if (result)
        return result;
    *green = handle ? object_check(handle, OBJECT_GREEN) : NULL;
    if (!*green)
        return CUDA_ERROR_INVALID_CONTEXT;
    return (*green)->generation == atomic_load(&(*green)->context->generation)
               ? thread_check((*green)->context)
               : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void green_end(struct green *green)
{
    if (green->view)
        object_end(green->view);
    object_end(green);
}

static CUresult green_begin(struct green *green, const struct descriptor *descriptor)
{
    CUresult result = primary_retain((CUdevice)descriptor->device, &green->context);

    if (result)
        return result;
    green->generation = atomic_load(&green->context->generation);
    green->resource = descriptor->resource;
    green->view->green = green;
    result = stream_make(green->context, green, 0, 0, &green->legacy);
    if (result)
        primary_release((CUdevice)descriptor->device, false);
    else
        green->legacy->legacy = true;
    return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned flags)
{
    const struct descriptor *descriptor;
    struct green *green;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    descriptor = desc ? object_check(desc, OBJECT_DESCRIPTOR) : NULL;
    if (dev < 0 || (unsigned)dev >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!phCtx || !descriptor || flags != CU_GREEN_CTX_DEFAULT_STREAM ||
        descriptor->device != (unsigned)dev)
        return CUDA_ERROR_INVALID_VALUE;
    green = object_new(OBJECT_GREEN, sizeof(*green));
    if (!green)
        return CUDA_ERROR_OUT_OF_MEMORY;
    green->view = object_new(OBJECT_VIEW, sizeof(*green->view));
    result = green->view ? green_begin(green, descriptor) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        green_end(green);
    else
        *phCtx = (CUgreenCtx)green;
    return result;
}

/* Its work goes on; only the last holder of the primary context waits for that. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    struct green *green;
    struct context *context;
    bool lives;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    green = hCtx ? object_check(hCtx, OBJECT_GREEN) : NULL;
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    context = green->context;
    lives = atomic_load(&context->alive) && green->generation == atomic_load(&context->generation);
    if (lives && capture_active())
        result = capture_check_context(context);
    if (result)
        return result;
    if (lives) {
        stream_orphan_all(green);
        stream_retire(green->legacy);
    }
    green_end(green);
    return lives ? primary_release((CUdevice)context->device, false)
                 : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    struct green *green;
    CUresult result;

    ENTRY();
    result = green_check(hCtx, &green);
    if (!result && !pContext)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *pContext = (CUcontext)green->view;
    return result;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    struct green *green;
    CUresult result;

    ENTRY();
    result = green_check(hCtx, &green);
    return result ? result : resource_answer(&green->resource, resource, type);
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned flags,
                                int priority)
{
    struct green *green;
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = green_check(greenCtx, &green);
    if (!result && (!phStream || flags != CU_STREAM_NON_BLOCKING))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result =
            stream_make(green->context, green, flags, stream_clamp_priority(priority), &stream);
    if (!result)
        *phStream = (CUstream)stream;
    return result;
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    struct stream *stream;
    CUresult result;

    ENTRY();
    result = stream_find(hStream, &stream);
    if (!result && !phCtx)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *phCtx = (CUgreenCtx)stream->green;
    return result;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct green *green;
    CUresult result;

    ENTRY();
    result = green_check(hCtx, &green);
    return result ? result : green_event_record(green->context, green, hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct green *green;
    CUresult result;

    ENTRY();
    result = green_check(hCtx, &green);
    return result ? result : green_event_wait(green->context, green, hEvent);
}

#if CUDA_VERSION >= 13000
CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    struct green *green = greenCtx ? NULL : green_current();
    CUresult result;

    ENTRY();
    result = green ? CUDA_SUCCESS : green_check(greenCtx, &green);
    if (!result && !greenCtxId)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *greenCtxId = green->object.id;
    return result;
}
#endif
