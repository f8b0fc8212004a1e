/* Rule: an array of deferred mapping takes no memory; it tells how much it needs, gets it as a
 * whole from a tile pool, can be used then, and keeps the pool alive until it is unmapped or
 * destroyed. Source: CUDA Driver API, cuArrayGetMemoryRequirements, cuMemMapArrayAsync.
 */
#include "client.h"

#define SIDE ((size_t)2048)

static CUmemGenericAllocationHandle make_pool(const struct client *c, size_t *bytes)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};
    CUmemGenericAllocationHandle handle;
    size_t grain;

    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    CHECK_CU(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    *bytes = (*bytes + grain - 1) / grain * grain;
    CHECK_CU(cuMemCreate(&handle, *bytes, &prop, 0));
    return handle;
}

static void check_use(CUarray array)
{
    static uint8_t row[SIDE * 4], found[SIDE * 4];

    memset(row, 0x5a, sizeof row);
    CHECK_CU(cuMemcpyHtoA(array, 0, row, sizeof row));
    CHECK_CU(cuMemcpyAtoH(found, array, 0, sizeof found));
    CHECK(!memcmp(row, found, sizeof row), "what was written is not there");
}

int main(void)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = SIDE,
                                    .Height = SIDE,
                                    .NumChannels = 1,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING};
    CUDA_ARRAY_MEMORY_REQUIREMENTS wanted;
    CUmemGenericAllocationHandle pool;
    CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                           .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC};
    CUarray array, plain;
    size_t before, bytes;
    struct client c;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED))
        client_skip("no deferred mapping here");
    before = client_free_bytes();
    CHECK_CU(cuArray3DCreate(&array, &form));
    CHECK(before - client_free_bytes() < SIDE * SIDE, "the array took memory");
    CHECK_CU(cuArrayGetMemoryRequirements(&wanted, array, c.device));
    CHECK(wanted.size >= SIDE * SIDE * 4 && wanted.alignment, "it wants %zu bytes", wanted.size);
    bytes = wanted.size;
    pool = make_pool(&c, &bytes);
    info.resource.array = array;
    info.memHandle.memHandle = pool;
    info.deviceBitMask = 1u << c.device;
    CHECK_CU(cuMemMapArrayAsync(&info, 1, NULL));
    CHECK_CU(cuMemRelease(pool));
    check_use(array);
    CHECK(before - client_free_bytes() >= bytes, "the mapped memory is free");
    CHECK_CU(cuArrayDestroy(array));
    CHECK(before - client_free_bytes() < bytes, "the memory outlives the array");
    form.Flags = 0;
    CHECK_CU(cuArray3DCreate(&plain, &form));
    EXPECT_CU(cuArrayGetMemoryRequirements(&wanted, plain, c.device), CUDA_ERROR_INVALID_VALUE);
    client_pass("%zu MiB behind an array from its mapping to its end", bytes >> 20);
}
