/*
 * pools: stream-ordered memory. What counts is what a pool has reserved on the device, not what was
 * asked of it: a pool grows in steps and keeps what is freed. Its growth is not known before the
 * call, so it is reserved at its largest and settled by what the driver says the pool has then.
 * Program threads.
 */
#ifndef CUSLICE_HOOKS_POOLS_H
#define CUSLICE_HOOKS_POOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "pool.h"

/* Reserves what the pool may grow by. `pool` NULL: the current pool of the stream's device. False
 * when a cap refuses. Blocking while another thread's request near the cap is under way. */
bool pools_reserve(struct pool_take *take, CUmemoryPool pool, CUstream stream, bool per_thread,
                   uint64_t bytes);

/* After the driver's call: settles, and enters the pointer. Answers rc. */
CUresult pools_settle(struct pool_take *take, CUresult rc, uint64_t pointer);

/* A pointer of the pool with this number was freed. */
void pools_freed(unsigned number);

/* A synchronising call has returned (`all`: for all work of a context): pools may have shrunk. A
 * context is gone, and what its streams had taken from pools. */
void pools_synced(bool all);
void pools_context_gone(void);

/* Pools come, go and change. */
void pools_created(CUresult rc, const CUmemoryPool *pool, const CUmemPoolProps *props);
struct pool *pools_destroy(CUmemoryPool handle);
void pools_destroyed(CUresult rc, CUmemoryPool handle, struct pool *pool);
void pools_changed(void);
void pools_attribute(CUresult rc, CUmemoryPool pool, CUmemPool_attribute attribute,
                     const void *value);
void pools_trimmed(CUresult rc, CUmemoryPool pool);

/* Forgets everything: for a process that attaches. */
void pools_reset(void);

#endif
