/*
 * pools: which pool an allocation comes from, and what pools there are (see pools.h). A pool gets a
 * record when it is first used; its books are pool.c's. A record outlives its pool until the last
 * allocation is gone. Program threads.
 */
#include "pools.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "gate.h"
#include "graphs.h"
#include "handles.h"
#include "log.h"
#include "real.h"
#include "streams.h"

#define POOLS_BLOCK 1024u
#define POOLS_BLOCKS 64u
#define POOLS_MOST (POOLS_BLOCK * POOLS_BLOCKS)
/* How often it is said that there are too many. */
#define POOLS_SAY_NS (60 * CLOCK_S)

static struct pool *_Atomic pools_block[POOLS_BLOCKS]; /* made when needed, never given back */
static struct lock pools_adding;    /* around the making of records: one for each pool */
static struct pool pools_uncounted; /* stands for all whose memory is the host's */
static CUmemoryPool _Atomic pools_current[GATE_DEVICES]; /* NULL: ask */

/* ---- Which pool ---- */

/* The record with this number, whether it is in use or not; NULL beyond those that were made. */
static struct pool *pools_record(unsigned number)
{
    struct pool *block = number < POOLS_MOST ? pools_block[number / POOLS_BLOCK] : NULL;
    return block ? &block[number % POOLS_BLOCK] : NULL;
}

static struct pool *pools_record_make(unsigned number)
{
    if (number < POOLS_MOST && !pools_block[number / POOLS_BLOCK])
        pools_block[number / POOLS_BLOCK] = calloc(POOLS_BLOCK, sizeof(struct pool));
    return pools_record(number);
}

/* The version goes on, so that a figure read for the place's last pool is not booked for this. */
static void pools_start(struct pool *pool, unsigned number, CUmemoryPool handle)
{
    pool->number = number;
    pool->handle = handle;
    pool->version++;
    pool->charged = pool->threshold = 0;
    pool->live = 0;
    pool->step = POOL_STEP;
    pool->irregular = false;
    pool->shrinks = pool->destroyed = pool->closing = false;
}

/* A free place, taken; NULL when there is none. Under pools_adding. */
static struct pool *pools_place(CUmemoryPool handle, struct gate *gate)
{
    struct pool *pool;
    for (unsigned i = 0; (pool = pools_record_make(i)) != NULL; i++)
        if (!pool->gate) {
            pools_start(pool, i, handle);
            pool->gate = gate;
            return pool;
        }
    return NULL;
}

/* NULL when there is no memory for it. Under pools_adding. */
static struct pool *pools_enter(CUmemoryPool handle, struct gate *gate)
{
    struct pool *pool = gate ? pools_place(handle, gate) : &pools_uncounted;
    struct handles_item before, item = {.object = pool, .owner = ALLOCS_NOBODY};
    if (pool && handles_put(HANDLES_POOL, (uintptr_t)handle, item, &before))
        return pool;
    if (pool && gate)
        pool->gate = NULL;
    return NULL;
}

/* Two threads may meet the same pool for the first time. */
static struct pool *pools_add(CUmemoryPool handle, struct gate *gate)
{
    struct handles_item item;
    lock_take(&pools_adding);
    if (!handles_peek(HANDLES_POOL, (uintptr_t)handle, &item))
        item.object = pools_enter(handle, gate);
    lock_put(&pools_adding);
    return item.object;
}

/* The device whose default pool this is; NULL. */
static struct gate *pools_default_of(CUmemoryPool handle)
{
    CUmemoryPool standard;
    for (unsigned i = 0; i < guest.gates; i++)
        if (real.cuDeviceGetDefaultMemPool(&standard, guest.gate[i].device) == CUDA_SUCCESS &&
            standard == handle)
            return &guest.gate[i];
    return NULL;
}

/* Whether it is the host's own, which programs get and do not make. */
static bool pools_default_of_host(CUmemoryPool handle)
{
    static const int types[] = {2, 3}; /* the host; its first node: newer headers have names */
    CUmemoryPool standard;
    for (unsigned i = 0; i < 2 && REAL_HAS(cuMemGetDefaultMemPool); i++) {
        CUmemLocation host = {.type = (CUmemLocationType)types[i]};
        if (real.cuMemGetDefaultMemPool(&standard, &host, CU_MEM_ALLOCATION_TYPE_PINNED) ==
                CUDA_SUCCESS &&
            standard == handle)
            return true;
    }
    return false;
}

/* The record of a pool, made when it is a device's default one. What was made by a call that was
 * not seen belongs to the current device, for all that is known. */
static struct pool *pools_find(CUmemoryPool handle)
{
    struct handles_item item;
    if (handles_peek(HANDLES_POOL, (uintptr_t)handle, &item))
        return item.object;
    struct gate *gate = pools_default_of(handle);
    if (!gate && pools_default_of_host(handle))
        return pools_add(handle, NULL);
    gate = gate ? gate : gate_current();
    return pools_add(handle, gate ? gate : &guest.gate[0]);
}

static CUmemoryPool pools_of_stream(CUstream stream)
{
    struct gate *gate = gate_of_stream(stream);
    CUmemoryPool pool = gate ? pools_current[gate - guest.gate] : NULL;
    if (gate && !pool && real.cuDeviceGetMemPool(&pool, gate->device) == CUDA_SUCCESS)
        pools_current[gate - guest.gate] = pool;
    return pool;
}

/* There is no record for the pool: nothing of it could be counted. */
static bool pools_unknown(void)
{
    static struct log_rate rate;
    unsigned more = 0;
    if (guest.mode == CONFIG_OBSERVE)
        return true;
    if (log_every(&rate, POOLS_SAY_NS, &more))
        log_error("pools-full",
                  "more than %u memory pools alive: from further ones nothing can be "
                  "had, since it could not be counted",
                  POOLS_MOST);
    return false;
}

bool pools_reserve(struct pool_take *take, CUmemoryPool handle, CUstream stream, bool per_thread,
                   uint64_t bytes)
{
    int error = errno;
    *take = (struct pool_take){0};
    if (guest.state == GUEST_REFUSED)
        return false;
    if (!guest_attached() || bytes == 0)
        return true;
    stream = streams_key(stream, per_thread);
    if (guest.captures && streams_capturing(stream)) {
        graphs_node(CUDA_SUCCESS); /* it becomes one of a graph */
        return true;
    }
    if (!handle)
        handle = pools_of_stream(stream);
    struct pool *pool = handle ? pools_find(handle) : &pools_uncounted; /* the driver refuses it */
    bool granted =
        pool ? pool == &pools_uncounted || pool_reserve(take, pool, bytes) : pools_unknown();
    errno = error;
    return granted;
}

/* A pointer that the table has no room for is remembered by its value. */
static void pools_remember(struct pool *pool, uint64_t pointer, uint64_t bytes)
{
    struct handles_item old, item = {.bytes = (bytes + CHARGE_GRAIN - 1) & ~(CHARGE_GRAIN - 1),
                                     .gate = (unsigned)(pool->gate - guest.gate),
                                     .owner = pool->number,
                                     .kind = ALLOCS_POOLED};
    struct allocs_item before, inside = {.bytes = item.bytes,
                                         .whose = allocs_whose(item.gate, pool->number),
                                         .kind = ALLOCS_POOLED};
    atomic_fetch_add(&pool->live, 1);
    if (pool->number >= ALLOCS_NOBODY || !allocs_put(pointer, inside, &before))
        handles_put(HANDLES_POINTER, pointer, item, &old);
}

CUresult pools_settle(struct pool_take *take, CUresult rc, uint64_t pointer)
{
    int error = errno;
    if (!take->pool)
        return rc;
    pool_done(take);
    if (rc == CUDA_SUCCESS)
        pools_remember(take->pool, pointer, take->bytes);
    errno = error;
    return rc;
}

/* ---- Shrinking ---- */

void pools_freed(unsigned number)
{
    struct pool *pool = pools_record(number);
    if (!pool || !pool->gate)
        return;
    if (pool->live)
        atomic_fetch_sub(&pool->live, 1);
    pool_shrink(pool);
    pool_settle(pool, 0);
}

void pools_synced(bool all)
{
    struct pool *pool;
    if (atomic_load_explicit(&pool_shrinking, memory_order_relaxed) == 0)
        return;
    int error = errno;
    for (unsigned i = 0; (pool = pools_record(i)) != NULL; i++) {
        if (!pool->gate || !pool->shrinks)
            continue;
        if (all && pool->destroyed && pool->live == 0)
            pool_end(pool);
        pool_settle(pool, 0);
    }
    errno = error;
}

void pools_context_gone(void)
{
    struct pool *pool;
    for (unsigned i = 0; (pool = pools_record(i)) != NULL; i++)
        if (pool->gate)
            pool_settle(pool, 0);
    graphs_freed();
}

/* ---- Pools come and go ---- */

void pools_created(CUresult rc, const CUmemoryPool *pool, const CUmemPoolProps *props)
{
    int error = errno;
    if (rc != CUDA_SUCCESS || !guest_attached())
        return;
    bool device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    pools_add(*pool, device ? gate_of_device(props->location.id) : NULL);
    errno = error;
}

/* What can be given back is, while the driver still knows the handle; the rest goes with the last
 * allocation. */
struct pool *pools_destroy(CUmemoryPool handle)
{
    struct handles_item item;
    pools_changed();
    if (!guest_attached() || !handles_take(HANDLES_POOL, (uintptr_t)handle, &item) ||
        item.object == &pools_uncounted)
        return NULL;
    real.cuMemPoolTrimTo(handle, 0);
    pool_settle(item.object, 0);
    pool_close(item.object);
    return item.object;
}

void pools_destroyed(CUresult rc, CUmemoryPool handle, struct pool *pool)
{
    struct handles_item before, item = {.object = pool, .owner = ALLOCS_NOBODY};
    int error = errno;
    if (!pool)
        return;
    if (rc != CUDA_SUCCESS) {
        pool->closing = false;
        handles_put(HANDLES_POOL, (uintptr_t)handle, item, &before);
    } else {
        pool->threshold = 0;
        pool->destroyed = true;
        pool_shrink(pool);
        pool_settle(pool, 0);
    }
    errno = error;
}

void pools_changed(void)
{
    for (unsigned i = 0; i < GATE_DEVICES; i++)
        pools_current[i] = NULL;
}

static struct pool *pools_counted(CUresult rc, CUmemoryPool handle)
{
    struct pool *pool = rc == CUDA_SUCCESS && guest_attached() ? pools_find(handle) : NULL;
    return pool == &pools_uncounted ? NULL : pool;
}

void pools_attribute(CUresult rc, CUmemoryPool handle, CUmemPool_attribute attribute,
                     const void *value)
{
    int error = errno;
    bool threshold = attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    struct pool *pool = threshold ? pools_counted(rc, handle) : NULL;
    if (pool) {
        pool->threshold = *(const cuuint64_t *)value;
        pool_shrink(pool);
    }
    errno = error;
}

void pools_trimmed(CUresult rc, CUmemoryPool handle)
{
    int error = errno;
    struct pool *pool = pools_counted(rc, handle);
    if (pool)
        pool_settle(pool, 0);
    errno = error;
}

void pools_reset(void)
{
    for (unsigned i = 0; i < POOLS_BLOCKS; i++)
        if (pools_block[i])
            memset(pools_block[i], 0, POOLS_BLOCK * sizeof(struct pool));
    pools_changed();
    pool_shrinking = 0;
}
