/*
 * Device memory: allocation and free, figures, what an address is. The device process decides what
 * fits; the memory itself is mapped here at the same address. Freeing waits for the context's work,
 * as the driver's does.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>
#include <sys/mman.h>

#include "capture.h"
#include "core.h"
#include "graph.h"

enum { PITCH = 512, ALIGN = 512 };

CUresult memory_take(struct context *context, uint64_t bytes, uint64_t alignment,
                     enum alloc_kind kind, CUdeviceptr *address)
{
    uint64_t in[] = {context->slot, context->device, bytes, alignment, (uint64_t)kind};
    uint64_t out[4];
    CUresult result = call_device(CALL_ALLOC, in, 5, out, NULL);

    if (!result)
        *address = out[0];
    return result;
}

CUresult memory_take_free(unsigned device, uint64_t bytes, enum alloc_kind kind,
                          CUdeviceptr *address)
{
    uint64_t in[] = {SIM_CONTEXTS, device, bytes, UINT64_C(2) << 20, (uint64_t)kind};
    uint64_t out[4];
    CUresult result = call_device(CALL_ALLOC, in, 5, out, NULL);

    if (!result)
        *address = out[0];
    return result;
}

CUresult memory_put(CUdeviceptr address)
{
    uint64_t in[] = {address};

    return call_device(CALL_FREE, in, 1, NULL, NULL);
}

CUresult memory_adjust(struct context *context, int64_t bytes)
{
    uint64_t in[] = {context->slot, context->device, (uint64_t)bytes};

    return call_device(CALL_ADJUST, in, 3, NULL, NULL);
}

static uint64_t memory_mapped(void)
{
    return sim.board->memory_stride * sim.devices;
}

bool memory_is_device(CUdeviceptr address)
{
    return address - sim.board->memory_base < memory_mapped() || graph_memory_owns(address);
}

bool memory_is_reachable(const void *pointer, uint64_t bytes)
{
    uint64_t address = (uint64_t)(uintptr_t)pointer;

    return memory_is_device(address) || region_covers(address, bytes);
}

/* Virtual ranges are mapped here as well, so every device address is also one of this process. */
void *region_host(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static CUresult memory_enter(struct context **context, const void *out)
{
    CUresult result = sim_enter(context);

    if (!result && capture_active())
        result = capture_check_unsafe();
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult memory_alloc(CUdeviceptr *out, uint64_t bytes, enum region_kind kind)
{
    struct region region = {.bytes = bytes, .kind = kind};
    CUdeviceptr address;
    CUresult result = memory_enter(&region.context, out);

    if (!result && !bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = memory_take(region.context, bytes, ALIGN,
                             kind == REGION_MANAGED ? ALLOC_MANAGED : ALLOC_PLAIN, &address);
    if (result)
        return result;
    region.address = address;
    region.device = region.context->device;
    result = region_add(&region);
    if (result)
        memory_put(address);
    else
        *out = address;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    ENTRY();
    return memory_alloc(dptr, bytesize, REGION_DEVICE);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned ElementSizeBytes)
{
    size_t pitch = SIM_ALIGN(WidthInBytes, PITCH), bytes;
    CUresult result;

    ENTRY();
    if (!pPitch || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) ||
        __builtin_mul_overflow(pitch, Height, &bytes))
        return sim_check() ? sim_check() : CUDA_ERROR_INVALID_VALUE;
    result = memory_alloc(dptr, bytes, REGION_DEVICE);
    if (!result)
        *pPitch = pitch;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned flags)
{
    ENTRY();
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return sim_check() ? sim_check() : CUDA_ERROR_INVALID_VALUE;
    return memory_alloc(dptr, bytesize, REGION_MANAGED);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    struct context *context;
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (result || !dptr)
        return result;
    if (!region_find(dptr, &region) || region.kind == REGION_VIRTUAL)
        return graph_memory_free(dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (region.address != dptr || region.kind == REGION_PINNED ||
        region.kind == REGION_REGISTERED ||
        (region.kind == REGION_IMPORTED && !(region.flags & REGION_FREED_BY_FREE)))
        return CUDA_ERROR_INVALID_VALUE;
    result = context_wait(region.context ? region.context : context);
    if (result)
        return result;
    if (region.kind == REGION_POOL)
        return pool_free_now(dptr, region.owner);
    if (region.kind == REGION_IMPORTED)
        return share_close(dptr);
    if (region.kind == REGION_EXTERNAL)
        return external_free(dptr);
    if (!region_remove(dptr, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return memory_put(dptr);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    const struct board_device *device;
    struct context *context;
    uint64_t all, used;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    device = &sim.board->device[context->device];
    all = atomic_load(&device->total);
    used = atomic_load(&device->used);
    if (free)
        *free = all > used ? all - used : 0;
    if (total)
        *total = all;
    return CUDA_SUCCESS;
}

/* --- the device's own books, for tests: no names of CUDA's --- */

SIM_TESTS CUresult simcudaHandedOut(int device, unsigned long long *memory,
                                    unsigned long long *context)
{
    uint64_t in[] = {(uint64_t)device, 0}, out[4];
    CUresult result = sim_check();

    if (!result)
        result = call_device(CALL_HANDED_OUT, in, 2, out, NULL);
    if (result)
        return result;
    if (memory)
        *memory = out[0];
    if (context)
        *context = out[1];
    return CUDA_SUCCESS;
}

SIM_TESTS CUresult simcudaDeviceHandedOut(int device, unsigned long long *used,
                                          unsigned long long *orphaned)
{
    uint64_t in[] = {(uint64_t)device, 0}, out[4];
    CUresult result = sim_check();

    if (!result)
        result = call_device(CALL_HANDED_OUT, in, 2, out, NULL);
    if (result)
        return result;
    if (used)
        *used = out[2];
    if (orphaned)
        *orphaned = out[3];
    return CUDA_SUCCESS;
}

SIM_TESTS CUresult simcudaManaged(int device, unsigned long long *allocated,
                                  unsigned long long *resident)
{
    uint64_t in[] = {(uint64_t)device, 1}, out[4];
    CUresult result = sim_check();

    if (!result)
        result = call_device(CALL_HANDED_OUT, in, 2, out, NULL);
    if (result)
        return result;
    if (allocated)
        *allocated = out[0];
    if (resident)
        *resident = out[1];
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct context *context;
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!region_find(dptr, &region))
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = region.address;
    if (psize)
        *psize = region.bytes;
    return CUDA_SUCCESS;
}

/* --- what an address is --- */

static bool memory_is_host(const struct region *region)
{
    return region->kind == REGION_PINNED || region->kind == REGION_REGISTERED ||
           (region->kind == REGION_POOL && (region->flags & REGION_ON_HOST));
}

static CUresult memory_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                                 const struct region *region)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = region->kind == REGION_POOL || region->kind == REGION_VIRTUAL
                                 ? NULL
                                 : (CUcontext)region->context;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = memory_is_host(region) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!memory_is_host(region) && region->kind != REGION_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE &&
                            region->kind == REGION_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = region->id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = region->kind == REGION_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = (int)region->device;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = region->address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = region->bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = region->kind == REGION_POOL ? (CUmemoryPool)region->owner : NULL;
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!data || !region_find(ptr, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return memory_attribute(data, attribute, ptr, &region);
}

/* For an unknown address the attributes read as "none", which is how pageable memory shows. */
static void memory_no_attribute(void *data, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(uint64_t *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = -2;
        break;
    default:
        *(unsigned *)data = 0;
    }
}

CUresult cuPointerGetAttributes(unsigned numAttributes, CUpointer_attribute *attrs, void **data,
                                CUdeviceptr ptr)
{
    struct region region;
    CUresult result;
    bool known;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!attrs || !data)
        return CUDA_ERROR_INVALID_VALUE;
    known = region_find(ptr, &region);
    for (unsigned i = 0; i < numAttributes; i++)
        if (!known || memory_attribute(data[i], attrs[i], ptr, &region))
            memory_no_attribute(data[i], attrs[i]);
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !region_find(ptr, &region))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* --- managed memory: the host sees it always, kernels bring it to the device --- */

static CUresult memory_managed(CUdeviceptr address, size_t bytes)
{
    CUresult result = sim_check();
    struct region region;

    if (result)
        return result;
    if (!bytes || !region_find(address, &region) || region.kind != REGION_MANAGED ||
        bytes > region.bytes - (address - region.address))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    ENTRY();
    (void)device;
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    return memory_managed(devPtr, count);
}

/* Where pages do not move, and in a capture, it is a place in the stream. */
static CUresult memory_prefetch(CUdeviceptr address, size_t bytes, bool to_host, CUstream handle)
{
    struct stream *stream;
    struct command command = {.kind = COMMAND_NOTHING};
    CUresult result = stream_find(handle, &stream);

    if (!result)
        result = memory_managed(address, bytes);
    if (result)
        return result;
    if (sim.board->paging && !atomic_load(&stream->capture)) {
        command.kind = COMMAND_COPY;
        command.copy.width = bytes;
        command.copy.height = command.copy.depth = 1;
        command.copy.direction = to_host ? COPY_DTOH : COPY_HTOD;
        command.copy.prefetch = 1;
    }
    return stream_submit(stream, &command, NULL);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    ENTRY();
    if (dstDevice != CU_DEVICE_CPU && (dstDevice < 0 || (unsigned)dstDevice >= sim.devices))
        return CUDA_ERROR_INVALID_DEVICE;
    return memory_prefetch(devPtr, count, dstDevice == CU_DEVICE_CPU, hStream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                 CUstream hStream)
{
    ENTRY();
    return cuMemPrefetchAsync(devPtr, count, dstDevice, PER_THREAD(hStream));
}

#if CUDA_VERSION >= 12020
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    ENTRY();
    (void)location;
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    return memory_managed(devPtr, count);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned flags, CUstream hStream)
{
    ENTRY();
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        (location.id < 0 || (unsigned)location.id >= sim.devices))
        return CUDA_ERROR_INVALID_DEVICE;
    return flags ? CUDA_ERROR_INVALID_VALUE
                 : memory_prefetch(devPtr, count, location.type != CU_MEM_LOCATION_TYPE_DEVICE,
                                   hStream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                    unsigned flags, CUstream hStream)
{
    ENTRY();
    return cuMemPrefetchAsync_v2(devPtr, count, location, flags, PER_THREAD(hStream));
}
#endif

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned flags)
{
    struct stream *stream;
    struct region region;
    CUresult result;

    ENTRY();
    (void)length;
    (void)flags;
    result = stream_find(hStream, &stream);
    if (!result && (!region_find(dptr, &region) || region.kind != REGION_MANAGED))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream hStream, CUdeviceptr dptr, size_t length,
                                     unsigned flags)
{
    ENTRY();
    return cuStreamAttachMemAsync(PER_THREAD(hStream), dptr, length, flags);
}
