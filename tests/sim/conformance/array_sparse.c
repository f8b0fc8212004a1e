/* Rule: a sparse array takes no memory; tiles are mapped into it from a tile pool of cuMemCreate,
 * whose memory lives until its handle is released and its last tile is unmapped or its array gone.
 * Source: CUDA Driver API, cuMemMapArrayAsync, cuArrayGetSparseProperties,
 * cuMipmappedArrayGetSparseProperties.
 */
#include "client.h"

#define SIDE 4096u
#define POOL ((size_t)32 << 20)

static CUmemGenericAllocationHandle make_pool(const struct client *c, unsigned short usage)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};
    CUmemGenericAllocationHandle handle;

    prop.allocFlags.usage = usage;
    CHECK_CU(cuMemCreate(&handle, POOL, &prop, 0));
    return handle;
}

static CUarrayMapInfo map_info(const struct client *c, CUarray array,
                               CUmemGenericAllocationHandle pool, unsigned width, unsigned height)
{
    CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .deviceBitMask = 1u << c->device};

    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel.extentWidth = width;
    info.subresource.sparseLevel.extentHeight = height;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = pool ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.memHandle.memHandle = pool;
    return info;
}

static void check_tiles(const struct client *c, CUarray array, unsigned width, unsigned height)
{
    size_t before = client_free_bytes();
    CUmemGenericAllocationHandle pool = make_pool(c, CU_MEM_CREATE_USAGE_TILE_POOL);
    CUmemGenericAllocationHandle plain = make_pool(c, 0);
    CUarrayMapInfo info = map_info(c, array, pool, 2 * width, 3 * height), wrong;

    CHECK_CU(cuMemMapArrayAsync(&info, 1, NULL));
    wrong = info;
    wrong.subresource.sparseLevel.offsetX = width / 2;
    EXPECT_CU(cuMemMapArrayAsync(&wrong, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    wrong = map_info(c, array, plain, width, height);
    EXPECT_CU(cuMemMapArrayAsync(&wrong, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    wrong = map_info(c, array, pool, SIDE, SIDE);
    EXPECT_CU(cuMemMapArrayAsync(&wrong, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemRelease(plain));
    CHECK_CU(cuMemRelease(pool));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK(before - client_free_bytes() >= POOL, "the pool is gone although tiles of it are mapped");
    info = map_info(c, array, 0, width, height);
    CHECK_CU(cuMemMapArrayAsync(&info, 1, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK(before - client_free_bytes() >= POOL, "the pool is gone with the first of six tiles");
    info = map_info(c, array, 0, 2 * width, 3 * height);
    CHECK_CU(cuMemMapArrayAsync(&info, 1, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK(before - client_free_bytes() < POOL,
          "the pool stays without a handle and without a tile");
}

static void check_tail(const struct client *c)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = SIDE,
                                    .Height = SIDE,
                                    .NumChannels = 1,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .Flags = CUDA_ARRAY3D_SPARSE};
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUmemGenericAllocationHandle pool;
    CUmipmappedArray mipmap;
    CUarrayMapInfo info;
    size_t before;

    CHECK_CU(cuMipmappedArrayCreate(&mipmap, &form, 13));
    CHECK_CU(cuMipmappedArrayGetSparseProperties(&sparse, mipmap));
    CHECK(sparse.miptailFirstLevel > 0 && sparse.miptailFirstLevel < 13 && sparse.miptailSize,
          "the tail begins at level %u and has %llu bytes", sparse.miptailFirstLevel,
          sparse.miptailSize);
    before = client_free_bytes();
    pool = make_pool(c, CU_MEM_CREATE_USAGE_TILE_POOL);
    info = map_info(c, NULL, pool, 0, 0);
    info.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    info.resource.mipmap = mipmap;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
    memset(&info.subresource, 0, sizeof info.subresource);
    info.subresource.miptail.size = sparse.miptailSize;
    CHECK_CU(cuMemMapArrayAsync(&info, 1, NULL));
    CHECK_CU(cuMemRelease(pool));
    CHECK(before - client_free_bytes() >= POOL, "the pool is gone although the tail is mapped");
    CHECK_CU(cuMipmappedArrayDestroy(mipmap));
    CHECK(before - client_free_bytes() < POOL, "the pool outlives the array");
}

int main(void)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {.Width = SIDE,
                                    .Height = SIDE,
                                    .NumChannels = 1,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .Flags = CUDA_ARRAY3D_SPARSE};
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUarray array, plain;
    struct client c;
    size_t before;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED))
        client_skip("no sparse arrays here");
    before = client_free_bytes();
    CHECK_CU(cuArray3DCreate(&array, &form));
    CHECK(before - client_free_bytes() < SIDE * SIDE, "a sparse array took %zu bytes",
          before - client_free_bytes());
    CHECK_CU(cuArrayGetSparseProperties(&sparse, array));
    CHECK(sparse.tileExtent.width && sparse.tileExtent.height && sparse.tileExtent.depth == 1 &&
              !sparse.miptailFirstLevel,
          "a tile is %u x %u x %u", sparse.tileExtent.width, sparse.tileExtent.height,
          sparse.tileExtent.depth);
    check_tiles(&c, array, sparse.tileExtent.width, sparse.tileExtent.height);
    CHECK_CU(cuArrayDestroy(array));
    check_tail(&c);
    form.Flags = 0;
    CHECK_CU(cuArray3DCreate(&plain, &form));
    EXPECT_CU(cuArrayGetSparseProperties(&sparse, plain), CUDA_ERROR_INVALID_VALUE);
    client_pass("tiles and tails kept their pools alive, and no longer");
}
