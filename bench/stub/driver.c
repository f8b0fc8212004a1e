/*
 * A libcuda.so.1 that answers at once and does nothing: behind it, what a layer in front of the
 * driver costs is not drowned by what a driver costs. Exports what the benchmark's client and such
 * a layer call; a look-up of anything else says NOT_FOUND.
 *
 * Each thread allocates from addresses of its own and gives back to itself. All work is done as
 * soon as it is submitted. It must never be taken for a driver: nothing that a program computes
 * with it is right.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STUB_MEMORY (UINT64_C(64) << 30)
#define STUB_GRAIN UINT64_C(512)
#define STUB_FREED 131072u
#define STUB_FIRST UINT64_C(0x7e0000000000)
#define STUB_THREAD (UINT64_C(64) << 30) /* addresses of one thread */

#define EXPORT __attribute__((visibility("default")))
/* An address that is somebody's handle and never looked into. */
#define HANDLE(type) ((type)(void *)&stub_thing)

static char stub_thing;
static __thread __attribute__((tls_model("initial-exec"))) CUcontext stub_current;

/* What a thread may hand out: new addresses, and those that it has got back. */
struct stub_heap {
    CUdeviceptr next;
    unsigned count;
    CUdeviceptr freed[STUB_FREED];
};
static __thread __attribute__((tls_model("initial-exec"))) struct stub_heap *stub_heap;

/* ---- Start --------------------------------------------------------------------------------------
 */

EXPORT CUresult cuInit(unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "an error";
    return CUDA_SUCCESS;
}

/* The newest flavour that is exported is the answer, whatever version was asked for. */
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    char name[128];
    (void)version, (void)flags;
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = self ? dlsym(self, name) : NULL;
    if (!*function && self)
        *function = dlsym(self, symbol);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* ---- The device and its context -----------------------------------------------------------------
 */

EXPORT CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = 0;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    (void)device;
    snprintf(name, (size_t)size, "stub");
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    (void)device;
    memset(uuid->bytes, 0x5a, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = STUB_MEMORY;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)attribute, (void)device;
    *value = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = HANDLE(CUcontext);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    stub_current = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = stub_current;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    *context = HANDLE(CUcontext);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

/* ---- Work, streams, events ----------------------------------------------------------------------
 */

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    *module = HANDLE(CUmodule);
    return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    *function = HANDLE(CUfunction);
    return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Weak: tests put launches of their own in its place. */
EXPORT __attribute__((weak)) CUresult
cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
               unsigned int block_x, unsigned int block_y, unsigned int block_z,
               unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    (void)f, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)stream, (void)params, (void)extra;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    (void)flags;
    *stream = HANDLE(CUstream);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    (void)stream;
    *context = HANDLE(CUcontext);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    (void)stream, (void)event, (void)flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = HANDLE(CUevent);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

#if CUDA_VERSION >= 12050
EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    return context && event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
#endif

/* ---- Memory: addresses and nothing behind them --------------------------------------------------
 */

static __attribute__((noinline)) struct stub_heap *stub_heap_make(void)
{
    static _Atomic unsigned threads;
    struct stub_heap *heap = calloc(1, sizeof *heap); /* kept by the thread's pieces for ever */
    if (heap)
        heap->next = STUB_FIRST + STUB_THREAD * (atomic_fetch_add(&threads, 1) % 16);
    return stub_heap = heap;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct stub_heap *heap = stub_heap ? stub_heap : stub_heap_make();
    if (!heap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (heap->count) {
        *pointer = heap->freed[--heap->count];
        return CUDA_SUCCESS;
    }
    *pointer = heap->next;
    heap->next += (bytes + STUB_GRAIN - 1) / STUB_GRAIN * STUB_GRAIN;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct stub_heap *heap = stub_heap ? stub_heap : stub_heap_make();
    if (!heap || heap->count == STUB_FREED)
        return CUDA_ERROR_UNKNOWN;
    heap->freed[heap->count++] = pointer;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    *left = *total = STUB_MEMORY;
    return CUDA_SUCCESS;
}
