/*
 * memory_client: takes and gives back device memory in every way there is, and after each step asks
 * whether the program's own figure (cuMemGetInfo under a cap that is its total) is what the device
 * has handed out to it. Each step is named in a failure. Needs the simulated device and a cap.
 *
 *   memory_client FAMILY...      each of: linear pitch managed array tiles pool pools captured
 * graph physical segments multicast memory_client random SEED N  N random steps over all families
 * near the cap; refusals are CUDA_ERROR_OUT_OF_MEMORY and nothing else
 */
#define __CUDA_API_VERSION_INTERNAL
#include "client.h"

#define MIB ((size_t)1 << 20)

static struct client client;
static size_t total;

/* The program's figure against the device's. */
static void agree(const char *step)
{
    size_t left, all;
    CHECK_CU(cuMemGetInfo_v2(&left, &all));
    unsigned long long memory = client_handed_out(client.device).memory;
    CHECK(all == total && all - left == memory,
          "%s: the program sees %zu in use, the device gave %llu", step, all - left, memory);
}

#define STEP(call) \
    do { \
        CHECK_CU(call); \
        agree(#call); \
    } while (0)

/* ---- pointers -------------------------------------------------------------------------------- */

static void do_linear(void)
{
    static const size_t sizes[] = {1,    255,   256,         511,     512,         513,
                                   4096, 65537, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 12345};
    CUdeviceptr kept[sizeof sizes / sizeof *sizes];
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        STEP(cuMemAlloc_v2(&kept[i], sizes[i]));
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i += 2)
        STEP(cuMemFree_v2(kept[i]));
    for (unsigned i = 1; i < sizeof sizes / sizeof *sizes; i += 2)
        STEP(cuMemFreeAsync(kept[i], stream));
    CHECK(cuMemFree_v2(kept[0]) != CUDA_SUCCESS, "a second free went well");
    agree("a second free");
    CHECK_CU(cuMemAlloc_v2(&kept[0], 4 * MIB));
    CHECK(cuMemFree_v2(kept[0] + 512) != CUDA_SUCCESS, "freed from within");
    agree("a free from within");
    STEP(cuMemFree_v2(kept[0]));
    STEP(cuMemFree_v2(0));
}

static void do_pitch(void)
{
    CUdeviceptr pointer[4];
    size_t pitch;
    STEP(cuMemAllocPitch_v2(&pointer[0], &pitch, 1, 1, 4));
    STEP(cuMemAllocPitch_v2(&pointer[1], &pitch, 513, 100, 16));
    STEP(cuMemAllocPitch_v2(&pointer[2], &pitch, 4096, 3000, 8));
    for (unsigned i = 0; i < 3; i++)
        STEP(cuMemFree_v2(pointer[i]));
}

static void do_managed(void)
{
    CUdeviceptr pointer;
    unsigned managed = 0;
    STEP(cuMemAllocManaged(&pointer, 3 * MIB + 1, CU_MEM_ATTACH_GLOBAL));
    CHECK_CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    CHECK(managed, "managed memory is not managed");
    *(volatile char *)(uintptr_t)pointer = 1;
    STEP(cuMemFree_v2(pointer));
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void one_array(CUarray_format format, unsigned channels, size_t width, size_t height,
                      size_t depth, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {width, height, depth, format, channels, flags};
    CUarray array;
    CUresult rc = cuArray3DCreate_v2(&array, &form);
    CHECK(rc == CUDA_SUCCESS, "format 0x%x x %u, %zu x %zu x %zu, flags %u: %s", format, channels,
          width, height, depth, flags, client_error_name(rc));
    agree("cuArray3DCreate_v2");
    STEP(cuArrayDestroy(array));
}

static void one_mipmap(CUarray_format format, unsigned channels, size_t width, size_t height,
                       size_t depth, unsigned flags, unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {width, height, depth, format, channels, flags};
    CUmipmappedArray array;
    STEP(cuMipmappedArrayCreate(&array, &form, levels));
    CUarray level;
    STEP(cuMipmappedArrayGetLevel(&level, array, levels - 1));
    STEP(cuMipmappedArrayDestroy(array));
}

static void do_array(void)
{
    static const CUarray_format plain[] = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_UNSIGNED_INT16,
                                           CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT8,
                                           CU_AD_FORMAT_SIGNED_INT16,   CU_AD_FORMAT_SIGNED_INT32,
                                           CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
    CUDA_ARRAY_DESCRIPTOR flat = {1000, 77, CU_AD_FORMAT_HALF, 2};
    CUarray array;
    STEP(cuArrayCreate_v2(&array, &flat));
    STEP(cuArrayDestroy(array));
    for (unsigned i = 0; i < sizeof plain / sizeof *plain; i++)
        for (unsigned channels = 1; channels <= 4; channels *= 2) {
            one_array(plain[i], channels, 1003, 0, 0, 0);
            one_array(plain[i], channels, 333, 97, 0, CUDA_ARRAY3D_SURFACE_LDST);
            one_array(plain[i], channels, 65, 33, 17, 0);
            one_array(plain[i], channels, 65, 33, 5, CUDA_ARRAY3D_LAYERED);
            one_array(plain[i], channels, 64, 64, 6, CUDA_ARRAY3D_CUBEMAP);
            one_array(plain[i], channels, 64, 64, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED);
            one_mipmap(plain[i], channels, 513, 511, 0, 0, 5);
            one_mipmap(plain[i], channels, 64, 32, 16, 0, 7);
            one_mipmap(plain[i], channels, 128, 128, 3, CUDA_ARRAY3D_LAYERED, 8);
        }
    for (unsigned f = CU_AD_FORMAT_BC1_UNORM; f <= CU_AD_FORMAT_BC7_UNORM_SRGB; f++) {
        unsigned channels = f >= CU_AD_FORMAT_BC4_UNORM && f <= CU_AD_FORMAT_BC4_SNORM   ? 1
                            : f >= CU_AD_FORMAT_BC5_UNORM && f <= CU_AD_FORMAT_BC5_SNORM ? 2
                            : f >= CU_AD_FORMAT_BC6H_UF16 && f <= CU_AD_FORMAT_BC6H_SF16 ? 3
                                                                                         : 4;
        one_array((CUarray_format)f, channels, 256, 128, 0, 0);
        one_array((CUarray_format)f, channels, 37, 41, 3, CUDA_ARRAY3D_LAYERED);
        one_mipmap((CUarray_format)f, channels, 64, 64, 0, 0, 3);
    }
    one_array(CU_AD_FORMAT_NV12, 3, 640, 480, 0, 0);
    one_array(CU_AD_FORMAT_UNORM_INT8X4, 4, 640, 480, 0, 0);
    one_array(CU_AD_FORMAT_UNORM_INT16X1, 1, 640, 480, 0, 0);
}

static CUmemGenericAllocationHandle physical(size_t bytes, unsigned char usage)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device},
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .allocFlags.usage = usage};
    CUmemGenericAllocationHandle handle;
    STEP(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static void tile(CUarray array, size_t edge, CUmemOperationType operation,
                 CUmemGenericAllocationHandle handle, CUstream stream)
{
    CUarrayMapInfo map = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                          .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
                          .memOperationType = operation,
                          .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
                          .deviceBitMask = 1u << client.device};
    map.resource.array = array;
    map.memHandle.memHandle = handle;
    map.subresource.sparseLevel.extentWidth = (unsigned)edge;
    map.subresource.sparseLevel.extentHeight = (unsigned)edge;
    map.subresource.sparseLevel.extentDepth = 1;
    STEP(cuMemMapArrayAsync(&map, 1, stream));
}

/* Memory of a sparse array is what is mapped to it, and lives as long as that. */
static void do_tiles(void)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {
        1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_SPARSE};
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUarray array;
    STEP(cuArray3DCreate_v2(&array, &form));
    CHECK_CU(cuArrayGetSparseProperties(&sparse, array));
    CUmemGenericAllocationHandle first = physical(2 * MIB, CU_MEM_CREATE_USAGE_TILE_POOL);
    tile(array, sparse.tileExtent.width, CU_MEM_OPERATION_TYPE_MAP, first, stream);
    CHECK_CU(cuStreamSynchronize(stream));
    STEP(cuMemRelease(first)); /* the tile keeps it */
    CHECK(client_handed_out(client.device).memory == 2 * MIB, "the tile did not keep its memory");
    STEP(cuArrayDestroy(array));
    CHECK(client_handed_out(client.device).memory == 0, "memory is left of an array");
}

/* ---- stream-ordered -------------------------------------------------------------------------- */

static void do_pool(void)
{
    CUstream a = client_stream(CU_STREAM_NON_BLOCKING), b = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer[8];
    for (unsigned i = 0; i < 8; i++)
        STEP(cuMemAllocAsync(&pointer[i], (i + 1) * 3 * MIB + 5, i % 2 ? a : NULL));
    for (unsigned i = 0; i < 4; i++)
        STEP(cuMemFreeAsync(pointer[i], b));
    STEP(cuStreamSynchronize(b));
    STEP(cuMemFree_v2(pointer[4]));
    STEP(cuMemAllocAsync(&pointer[0], MIB, b)); /* from what is free in the pool */
    STEP(cuMemFreeAsync(pointer[0], a));
    for (unsigned i = 5; i < 8; i++)
        STEP(cuMemFreeAsync(pointer[i], a));
    STEP(cuCtxSynchronize());
    CHECK(client_handed_out(client.device).memory == 0, "the pool kept memory without a threshold");
}

static CUmemoryPool pool_made(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
    CUmemoryPool pool;
    STEP(cuMemPoolCreate(&pool, &props));
    return pool;
}

static void do_pools(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool = pool_made(), standard;
    cuuint64_t keep = UINT64_MAX;
    CUdeviceptr pointer[6];
    STEP(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    for (unsigned i = 0; i < 6; i++)
        STEP(cuMemAllocFromPoolAsync(&pointer[i], 20 * MIB, pool, stream));
    for (unsigned i = 0; i < 6; i++)
        STEP(cuMemFreeAsync(pointer[i], stream));
    STEP(cuStreamSynchronize(stream));
    CHECK(client_handed_out(client.device).memory >= 120 * MIB,
          "the pool gave back in spite of its threshold");
    STEP(cuMemPoolTrimTo(pool, 64 * MIB));
    keep = 32 * MIB;
    STEP(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    STEP(cuStreamSynchronize(stream));
    STEP(cuMemPoolTrimTo(pool, 0));
    CHECK_CU(cuDeviceGetDefaultMemPool(&standard, client.device));
    STEP(cuDeviceSetMemPool(client.device, pool));
    STEP(cuMemAllocAsync(&pointer[0], 7 * MIB, stream));
    STEP(cuDeviceSetMemPool(client.device, standard));
    STEP(cuMemAllocAsync(&pointer[1], 7 * MIB, stream));
    STEP(cuMemPoolDestroy(pool)); /* with an allocation alive */
    STEP(cuMemFreeAsync(pointer[0], stream));
    STEP(cuMemFreeAsync(pointer[1], stream));
    CHECK_CU(cuCtxSynchronize());
    agree("the end of a pool that was destroyed before its last allocation");
    CHECK(client_handed_out(client.device).memory == 0, "memory is left of the pools");
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void do_captured(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer;
    CUgraph graph;
    CUgraphExec exec;
    STEP(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(cuMemAllocAsync(&pointer, 6 * MIB, stream));
    client_fill(&client, stream, pointer, 1, 1024);
    CHECK_CU(cuMemFreeAsync(pointer, stream));
    STEP(cuStreamEndCapture(stream, &graph));
    STEP(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned i = 0; i < 3; i++)
        STEP(cuGraphLaunch(exec, stream));
    STEP(cuStreamSynchronize(stream));
    CHECK(client_handed_out(client.device).memory >= 6 * MIB, "a graph's memory is not kept");
    STEP(cuDeviceGraphMemTrim(client.device));
    STEP(cuGraphLaunch(exec, stream));
    STEP(cuStreamSynchronize(stream));
    STEP(cuGraphExecDestroy(exec));
    STEP(cuGraphDestroy(graph));
    STEP(cuDeviceGraphMemTrim(client.device));
    CHECK(client_handed_out(client.device).memory == 0, "memory is left of a graph");
}

static void do_graph(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}},
        .bytesize = 10 * MIB};
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CHECK_CU(cuGraphCreate(&graph, 0));
    STEP(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    STEP(cuGraphInstantiateWithFlags(&exec, graph, 0));
    STEP(cuGraphUpload(exec, stream));
    STEP(cuGraphLaunch(exec, stream));
    STEP(cuStreamSynchronize(stream));
    STEP(cuMemFree_v2(params.dptr)); /* what the graph did not free itself */
    STEP(cuGraphExecDestroy(exec));
    STEP(cuGraphDestroy(graph));
    STEP(cuDeviceGraphMemTrim(client.device));
    CHECK(client_handed_out(client.device).memory == 0, "memory is left of a graph");
}

/* ---- physical memory ------------------------------------------------------------------------- */

static void open_to_device(CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, client.device},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    STEP(cuMemSetAccess(address, bytes, &access, 1));
}

static void do_physical(void)
{
    CUmemGenericAllocationHandle handle = physical(4 * MIB, 0), again, imported;
    CUmemAllocationProp host = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    CUdeviceptr range;
    int fd;
    STEP(cuMemAddressReserve(&range, 64 * MIB, 0, 0, 0));
    STEP(cuMemMap(range, 4 * MIB, 0, handle, 0));
    STEP(cuMemMap(range + 8 * MIB, 4 * MIB, 0, handle, 0)); /* the same memory twice */
    open_to_device(range, 4 * MIB);
    STEP(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + MIB)));
    STEP(cuMemRelease(handle));
    STEP(cuMemUnmap(range, 4 * MIB));
    STEP(cuMemRelease(again));
    CHECK(client_handed_out(client.device).memory == 4 * MIB, "a mapping did not keep its memory");
    STEP(cuMemUnmap(range + 8 * MIB, 4 * MIB));
    CHECK(client_handed_out(client.device).memory == 0, "memory without a handle or a mapping");
    handle = physical(2 * MIB, 0);
    STEP(cuMemMap(range, 2 * MIB, 0, handle, 0));
    again = physical(6 * MIB, 0);
    STEP(cuMemMap(range + 2 * MIB, 6 * MIB, 0, again, 0));
    STEP(cuMemRelease(handle));
    STEP(cuMemRelease(again));
    STEP(cuMemUnmap(range, 8 * MIB)); /* both at once */
    handle = physical(2 * MIB, 0);
    STEP(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    STEP(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    STEP(cuMemRelease(imported));
    close(fd);
    STEP(cuMemRelease(handle));
    CUresult rc = cuMemCreate(&handle, 2 * MIB, &host, 0);
    agree("cuMemCreate on the host");
    if (rc == CUDA_SUCCESS)
        STEP(cuMemRelease(handle));
    STEP(cuMemAddressFree(range, 64 * MIB));
}

/* As PyTorch's expandable segments: a range that grows and shrinks in pieces, holes included. */
static void do_segments(void)
{
    enum { PIECES = 12 };
    CUmemGenericAllocationHandle piece[PIECES];
    const size_t bytes = 20 * MIB;
    CUdeviceptr range;
    STEP(cuMemAddressReserve(&range, 1024 * MIB, 0, 0, 0));
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < PIECES; i++) {
            piece[i] = physical(bytes, 0);
            STEP(cuMemMap(range + i * bytes, bytes, 0, piece[i], 0));
            open_to_device(range + i * bytes, bytes);
        }
        for (unsigned i = 0; i < PIECES; i++) {
            unsigned j = (i * 5 + round) % PIECES;
            STEP(cuMemUnmap(range + j * bytes, bytes));
            STEP(cuMemRelease(piece[j]));
        }
    }
    STEP(cuMemAddressFree(range, 1024 * MIB));
}

/* A binding keeps the memory; the object itself has none. */
static void do_multicast(void)
{
    CUmulticastObjectProp prop = {.numDevices = 1, .size = 2 * MIB};
    CUmemGenericAllocationHandle object, handle = physical(2 * MIB, 0);
    CUresult rc = cuMulticastCreate(&object, &prop);
    if (rc == CUDA_ERROR_NOT_SUPPORTED) {
        CHECK_CU(cuMemRelease(handle));
        return;
    }
    CHECK_CU(rc);
    agree("cuMulticastCreate");
    STEP(cuMulticastAddDevice(object, client.device));
    STEP(cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0));
    STEP(cuMemRelease(handle));
    CHECK(client_handed_out(client.device).memory == 2 * MIB, "a binding did not keep its memory");
    STEP(cuMulticastUnbind(object, client.device, 0, 2 * MIB));
    CHECK(client_handed_out(client.device).memory == 0, "unbound memory is still there");
    handle = physical(2 * MIB, 0);
    STEP(cuMulticastBindMem(object, 0, handle, 0, 2 * MIB, 0));
    STEP(cuMemRelease(handle));
    STEP(cuMemRelease(object));
    CHECK(client_handed_out(client.device).memory == 0, "memory is left of a multicast object");
}

/* ---- at random ------------------------------------------------------------------------------- */

enum { KINDS = 5, HELD = 64 };

struct held {
    int kind; /* 0 = none */
    uint64_t key;
};

static CUstream streams[3];

static CUresult take(struct held *held, int kind, size_t bytes, CUstream stream)
{
    CUDA_ARRAY_DESCRIPTOR flat = {1024, bytes / 4096 + 1, CU_AD_FORMAT_FLOAT, 1};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr pointer = 0;
    CUarray array = NULL;
    CUresult rc = kind == 1   ? cuMemAlloc_v2(&pointer, bytes)
                  : kind == 2 ? cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL)
                  : kind == 3 ? cuArrayCreate_v2(&array, &flat)
                  : kind == 4 ? cuMemCreate(&handle, (bytes + 2 * MIB - 1) & -(2 * MIB), &prop, 0)
                              : cuMemAllocAsync(&pointer, bytes, stream);
    held->key = pointer ? pointer : handle ? handle : (uintptr_t)array;
    held->kind = rc == CUDA_SUCCESS ? kind : 0;
    return rc;
}

static CUresult put(struct held *held, CUstream stream)
{
    int kind = held->kind;
    held->kind = 0;
    return kind == 3   ? cuArrayDestroy((CUarray)(uintptr_t)held->key)
           : kind == 4 ? cuMemRelease(held->key)
           : kind == 5 ? cuMemFreeAsync(held->key, stream)
                       : cuMemFree_v2(held->key);
}

static void do_random(unsigned seed, unsigned steps)
{
    static struct held held[HELD];
    unsigned refused = 0;
    srand(seed);
    for (unsigned i = 0; i < 3; i++)
        streams[i] = client_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < steps; i++) {
        struct held *one = &held[rand() % HELD];
        CUstream stream = streams[rand() % 3];
        size_t bytes = (size_t)rand() % (rand() % 4 ? 8 * MIB : 96 * MIB) + 1;
        CUresult rc;
        if (rand() % 16 == 0)
            CHECK_CU(cuStreamSynchronize(stream));
        if (one->kind)
            rc = put(one, stream);
        else
            rc = take(one, rand() % KINDS + 1, bytes, stream);
        CHECK(rc == CUDA_SUCCESS || (rc == CUDA_ERROR_OUT_OF_MEMORY && !one->kind), "step %u: %s",
              i, client_error_name(rc));
        refused += rc == CUDA_ERROR_OUT_OF_MEMORY;
        CHECK(client_handed_out(client.device).memory <= total, "step %u: over the cap", i);
        agree("a random step");
    }
    for (unsigned i = 0; i < HELD; i++)
        if (held[i].kind)
            CHECK_CU(put(&held[i], streams[0]));
    CHECK_CU(cuCtxSynchronize());
    agree("the end");
    CHECK(client_handed_out(client.device).memory == 0, "memory is left");
    CHECK(refused > 0, "nothing was refused in %u steps: the cap was never near", steps);
    client_pass("%u steps, %u refused", steps, refused);
}

static const struct {
    const char *name;
    void (*body)(void);
} families[] = {{"linear", do_linear},     {"pitch", do_pitch},       {"managed", do_managed},
                {"array", do_array},       {"tiles", do_tiles},       {"pool", do_pool},
                {"pools", do_pools},       {"captured", do_captured}, {"graph", do_graph},
                {"physical", do_physical}, {"segments", do_segments}, {"multicast", do_multicast}};

static void run(const char *name)
{
    for (unsigned i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(name, families[i].name)) {
            families[i].body();
            agree(name);
            printf("%s\n", name);
            return;
        }
    client_fail_at(__FILE__, __LINE__, name, "no such family");
}

int main(int argc, char **argv)
{
    size_t left;
    client_open(&client);
    CHECK_CU(cuMemGetInfo_v2(&left, &total));
    agree("the beginning");
    if (argc == 4 && !strcmp(argv[1], "random"))
        do_random((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    for (int i = 1; i < argc; i++)
        run(argv[i]);
    client_pass("%d families", argc - 1);
}
