/*
 * External memory: what another process (or this one) made with cuMemCreate and exported as a file
 * descriptor. An import is one more holder of that memory, until the object and all buffers mapped
 * from it are gone; a buffer is a view of its own, so that the same bytes may be mapped twice. One
 * lock.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture.h"
#include "core.h"

#define PAGE UINT64_C(4096)

struct buffer {
    struct buffer *next;
    uint64_t address;     /* as the program knows it */
    uint64_t view, bytes; /* whole pages */
};

struct external {
    struct object object;
    struct external *next;
    struct context *context;
    struct shared_memory memory;
    uint64_t bytes; /* as imported */
    bool destroyed; /* buffers are left */
    struct buffer *buffers;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct external *externals;

static CUresult external_enter(struct context **context)
{
    CUresult result = sim_enter(context);

    return !result && capture_active() ? capture_check_unsafe() : result;
}

CUresult cuImportExternalMemory(CUexternalMemory *extMem_out,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
    struct shared_memory memory;
    struct external *external;
    struct context *context;
    CUresult result;

    ENTRY();
    result = external_enter(&context);
    if (!result && (!extMem_out || !memHandleDesc || !memHandleDesc->size))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (!result && (memHandleDesc->flags & ~(unsigned)CUDA_EXTERNAL_MEMORY_DEDICATED))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = share_of_descriptor(memHandleDesc->handle.fd, &memory);
    if (!result && (memory.device != context->device || memHandleDesc->size > memory.bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    external = object_new(OBJECT_EXTERNAL, sizeof(*external));
    if (!external)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = share_hold(NULL, &memory);
    if (result) {
        object_end(external);
        return result;
    }
    external->context = context;
    external->memory = memory;
    external->bytes = memHandleDesc->size;
    pthread_mutex_lock(&lock);
    external->next = externals;
    externals = external;
    pthread_mutex_unlock(&lock);
    close(memHandleDesc->handle.fd); /* it is the driver's from a successful import on */
    *extMem_out = (CUexternalMemory)external;
    return CUDA_SUCCESS;
}

/* --- buffers: under the lock --- */

static void buffer_unmap(struct buffer *buffer)
{
    uint64_t in[] = {buffer->view, 0, 0};

    call_device(CALL_MAP, in, 3, NULL, NULL);
    munmap((void *)(uintptr_t)buffer->view, buffer->bytes);
    free(buffer);
}

static struct buffer *buffer_map(const struct external *external, uint64_t offset, uint64_t bytes)
{
    uint64_t from = (external->memory.address + offset) & ~(PAGE - 1);
    uint64_t aside = external->memory.address + offset - from;
    uint64_t pages = SIM_ALIGN(aside + bytes, PAGE);
    struct buffer *buffer = calloc(1, sizeof(*buffer));
    void *view = mremap((void *)(uintptr_t)from, 0, pages, MREMAP_MAYMOVE);
    uint64_t in[] = {(uint64_t)(uintptr_t)view, pages, from};

    if (!buffer || view == MAP_FAILED || call_device(CALL_MAP, in, 3, NULL, NULL)) {
        if (view != MAP_FAILED)
            munmap(view, pages);
        free(buffer);
        return NULL;
    }
    buffer->view = (uint64_t)(uintptr_t)view;
    buffer->bytes = pages;
    buffer->address = buffer->view + aside;
    return buffer;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
    struct region region = {.kind = REGION_EXTERNAL};
    struct external *external;
    struct buffer *buffer;
    CUresult result;

    ENTRY();
    result = external_enter(&region.context);
    if (result)
        return result;
    external = object_check(extMem, OBJECT_EXTERNAL);
    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!devPtr || !bufferDesc || bufferDesc->flags || !bufferDesc->size ||
        bufferDesc->offset > external->bytes ||
        bufferDesc->size > external->bytes - bufferDesc->offset)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    buffer = buffer_map(external, bufferDesc->offset, bufferDesc->size);
    if (buffer) {
        region.address = buffer->address;
        region.bytes = bufferDesc->size;
        region.device = external->memory.device;
        region.owner = external;
        result = region_add(&region);
        if (result) {
            buffer_unmap(buffer);
        } else {
            buffer->next = external->buffers;
            external->buffers = buffer;
            *devPtr = buffer->address;
        }
    }
    pthread_mutex_unlock(&lock);
    return buffer ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- ends --- */

/* Under the lock. The object is gone and nothing is mapped from it. */
static CUresult external_let_go(struct external *external)
{
    struct external **at = &externals;
    CUresult result;

    while (*at != external)
        at = &(*at)->next;
    *at = external->next;
    result = memory_put(external->memory.address);
    object_end(external);
    return result;
}

CUresult external_free(uint64_t address)
{
    struct region region;
    struct external *external;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    if (!region_remove(address, &region)) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    external = region.owner;
    for (struct buffer **at = &external->buffers; *at; at = &(*at)->next)
        if ((*at)->address == address) {
            struct buffer *buffer = *at;

            *at = buffer->next;
            buffer_unmap(buffer);
            break;
        }
    if (external->destroyed && !external->buffers)
        result = external_let_go(external);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
    struct external *external;
    struct context *context;
    CUresult result;

    ENTRY();
    result = external_enter(&context);
    if (result)
        return result;
    external = object_check(extMem, OBJECT_EXTERNAL);
    if (!external || external->destroyed)
        return CUDA_ERROR_INVALID_HANDLE;
    result = context_wait(external->context);
    pthread_mutex_lock(&lock);
    external->destroyed = true;
    if (!external->buffers)
        result = external_let_go(external);
    pthread_mutex_unlock(&lock);
    return result;
}

void external_end_context(const struct context *context)
{
    struct external *next;

    pthread_mutex_lock(&lock);
    for (struct external *e = externals; e; e = next) {
        next = e->next;
        if (e->context != context)
            continue;
        while (e->buffers) {
            struct buffer *buffer = e->buffers;

            e->buffers = buffer->next;
            region_remove(buffer->address, NULL);
            buffer_unmap(buffer);
        }
        external_let_go(e);
    }
    pthread_mutex_unlock(&lock);
}

/* --- arrays --- */

CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
    const struct external *external;
    struct context *context;
    struct mipmap *made;
    CUresult result;

    ENTRY();
    result = external_enter(&context);
    if (result)
        return result;
    external = object_check(extMem, OBJECT_EXTERNAL);
    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!mipmap || !mipmapDesc || mipmapDesc->offset >= external->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    result = array_mipmap_at(context, external->memory.address + mipmapDesc->offset,
                             external->bytes - mipmapDesc->offset, &mipmapDesc->arrayDesc,
                             mipmapDesc->numLevels, &made);
    if (!result)
        *mipmap = (CUmipmappedArray)made;
    return result;
}
