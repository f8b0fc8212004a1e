/*
 * query: masks what the driver answers (see query.h). Runs on the program's threads; the driver is
 * asked first and its errors pass unchanged.
 */
#include "query.h"

#include <limits.h>

#include "footprint.h"
#include "gate.h"
#include "ledger.h"
#include "real.h"

void query_mask(struct gate *gate, uint64_t *free, uint64_t *total)
{
    if (!gate || guest.mode != CONFIG_ENFORCE)
        return;
    if (gate->oversubscribed) /* what others have on the device can be sent away */
        *free = *total;
    ledger_mask(gate->ring, free, total);
}

static unsigned int query_narrow(uint64_t value)
{
    return value > UINT_MAX ? UINT_MAX : (unsigned int)value;
}

CUresult query_memory(size_t *free, size_t *total)
{
    struct gate *gate = guest_attached() ? gate_current() : NULL;
    struct footprint_look books;
    if (gate)
        footprint_books(gate->ring, &books);
    CUresult rc = real.cuMemGetInfo_v2(free, total);
    if (rc != CUDA_SUCCESS || !free || !total || !gate)
        return rc;
    uint64_t left = *free, all = *total;
    footprint_told(gate, &books, all - left);
    query_mask(gate, &left, &all);
    *free = left;
    *total = all;
    return rc;
}

CUresult query_memory_v1(unsigned int *free, unsigned int *total)
{
    CUresult rc = real.cuMemGetInfo(free, total);
    if (rc != CUDA_SUCCESS || !free || !total || !guest_attached())
        return rc;
    uint64_t left = *free, all = *total;
    query_mask(gate_current(), &left, &all);
    *free = query_narrow(left);
    *total = query_narrow(all);
    return rc;
}

static uint64_t query_device(uint64_t all, CUdevice device)
{
    uint64_t left = all;
    if (guest_attached())
        query_mask(gate_of_device(device), &left, &all);
    return all;
}

CUresult query_total(size_t *bytes, CUdevice device)
{
    CUresult rc = real.cuDeviceTotalMem_v2(bytes, device);
    if (rc == CUDA_SUCCESS && bytes)
        *bytes = query_device(*bytes, device);
    return rc;
}

CUresult query_total_v1(unsigned int *bytes, CUdevice device)
{
    CUresult rc = real.cuDeviceTotalMem(bytes, device);
    if (rc == CUDA_SUCCESS && bytes)
        *bytes = query_narrow(query_device(*bytes, device));
    return rc;
}
