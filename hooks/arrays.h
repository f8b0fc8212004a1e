/*
 * arrays: how much device memory an array will take, before it is made. The layout of arrays is the
 * driver's secret, so the driver is asked: an array of the same form whose memory is mapped later
 * costs nothing and knows its size. Where the driver cannot do that the size is computed from the
 * form. Program threads, in a context; calls the driver.
 */
#ifndef CUSLICE_HOOKS_ARRAYS_H
#define CUSLICE_HOOKS_ARRAYS_H

#include <stdint.h>

#include "driver.h"

/* Bytes of an array by its descriptor, in each of its versions; 0 when it is NULL (the driver
 * refuses it), or when the array takes no memory itself: sparse ones and those that are mapped
 * later. */
uint64_t arrays_bytes(const CUDA_ARRAY_DESCRIPTOR *array);
uint64_t arrays_bytes_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *array);
uint64_t arrays_bytes_3d(const CUDA_ARRAY3D_DESCRIPTOR *array);
uint64_t arrays_bytes_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *array);
uint64_t arrays_bytes_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

/* What the form alone says, without the driver; UINT64_MAX / 2 where that is beyond all memory. */
uint64_t arrays_estimate(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels);

#endif
