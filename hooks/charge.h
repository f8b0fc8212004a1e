/*
 * charge: device memory is counted before the driver is asked for it. Reserve, call the driver,
 * settle; for a free: take, call the driver, give back.
 */
#ifndef CUSLICE_HOOKS_CHARGE_H
#define CUSLICE_HOOKS_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

struct gate;

/* Whether an allocation goes with the context it was made in. */
#define OWNED true
#define POOLED false

/* One allocation on its way. */
struct charge {
    struct gate *gate; /* NULL: not counted */
    uint64_t bytes;
    uint64_t retry_until_ns;
    unsigned owner;
};

/* Reserves; false when a cap refuses: the call then answers CUDA_ERROR_OUT_OF_MEMORY and the driver
 * is not asked. */
bool charge_reserve(struct charge *charge, uint64_t bytes, bool owned);

/* After the driver's answer: true when it should be asked again, because memory of a client that
 * died lately may be on its way back. Sleeps a little before. */
bool charge_again(struct charge *charge, CUresult rc);

/* Enters the pointer, or cancels the reservation when the driver failed. Answers rc. */
CUresult charge_settle(struct charge *charge, CUresult rc, uint64_t pointer);

/* A free: before and after the driver's call. */
void charge_take(struct charge *charge, uint64_t pointer);
CUresult charge_return(struct charge *charge, CUresult rc, uint64_t pointer);

/* A context is gone, and what it owned on its device with it. */
void charge_context_gone(struct gate *gate, unsigned owner);

/* cuMemAllocPitch: the driver chooses the pitch, so the bytes are known after the call. */
CUresult charge_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                      unsigned int element);
CUresult charge_pitch_v1(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element);

#endif
