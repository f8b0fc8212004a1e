/*
 * shared: see shared.h. Must never charge anybody: the figures here are beside the ledger's sums.
 */
#include "shared.h"

#include <errno.h>

#include "allocs.h"
#include "charge.h"
#include "gate.h"
#include "handles.h"
#include "real.h"

static bool shared_range(CUdeviceptr pointer, CUdeviceptr *base, size_t *bytes)
{
    return real.cuMemGetAddressRange_v2(base, bytes, pointer) == CUDA_SUCCESS;
}

void shared_exported(CUresult rc, CUdeviceptr pointer)
{
    int error = errno;
    struct allocs_item item;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (rc == CUDA_SUCCESS && guest_attached() && shared_range(pointer, &base, &bytes) &&
        allocs_peek(base, &item) && allocs_gate(item) < guest.gates &&
        (allocs_turn(base, ALLOCS_OWNED, ALLOCS_EXPORTED) ||
         allocs_turn(base, ALLOCS_POOLED, ALLOCS_POOL_EXPORTED)))
        charge_exported(&guest.gate[allocs_gate(item)], (int64_t)item.bytes, false);
    errno = error;
}

void shared_opened(CUresult rc, const CUdeviceptr *pointer)
{
    int error = errno;
    struct gate *gate = rc == CUDA_SUCCESS && guest_attached() ? gate_current() : NULL;
    struct allocs_item before, item = {.kind = ALLOCS_IMPORTED};
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (gate && shared_range(*pointer, &base, &bytes)) {
        item.bytes = bytes - (*pointer - base);
        item.whose = allocs_whose((unsigned)(gate - guest.gate), ALLOCS_NOBODY);
        bool entered = allocs_put(*pointer, item, &before);
        if (entered && before.kind != ALLOCS_IMPORTED) /* else it was open already */
            charge_imported(gate, (int64_t)item.bytes);
    }
    errno = error;
}

void shared_imported(CUresult rc, const CUexternalMemory *memory,
                     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    int error = errno;
    struct gate *gate = rc == CUDA_SUCCESS && guest_attached() ? gate_current() : NULL;
    struct handles_item before, item = {.owner = ALLOCS_NOBODY};
    if (gate) {
        item.bytes = desc->size;
        item.gate = (unsigned)(gate - guest.gate);
        if (handles_put(HANDLES_EXTERNAL, (uintptr_t)*memory, item, &before))
            charge_imported(gate, (int64_t)item.bytes);
    }
    errno = error;
}

void shared_let_go(CUresult rc, CUexternalMemory memory)
{
    int error = errno;
    struct handles_item item;
    if (rc == CUDA_SUCCESS && guest_attached() &&
        handles_take(HANDLES_EXTERNAL, (uintptr_t)memory, &item) && item.gate < guest.gates)
        charge_imported(&guest.gate[item.gate], -(int64_t)item.bytes);
    errno = error;
}
