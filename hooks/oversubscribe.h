/*
 * oversubscribe: plain allocations that become managed ones, so that clients whose memory does not
 * fit together can take turns with all of it (CUSLICE_OVERSUBSCRIBE=1). The one exception to "the
 * kind of an allocation stays as the program asked"; said once per process. Any thread.
 */
#ifndef CUSLICE_HOOKS_OVERSUBSCRIBE_H
#define CUSLICE_HOOKS_OVERSUBSCRIBE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

struct gate;
struct ring;

/* Whether it is asked for and the device can do it; says so when it cannot. While attaching. */
bool oversubscribe_device(CUdevice device, unsigned index);

/* The cap of a tenant on a device of `total` bytes: its own, or, where it has none, the device's
 * size, since what it takes beyond that would be the host's memory. */
uint64_t oversubscribe_limit(uint64_t limit, uint64_t total);

/* Whether what this process has on the device for good, the allocation under way included, is more
 * than its part: then that one becomes managed. */
bool oversubscribe_beyond(const struct gate *gate, const struct ring *ring);

/* Managed memory in place of plain memory: the driver's answer. Says so the first time. */
CUresult oversubscribe_alloc(CUdeviceptr *pointer, uint64_t bytes);

/* The same in place of cuMemAllocPitch; *pitch as this file chooses it. */
CUresult oversubscribe_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height);

#endif
