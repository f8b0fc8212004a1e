/* Rule: without concurrent managed access (SIMCUDA_CONCURRENT_MANAGED=0) managed memory is taken
 * from the device when it is allocated, and cannot exceed it.
 * Source: CUDA Programming Guide, "Unified Memory" (devices without concurrent managed access).
 */
#include "client.h"

int main(void)
{
    size_t before, after, total;
    CUdeviceptr memory, more;
    struct client c;

    client_setting("SIMCUDA_CONCURRENT_MANAGED", "0");
    client_open(&c);
    if (client_attribute(&c, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS))
        client_skip("managed memory moves here");
    CHECK_CU(cuMemGetInfo(&before, &total));
    CHECK_CU(cuMemAllocManaged(&memory, before / 2, CU_MEM_ATTACH_GLOBAL));
    CHECK_CU(cuMemGetInfo(&after, &total));
    CHECK(before - after >= before / 2, "free fell by %zu for %zu", before - after, before / 2);
    EXPECT_CU(cuMemAllocManaged(&more, total, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_CU(cuMemFree(memory));
    CHECK_CU(cuMemGetInfo(&after, &total));
    CHECK(after >= before, "%zu bytes do not come back", before - after);
    client_pass("managed memory was the device's from its allocation on");
}
