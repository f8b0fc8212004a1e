/*
 * query: the figures of memory that a program sees: its cap, and what is left under it. Nothing
 * else about the device is changed.
 */
#ifndef CUSLICE_HOOKS_QUERY_H
#define CUSLICE_HOOKS_QUERY_H

#include <stdint.h>

#include "driver.h"

struct gate;

/* What this client may believe about the gate's device, of whose `total` bytes `free` are free;
 * NULL: all of it. */
void query_mask(struct gate *gate, uint64_t *free, uint64_t *total);

CUresult query_memory(size_t *free, size_t *total);
CUresult query_memory_v1(unsigned int *free, unsigned int *total);
CUresult query_total(size_t *bytes, CUdevice device);
CUresult query_total_v1(unsigned int *bytes, CUdevice device);

#endif
