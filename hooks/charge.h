/*
 * charge: device memory is counted before the driver is asked for it. Reserve, call the driver,
 * settle; for a free: take, call the driver, give back. Bytes are what the driver hands out: what
 * was asked, rounded up to CHARGE_GRAIN.
 */
#ifndef CUSLICE_HOOKS_CHARGE_H
#define CUSLICE_HOOKS_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "allocs.h"
#include "driver.h"

struct gate;

/* What device allocations are multiples of, as measured on current drivers (cudaMalloc returns
 * addresses 512 bytes apart for the smallest requests). */
#define CHARGE_GRAIN UINT64_C(512)

/* What a row's result is the key of. */
enum charge_family {
    POINTER, /* a device pointer */
    ARRAY,   /* an array, mipmapped or not */
    PLAIN,   /* a device pointer to plain memory, which may become managed (oversubscribe.h) */
    MANAGED, /* one to memory that is managed as the program asked */
};

/* One allocation on its way. */
struct charge {
    struct gate *gate;       /* NULL: not counted */
    struct allocs_item item; /* as it will be, or was, in the books */
    struct gate *under_way;  /* other clients have been told that memory moves there; NULL */
    uint64_t retry_until_ns;
    enum charge_family family;
};

/* Reserves on the current context's device; false when a cap refuses: the call then answers
 * CUDA_ERROR_OUT_OF_MEMORY and the driver is not asked. */
bool charge_reserve(struct charge *charge, enum charge_family family, uint64_t bytes);

/* The same on a device that the call names (NULL: not counted), for what goes with no context.
 * `asked`: what the program asked, when more is reserved than that; 0: a refusal is not yet an
 * event, since the caller knows another way. */
bool charge_reserve_on(struct charge *charge, struct gate *gate, uint64_t bytes, uint64_t asked);

/* Whether other processes are in the tenant, whose reservations may be larger than what they come
 * to. */
bool charge_others(struct gate *gate);

/* Whether the driver is to be asked for managed memory in place of plain memory. */
static inline bool charge_paged(const struct charge *charge)
{
    return __builtin_expect(charge->item.kind == ALLOCS_PAGED, 0);
}

/* After the driver's answer: true when it should be asked again, because memory of a client that
 * died lately may be on its way back (sleeps a little before), or for managed memory. */
bool charge_again(struct charge *charge, CUresult rc);

/* Enters the key, or cancels the reservation when the driver failed. Answers rc. */
CUresult charge_settle(struct charge *charge, CUresult rc, uint64_t key);

/* A free: before and after the driver's call. */
void charge_take(struct charge *charge, enum charge_family family, uint64_t key);
CUresult charge_return(struct charge *charge, CUresult rc, uint64_t key);

/* What was found to be in use after all, whatever the caps say; what is not any more. */
void charge_add(struct gate *gate, uint64_t bytes);
void charge_give_back(struct gate *gate, uint64_t bytes);

/* Bytes that other processes may have open; those of others that are open here. Charged to nobody.
 * `gone`: exported memory that this process has let go of, while others may have it. */
void charge_exported(struct gate *gate, int64_t change, bool gone);
void charge_imported(struct gate *gate, int64_t change);

/* What this process's contexts on a device cost, in place of what was said before. */
void charge_context(struct gate *gate, uint64_t bytes);

/* A context is gone, and what it owned on its device with it. */
void charge_context_gone(struct gate *gate, unsigned owner);

/* cuMemAllocPitch: the driver chooses the pitch, so the bytes are known after the call. */
CUresult charge_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                      unsigned int element);
CUresult charge_pitch_v1(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element);

#endif
