/*
 * pool: what one pool of the driver's has reserved on the device, and is charged. Pools of the
 * program (pools.c) and what graphs keep (graphs.c) are counted alike. Program threads.
 */
#ifndef CUSLICE_HOOKS_POOL_H
#define CUSLICE_HOOKS_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "charge.h"
#include "driver.h"
#include "futex.h"

/* What pools grow by at the most, when small allocations make them grow, as far as is known. */
#define POOL_STEP (UINT64_C(32) << 20)
#define POOL_STEP_LEAST (UINT64_C(2) << 20)

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

/* One allocation from a pool on its way. */
struct pool_take {
    struct pool *pool; /* NULL: not counted here */
    struct charge charge;
    uint64_t bytes; /* as asked */
    bool alone;     /* near the cap: one at a time */
};

/* How many pools a synchronisation may make smaller. */
extern _Atomic unsigned pool_shrinking;

/* Reserves what the pool may grow by for so many bytes; false when a cap refuses. Blocking while
 * another thread's request near the cap is under way. */
bool pool_reserve(struct pool_take *take, struct pool *pool, uint64_t bytes);

/* After the driver's call: the pool is charged what it has, the reservation is given back. */
void pool_done(struct pool_take *take);

/* Books what the driver says; `mine` of the books are the caller's reservation. */
void pool_settle(struct pool *pool, uint64_t mine);

/* Something was freed: a synchronisation may make the pool smaller from now on. */
void pool_shrink(struct pool *pool);

/* The handle is about to become invalid: nobody asks the driver about it any more. Blocking while
 * others do. */
void pool_close(struct pool *pool);

/* A destroyed pool's last allocation is gone, and all work that used it. */
void pool_end(struct pool *pool);

#endif
