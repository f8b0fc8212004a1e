/* Rule: cuMemCreate takes device memory, a mapping with access makes it usable, and it is free when
 * the last of handle and mapping is gone.
 * Source: CUDA Driver API, "Virtual Memory Management".
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t grain, bytes, before, held;
    uint32_t word = 0;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        client_skip("no virtual memory management here");
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = access.location.id = c.device;
    CHECK_CU(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(grain && !(grain & (grain - 1)), "the granularity is %zu", grain);
    bytes = (((size_t)256 << 20) + grain - 1) / grain * grain;
    before = client_free_bytes();
    CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
    held = before - client_free_bytes();
    CHECK(held >= bytes, "free fell by %zu for %zu bytes", held, bytes);
    EXPECT_CU(cuMemCreate(&handle, grain / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CHECK_CU(cuMemMap(address, bytes, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
    client_fill(&c, NULL, address, 0xfeed, bytes / sizeof word);
    CHECK_CU(cuMemcpyDtoH(&word, address + bytes - sizeof word, sizeof word));
    CHECK(word == 0xfeed, "the last word is %#x", word);
    CHECK_CU(cuMemRelease(handle));
    CHECK(before - client_free_bytes() >= bytes,
          "a mapped allocation is free after its handle's release");
    CHECK_CU(cuMemUnmap(address, bytes));
    CHECK(before - client_free_bytes() < bytes, "the memory does not come back");
    CHECK_CU(cuMemAddressFree(address, bytes));
    client_pass("%zu MiB created, mapped, used and given back (granularity %zu KiB)", bytes >> 20,
                grain >> 10);
}
