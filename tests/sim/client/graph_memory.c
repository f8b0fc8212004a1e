/*
 * Memory that graphs allocate: an address range per allocation node, reserved when the node is
 * made, backed when a graph that allocates it is launched, and kept by the graph allocator after
 * the free until somebody trims it. Any thread; one lock over the table, outside every lock of the
 * memory calls that it uses, which run in relaxed capture mode.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#include "graph.h"

struct block {
    CUdeviceptr address;
    size_t bytes;
    struct context *context;
    unsigned device;
    unsigned references; /* allocation nodes and their copies */
    bool used;           /* allocated, not freed */
    bool backed;
    CUmemGenericAllocationHandle handle;
    struct block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

/* By device: bytes in use and backed, and the most there were. */
static struct {
    uint64_t used, used_high, reserved, reserved_high;
} figures[SIM_DEVICES];

static CUmemAllocationProp memory_properties(unsigned device)
{
    CUmemAllocationProp properties;

    memset(&properties, 0, sizeof(properties));
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = (int)device;
    return properties;
}

/* Enters relaxed mode and gives back what was, or the other way round. */
static CUstreamCaptureMode memory_exchange_mode(CUstreamCaptureMode mode)
{
    cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static struct block *memory_find(CUdeviceptr address)
{
    struct block *block = blocks;

    while (block != NULL && block->address != address)
        block = block->next;
    return block;
}

static void memory_raise(uint64_t *current, uint64_t *high, uint64_t bytes)
{
    *current += bytes;
    if (*current > *high)
        *high = *current;
}

static CUresult memory_map(struct block *block)
{
    CUmemAllocationProp properties = memory_properties(block->device);
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemCreate(&block->handle, block->bytes, &properties, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemMap(block->address, block->bytes, 0, block->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cuMemSetAccess(block->address, block->bytes, &access, 1);
        if (result != CUDA_SUCCESS)
            cuMemUnmap(block->address, block->bytes);
    }
    if (result != CUDA_SUCCESS)
        cuMemRelease(block->handle);
    return result;
}

/* Under the lock. */
static CUresult memory_back(struct block *block)
{
    CUstreamCaptureMode mode;
    CUresult result;

    if (block->backed)
        return CUDA_SUCCESS;
    mode = memory_exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    result = memory_map(block);
    memory_exchange_mode(mode);
    if (result != CUDA_SUCCESS)
        return result;
    block->backed = true;
    memory_raise(&figures[block->device].reserved, &figures[block->device].reserved_high,
                 block->bytes);
    return CUDA_SUCCESS;
}

/* Under the lock. What still runs may use the memory: it is waited for. */
static void memory_unback(struct block *block)
{
    CUstreamCaptureMode mode;

    if (!block->backed)
        return;
    if (object_check(block->context, OBJECT_CONTEXT) == block->context)
        context_wait(block->context);
    mode = memory_exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    cuMemUnmap(block->address, block->bytes);
    cuMemRelease(block->handle);
    memory_exchange_mode(mode);
    block->backed = false;
    figures[block->device].reserved -= block->bytes;
}

/* Under the lock: ends a block that nothing refers to and nothing uses. */
static void memory_end(struct block *block)
{
    struct block **link = &blocks;
    CUstreamCaptureMode mode;

    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    memory_unback(block);
    mode = memory_exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    cuMemAddressFree(block->address, block->bytes);
    memory_exchange_mode(mode);
    free(block);
}

CUresult graph_memory_reserve(struct context *context, size_t bytes, CUdeviceptr *address)
{
    CUmemAllocationProp properties = memory_properties(context->device);
    struct block *block = calloc(1, sizeof(*block));
    CUstreamCaptureMode mode;
    size_t step = 0;
    CUresult result;

    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mode = memory_exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    result = cuMemGetAllocationGranularity(&step, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        block->bytes = SIM_ALIGN(bytes, step);
        result = cuMemAddressReserve(&block->address, block->bytes, 0, 0, 0);
    }
    memory_exchange_mode(mode);
    if (result != CUDA_SUCCESS) {
        free(block);
        return result;
    }
    block->context = context;
    block->device = context->device;
    block->references = 1;
    *address = block->address;
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void graph_memory_retain(CUdeviceptr address)
{
    struct block *block;

    pthread_mutex_lock(&lock);
    block = memory_find(address);
    if (block != NULL)
        block->references++;
    pthread_mutex_unlock(&lock);
}

void graph_memory_release(CUdeviceptr address)
{
    struct block *block;

    pthread_mutex_lock(&lock);
    block = memory_find(address);
    if (block != NULL && --block->references == 0 && !block->used)
        memory_end(block);
    pthread_mutex_unlock(&lock);
}

CUresult graph_memory_use(CUdeviceptr address, bool reuse)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct block *block;

    pthread_mutex_lock(&lock);
    block = memory_find(address);
    if (block != NULL && block->used) {
        result = reuse ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    } else if (block != NULL) {
        result = memory_back(block);
        block->used = result == CUDA_SUCCESS;
        if (block->used)
            memory_raise(&figures[block->device].used, &figures[block->device].used_high,
                         block->bytes);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

bool graph_memory_free(CUdeviceptr address)
{
    struct block *block;
    bool known;

    pthread_mutex_lock(&lock);
    block = memory_find(address);
    known = block != NULL && block->used;
    if (known) {
        block->used = false;
        figures[block->device].used -= block->bytes;
        if (block->references == 0)
            memory_end(block);
    }
    pthread_mutex_unlock(&lock);
    return known;
}

bool graph_memory_owns(CUdeviceptr address)
{
    const struct block *block;

    pthread_mutex_lock(&lock);
    for (block = blocks; block != NULL; block = block->next)
        if (address >= block->address && address - block->address < block->bytes)
            break;
    pthread_mutex_unlock(&lock);
    return block != NULL;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    for (struct block *block = blocks; block != NULL; block = block->next)
        if (block->device == (unsigned)device && !block->used)
            memory_unback(block);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult memory_check_attribute(CUdevice device, CUgraphMem_attribute attribute,
                                       const void *value)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    return value == NULL || (unsigned)attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CUresult result;

    ENTRY();
    result = memory_check_attribute(device, attribute, value);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = figures[device].used;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = figures[device].used_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = figures[device].reserved;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = figures[device].reserved_high;
        break;
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* High marks can be set to zero, which means to what is there now; nothing else can be set. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CUresult result;

    ENTRY();
    result = memory_check_attribute(device, attribute, value);
    if (result != CUDA_SUCCESS)
        return result;
    if (*(cuuint64_t *)value != 0 || attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
        attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        figures[device].used_high = figures[device].used;
    else
        figures[device].reserved_high = figures[device].reserved;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
