/*
 * copies: which copies stay within the device and so occupy the GPU. Told by the memory types in a
 * descriptor; for unified addresses by our own table of allocations, where an address that is not
 * known counts as the host's. Any thread; asks no driver.
 */
#ifndef CUSLICE_HOOKS_COPIES_H
#define CUSLICE_HOOKS_COPIES_H

#include "allocs.h"
#include "gate.h"
#include "streams.h"

/* A unified address of the device. */
static inline bool copies_inside(CUdeviceptr address)
{
    return allocs_inside(address);
}

static inline bool copies_end_inside(CUmemorytype type, CUdeviceptr address)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           (type == CU_MEMORYTYPE_UNIFIED && copies_inside(address));
}

/* For descriptors of all versions and dimensions, which name their members alike. */
#define COPIES_WITHIN(copy) \
    ((copy) && copies_end_inside((copy)->srcMemoryType, (copy)->srcDevice) && \
     copies_end_inside((copy)->dstMemoryType, (copy)->dstDevice))

/* Whether CUSLICE_GATE_COPIES asks for a turn for copies to and from the host. */
static inline bool copies_gated(void)
{
    return __builtin_expect(guest_config.gate_copies != 0, 0);
}

/* After a blocking copy to or from the host: the stream's work of before it is done. */
static inline void copies_synced(CUresult rc, uint64_t before, bool per_thread)
{
    gate_synced(rc, before, streams_key(NULL, per_thread));
}
#define copies_done(rc, per_thread) copies_synced(rc, before, per_thread)

/* Whether some copy of a batch stays within the device. */
bool copies_within_batch(const CUdeviceptr *to, const CUdeviceptr *from, size_t count);
bool copies_within_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count);

#endif
