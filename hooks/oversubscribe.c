/*
 * oversubscribe: which plain allocations become managed ones (see oversubscribe.h). Runs on the
 * program's threads between the ledger and the driver; owns nothing but whether it was said. How
 * long turns are then is scheduler/paging.c's business.
 *
 * WHICH ONES. Memory that was once given out fixed cannot be made to leave the device. If the first
 * of two large tenants had all of its memory fixed, the second one's would have no room to come to
 * in its own turn, however long that were. So it does not matter whether there is room at the
 * moment: the first 1/OVERSUBSCRIBE_PARTS of the device's memory of each process stays as the
 * program asked, what goes beyond is managed, and so is what the driver has no room for. While
 * everything fits together nothing moves after its first use and turns are as long as ever.
 * Arrays, pools, physical memory and the calls of CUDA 3 stay what they are, and count as fixed.
 */
#include "oversubscribe.h"

#include <stdatomic.h>

#include "gate.h"
#include "ledger.h"
#include "log.h"
#include "real.h"

#define OVERSUBSCRIBE_PARTS 32
/* A multiple of every texture pitch alignment that devices report. */
#define OVERSUBSCRIBE_PITCH 512u

bool oversubscribe_device(CUdevice device, unsigned index)
{
    int able = 0;
    if (!guest_config.oversubscribe || guest_config.mode != CONFIG_ENFORCE)
        return false;
    CUresult rc =
        real.cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    if (rc == CUDA_SUCCESS && able)
        return true;
    log_warn("oversubscribe-off",
             "GPU %u cannot page memory (no concurrent managed access): CUSLICE_OVERSUBSCRIBE has "
             "no effect there",
             index);
    return false;
}

uint64_t oversubscribe_limit(uint64_t limit, uint64_t total)
{
    return limit == CUSLICE_NO_LIMIT ? total : limit;
}

bool oversubscribe_beyond(const struct gate *gate, const struct ring *ring)
{
    return ledger_fixed(ring) > gate->total_bytes / OVERSUBSCRIBE_PARTS;
}

static void oversubscribe_say(void)
{
    static _Atomic bool said;
    if (!atomic_exchange(&said, true))
        log_warn("oversubscribe",
                 "plain allocations of this process become managed memory from here on "
                 "(CUSLICE_OVERSUBSCRIBE): it may be paged out to the host, and cannot be shared "
                 "with other processes");
}

CUresult oversubscribe_alloc(CUdeviceptr *pointer, uint64_t bytes)
{
    CUresult rc = real.cuMemAllocManaged(pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    if (rc == CUDA_SUCCESS)
        oversubscribe_say();
    return rc;
}

CUresult oversubscribe_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height)
{
    size_t rows = (width + OVERSUBSCRIBE_PITCH - 1) / OVERSUBSCRIBE_PITCH * OVERSUBSCRIBE_PITCH;
    size_t bytes;
    if (rows < width || __builtin_mul_overflow(rows, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = oversubscribe_alloc(pointer, bytes);
    if (rc == CUDA_SUCCESS)
        *pitch = rows;
    return rc;
}
