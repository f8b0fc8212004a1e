/* Rule: memory that cuMemCreate makes on the host, on a NUMA node or on the present one takes no
 * device memory, and the device can use it once it is mapped.
 * Source: CUDA Driver API, cuMemCreate, CUmemLocationType.
 */
#include "client.h"

static bool check_location(const struct client *c, CUmemLocation location, size_t before)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    size_t grain, bytes;
    uint32_t word = 0;

    if (cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM))
        return false;
    bytes = (((size_t)64 << 20) + grain - 1) / grain * grain;
    if (cuMemCreate(&handle, bytes, &prop, 0) == CUDA_ERROR_NOT_SUPPORTED)
        return false;
    CHECK(before - client_free_bytes() < bytes / 2, "host memory of type %d takes device memory",
          (int)location.type);
    CHECK_CU(cuMemAddressReserve(&base, bytes, 0, 0, 0));
    CHECK_CU(cuMemMap(base, bytes, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(base, bytes, &access, 1));
    client_set(c, NULL, base + 64, 0x77);
    CHECK_CU(cuMemcpyDtoH(&word, base + 64, sizeof word));
    CHECK(word == 0x77, "the device wrote %#x", word);
    CHECK_CU(cuMemUnmap(base, bytes));
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemAddressFree(base, bytes));
    return true;
}

int main(void)
{
    struct client c;
    unsigned found = 0;
    size_t before;

    client_open(&c);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    before = client_free_bytes();
    for (int type = 2; type <= 4; type++)
        found += check_location(&c, (CUmemLocation){.type = (CUmemLocationType)type}, before);
    if (!found)
        client_skip("no host memory by cuMemCreate here");
    client_pass("%u kinds of host location, no device memory", found);
}
