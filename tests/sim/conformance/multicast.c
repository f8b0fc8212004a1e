/* Rule: a multicast object takes no memory; what is bound to it, by handle or by address, lives on
 * after its own handle until it is unbound or the object is gone; the object can be mapped.
 * Source: CUDA Driver API, "Multicast Object Management".
 */
#include "client.h"

static size_t grain;

static CUmemGenericAllocationHandle make(const struct client *c, size_t bytes)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};
    CUmemGenericAllocationHandle handle;

    CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUmemGenericAllocationHandle make_object(const struct client *c, size_t bytes)
{
    CUmulticastObjectProp prop = {.numDevices = 1, .size = bytes};
    CUmemGenericAllocationHandle object;
    CUresult error = cuMulticastCreate(&object, &prop);

    if (error == CUDA_ERROR_NOT_SUPPORTED || error == CUDA_ERROR_NOT_PERMITTED)
        client_skip("no multicast on this system");
    CHECK_CU(error);
    CHECK_CU(cuMulticastAddDevice(object, c->device));
    return object;
}

static void check_bind(const struct client *c, size_t before)
{
    CUmemGenericAllocationHandle object = make_object(c, 4 * grain), memory = make(c, 2 * grain);

    CHECK_CU(cuMulticastBindMem(object, grain, memory, 0, 2 * grain, 0));
    EXPECT_CU(cuMulticastBindMem(object, 3 * grain, memory, 0, 2 * grain, 0),
              CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemRelease(memory));
    CHECK(before - client_free_bytes() >= 2 * grain, "bound memory is gone with its handle");
    CHECK_CU(cuMulticastUnbind(object, c->device, grain, 2 * grain));
    CHECK(before - client_free_bytes() < 2 * grain, "unbound memory stays");
    CHECK_CU(cuMemRelease(object));
}

static void check_end(const struct client *c, size_t before)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle object = make_object(c, 2 * grain), memory = make(c, 2 * grain);
    CUdeviceptr at, view;

    CHECK_CU(cuMemAddressReserve(&at, 2 * grain, grain, 0, 0));
    CHECK_CU(cuMemMap(at, 2 * grain, 0, memory, 0));
    CHECK_CU(cuMemSetAccess(at, 2 * grain, &access, 1));
    CHECK_CU(cuMulticastBindAddr(object, 0, at, 2 * grain, 0));
    CHECK_CU(cuMemUnmap(at, 2 * grain));
    CHECK_CU(cuMemRelease(memory));
    CHECK_CU(cuMemAddressReserve(&view, 2 * grain, grain, 0, 0));
    CHECK_CU(cuMemMap(view, 2 * grain, 0, object, 0));
    CHECK_CU(cuMemSetAccess(view, 2 * grain, &access, 1));
    CHECK_CU(cuMemRelease(object));
    CHECK(before - client_free_bytes() >= 2 * grain,
          "the memory is gone though the object is mapped");
    CHECK_CU(cuMemUnmap(view, 2 * grain));
    CHECK(before - client_free_bytes() < 2 * grain, "the memory outlives the object");
    CHECK_CU(cuMemAddressFree(view, 2 * grain));
    CHECK_CU(cuMemAddressFree(at, 2 * grain));
}

int main(void)
{
    CUmulticastObjectProp prop = {.numDevices = 1};
    CUmemGenericAllocationHandle object;
    struct client c;
    size_t before;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED))
        client_skip("no multicast here");
    CHECK_CU(cuMulticastGetGranularity(&grain, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    CHECK(grain && !(grain & (grain - 1)), "the granularity is %zu", grain);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    before = client_free_bytes();
    object = make_object(&c, 64 * grain);
    CHECK(before - client_free_bytes() < 64 * grain, "the object takes memory");
    CHECK_CU(cuMemRelease(object));
    check_bind(&c, before);
    check_end(&c, before);
    client_pass("bound memory lived as long as it was bound");
}
