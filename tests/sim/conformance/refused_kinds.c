/* Rule of the simulated device: told to be one without fabric handles and multicast, it says so in
 * its attributes and refuses what needs them, and nothing is taken.
 * Source: tests/sim/README.md, "Settings"; CUDA Driver API, cuMemCreate, cuMulticastCreate.
 */
#include "client.h"

int main(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC};
    CUmulticastObjectProp object = {.numDevices = 1, .size = (size_t)4 << 20};
    CUmemGenericAllocationHandle handle;
    CUmemFabricHandle fabric = {{0}};
    struct handed_out before, after;
    struct client c;

    client_setting("SIMCUDA_FABRIC", "0");
    client_setting("SIMCUDA_MULTICAST", "0");
    client_open(&c);
    before = client_handed_out(c.device);
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = c.device;
    CHECK(!client_attribute(&c, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) &&
              !client_attribute(&c, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED),
          "the device says it can do it");
    EXPECT_CU(cuMemCreate(&handle, (size_t)4 << 20, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_CU(cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC),
              CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_CU(cuMulticastCreate(&handle, &object), CUDA_ERROR_NOT_SUPPORTED);
    after = client_handed_out(c.device);
    CHECK(!memcmp(&before, &after, sizeof after), "something was taken");
    client_pass("no fabric handles, no multicast, nothing taken");
}
