/* Rule: a pool's memory is taken where its properties say: on the host it takes none of the device,
 * on another device that one's, whatever the stream's device is; pages come with kernels.
 * Source: CUDA Driver API, cuMemPoolCreate, cuMemAllocFromPoolAsync.
 */
#include "client.h"

#define BYTES ((size_t)64 << 20)

static size_t free_bytes_of(CUdevice device)
{
    CUcontext context, popped;
    size_t left;

    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxPushCurrent(context));
    left = client_free_bytes();
    CHECK_CU(cuCtxPopCurrent(&popped));
    return left;
}

static CUresult make_pool(CUmemoryPool *pool, int type, int id)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};

    props.location.type = (CUmemLocationType)type;
    props.location.id = id;
    return cuMemPoolCreate(pool, &props);
}

static bool check_host(const struct client *c, CUstream stream)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t before = client_free_bytes();
    CUmemoryPool pool;
    CUdeviceptr memory;
    uint32_t word = 0;

    if (make_pool(&pool, 3 /* a NUMA node of the host */, 0))
        return false;
    CHECK_CU(cuMemPoolSetAccess(pool, &access, 1));
    CHECK_CU(cuMemAllocFromPoolAsync(&memory, BYTES, pool, stream));
    CHECK(before - client_free_bytes() < BYTES / 2, "host memory is taken from the device");
    client_set(c, stream, memory, 0x4057);
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemcpyDtoH(&word, memory, sizeof word));
    CHECK(word == 0x4057, "the device wrote %#x", word);
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemPoolDestroy(pool));
    EXPECT_CU(make_pool(&pool, 4 /* the present node */, 0), CUDA_ERROR_INVALID_VALUE);
    return true;
}

/* Managed memory of a pool takes nothing before a kernel wants it. */
static bool check_pages(const struct client *c, CUstream stream)
{
    CUmemPoolProps props = {.allocType = (CUmemAllocationType)2 /* managed, from CUDA 13 on */,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};
    size_t before = client_free_bytes();
    CUmemoryPool pool;
    CUdeviceptr memory;

    if (!client_attribute(c, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) ||
        cuMemPoolCreate(&pool, &props))
        return false;
    CHECK_CU(cuMemAllocFromPoolAsync(&memory, BYTES, pool, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(before - client_free_bytes() < BYTES / 2, "pages are taken before a kernel wants them");
    client_fill(c, stream, memory, 1, BYTES / 4);
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(before - client_free_bytes() >= BYTES / 2,
          "pages that a kernel wrote are not on the device");
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemPoolDestroy(pool));
    return true;
}

static bool check_other(CUstream stream)
{
    int devices = 0;
    size_t before, before_other;
    CUmemoryPool pool;
    CUdeviceptr memory;

    CHECK_CU(cuDeviceGetCount(&devices));
    if (devices < 2)
        return false;
    before_other = free_bytes_of(1);
    before = client_free_bytes();
    CHECK_CU(make_pool(&pool, CU_MEM_LOCATION_TYPE_DEVICE, 1));
    CHECK_CU(cuMemAllocFromPoolAsync(&memory, BYTES, pool, stream));
    CHECK(before_other - free_bytes_of(1) >= BYTES, "nothing is taken from the other device");
    CHECK(before - client_free_bytes() < BYTES / 2, "the stream's device gave the memory");
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemPoolDestroy(pool));
    CHECK(free_bytes_of(1) >= before_other, "the other device's memory does not come back");
    return true;
}

int main(void)
{
    struct client c;
    CUstream stream;
    bool host, other, pages;

    client_setting("SIMCUDA_DEVICES", "2");
    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        client_skip("no memory pools here");
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    host = check_host(&c, stream);
    other = check_other(stream);
    pages = check_pages(&c, stream);
    if (!host && !other)
        client_skip("neither pools of the host nor a second device");
    client_pass("memory came from where the pool is%s%s%s", host ? ", the host" : "",
                other ? ", another device" : "", pages ? ", pages" : "");
}
