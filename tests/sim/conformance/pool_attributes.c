/* Rule: a pool reports what it reserves and what is in use, now and at most since the mark was
 * reset (to zero, nothing else); a synchronisation gives back what lies above the release
 * threshold; a pool with a largest size grows no further; its own device keeps its access. Source:
 * CUDA Driver API, cuMemPoolSetAttribute, cuMemPoolGetAttribute, cuMemPoolTrimTo,
 * cuMemPoolSetAccess, CUmemPoolProps.
 */
#include "client.h"

#define MIB ((size_t)1 << 20)

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name)
{
    cuuint64_t value = 0;

    CHECK_CU(cuMemPoolGetAttribute(pool, name, &value));
    return value;
}

static CUresult set(CUmemoryPool pool, CUmemPool_attribute name, cuuint64_t value)
{
    return cuMemPoolSetAttribute(pool, name, &value);
}

static CUmemoryPool make_pool(const struct client *c, size_t most)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
                            .maxSize = most};
    CUmemoryPool pool;

    CHECK_CU(cuMemPoolCreate(&pool, &props));
    return pool;
}

static void check_marks(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr first, second;

    CHECK_CU(cuMemAllocFromPoolAsync(&first, 40 * MIB, pool, stream));
    CHECK_CU(cuMemAllocFromPoolAsync(&second, 80 * MIB, pool, stream));
    CHECK_CU(cuMemFreeAsync(second, stream));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 120 * MIB, "the mark is %llu",
          (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) < 80 * MIB, "freed memory is in use");
    EXPECT_CU(set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 5), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(set(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
    CHECK_CU(set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) < 80 * MIB, "the mark was not reset");
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >=
              attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
          "less reserved than used");
    CHECK_CU(cuMemFreeAsync(first, stream));
    CHECK_CU(cuStreamSynchronize(stream));
}

static void check_threshold(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr memory[4];
    uint64_t kept;

    for (unsigned i = 0; i < 4; i++)
        CHECK_CU(cuMemAllocFromPoolAsync(&memory[i], 64 * MIB, pool, stream));
    CHECK_CU(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 128 * MIB));
    for (unsigned i = 0; i < 4; i++)
        CHECK_CU(cuMemFreeAsync(memory[i], stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuCtxSynchronize());
    kept = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    CHECK(kept <= 256 * MIB, "%llu MiB reserved", (unsigned long long)(kept / MIB));
    CHECK_CU(cuMemPoolTrimTo(pool, 64 * MIB));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 64 * MIB || kept < 64 * MIB,
          "a trim went below what it should keep");
    CHECK_CU(cuMemPoolTrimTo(pool, 0));
    CHECK(!attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "a trim left something");
}

static void check_most(const struct client *c, CUstream stream)
{
    CUmemoryPool pool = make_pool(c, 64 * MIB);
    CUdeviceptr memory, more;

    CHECK_CU(cuMemAllocFromPoolAsync(&memory, 48 * MIB, pool, stream));
    EXPECT_CU(cuMemAllocFromPoolAsync(&more, 48 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 64 * MIB, "it grew to %llu MiB",
          (unsigned long long)attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) / MIB);
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuMemAllocFromPoolAsync(&more, 48 * MIB, pool, stream));
    CHECK_CU(cuMemFreeAsync(more, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemPoolDestroy(pool));
}

static void check_access(const struct client *c, CUmemoryPool pool)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemAccess_flags flags;

    CHECK_CU(cuMemPoolGetAccess(&flags, pool, &desc.location));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the pool's device has access %d",
          (int)flags);
    EXPECT_CU(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_VALUE);
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_CU(cuMemPoolSetAccess(pool, &desc, 1));
}

int main(void)
{
    struct client c;
    CUmemoryPool pool;
    CUstream stream;
    int on = 0;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        client_skip("no memory pools here");
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    pool = make_pool(&c, 0);
    CHECK_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
    CHECK(on == 1, "reuse is %d by default", on);
    CHECK(!attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), "the default threshold is not 0");
    check_marks(pool, stream);
    check_threshold(pool, stream);
    check_access(&c, pool);
    CHECK_CU(cuMemPoolDestroy(pool));
    check_most(&c, stream);
    client_pass("marks, threshold, largest size and access of pools");
}
