/*
 * Stream-ordered memory: pools of chunks cut into blocks. A block freed in a stream may be used
 * again by that stream at once, by others when the stream has passed the free, or, when the device
 * has no more memory, behind a dependency on it. A synchronisation gives back unused chunks above
 * the pool's release threshold. One lock for all pools; it is held across calls to the device,
 * which wait for nothing.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "core.h"
#include "graph.h"

#define GRAIN UINT64_C(512)
#define GROWTH (UINT64_C(32) << 20)
#define GROWTH_LEAST (UINT64_C(2) << 20)

struct block {
    struct block *next; /* of its chunk, by address */
    uint64_t address, bytes;
    bool used;
    struct context *context;              /* of the stream it was taken in */
    const struct stream_shared *freed_in; /* free once `freed_at` is done there */
    unsigned freed_slot;
    uint64_t freed_at;
};

struct chunk {
    struct chunk *next;
    uint64_t address, bytes;
    struct block *blocks;
};

struct pool {
    struct object object;
    struct pool *next; /* of all pools */
    unsigned device;
    bool standard; /* a device's default pool */
    bool destroyed;
    bool host, managed;    /* of the host's memory; pages that move */
    bool imported;         /* another process's */
    unsigned handle_types; /* by which it may be shared */
    uint64_t most;         /* bytes it may reserve, 0: what there is */
    CUmemLocation location;
    CUmemAccess_flags access[SIM_DEVICES + 1]; /* of the devices, of the host */
    uint64_t threshold;
    uint64_t reserved, reserved_high, used, used_high;
    int reuse[3];
    struct chunk *chunks;
};

/* Values that older headers have no name for. */
enum {
    ALLOCATION_MANAGED = 2,
    LOCATION_NONE = 0,
    LOCATION_HOST = 2,
    LOCATION_HOST_NUMA = 3,
    LOCATION_LAST = 4,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool *pools;
static struct pool *standard[SIM_DEVICES], *current[SIM_DEVICES];
static struct pool *current_host;
static _Atomic unsigned chunk_count; /* of all pools: 0 makes synchronisations cheap */

/* --- blocks: under the lock --- */

static bool block_passed(const struct block *block)
{
    return !block->freed_in || atomic_load(&block->freed_in->completed) >= block->freed_at;
}

static bool block_split(struct block *block, uint64_t bytes)
{
    struct block *rest;

    if (block->bytes == bytes)
        return true;
    rest = calloc(1, sizeof(*rest));
    if (!rest)
        return false;
    *rest = *block;
    rest->address += bytes;
    rest->bytes -= bytes;
    block->bytes = bytes;
    block->next = rest;
    return true;
}

/* Neighbours that are free to everybody become one. */
static void chunk_join(struct chunk *chunk)
{
    for (struct block *b = chunk->blocks; b;) {
        struct block *next = b->next;

        if (next && !b->used && !next->used && block_passed(b) && block_passed(next)) {
            b->freed_in = NULL;
            b->bytes += next->bytes;
            b->next = next->next;
            free(next);
        } else {
            b = next;
        }
    }
}

enum reach { REACH_FREE, REACH_PENDING };

/* Whether the stream may use a free block without further ado. */
static bool pool_may_use(const struct pool *pool, const struct block *block, struct stream *stream)
{
    return block_passed(block) || block->freed_in == stream->shared ||
           (pool->reuse[0] && submit_is_behind(stream, block->freed_slot, block->freed_at));
}

static struct block *pool_find_block(struct pool *pool, struct stream *stream, uint64_t bytes,
                                     enum reach reach)
{
    for (struct chunk *c = pool->chunks; c; c = c->next) {
        chunk_join(c);
        for (struct block *b = c->blocks; b; b = b->next)
            if (!b->used && b->bytes >= bytes &&
                (reach == REACH_PENDING || pool_may_use(pool, b, stream)))
                return b;
    }
    return NULL;
}

static bool pool_may_reserve(const struct pool *pool, uint64_t bytes)
{
    return !pool->most || (pool->reserved <= pool->most && bytes <= pool->most - pool->reserved);
}

static CUresult pool_take_chunk(struct pool *pool, uint64_t bytes, CUdeviceptr *address)
{
    void *block;

    if (!pool_may_reserve(pool, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!pool->host)
        return memory_take_free(pool->device, bytes, pool->managed ? ALLOC_MANAGED : ALLOC_POOL,
                                address);
    block = shared_take(bytes);
    *address = (CUdeviceptr)(uintptr_t)block;
    return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void pool_put_chunk(const struct pool *pool, CUdeviceptr address)
{
    if (pool->host)
        shared_put((void *)(uintptr_t)address);
    else
        memory_put(address);
}

static CUresult pool_grow(struct pool *pool, uint64_t bytes)
{
    struct chunk *chunk = calloc(1, sizeof(*chunk));
    struct block *block = calloc(1, sizeof(*block));
    CUdeviceptr address;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (chunk && block) {
        chunk->bytes = SIM_ALIGN(bytes, GROWTH);
        result = pool_take_chunk(pool, chunk->bytes, &address);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && chunk->bytes != SIM_ALIGN(bytes, GROWTH_LEAST)) {
            chunk->bytes = SIM_ALIGN(bytes, GROWTH_LEAST);
            result = pool_take_chunk(pool, chunk->bytes, &address);
        }
    }
    if (result) {
        free(chunk);
        free(block);
        return result;
    }
    chunk->address = block->address = address;
    block->bytes = chunk->bytes;
    chunk->blocks = block;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    atomic_fetch_add(&chunk_count, 1);
    pool->reserved += chunk->bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return CUDA_SUCCESS;
}

static bool chunk_unused(struct chunk *chunk)
{
    chunk_join(chunk);
    return !chunk->blocks->used && !chunk->blocks->next && block_passed(chunk->blocks);
}

/* Gives back unused chunks until no more than `keep` bytes are reserved. */
static void pool_trim(struct pool *pool, uint64_t keep)
{
    for (struct chunk **at = &pool->chunks; *at && pool->reserved > keep;) {
        struct chunk *chunk = *at;

        if (!chunk_unused(chunk)) {
            at = &chunk->next;
            continue;
        }
        *at = chunk->next;
        pool->reserved -= chunk->bytes;
        pool_put_chunk(pool, chunk->address);
        free(chunk->blocks);
        free(chunk);
        atomic_fetch_sub(&chunk_count, 1);
    }
}

static void pool_forget(struct pool *pool)
{
    struct pool **at = &pools;

    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    object_end(pool);
}

void pool_trim_all(void)
{
    struct pool *next;

    if (!atomic_load_explicit(&chunk_count, memory_order_relaxed))
        return;
    pthread_mutex_lock(&lock);
    for (struct pool *p = pools; p; p = next) {
        next = p->next;
        pool_trim(p, p->destroyed ? 0 : p->threshold);
        if (p->destroyed && !p->chunks)
            pool_forget(p);
    }
    pthread_mutex_unlock(&lock);
}

static struct block *pool_block(struct pool *pool, uint64_t address)
{
    for (struct chunk *c = pool->chunks; c; c = c->next)
        if (address - c->address < c->bytes)
            for (struct block *b = c->blocks; b; b = b->next)
                if (b->address == address && b->used)
                    return b;
    return NULL;
}

/* --- alloc and free in stream order --- */

static struct pool *pool_new(unsigned device)
{
    struct pool *pool = object_new(OBJECT_POOL, sizeof(*pool));

    if (!pool)
        return NULL;
    pool->device = device;
    pool->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    pool->location.id = (int)device;
    pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->next = pools;
    pools = pool;
    return pool;
}

static struct pool *pool_standard(unsigned device)
{
    if (!standard[device]) {
        standard[device] = pool_new(device);
        if (standard[device])
            standard[device]->standard = true;
    }
    return standard[device];
}

static struct pool *pool_current(unsigned device)
{
    return current[device] ? current[device] : pool_standard(device);
}

/* Takes a block for the stream; *dep is what the stream must wait for if *depends. */
static CUresult pool_take_block(struct pool *pool, struct stream *stream, uint64_t bytes,
                                struct block **out, struct dependency *dep, bool *depends)
{
    struct block *block = pool_find_block(pool, stream, bytes, REACH_FREE);
    CUresult result = CUDA_SUCCESS;

    *depends = false;
    if (!block) {
        result = pool_grow(pool, bytes);
        block =
            result && !pool->reuse[2] ? NULL : pool_find_block(pool, stream, bytes, REACH_PENDING);
    }
    if (!block)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    if (!block_split(block, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!pool_may_use(pool, block, stream)) {
        *dep = (struct dependency){.slot = block->freed_slot, .seq = block->freed_at};
        *depends = true;
    }
    block->used = true;
    block->context = stream->context;
    pool->used += bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *out = block;
    return CUDA_SUCCESS;
}

static void pool_put_block(struct pool *pool, struct block *block, struct stream *stream)
{
    block->used = false;
    block->freed_in = stream ? stream->shared : NULL;
    block->freed_slot = stream ? stream->slot : 0;
    block->freed_at = stream ? stream_last(stream) : 0;
    pool->used -= block->bytes;
}

static CUresult pool_alloc(struct pool *pool, struct stream *stream, size_t bytes, CUdeviceptr *out)
{
    struct region region = {.bytes = bytes, .kind = REGION_POOL, .context = stream->context};
    struct dependency dep;
    struct block *block = NULL;
    bool depends = false;
    CUresult result;

    if (!bytes || bytes > UINT64_MAX - GROWTH)
        return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    result = pool_take_block(pool, stream, SIM_ALIGN(bytes, GRAIN), &block, &dep, &depends);
    if (!result) {
        region.address = block->address;
        region.device = pool->device;
        region.owner = pool;
        region.flags = pool->host ? REGION_ON_HOST : 0;
        result = region_add(&region);
        if (result)
            pool_put_block(pool, block, stream);
    }
    pthread_mutex_unlock(&lock);
    if (!result && depends)
        result = submit_dependencies(stream, &dep, 1);
    if (!result)
        *out = region.address;
    return result;
}

static CUresult pool_alloc_entry(CUdeviceptr *out, size_t bytes, CUmemoryPool handle,
                                 CUstream stream_handle)
{
    struct stream *stream;
    struct pool *pool = NULL;
    bool taken = false;
    CUresult result = stream_find(stream_handle, &stream);

    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    pool = handle ? object_check(handle, OBJECT_POOL) : pool_current(stream->context->device);
    pthread_mutex_unlock(&lock);
    if (!pool || pool->destroyed || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_active())
        result = capture_take_alloc(stream, (CUmemoryPool)pool, out, bytes, &taken);
    return result || taken ? result : pool_alloc(pool, stream, bytes, out);
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    ENTRY();
    return pool_alloc_entry(dptr, bytesize, NULL, hStream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    ENTRY();
    return pool_alloc_entry(dptr, bytesize, NULL, PER_THREAD(hStream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream)
{
    ENTRY();
    return pool ? pool_alloc_entry(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream)
{
    ENTRY();
    return pool ? pool_alloc_entry(dptr, bytesize, pool, PER_THREAD(hStream))
                : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_free_block(struct region *region, struct stream *stream)
{
    struct pool *pool = region->owner;
    struct block *block;

    pthread_mutex_lock(&lock);
    block = pool_block(pool, region->address);
    if (block && region_remove(region->address, NULL))
        pool_put_block(pool, block, stream);
    pthread_mutex_unlock(&lock);
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult pool_free_now(uint64_t address, void *owner)
{
    struct region region = {.address = address, .owner = owner};
    CUresult result = pool_free_block(&region, NULL);

    if (!result)
        pool_trim_all();
    return result;
}

static CUresult pool_free_entry(CUdeviceptr address, CUstream handle)
{
    struct region region;
    struct stream *stream;
    bool taken = false;
    CUresult result = stream_find(handle, &stream);

    if (!result && capture_active())
        result = capture_take_free(stream, address, &taken);
    if (result || taken || !address)
        return result;
    if (!region_find(address, &region) || region.kind == REGION_VIRTUAL)
        return graph_memory_free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (region.address != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (region.kind == REGION_POOL)
        return pool_free_block(&region, stream);
    if (region.kind != REGION_DEVICE && !(region.kind == REGION_IMPORTED && region.flags))
        return CUDA_ERROR_INVALID_VALUE;
    result = stream_wait(stream, stream_last(stream));
    if (!result && region.kind == REGION_IMPORTED)
        return share_close(address);
    if (!result && !region_remove(address, NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : memory_put(address);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    ENTRY();
    return pool_free_entry(dptr, hStream);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    ENTRY();
    return pool_free_entry(dptr, PER_THREAD(hStream));
}

/* What was taken in a context's streams ends with the context. */
void pool_end_context(struct context *context)
{
    pthread_mutex_lock(&lock);
    for (struct pool *p = pools; p; p = p->next) {
        for (struct chunk *c = p->chunks; c; c = c->next)
            for (struct block *b = c->blocks; b; b = b->next)
                if (b->used && b->context == context) {
                    region_remove(b->address, NULL);
                    pool_put_block(p, b, NULL);
                }
        pool_trim(p, p->threshold);
    }
    pthread_mutex_unlock(&lock);
}

/* --- the pools themselves --- */

static CUresult pool_enter(CUmemoryPool handle, struct pool **pool)
{
    CUresult result = sim_check();

    if (result)
        return result;
    *pool = object_check(handle, OBJECT_POOL);
    return *pool && !(*pool)->destroyed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_device(CUdevice device, const void *out)
{
    CUresult result = sim_check();

    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (device < 0 || (unsigned)device >= sim.devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

/* Host memory is not for other processes; what moves has no place of its own. */
static CUresult pool_check_place(const CUmemPoolProps *props)
{
    unsigned place = (unsigned)props->location.type;
    bool managed = (unsigned)props->allocType == ALLOCATION_MANAGED;

    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED && !managed)
        return CUDA_ERROR_INVALID_VALUE;
    if (place == CU_MEM_LOCATION_TYPE_DEVICE)
        return props->location.id >= 0 && (unsigned)props->location.id < sim.devices
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_DEVICE;
    if (place == LOCATION_NONE)
        return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return (place == LOCATION_HOST || place == LOCATION_HOST_NUMA) && !props->handleTypes
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_check_props(const CUmemPoolProps *props)
{
    unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                     (sim.fabric ? (unsigned)CU_MEM_HANDLE_TYPE_FABRIC : 0);
    CUresult result = pool_check_place(props);

    return !result && (props->handleTypes & ~types) ? CUDA_ERROR_NOT_SUPPORTED : result;
}

/* Under the lock. */
static struct pool *pool_new_by(const CUmemPoolProps *props)
{
    bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct pool *pool = pool_new(on_device ? (unsigned)props->location.id : 0);

    if (!pool)
        return NULL;
    pool->location = props->location;
    pool->managed = (unsigned)props->allocType == ALLOCATION_MANAGED;
    pool->host = !on_device && !pool->managed;
    pool->handle_types = props->handleTypes;
    pool->most = props->maxSize;
    if (!on_device) {
        pool->access[0] = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        pool->access[SIM_DEVICES] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return pool;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    struct pool *made;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && (!pool || !poolProps))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = pool_check_props(poolProps);
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    made = pool_new_by(poolProps);
    pthread_mutex_unlock(&lock);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = (CUmemoryPool)made;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    struct pool *p;
    CUresult result;

    ENTRY();
    result = pool_enter(pool, &p);
    if (!result && p->standard)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    p->destroyed = true;
    if (current[p->device] == p)
        current[p->device] = NULL;
    if (current_host == p)
        current_host = NULL;
    pool_trim(p, 0);
    if (!p->chunks)
        pool_forget(p);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    struct pool *p;
    CUresult result;

    ENTRY();
    result = pool_enter(pool, &p);
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    pool_trim(p, minBytesToKeep);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static uint64_t *pool_figure(struct pool *pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static int *pool_switch(struct pool *pool, CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                   attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
               ? &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]
               : NULL;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct pool *p;
    CUresult result;

    ENTRY();
    result = pool_enter(pool, &p);
    if (!result && (!value || (!pool_figure(p, attr) && !pool_switch(p, attr))))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    if (pool_figure(p, attr))
        *(cuuint64_t *)value = *pool_figure(p, attr);
    else
        *(int *)value = *pool_switch(p, attr);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult pool_set(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = *(const cuuint64_t *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        *pool_figure(pool, attribute) =
            attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->reserved;
        return CUDA_SUCCESS;
    default:
        if (!pool_switch(pool, attribute))
            return CUDA_ERROR_INVALID_VALUE;
        *pool_switch(pool, attribute) = *(const int *)value;
        return CUDA_SUCCESS;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    struct pool *p;
    CUresult result;

    ENTRY();
    result = pool_enter(pool, &p);
    if (!result && !value)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    result = pool_set(p, attr, value);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whose access a location is about; NULL: no such place. */
static CUmemAccess_flags *pool_access(struct pool *pool, const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location->id >= 0 && (unsigned)location->id < sim.devices
                   ? &pool->access[location->id]
                   : NULL;
    return (unsigned)location->type >= LOCATION_HOST && (unsigned)location->type <= LOCATION_LAST
               ? &pool->access[SIM_DEVICES]
               : NULL;
}

/* A pool's own device keeps its access. */
static bool pool_access_right(struct pool *pool, const CUmemAccessDesc *wanted)
{
    const CUmemAccess_flags *access = pool_access(pool, &wanted->location);

    if (!access || (wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                    wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                    wanted->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return false;
    return pool->host || access != &pool->access[pool->device] ||
           wanted->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    struct pool *p;
    CUresult result;

    ENTRY();
    result = pool_enter(pool, &p);
    if (!result && count && !map)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    for (size_t i = 0; i < count; i++)
        if (!pool_access_right(p, &map[i]))
            return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        *pool_access(p, &map[i].location) = map[i].flags;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    struct pool *p;
    CUresult result;

    ENTRY();
    result = pool_enter(memPool, &p);
    if (!result && (!flags || !location || !pool_access(p, location)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *flags = *pool_access(p, location);
    return result;
}

static CUresult pool_of_device(CUmemoryPool *out, CUdevice device, bool asks_standard)
{
    struct pool *pool;
    CUresult result = pool_device(device, out);

    if (result)
        return result;
    pthread_mutex_lock(&lock);
    pool = asks_standard ? pool_standard((unsigned)device) : pool_current((unsigned)device);
    pthread_mutex_unlock(&lock);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    ENTRY();
    return pool_of_device(pool_out, dev, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    ENTRY();
    return pool_of_device(pool, dev, false);
}

static CUresult pool_make_current(CUdevice device, CUmemoryPool handle)
{
    struct pool *pool;
    CUresult result = pool_device(device, handle);

    if (!result)
        result = pool_enter(handle, &pool);
    if (!result && (pool->host || pool->imported || pool->device != (unsigned)device))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    current[device] = pool;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    ENTRY();
    return pool_make_current(dev, pool);
}

#if CUDA_VERSION >= 13000
/* --- by location: devices, and the host as one --- */

static struct pool *standard_host;

static CUresult pool_location(const CUmemLocation *location, CUmemAllocationType type, bool *host)
{
    CUresult result = sim_check();

    if (result)
        return result;
    if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *host = location->type == CU_MEM_LOCATION_TYPE_HOST ||
            location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    return *host || location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

static CUresult pool_of_host(CUmemoryPool *out, bool asks_standard)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_HOST}};
    struct pool *pool;

    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!standard_host) {
        standard_host = pool_new_by(&props);
        if (standard_host)
            standard_host->standard = true;
    }
    pool = !asks_standard && current_host ? current_host : standard_host;
    pthread_mutex_unlock(&lock);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static CUresult pool_of_location(CUmemoryPool *out, const CUmemLocation *location,
                                 CUmemAllocationType type, bool asks_standard)
{
    bool host;
    CUresult result = pool_location(location, type, &host);

    if (result)
        return result;
    return host ? pool_of_host(out, asks_standard)
                : pool_of_device(out, location->id, asks_standard);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type)
{
    ENTRY();
    return pool_of_location(pool_out, location, type, true);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    ENTRY();
    return pool_of_location(pool, location, type, false);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    struct pool *p;
    bool host;
    CUresult result;

    ENTRY();
    result = pool_location(location, type, &host);
    if (result || !host)
        return result ? result : pool_make_current(location->id, pool);
    result = pool_enter(pool, &p);
    if (!result && !p->host)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    current_host = p;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
#endif

/* --- sharing --- */

bool pool_exportable(CUmemoryPool handle, unsigned type, uint32_t *device)
{
    const struct pool *pool = object_check(handle, OBJECT_POOL);

    if (!pool || pool->destroyed || !(pool->handle_types & type) || (type & (type - 1)))
        return false;
    *device = pool->device;
    return true;
}

bool pool_imported(CUmemoryPool handle)
{
    const struct pool *pool = object_check(handle, OBJECT_POOL);

    return pool && !pool->destroyed && pool->imported;
}

CUresult pool_import(CUmemoryPool *out, unsigned device)
{
    struct pool *pool;

    pthread_mutex_lock(&lock);
    pool = pool_new(device);
    if (pool)
        pool->imported = true;
    pthread_mutex_unlock(&lock);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

/* The device's allocation that a block is part of. */
static bool pool_find_chunk(CUdeviceptr address, bool exported, struct region *region,
                            struct shared_memory *shared)
{
    struct pool *pool;
    bool found = false;

    if (!region_find(address, region) || region->kind != REGION_POOL)
        return false;
    pool = region->owner;
    if (pool->host)
        return false;
    pthread_mutex_lock(&lock);
    for (const struct chunk *c = !exported || pool->handle_types ? pool->chunks : NULL; c && !found;
         c = c->next)
        if (address - c->address < c->bytes) {
            *shared = (struct shared_memory){
                .device = pool->device, .address = c->address, .bytes = c->bytes};
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool pool_chunk(CUdeviceptr address, struct shared_memory *shared)
{
    struct region region;

    return pool_find_chunk(address, false, &region, shared);
}

bool pool_describe(CUdeviceptr address, struct shared_memory *shared, uint64_t *bytes)
{
    struct region region;

    if (!pool_find_chunk(address, true, &region, shared) || region.address != address)
        return false;
    *bytes = region.bytes;
    return true;
}
