/*
 * pool: what one pool is charged (see pool.h). A call reserves the request rounded up to the step
 * that the pool is thought to grow by, asks the driver, then settles: the charge becomes what the
 * driver says the pool has reserved, and the reservation is given back. Who settles reads the
 * driver's figure first and books it only if nobody has booked another one meanwhile, so an older
 * figure never replaces a newer one and no lock is held across a call of the driver. Between growth
 * and settling the reservation stands for it, so the books are never below the device.
 *
 * Where the largest growth does not fit under the cap, requests go one at a time; unused memory of
 * the pool is given back to the device first, and what then does not fit is refused, even if the
 * pool might have found room among what it holds: whether it would is not known before the call.
 *
 * Threads of the program, and nobody else. A fork or a death leaves nothing to mend here.
 */
#include "pool.h"

#include <time.h>

#include "clock.h"
#include "gate.h"
#include "real.h"

/* How long a request near the cap waits for those that are under way, and for its place. */
#define POOL_PATIENCE_NS (100 * CLOCK_MS)
#define POOL_PLACE_NS CLOCK_S
/* How long it waits for those of other processes, and how often it tries meanwhile. */
#define POOL_TRY_NS (20 * CLOCK_MS)
#define POOL_TRY_EVERY_NS 200000
/* How long the end of a pool waits for those who are asking the driver about it. */
#define POOL_ASKING_NS CLOCK_S

_Atomic unsigned pool_shrinking;

/* ---- Settling ---- */

/* Whether the driver may be asked about it: not once its handle may be gone. */
static bool pool_ask(struct pool *pool)
{
    atomic_fetch_add(&pool->asking, 1);
    if (!pool->closing && !pool->destroyed)
        return true;
    atomic_fetch_sub(&pool->asking, 1);
    return false;
}

static void pool_asked(struct pool *pool)
{
    atomic_fetch_sub(&pool->asking, 1);
}

/* Others are inside a short call of the driver. */
void pool_close(struct pool *pool)
{
    uint64_t deadline = clock_after(POOL_ASKING_NS);
    pool->closing = true;
    while (pool->asking && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

static bool pool_reserved(struct pool *pool, uint64_t *bytes)
{
    cuuint64_t now = 0;
    if (!pool_ask(pool))
        return false;
    CUresult rc =
        pool->handle
            ? real.cuMemPoolGetAttribute(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &now)
            : real.cuDeviceGetGraphMemAttribute(pool->gate->device,
                                                CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now);
    pool_asked(pool);
    *bytes = now;
    return rc == CUDA_SUCCESS;
}

/* The charge becomes `now`; `mine` of it was reserved before and is given back. */
static void pool_book(struct pool *pool, uint64_t now, uint64_t mine)
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
static void pool_learn(struct pool *pool, uint64_t grown, uint64_t reserved)
{
    uint64_t low = grown & -grown;
    if (grown > reserved) {
        pool->step = grown > pool->step ? grown : pool->step;
        pool->irregular = true;
    } else if (grown && !pool->irregular && low < pool->step) {
        pool->step = low < POOL_STEP_LEAST ? POOL_STEP_LEAST : low;
    }
}

/* Of a destroyed pool nothing can be asked: it keeps what it had until all of it is gone. */
static void pool_look_shrunk(struct pool *pool)
{
    if (pool->charged <= pool->threshold && atomic_exchange(&pool->shrinks, false))
        atomic_fetch_sub(&pool_shrinking, 1);
    if (pool->destroyed && pool->charged == 0 && atomic_exchange(&pool->destroyed, false))
        pool->gate = NULL;
}

/* Books what the driver says; `mine` of the books are this call's reservation. */
void pool_settle(struct pool *pool, uint64_t mine)
{
    uint64_t now;
    for (;;) {
        uint64_t version = pool->version;
        if (!pool_reserved(pool, &now)) /* destroyed, or a lost device: it stays */
            now = pool->charged;
        lock_take(&pool->settle_lock);
        bool fresh = pool->version == version;
        if (fresh) {
            pool->version++;
            if (mine && now > pool->charged)
                pool_learn(pool, now - pool->charged, mine);
            pool_book(pool, now, mine);
        }
        lock_put(&pool->settle_lock);
        if (fresh)
            break;
    }
    pool_look_shrunk(pool);
}

/* ---- Reserving ---- */

static uint64_t pool_growth(const struct pool *pool, uint64_t bytes)
{
    uint64_t step = pool->step;
    return bytes > UINT64_MAX / 4 ? bytes : (bytes + step - 1) / step * step;
}

static void pool_trim(struct pool *pool)
{
    if (!pool_ask(pool))
        return;
    if (pool->handle)
        real.cuMemPoolTrimTo(pool->handle, 0);
    else
        real.cuDeviceGraphMemTrim(pool->gate->device);
    pool_asked(pool);
}

/* Others' reservations are larger than what their pools will grow by: they are waited for. */
static void pool_quiet(const struct pool *pool)
{
    uint64_t deadline = clock_after(POOL_PATIENCE_NS);
    while (pool->under_way && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Other processes' reservations too are larger than what comes of them, for as long as their calls
 * take. */
static bool pool_try(struct pool_take *take, struct gate *gate, uint64_t growth)
{
    uint64_t deadline = clock_after(POOL_TRY_NS);
    while (charge_others(gate) && clock_now() < deadline) {
        nanosleep(&(struct timespec){.tv_nsec = POOL_TRY_EVERY_NS}, NULL);
        if (charge_reserve_on(&take->charge, gate, growth, 0))
            return true;
    }
    return false;
}

/* A thread that was ended inside the driver keeps its place for ever: it is not waited for longer
 * than that. */
static bool pool_take_place(struct pool *pool)
{
    uint64_t deadline = clock_after(POOL_PLACE_NS);
    bool taken;
    while (!(taken = lock_try(&pool->alone)) && clock_now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return taken;
}

static void pool_put_place(struct pool_take *take, struct pool *pool)
{
    if (take->alone)
        lock_put(&pool->alone);
    take->alone = false;
}

/* One at a time, with all that can be had. True when reserved; the lock stays with the caller. */
static bool pool_reserve_alone(struct pool_take *take, struct pool *pool, uint64_t bytes)
{
    struct gate *gate = pool->gate;
    take->alone = pool_take_place(pool);
    pool_quiet(pool);
    pool_settle(pool, 0);
    if (charge_reserve_on(&take->charge, gate, pool_growth(pool, bytes), 0))
        return true;
    pool_trim(pool);
    pool_settle(pool, 0);
    if (pool_try(take, gate, pool_growth(pool, bytes)) ||
        charge_reserve_on(&take->charge, gate, pool_growth(pool, bytes), bytes))
        return true;
    pool_put_place(take, pool);
    return false;
}

bool pool_reserve(struct pool_take *take, struct pool *pool, uint64_t bytes)
{
    struct gate *gate = pool->gate;
    take->bytes = bytes;
    if (!charge_reserve_on(&take->charge, gate, pool_growth(pool, bytes), 0) &&
        (guest.state == GUEST_REFUSED || !pool_reserve_alone(take, pool, bytes)))
        return false;
    if (take->charge.gate) {
        atomic_fetch_add(&pool->under_way, 1);
        take->pool = pool;
    } else {
        pool_put_place(take, pool); /* the program is at its end: nothing is counted any more */
    }
    return true;
}

void pool_done(struct pool_take *take)
{
    pool_settle(take->pool, take->charge.item.bytes);
    atomic_fetch_sub(&take->pool->under_way, 1);
    pool_put_place(take, take->pool);
}

/* ---- Shrinking ---- */

/* A synchronisation may make it smaller from now on. */
void pool_shrink(struct pool *pool)
{
    if (pool->charged > pool->threshold && !atomic_exchange(&pool->shrinks, true))
        atomic_fetch_add(&pool_shrinking, 1);
}

/* The last allocation of a destroyed pool is gone, and so is all that used it. */
void pool_end(struct pool *pool)
{
    lock_take(&pool->settle_lock);
    pool->version++;
    pool_book(pool, 0, 0);
    lock_put(&pool->settle_lock);
}
