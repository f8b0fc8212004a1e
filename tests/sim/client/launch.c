/*
 * Kernel launches of every kind, and what can be asked and set about functions. Parameters are
 * gathered on the stack into the layout that the module gave; the usual launch allocates nothing.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "core.h"
#include "module.h"

enum { PARAM_MOST = 32768, PARAM_USUAL = 4096, BLOCK_MOST = 1024, SHARED_MOST = 227 * 1024 };

struct launch {
    unsigned grid[3], block[3];
    unsigned shared;
    void **params;
    void **extra;
    bool cooperative;
    bool programmatic;
};

CUresult function_number(struct function *function, uint32_t *number)
{
    uint32_t known = atomic_load_explicit(&function->kernel, memory_order_acquire);
    uint64_t out[4];
    CUresult result;

    if (__builtin_expect(!known, 0)) {
        result = call_device(CALL_KERNEL, NULL, 0, out, function->name);
        if (result)
            return result;
        known = (uint32_t)out[0] + 1;
        atomic_store_explicit(&function->kernel, known, memory_order_release);
    }
    *number = known - 1;
    return CUDA_SUCCESS;
}

/* `extra`: a buffer laid out by the caller, and its size. */
static CUresult launch_extra(const struct function *function, void **extra, unsigned char *to)
{
    const void *buffer = NULL;
    size_t bytes = 0;

    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes < function->param_bytes || (bytes && !buffer))
        return CUDA_ERROR_INVALID_VALUE;
    if (function->param_bytes)
        memcpy(to, buffer, function->param_bytes);
    return CUDA_SUCCESS;
}

static CUresult launch_params(const struct function *function, const struct launch *launch,
                              unsigned char *to)
{
    if (launch->params && launch->extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (launch->extra)
        return launch_extra(function, launch->extra, to);
    if (function->param_count && !launch->params)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < function->param_count; i++) {
        const struct parameter *p = &function->params[i];

        if (!launch->params[i] || p->offset + p->bytes > function->param_bytes)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(to + p->offset, launch->params[i], p->bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult launch_check(const struct function *function, const struct launch *launch)
{
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    int most = function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];

    if (!launch->grid[0] || !launch->grid[1] || !launch->grid[2] || !threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (launch->grid[0] > 2147483647u || launch->grid[1] > 65535 || launch->grid[2] > 65535 ||
        launch->block[2] > 64 || threads > BLOCK_MOST || (most > 0 && threads > (uint64_t)most))
        return CUDA_ERROR_INVALID_VALUE;
    if (launch->shared > SHARED_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult launch_with(struct function *function, struct stream *stream,
                            const struct launch *launch, unsigned char *params)
{
    struct command command = {.kind = COMMAND_KERNEL, .function = function, .params = params};
    CUresult result = launch_params(function, launch, params);

    if (result)
        return result;
    if (function->module->image->heap)
        stream->context->heap_used = true;
    if (function->module->image->fifo)
        stream->context->fifo_used = true;
    command.flags = launch->programmatic ? COMMAND_PROGRAMMATIC : 0;
    command.launch.shared = launch->shared;
    command.launch.cooperative = launch->cooperative;
    memcpy(command.launch.grid, launch->grid, sizeof(launch->grid));
    memcpy(command.launch.block, launch->block, sizeof(launch->block));
    return stream_submit(stream, &command, NULL);
}

static CUresult launch_function(struct function *function, struct stream *stream,
                                const struct launch *launch)
{
    unsigned char params[PARAM_USUAL], *large;
    CUresult result = launch_check(function, launch);

    if (!result && function->param_bytes > PARAM_MOST)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result || function->param_bytes <= sizeof(params))
        return result ? result : launch_with(function, stream, launch, params);
    large = malloc(function->param_bytes);
    if (!large)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = launch_with(function, stream, launch, large);
    free(large);
    return result;
}

static CUresult launch_kernel(CUfunction handle, CUstream stream_handle,
                              const struct launch *launch)
{
    struct function *function;
    struct stream *stream;
    CUresult result;

    if (sim.null_launch)
        return CUDA_SUCCESS;
    result = stream_find(stream_handle, &stream);
    if (!result)
        result = module_resolve_function(handle, stream->context, &function);
    if (result)
        return result;
    if (function->context && function->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_spend(sim.launch_cost);
    return launch_function(function, stream, launch);
}

/* --- entry points --- */

#define LAUNCH_PARAMS \
    CUfunction f, unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ, unsigned blockDimX, \
        unsigned blockDimY, unsigned blockDimZ, unsigned sharedMemBytes, CUstream hStream, \
        void **kernelParams
#define LAUNCH_FIELDS \
    .grid = {gridDimX, gridDimY, gridDimZ}, .block = {blockDimX, blockDimY, blockDimZ}, \
    .shared = sharedMemBytes, .params = kernelParams

CUresult cuLaunchKernel(LAUNCH_PARAMS, void **extra)
{
    struct launch launch = {LAUNCH_FIELDS, .extra = extra};

    ENTRY();
    return launch_kernel(f, hStream, &launch);
}

CUresult cuLaunchKernel_ptsz(LAUNCH_PARAMS, void **extra)
{
    struct launch launch = {LAUNCH_FIELDS, .extra = extra};

    ENTRY();
    return launch_kernel(f, PER_THREAD(hStream), &launch);
}

CUresult cuLaunchCooperativeKernel(LAUNCH_PARAMS)
{
    struct launch launch = {LAUNCH_FIELDS, .cooperative = true};

    ENTRY();
    return launch_kernel(f, hStream, &launch);
}

CUresult cuLaunchCooperativeKernel_ptsz(LAUNCH_PARAMS)
{
    struct launch launch = {LAUNCH_FIELDS, .cooperative = true};

    ENTRY();
    return launch_kernel(f, PER_THREAD(hStream), &launch);
}

/* An event attribute of a launch is recorded behind it. */
static CUresult launch_attribute_event(const CUlaunchConfig *config, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < config->numAttrs && !result; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            result = cuEventRecord(config->attrs[i].value.programmaticEvent.event, stream);
    return result;
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, CUstream stream,
                          void **params, void **extra)
{
    struct launch launch = {.params = params, .extra = extra};
    CUresult result;

    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(launch.grid, (unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
           sizeof(launch.grid));
    memcpy(launch.block, (unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
           sizeof(launch.block));
    launch.shared = config->sharedMemBytes;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];

        if (a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            launch.programmatic = a->value.programmaticStreamSerializationAllowed != 0;
        else if (a->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            launch.cooperative = a->value.cooperative != 0;
    }
    result = launch_kernel(f, stream, &launch);
    return result ? result : launch_attribute_event(config, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                          void **extra)
{
    ENTRY();
    return launch_ex(config, f, config ? config->hStream : NULL, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra)
{
    ENTRY();
    return launch_ex(config, f, config ? PER_THREAD(config->hStream) : NULL, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
                                              unsigned numDevices, unsigned flags)
{
    CUresult result = CUDA_SUCCESS;

    ENTRY();
    if (!launchParamsList || !numDevices || (flags & ~3u))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numDevices && !result; i++) {
        const CUDA_LAUNCH_PARAMS *p = &launchParamsList[i];
        struct launch launch = {
            .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
            .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
            .shared = p->sharedMemBytes,
            .params = p->kernelParams,
            .cooperative = true,
        };

        result = launch_kernel(p->function, p->hStream, &launch);
    }
    return result;
}

/* --- the launches of the first CUDA, still exported --- */

static CUresult launch_legacy_function(CUfunction handle, struct function **function)
{
    struct context *context;
    CUresult result = sim_enter(&context);

    if (!result)
        result = module_resolve_function(handle, context, function);
    return result;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = launch_legacy_function(hfunc, &function);
    if (!result && (x <= 0 || y <= 0 || z <= 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    function->legacy.x = (unsigned)x;
    function->legacy.y = (unsigned)y;
    function->legacy.z = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned bytes)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = launch_legacy_function(hfunc, &function);
    if (!result)
        function->legacy.shared = bytes;
    return result;
}

static CUresult launch_legacy_param(CUfunction handle, int offset, const void *value,
                                    unsigned bytes)
{
    struct function *function;
    CUresult result = launch_legacy_function(handle, &function);

    if (!result && (offset < 0 || (bytes && !value) || (unsigned)offset > PARAM_MOST - bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (!function->legacy.params)
        function->legacy.params = calloc(1, PARAM_MOST);
    if (!function->legacy.params)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(function->legacy.params + offset, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned numbytes)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = launch_legacy_function(hfunc, &function);
    if (!result && numbytes > PARAM_MOST)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        function->legacy.bytes = numbytes;
    return result;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned value)
{
    ENTRY();
    return launch_legacy_param(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
    ENTRY();
    return launch_legacy_param(hfunc, offset, &value, sizeof(value));
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned numbytes)
{
    ENTRY();
    if (numbytes > PARAM_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    return launch_legacy_param(hfunc, offset, ptr, numbytes);
}

static CUresult launch_legacy(CUfunction handle, int width, int height, CUstream stream)
{
    struct function *function;
    CUresult result = launch_legacy_function(handle, &function);
    static unsigned char none[1];
    size_t bytes;
    struct launch launch = {.grid = {(unsigned)width, (unsigned)height, 1}};

    if (!result && (width <= 0 || height <= 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    bytes = function->legacy.bytes;
    launch.extra = (void *[]){
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        function->legacy.params ? function->legacy.params : none,
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        &bytes,
        CU_LAUNCH_PARAM_END,
    };
    launch.block[0] = function->legacy.x;
    launch.block[1] = function->legacy.y;
    launch.block[2] = function->legacy.z;
    launch.shared = function->legacy.shared;
    return launch_kernel(handle, stream, &launch);
}

CUresult cuLaunch(CUfunction f)
{
    ENTRY();
    return launch_legacy(f, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    ENTRY();
    return launch_legacy(f, grid_width, grid_height, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    ENTRY();
    return launch_legacy(f, grid_width, grid_height, hStream);
}

/* --- attributes and occupancy --- */

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = launch_legacy_function(hfunc, &function);
    if (!result && (!pi || (unsigned)attrib >= CU_FUNC_ATTRIBUTE_MAX))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *pi = function->attributes[attrib];
    return result;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = launch_legacy_function(hfunc, &function);
    if (result)
        return result;
    switch (attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > SHARED_MOST)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    default:
        if (attrib < CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET || attrib >= CU_FUNC_ATTRIBUTE_MAX)
            return CUDA_ERROR_INVALID_VALUE;
    }
    function->attributes[attrib] = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct function *function;

    ENTRY();
    (void)config;
    return launch_legacy_function(hfunc, &function);
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    struct function *function;

    ENTRY();
    (void)config;
    return launch_legacy_function(hfunc, &function);
}

enum { SM_THREADS = 2048, SM_BLOCKS = 32, SM_SHARED = 228 * 1024, SM_REGISTERS = 65536, WARP = 32 };

static int occupancy_least(int a, int b)
{
    return a < b ? a : b;
}

static CUresult occupancy_blocks(int *blocks, CUfunction handle, int size, size_t dynamic)
{
    struct function *function;
    CUresult result = launch_legacy_function(handle, &function);
    int shared, registers, n;

    if (!result && (!blocks || size <= 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    n = size > BLOCK_MOST
            ? 0
            : occupancy_least(SM_BLOCKS, SM_THREADS / ((size + WARP - 1) / WARP * WARP));
    shared = function->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] + (int)dynamic + 1024;
    registers = function->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] * size;
    n = occupancy_least(n, SM_SHARED / shared);
    *blocks = registers > 0 ? occupancy_least(n, SM_REGISTERS / registers) : n;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize)
{
    ENTRY();
    return occupancy_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned flags)
{
    ENTRY();
    if (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    return occupancy_blocks(numBlocks, func, blockSize, dynamicSMemSize);
}

static CUresult occupancy_best(int *grid, int *block, CUfunction func, CUoccupancyB2DSize dynamic,
                               size_t fixed, int limit)
{
    int best = 0, blocks, sms;
    CUresult result = grid && block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    struct function *function;
    int most;

    if (!result)
        result = launch_legacy_function(func, &function);
    if (result)
        return result;
    most = function->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    if (most <= 0 || most > BLOCK_MOST)
        most = BLOCK_MOST;
    if (limit > 0 && limit < most)
        most = limit;
    sms = device_multiprocessors();
    for (int size = most; size > 0 && !result; size -= size > WARP ? WARP : size) {
        result = occupancy_blocks(&blocks, func, size, dynamic ? dynamic(size) : fixed);
        if (!result && blocks * size > best) {
            best = blocks * size;
            *block = size;
            *grid = blocks * sms;
        }
    }
    return result;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit)
{
    ENTRY();
    return occupancy_best(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                          blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned flags)
{
    ENTRY();
    if (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    return occupancy_best(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                          blockSizeLimit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = launch_legacy_function(func, &function);
    if (!result && (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    *dynamicSmemSize = (size_t)occupancy_least(SM_SHARED / numBlocks, SHARED_MOST);
    return CUDA_SUCCESS;
}
