/*
 * pools: see pools.h. Each pool has a record: what it is charged, and the step it is thought to
 * grow by. A call reserves the request rounded up to the step, asks the driver, then settles: the
 * charge becomes what the driver says the pool has reserved, and the reservation is given back. Who
 * settles reads the driver's figure first and books it only if nobody has booked another one
 * meanwhile, so an older figure never replaces a newer one and no lock is held across a call of the
 * driver. Between growth and settling the reservation stands for it, so the books are never below
 * the device.
 *
 * Where the largest growth does not fit under the cap, requests go one at a time; unused memory of
 * the pool is given back to the device first, and what then does not fit is refused, even if the
 * pool might have found room among what it holds: whether it would is not known before the call.
 *
 * Threads of the program, and nobody else. A fork or a death leaves nothing to mend here.
 */
#include "pools.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "gate.h"
#include "handles.h"
#include "log.h"
#include "real.h"
#include "streams.h"

#define POOLS_BLOCK 1024u
#define POOLS_BLOCKS 64u
#define POOLS_MOST (POOLS_BLOCK * POOLS_BLOCKS)
/* What pools grow by at the most, when small allocations make them grow, as far as is known. */
#define POOLS_STEP (UINT64_C(32) << 20)
#define POOLS_STEP_LEAST (UINT64_C(2) << 20)
/* How long a request near the cap waits for those that are under way. */
#define POOLS_SAY_NS (60 * CLOCK_S)
#define POOLS_PATIENCE_NS (100 * CLOCK_MS)
#define POOLS_PLACE_NS CLOCK_S
/* How long it waits for those of other processes, and how often it tries meanwhile. */
#define POOLS_TRY_NS (20 * CLOCK_MS)
#define POOLS_TRY_EVERY_NS 200000
/* How long the end of a pool waits for those who are asking the driver about it. */
#define POOLS_ASKING_NS CLOCK_S

struct pool {
    CUmemoryPool handle;       /* NULL: the graphs' memory of its device */
    struct gate *_Atomic gate; /* NULL = free place */
    unsigned number;
    _Atomic uint64_t charged;
    _Atomic uint64_t version; /* +1 at each settling */
    _Atomic uint64_t step;
    _Atomic uint64_t threshold; /* what the pool keeps when it may give back */
    _Atomic unsigned under_way; /* requests between reservation and settling */
    _Atomic unsigned live;      /* allocations not freed */
    _Atomic unsigned asking;    /* threads that are asking the driver about it */
    _Atomic bool closing;       /* it is about to be destroyed: nobody may ask any more */
    _Atomic bool destroyed;     /* its handle is invalid; its memory goes with its allocations */
    _Atomic bool shrinks;       /* something was freed: a synchronisation may make it smaller */
    bool irregular;             /* its growth is no multiple of a step */
    struct lock settle_lock;    /* around the books, never across a call of the driver */
    struct lock alone;          /* near the cap: one request at a time */
};

/* An executable graph that allocates. */
struct pools_graph {
    uint64_t bytes[GATE_DEVICES];
    unsigned trims; /* of pools_trims, when its memory was last seen to be there */
};

static struct pool *_Atomic pools_block[POOLS_BLOCKS]; /* made when needed, never given back */
static struct lock pools_adding;    /* around the making of records: one for each pool */
static struct pool pools_uncounted; /* stands for all whose memory is the host's */
static struct pool pools_graphs[GATE_DEVICES];
static CUmemoryPool _Atomic pools_current[GATE_DEVICES]; /* NULL: ask */
static _Atomic unsigned pools_shrinking; /* how many pools a synchronisation may make smaller */
static _Atomic bool pools_any_graph;     /* this program makes graphs that allocate */
static _Atomic unsigned pools_trims;     /* how often graphs' memory was trimmed */

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
    pool->step = POOLS_STEP;
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

/* ---- Settling ---- */

/* Whether the driver may be asked about it: not once its handle may be gone. */
static bool pools_ask(struct pool *pool)
{
    atomic_fetch_add(&pool->asking, 1);
    if (!pool->closing && !pool->destroyed)
        return true;
    atomic_fetch_sub(&pool->asking, 1);
    return false;
}

static void pools_asked(struct pool *pool)
{
    atomic_fetch_sub(&pool->asking, 1);
}

/* Others are inside a short call of the driver. */
static void pools_close(struct pool *pool)
{
    uint64_t deadline = clock_after(POOLS_ASKING_NS);
    pool->closing = true;
    while (pool->asking && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static bool pools_reserved(struct pool *pool, uint64_t *bytes)
{
    cuuint64_t now = 0;
    if (!pools_ask(pool))
        return false;
    CUresult rc =
        pool->handle
            ? real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &now)
            : real.cuDeviceGetGraphMemAttribute(pool->gate->device,
                                                CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now);
    pools_asked(pool);
    *bytes = now;
    return rc == CUDA_SUCCESS;
}

/* The charge becomes `now`; `mine` of it was reserved before and is given back. */
static void pools_book(struct pool *pool, uint64_t now, uint64_t mine)
{
    uint64_t was = pool->charged + mine;
    struct gate *gate = pool->gate;
    pool->charged = now;
    if (now > was)
        charge_add(gate, now - was);
    else if (was > now)
        charge_give_back(gate, was - now);
}

/* A growth tells of the step: its lowest bit, as long as what was reserved has covered it. */
static void pools_learn(struct pool *pool, uint64_t grown, uint64_t reserved)
{
    uint64_t low = grown & -grown;
    if (grown > reserved) {
        pool->step = grown > pool->step ? grown : pool->step;
        pool->irregular = true;
    } else if (grown && !pool->irregular && low < pool->step) {
        pool->step = low < POOLS_STEP_LEAST ? POOLS_STEP_LEAST : low;
    }
}

/* Of a destroyed pool nothing can be asked: it keeps what it had until all of it is gone. */
static void pools_look_shrunk(struct pool *pool)
{
    if (pool->charged <= pool->threshold && atomic_exchange(&pool->shrinks, false))
        atomic_fetch_sub(&pools_shrinking, 1);
    if (pool->destroyed && pool->charged == 0 && atomic_exchange(&pool->destroyed, false))
        pool->gate = NULL;
}

/* Books what the driver says; `mine` of the books are this call's reservation. */
static void pools_settle_pool(struct pool *pool, uint64_t mine)
{
    uint64_t now;
    for (;;) {
        uint64_t version = pool->version;
        if (!pools_reserved(pool, &now)) /* destroyed, or a lost device: it stays */
            now = pool->charged;
        lock_take(&pool->settle_lock);
        bool fresh = pool->version == version;
        if (fresh) {
            pool->version++;
            if (mine && now > pool->charged)
                pools_learn(pool, now - pool->charged, mine);
            pools_book(pool, now, mine);
        }
        lock_put(&pool->settle_lock);
        if (fresh)
            break;
    }
    pools_look_shrunk(pool);
}

/* ---- Reserving ---- */

static uint64_t pools_growth(const struct pool *pool, uint64_t bytes)
{
    uint64_t step = pool->step;
    return bytes > UINT64_MAX / 4 ? bytes : (bytes + step - 1) / step * step;
}

static void pools_trim(struct pool *pool)
{
    if (!pools_ask(pool))
        return;
    if (pool->handle)
        real.cuMemPoolTrimTo(pool->handle, 0);
    else
        real.cuDeviceGraphMemTrim(pool->gate->device);
    pools_asked(pool);
}

/* Others' reservations are larger than what their pools will grow by: they are waited for. */
static void pools_quiet(const struct pool *pool)
{
    uint64_t deadline = clock_after(POOLS_PATIENCE_NS);
    while (pool->under_way && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Other processes' reservations too are larger than what comes of them, for as long as their calls
 * take. */
static bool pools_try(struct pools_take *take, struct gate *gate, uint64_t growth)
{
    uint64_t deadline = clock_after(POOLS_TRY_NS);
    while (charge_others(gate) && clock_now() < deadline) {
        nanosleep(&(struct timespec){.tv_nsec = POOLS_TRY_EVERY_NS}, NULL);
        if (charge_reserve_on(&take->charge, gate, growth, 0))
            return true;
    }
    return false;
}

/* A thread that was ended inside the driver keeps its place for ever: it is not waited for longer
 * than that. */
static bool pools_take_place(struct pool *pool)
{
    uint64_t deadline = clock_after(POOLS_PLACE_NS);
    bool taken;
    while (!(taken = lock_try(&pool->alone)) && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return taken;
}

static void pools_put_place(struct pools_take *take, struct pool *pool)
{
    if (take->alone)
        lock_put(&pool->alone);
    take->alone = false;
}

/* One at a time, with all that can be had. True when reserved; the lock stays with the caller. */
static bool pools_reserve_alone(struct pools_take *take, struct pool *pool, uint64_t bytes)
{
    struct gate *gate = pool->gate;
    take->alone = pools_take_place(pool);
    pools_quiet(pool);
    pools_settle_pool(pool, 0);
    if (charge_reserve_on(&take->charge, gate, pools_growth(pool, bytes), 0))
        return true;
    pools_trim(pool);
    pools_settle_pool(pool, 0);
    if (pools_try(take, gate, pools_growth(pool, bytes)) ||
        charge_reserve_on(&take->charge, gate, pools_growth(pool, bytes), bytes))
        return true;
    pools_put_place(take, pool);
    return false;
}

static bool pools_reserve_in(struct pools_take *take, struct pool *pool, uint64_t bytes)
{
    struct gate *gate = pool->gate;
    take->bytes = bytes;
    if (!charge_reserve_on(&take->charge, gate, pools_growth(pool, bytes), 0) &&
        (guest.state == GUEST_REFUSED || !pools_reserve_alone(take, pool, bytes)))
        return false;
    if (take->charge.gate) {
        atomic_fetch_add(&pool->under_way, 1);
        take->pool = pool;
    } else {
        pools_put_place(take, pool); /* the program is at its end: nothing is counted any more */
    }
    return true;
}

static void pools_done(struct pools_take *take)
{
    pools_settle_pool(take->pool, take->charge.bytes);
    atomic_fetch_sub(&take->pool->under_way, 1);
    pools_put_place(take, take->pool);
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

bool pools_reserve(struct pools_take *take, CUmemoryPool handle, CUstream stream, bool per_thread,
                   uint64_t bytes)
{
    int error = errno;
    *take = (struct pools_take){0};
    if (guest.state == GUEST_REFUSED)
        return false;
    if (!guest_attached() || bytes == 0)
        return true;
    stream = streams_key(stream, per_thread);
    if (guest.captures && streams_capturing(stream)) {
        atomic_store(&pools_any_graph, true); /* it becomes a node of the graph */
        return true;
    }
    if (!handle)
        handle = pools_of_stream(stream);
    struct pool *pool = handle ? pools_find(handle) : &pools_uncounted; /* the driver refuses it */
    bool granted =
        pool ? pool == &pools_uncounted || pools_reserve_in(take, pool, bytes) : pools_unknown();
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
    struct allocs_item before;
    atomic_fetch_add(&pool->live, 1);
    if (pool->number >= ALLOCS_NOBODY || !allocs_put(pointer,
                                                     (struct allocs_item){.bytes = item.bytes,
                                                                          .kind = ALLOCS_POOLED,
                                                                          .gate = item.gate,
                                                                          .owner = item.owner},
                                                     &before))
        handles_put(HANDLES_POINTER, pointer, item, &old);
}

CUresult pools_settle(struct pools_take *take, CUresult rc, uint64_t pointer)
{
    int error = errno;
    if (!take->pool)
        return rc;
    pools_done(take);
    if (rc == CUDA_SUCCESS)
        pools_remember(take->pool, pointer, take->bytes);
    errno = error;
    return rc;
}

/* ---- Shrinking ---- */

/* A synchronisation may make it smaller from now on. */
static void pools_shrink(struct pool *pool)
{
    if (pool->charged > pool->threshold && !atomic_exchange(&pool->shrinks, true))
        atomic_fetch_add(&pools_shrinking, 1);
}

void pools_freed(unsigned number)
{
    struct pool *pool = pools_record(number);
    if (!pool || !pool->gate)
        return;
    if (pool->live)
        atomic_fetch_sub(&pool->live, 1);
    pools_shrink(pool);
    pools_settle_pool(pool, 0);
}

static void pools_graphs_changed(void)
{
    int error = errno;
    for (unsigned i = 0; i < guest.gates; i++)
        if (pools_graphs[i].charged)
            pools_settle_pool(&pools_graphs[i], 0);
    errno = error;
}

/* It may have been a graph's. */
void pools_freed_unknown(void)
{
    if (pools_any_graph)
        pools_graphs_changed();
}

/* The last allocation of a destroyed pool is gone, and so is all that used it. */
static void pools_end(struct pool *pool)
{
    lock_take(&pool->settle_lock);
    pool->version++;
    pools_book(pool, 0, 0);
    lock_put(&pool->settle_lock);
}

void pools_synced(bool all)
{
    struct pool *pool;
    if (atomic_load_explicit(&pools_shrinking, memory_order_relaxed) == 0)
        return;
    int error = errno;
    for (unsigned i = 0; (pool = pools_record(i)) != NULL; i++) {
        if (!pool->gate || !pool->shrinks)
            continue;
        if (all && pool->destroyed && pool->live == 0)
            pools_end(pool);
        pools_settle_pool(pool, 0);
    }
    errno = error;
}

void pools_context_gone(void)
{
    struct pool *pool;
    for (unsigned i = 0; (pool = pools_record(i)) != NULL; i++)
        if (pool->gate)
            pools_settle_pool(pool, 0);
    pools_freed_unknown();
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
    pools_settle_pool(item.object, 0);
    pools_close(item.object);
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
        pools_shrink(pool);
        pools_look_shrunk(pool);
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
        pools_shrink(pool);
    }
    errno = error;
}

void pools_trimmed(CUresult rc, CUmemoryPool handle)
{
    int error = errno;
    struct pool *pool = pools_counted(rc, handle);
    if (pool)
        pools_settle_pool(pool, 0);
    errno = error;
}

/* ---- Graphs ---- */

void pools_graph_node(CUresult rc)
{
    if (rc == CUDA_SUCCESS)
        atomic_store(&pools_any_graph, true);
}

static void pools_graph_count(CUgraph graph, struct pools_graph *found);

static void pools_graph_look(CUgraphNode node, struct pools_graph *found)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraphNodeType type;
    CUgraph child;
    if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        pools_graph_count(child, found);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        real.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
        return;
    struct gate *gate = params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                            ? gate_of_device(params.poolProps.location.id)
                            : NULL;
    if (gate)
        found->bytes[gate - guest.gate] += params.bytesize;
}

/* What a graph's allocations come to, those of its children included. */
static void pools_graph_count(CUgraph graph, struct pools_graph *found)
{
    size_t count = 0;
    if (real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes && real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            pools_graph_look(nodes[i], found);
    free(nodes);
}

static bool pools_graph_allocates(const struct pools_graph *graph)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < GATE_DEVICES; i++)
        sum |= graph->bytes[i];
    return sum != 0;
}

void pools_graph_made(CUresult rc, const CUgraphExec *exec, CUgraph graph)
{
    int error = errno;
    struct pools_graph found = {.trims = pools_trims - 1}, *kept;
    struct handles_item before, item = {.owner = ALLOCS_NOBODY};
    if (rc != CUDA_SUCCESS || !pools_any_graph || !guest_attached())
        return;
    pools_graph_count(graph, &found);
    kept = pools_graph_allocates(&found) ? malloc(sizeof *kept) : NULL;
    if (kept) {
        *kept = found;
        item.object = kept;
        if (!handles_put(HANDLES_GRAPH, (uintptr_t)*exec, item, &before))
            free(kept);
        free(before.object);
    }
    errno = error;
}

void pools_graph_gone(CUresult rc, CUgraphExec exec)
{
    int error = errno;
    struct handles_item item;
    if (rc != CUDA_SUCCESS)
        return;
    if (pools_any_graph && handles_take(HANDLES_GRAPH, (uintptr_t)exec, &item))
        free(item.object);
    if (pools_any_graph && guest_attached())
        pools_graphs_changed();
    errno = error;
}

void pools_graph_end(CUresult rc)
{
    if (rc == CUDA_SUCCESS && pools_any_graph && guest_attached())
        pools_graphs_changed();
}

void pools_graphs_trimmed(CUresult rc)
{
    int error = errno;
    if (rc != CUDA_SUCCESS)
        return;
    atomic_fetch_add(&pools_trims, 1);
    if (guest_attached())
        pools_graphs_changed();
    errno = error;
}

static struct pool *pools_of_graphs(unsigned gate)
{
    struct pool *pool = &pools_graphs[gate];
    if (!pool->gate) {
        pool->step = POOLS_STEP_LEAST;
        pool->gate = &guest.gate[gate];
    }
    return pool;
}

/* A graph's memory stays when it was launched, until graphs' memory is trimmed. What a graph takes
 * on a second device is counted when it has been launched. */
bool pools_graph_reserve(struct pools_take *take, CUgraphExec exec)
{
    int error = errno;
    struct handles_item item;
    *take = (struct pools_take){0};
    if (!pools_any_graph || !guest_attached() ||
        !handles_peek(HANDLES_GRAPH, (uintptr_t)exec, &item))
        return true;
    struct pools_graph *graph = item.object;
    unsigned gate = 0;
    while (gate < GATE_DEVICES - 1 && !graph->bytes[gate])
        gate++;
    bool there = graph->trims == pools_trims;
    bool granted = there || pools_reserve_in(take, pools_of_graphs(gate), graph->bytes[gate]);
    errno = error;
    return granted;
}

/* It ran, or its memory was seen to come: it is there from now on. */
static void pools_graph_there(struct pools_take *take, CUgraphExec exec)
{
    struct handles_item item;
    if (!handles_peek(HANDLES_GRAPH, (uintptr_t)exec, &item))
        return;
    struct pools_graph *graph = item.object;
    for (unsigned i = 0; i < guest.gates; i++)
        if (graph->bytes[i] && pools_of_graphs(i) != take->pool)
            pools_settle_pool(pools_of_graphs(i), 0);
    graph->trims = pools_trims;
}

CUresult pools_graph_settle(struct pools_take *take, CUgraphExec exec, CUresult rc)
{
    int error = errno;
    if (!take->pool)
        return rc;
    pools_done(take);
    if (rc == CUDA_SUCCESS)
        pools_graph_there(take, exec);
    errno = error;
    return rc;
}

/* A driver may leave it to the launch to take the memory. */
static CUresult pools_uploaded(struct pools_take *take, CUgraphExec exec, CUresult rc)
{
    int error = errno;
    if (!take->pool)
        return rc;
    uint64_t before = take->pool->charged;
    pools_done(take);
    if (rc == CUDA_SUCCESS && take->pool->charged > before)
        pools_graph_there(take, exec);
    errno = error;
    return rc;
}

CUresult pools_upload(CUgraphExec exec, CUstream stream)
{
    struct pools_take take;
    if (!pools_graph_reserve(&take, exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc;
    do
        rc = real.cuGraphUpload(exec, stream);
    while (rc != CUDA_SUCCESS && charge_again(&take.charge, rc));
    return pools_uploaded(&take, exec, rc);
}

CUresult pools_upload_ptsz(CUgraphExec exec, CUstream stream)
{
    struct pools_take take;
    if (!pools_graph_reserve(&take, exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc;
    do
        rc = real.cuGraphUpload_ptsz(exec, stream);
    while (rc != CUDA_SUCCESS && charge_again(&take.charge, rc));
    return pools_uploaded(&take, exec, rc);
}

void pools_reset(void)
{
    for (unsigned i = 0; i < POOLS_BLOCKS; i++)
        if (pools_block[i])
            memset(pools_block[i], 0, POOLS_BLOCK * sizeof(struct pool));
    memset(pools_graphs, 0, sizeof pools_graphs);
    pools_changed();
    pools_shrinking = 0;
    pools_any_graph = false;
}
