/* Rule: stream-ordered allocations come from a pool that grows: RESERVED is what the pool holds,
 * USED what is handed out; freed memory is used again, also by way of another stream behind an
 * event, and goes back to the device on a trim.
 * Source: CUDA Programming Guide, "Stream Ordered Memory Allocator"; cuMemPoolGetAttribute,
 * cuMemPoolTrimTo, cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync.
 */
#include "client.h"

#define BYTES ((size_t)32 << 20)

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name)
{
    cuuint64_t value = 0;

    CHECK_CU(cuMemPoolGetAttribute(pool, name, &value));
    return value;
}

static CUmemoryPool make_pool(const struct client *c)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;

    CHECK_CU(cuMemPoolCreate(&pool, &props));
    CHECK_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    return pool;
}

static void check_figures(CUmemoryPool pool, CUstream a, CUstream b)
{
    CUdeviceptr first, second;
    CUevent freed;
    uint64_t reserved;

    CHECK(!attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "a new pool is in use");
    CHECK_CU(cuMemAllocFromPoolAsync(&first, BYTES, pool, a));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= BYTES, "in use: too little");
    reserved = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CHECK(reserved >= BYTES, "reserved %llu", (unsigned long long)reserved);
    CHECK_CU(cuMemsetD8Async(first, 1, BYTES, a));
    CHECK_CU(cuMemFreeAsync(first, a));
    freed = client_mark(a);
    CHECK_CU(cuStreamWaitEvent(b, freed, 0));
    CHECK_CU(cuMemAllocFromPoolAsync(&second, BYTES, pool, b));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved,
          "the pool grew although freed memory was in front of the event");
    CHECK_CU(cuMemFreeAsync(second, b));
    CHECK_CU(cuStreamSynchronize(b));
    CHECK(!attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "in use after the last free");
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= BYTES, "the high mark is too low");
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == reserved, "the pool shrank");
    CHECK_CU(cuMemPoolTrimTo(pool, 0));
    CHECK(!attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "the trim left something");
}

/* Memory freed in stream order stays usable for the work in front of the free. */
static void check_order(const struct client *c, CUmemoryPool pool, CUstream a, CUstream b)
{
    struct flag flag = client_flag();
    CUdeviceptr memory, ignored;
    uint32_t *seen = client_pinned(sizeof *seen, &ignored);

    CHECK_CU(cuMemAllocFromPoolAsync(&memory, sizeof *seen, pool, a));
    CHECK_CU(cuStreamWaitEvent(b, client_mark(a), 0));
    client_wait(c, b, flag.device, 1);
    client_set(c, b, memory, 77);
    CHECK_CU(cuMemcpyDtoHAsync(seen, memory, sizeof *seen, b));
    CHECK_CU(cuMemFreeAsync(memory, b));
    client_raise(&flag, 1);
    CHECK_CU(cuStreamSynchronize(b));
    CHECK(*seen == 77, "the word is %u", *seen);
}

int main(void)
{
    struct client c;
    CUmemoryPool pool, standard;
    CUstream a, b;
    CUdeviceptr memory;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        client_skip("no memory pools here");
    a = client_stream(CU_STREAM_NON_BLOCKING);
    b = client_stream(CU_STREAM_NON_BLOCKING);
    pool = make_pool(&c);
    check_figures(pool, a, b);
    check_order(&c, pool, a, b);
    CHECK_CU(cuMemPoolDestroy(pool));
    CHECK_CU(cuDeviceGetDefaultMemPool(&standard, c.device));
    CHECK_CU(cuMemAllocAsync(&memory, BYTES, a));
    CHECK(attribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= BYTES,
          "the default pool does not serve cuMemAllocAsync");
    CHECK_CU(cuMemFree(memory));
    client_pass("reserved and used followed the allocations, in the streams' order");
}
