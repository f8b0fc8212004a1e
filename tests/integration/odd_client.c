/*
 * odd_client: memory in the ways that programs seldom use it, and wrong ones. After each step the
 * program's own figure (cuMemGetInfo under a cap that is its total) has to be what the device has
 * handed out to it. Needs the simulated device and a cap of more than 1 GiB.
 *
 *   odd_client NAME...       each of: reused first places contexts pools reset green unknown
 * doubles capture graphs destroyed odd_client many N        N pools alive at once odd_client live N
 * N allocations alive at once odd_client errors        prints what each call answers to missing and
 * wrong arguments; no cap
 */
#define __CUDA_API_VERSION_INTERNAL
#include "client.h"

#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

static struct client client;
static size_t total;

static size_t used(void)
{
    size_t left, all;
    CHECK_CU(cuMemGetInfo_v2(&left, &all));
    return all - left;
}

static unsigned long long given(void)
{
    return client_handed_out(client.device).memory;
}

static void agree(const char *step)
{
    size_t mine = used();
    unsigned long long device = given();
    CHECK(mine == device, "%s: the program sees %zu in use, the device gave %llu", step, mine,
          device);
}

#define STEP(call) \
    do { \
        CHECK_CU(call); \
        agree(#call); \
    } while (0)

static CUmemoryPool pool_made(uint64_t keep)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
    CUmemoryPool pool;
    STEP(cuMemPoolCreate(&pool, &props));
    if (keep)
        STEP(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    return pool;
}

static CUmemGenericAllocationHandle physical(size_t bytes, unsigned char usage)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device},
                                .allocFlags.usage = usage};
    CUmemGenericAllocationHandle handle;
    STEP(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

/* ---- addresses that were something else before ------------------------------------------------
 */

/* The same addresses are a pool's, then linear memory, then another pool's. */
static void do_reused(void)
{
    enum { PIECES = 24 };
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUmemoryPool other = pool_made(0); /* so that no two numbers are alike */
    CUdeviceptr pointer[PIECES], first;
    bool same = false;
    for (unsigned round = 0; round < 20; round++) {
        CUmemoryPool pool = pool_made(0);
        for (unsigned i = 0; i < PIECES; i++)
            STEP(cuMemAllocFromPoolAsync(&pointer[i], MIB, round % 2 ? pool : other, stream));
        first = pointer[0];
        for (unsigned i = 0; i < PIECES; i++)
            STEP(cuMemFreeAsync(pointer[i], stream));
        STEP(cuStreamSynchronize(stream));
        CHECK(given() == 0, "the pool kept memory");
        STEP(cuMemPoolDestroy(pool));
        client_sleep(5 * MS); /* for the device to have the addresses free again */
        for (unsigned i = 0; i < PIECES; i++)
            STEP(cuMemAlloc_v2(&pointer[i], MIB));
        same = same || (pointer[0] < first && first < pointer[PIECES - 1]);
        for (unsigned i = 0; i < PIECES; i++)
            STEP(cuMemFree_v2(pointer[i]));
        client_sleep(5 * MS);
    }
    STEP(cuMemPoolDestroy(other));
    CHECK(same, "no address was used again: nothing was looked at");
}

/* ---- contexts that end with all they have -----------------------------------------------------
 */

static void tile(CUarray array, CUmemGenericAllocationHandle handle, CUstream stream)
{
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CUarrayMapInfo map = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                          .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
                          .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                          .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
                          .deviceBitMask = 1u << client.device};
    CHECK_CU(cuArrayGetSparseProperties(&sparse, array));
    map.resource.array = array;
    map.memHandle.memHandle = handle;
    map.subresource.sparseLevel.extentWidth = sparse.tileExtent.width;
    map.subresource.sparseLevel.extentHeight = sparse.tileExtent.height;
    map.subresource.sparseLevel.extentDepth = 1;
    STEP(cuMemMapArrayAsync(&map, 1, stream));
}

/* One of everything, in the current context; nothing of it is given back. */
static void one_of_all(CUmemoryPool pool)
{
    CUDA_ARRAY_DESCRIPTOR flat = {1000, 77, CU_AD_FORMAT_HALF, 2};
    CUDA_ARRAY3D_DESCRIPTOR levels = {256, 256, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUDA_ARRAY3D_DESCRIPTOR sparse = {
        1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_SPARSE};
    CUmemGenericAllocationHandle handle;
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUmipmappedArray mipmap;
    CUdeviceptr pointer;
    CUarray array;
    size_t pitch;
    for (size_t bytes = 1; bytes < 9 * MIB; bytes = bytes * 5 + 1)
        STEP(cuMemAlloc_v2(&pointer, bytes));
    STEP(cuMemAllocPitch_v2(&pointer, &pitch, 513, 100, 16));
    STEP(cuMemAllocManaged(&pointer, 3 * MIB, CU_MEM_ATTACH_GLOBAL));
    STEP(cuArrayCreate_v2(&array, &flat));
    STEP(cuMipmappedArrayCreate(&mipmap, &levels, 5));
    STEP(cuMemAllocFromPoolAsync(&pointer, 5 * MIB, pool, stream));
    STEP(cuArray3DCreate_v2(&array, &sparse));
    handle = physical(2 * MIB, CU_MEM_CREATE_USAGE_TILE_POOL);
    tile(array, handle, stream);
    CHECK_CU(cuStreamSynchronize(stream));
    STEP(cuMemRelease(handle)); /* the tile keeps it */
}

/* A second context's, then the first one's; the pool is the device's, not theirs. */
static void do_contexts(void)
{
    CUmemoryPool pool = pool_made(0);
    CUcontext first, second;
    CUdeviceptr range, pointer;
    CHECK_CU(cuCtxCreate_v2(&first, 0, client.device));
    one_of_all(pool);
    CHECK_CU(cuCtxCreate_v2(&second, 0, client.device));
    one_of_all(pool);
    CUmemGenericAllocationHandle handle = physical(2 * MIB, 0);
    STEP(cuMemAddressReserve(&range, 2 * MIB, 0, 0, 0));
    STEP(cuMemMap(range, 2 * MIB, 0, handle, 0));
    STEP(cuMemRelease(handle));
    CHECK_CU(cuCtxDestroy_v2(second));
    agree("the second context's end");
    CHECK_CU(cuCtxSetCurrent(first));
    one_of_all(pool);
    CHECK_CU(cuCtxDestroy_v2(first));
    CHECK_CU(cuCtxSetCurrent(client.context));
    agree("the first context's end");
    STEP(cuMemUnmap(range, 2 * MIB));
    STEP(cuMemAllocFromPoolAsync(&pointer, 5 * MIB, pool, NULL));
    STEP(cuMemFreeAsync(pointer, NULL));
    STEP(cuCtxSynchronize());
    STEP(cuMemPoolTrimTo(pool, 0));
    STEP(cuMemPoolDestroy(pool));
    CHECK(given() == 0, "memory is left");
}

static void do_reset(void)
{
    CUmemoryPool pool = pool_made(UINT64_MAX);
    CUdeviceptr pointer;
    for (unsigned i = 0; i < 3; i++) {
        one_of_all(pool);
        CHECK_CU(cuDevicePrimaryCtxReset_v2(client.device));
        CHECK_CU(cuDevicePrimaryCtxRetain(&client.context, client.device));
        CHECK_CU(cuCtxSetCurrent(client.context));
        agree("a reset");
        STEP(cuMemAllocFromPoolAsync(&pointer, 40 * MIB, pool, NULL));
        STEP(cuMemFreeAsync(pointer, NULL));
        STEP(cuCtxSynchronize());
    }
    STEP(cuMemPoolTrimTo(pool, 0));
}

static void do_green(void)
{
    CUdevResource whole, parts[2];
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    CUcontext context;
    CUmemoryPool pool = pool_made(0);
    CUdeviceptr pointer;
    unsigned count = 2;
    CHECK_CU(cuDeviceGetDevResource(client.device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_CU(cuDevSmResourceSplitByCount(parts, &count, &whole, NULL, 0, 16));
    CHECK_CU(cuDevResourceGenerateDesc(&descriptor, &parts[0], 1));
    CHECK_CU(cuGreenCtxCreate(&green, descriptor, client.device, CU_GREEN_CTX_DEFAULT_STREAM));
    CHECK_CU(cuCtxFromGreenCtx(&context, green));
    CHECK_CU(cuCtxSetCurrent(context));
    one_of_all(pool);
    STEP(cuMemAlloc_v2(&pointer, 7 * MIB));
    CHECK_CU(cuCtxSetCurrent(client.context));
    CHECK_CU(cuGreenCtxDestroy(green));
    agree("a green context's end");
    STEP(cuMemFree_v2(pointer)); /* it was the primary context's */
}

/* ---- pools ------------------------------------------------------------------------------------
 */

/* Pools that are destroyed before what was had from them, given back in several ways. */
static void do_destroyed(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer[4];
    for (unsigned way = 0; way < 4; way++) {
        CUmemoryPool pool = pool_made(way % 2 ? UINT64_MAX : 0);
        for (unsigned i = 0; i < 4; i++)
            STEP(cuMemAllocFromPoolAsync(&pointer[i], (i + 1) * 9 * MIB, pool, stream));
        STEP(cuMemFreeAsync(pointer[0], stream));
        STEP(cuMemPoolDestroy(pool));
        for (unsigned i = 1; i < 4; i++)
            CHECK_CU(way < 2 ? cuMemFreeAsync(pointer[i], stream) : cuMemFree_v2(pointer[i]));
        if (way == 1)
            CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuCtxSynchronize());
        agree("the end of a destroyed pool");
        CHECK(given() == 0, "way %u: memory is left of a destroyed pool", way);
    }
}

struct hammer {
    CUmemoryPool pool;
    _Atomic unsigned stop;
};

/* Takes and gives back in a thread of its own. */
static void *hammer_frees(void *arg)
{
    struct hammer *hammer = arg;
    CUdeviceptr pointer;
    CUstream stream;
    client_adopt(&client);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    while (!hammer->stop) {
        CHECK_CU(cuMemAllocAsync(&pointer, MIB, stream));
        CHECK_CU(cuMemFreeAsync(pointer, stream));
        CHECK_CU(cuStreamSynchronize(stream));
    }
    return NULL;
}

/* Pools end while other threads take, give back and synchronise. */
static void do_pools(void)
{
    static struct hammer hammer;
    pthread_t thread[3];
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer;
    for (unsigned i = 0; i < 3; i++)
        thread[i] = client_thread(hammer_frees, &hammer);
    for (unsigned i = 0; i < 300; i++) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
        CUmemoryPool pool;
        CHECK_CU(cuMemPoolCreate(&pool, &props));
        CHECK_CU(cuMemAllocFromPoolAsync(&pointer, 3 * MIB, pool, stream));
        if (i % 2)
            CHECK_CU(cuMemFreeAsync(pointer, stream));
        CHECK_CU(cuMemPoolDestroy(pool));
        if (i % 2 == 0)
            CHECK_CU(cuMemFreeAsync(pointer, stream));
        if (i % 16 == 0)
            CHECK_CU(cuCtxSynchronize()); /* a destroyed pool counts until then */
    }
    hammer.stop = 1;
    for (unsigned i = 0; i < 3; i++)
        client_thread_join(thread[i]);
    CHECK_CU(cuCtxSynchronize());
    agree("300 pools");
    CHECK(given() == 0, "memory is left of 300 pools");
}

static void *first_alloc(void *arg)
{
    CUdeviceptr pointer;
    client_adopt(&client);
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    pthread_barrier_wait(arg);
    CHECK_CU(cuMemAllocAsync(&pointer, MIB, stream));
    return NULL;
}

/* Many threads at once are the first to use the device's own pool. */
static void do_first(void)
{
    enum { THREADS = 12 };
    pthread_barrier_t barrier;
    pthread_t thread[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++)
        thread[i] = client_thread(first_alloc, &barrier);
    for (unsigned i = 0; i < THREADS; i++)
        client_thread_join(thread[i]);
    agree("the first use of a pool");
    CHECK(given() >= THREADS * MIB, "the threads had no memory");
}

#if CUDA_VERSION >= 13000
/* The host's own pool, got and not made: what it gives is no device memory. */
static void do_places(void)
{
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUmemoryPool pool;
    CUdeviceptr pointer;
    CHECK_CU(cuMemGetDefaultMemPool(&pool, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    STEP(cuMemAllocFromPoolAsync(&pointer, 40 * MIB, pool, NULL));
    CHECK(given() == 0, "the device gave memory of the host");
    STEP(cuMemFreeAsync(pointer, NULL));
    STEP(cuCtxSynchronize());
}
#else
static void do_places(void)
{
    agree("no such pools");
}
#endif

/* More pools than there are records for: what they take is counted all the same. */
static void do_many(unsigned count)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
    CUmemoryPool *pool = calloc(count, sizeof *pool);
    CUdeviceptr *pointer = calloc(count, sizeof *pointer);
    CUresult rc = CUDA_SUCCESS;
    unsigned had = 0;
    CHECK(pool && pointer, "no memory");
    for (unsigned i = 0; i < count; i++)
        CHECK_CU(cuMemPoolCreate(&pool[i], &props));
    for (; had < count; had++) {
        rc = cuMemAllocFromPoolAsync(&pointer[had], 2 * MIB, pool[had], NULL);
        CHECK(used() >= given(), "pool %u: the program sees %zu, the device gave %llu", had, used(),
              given());
        CHECK(given() <= total, "pool %u: over the cap", had);
        if (rc != CUDA_SUCCESS)
            break;
    }
    CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY, "pool %u: %s", had,
          client_error_name(rc));
    printf("%u pools had memory, %zu of %zu in use\n", had, used(), total);
    for (unsigned i = 0; i < had; i++)
        CHECK_CU(cuMemFreeAsync(pointer[i], NULL));
    CHECK_CU(cuCtxSynchronize());
    agree("the frees");
    for (unsigned i = 0; i < count; i++)
        CHECK_CU(cuMemPoolDestroy(pool[i]));
    agree("the end of many pools");
    CHECK(given() == 0, "memory is left of many pools");
    free(pool);
    free(pointer);
}

static void do_live(unsigned count)
{
    CUdeviceptr *pointer = calloc(count, sizeof *pointer);
    CHECK(pointer, "no memory");
    for (unsigned i = 0; i < count; i++)
        CHECK_CU(cuMemAlloc_v2(&pointer[i], 512 + i % 3000));
    agree("all alive");
    for (unsigned i = 0; i < count; i++)
        CHECK_CU(cuMemFree_v2(pointer[(uint64_t)i * 7919 % count])); /* a prime: each once */
    agree("all freed");
    CHECK(given() == 0, "memory is left");
    free(pointer);
}

/* ---- what is wrong ----------------------------------------------------------------------------
 */

static void do_unknown(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer, inside[] = {256, 511, 512, 4096, MIB, 3 * MIB, 5 * MIB - 1};
    STEP(cuMemAlloc_v2(&pointer, 5 * MIB));
    for (unsigned i = 0; i < sizeof inside / sizeof *inside; i++) {
        CHECK(cuMemFree_v2(pointer + inside[i]) != CUDA_SUCCESS, "freed from within");
        CHECK(cuMemFreeAsync(pointer + inside[i], stream) != CUDA_SUCCESS, "freed from within");
        agree("a free from within");
    }
    CHECK(cuMemFreeAsync(0x123456789000, stream) != CUDA_SUCCESS, "freed what is nobody's");
    CHECK(cuMemFreeAsync(pointer + 1024 * MIB, stream) != CUDA_SUCCESS, "freed what is nobody's");
    CHECK(cuIpcCloseMemHandle(pointer) != CUDA_SUCCESS, "closed what is its own");
    agree("frees of what is nobody's");
    CHECK_CU(cuCtxSetCurrent(NULL));
    CUdeviceptr none = 0x1234;
    CHECK(cuMemAlloc_v2(&none, MIB) != CUDA_SUCCESS, "an allocation without a context");
    CHECK(none == 0x1234, "an output was written");
    CHECK_CU(cuCtxSetCurrent(client.context));
    agree("an allocation without a context");
    STEP(cuMemFree_v2(pointer));
}

struct twice {
    CUdeviceptr pointer;
    pthread_barrier_t *barrier;
    CUresult rc;
};

static void *twice_free(void *arg)
{
    struct twice *one = arg;
    client_adopt(&client);
    pthread_barrier_wait(one->barrier);
    one->rc = cuMemFree_v2(one->pointer);
    return NULL;
}

static void do_doubles(void)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    for (unsigned i = 0; i < 200; i++) {
        struct twice one[2];
        pthread_t thread[2];
        CUdeviceptr pointer = client_alloc((i % 7 + 1) * 700000);
        for (unsigned j = 0; j < 2; j++) {
            one[j] = (struct twice){pointer, &barrier, CUDA_SUCCESS};
            thread[j] = client_thread(twice_free, &one[j]);
        }
        for (unsigned j = 0; j < 2; j++)
            client_thread_join(thread[j]);
        CHECK((one[0].rc == CUDA_SUCCESS) != (one[1].rc == CUDA_SUCCESS), "freed %s",
              one[0].rc ? "never" : "twice");
        agree("a double free");
    }
}

static void do_capture(void)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr pointer = 0x1234, kept;
    CUgraph graph;
    STEP(cuMemAlloc_v2(&kept, 3 * MIB));
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult alloc = cuMemAlloc_v2(&pointer, MIB);
    CHECK(alloc != CUDA_SUCCESS && pointer == 0x1234, "an allocation during a capture");
    cuStreamEndCapture(stream, &graph);
    agree("an allocation during a capture");
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemFreeAsync(kept, stream) != CUDA_SUCCESS, "freed by a graph that did not make it");
    cuStreamEndCapture(stream, &graph);
    agree("a captured free of other memory");
    STEP(cuMemFree_v2(kept));
    pid_t pid = fork();
    if (pid == 0)
        _exit(cuMemAlloc_v2(&pointer, MIB) == CUDA_SUCCESS || cuMemFree_v2(kept) == CUDA_SUCCESS);
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "a forked child: %d", status);
    agree("a fork");
}

/* ---- graphs -----------------------------------------------------------------------------------
 */

static CUgraphExec graph_exec(size_t bytes, bool child, CUdeviceptr *pointer)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}},
        .bytesize = bytes};
    CUgraph graph, outer = NULL;
    CUgraphNode node, gone;
    CUgraphExec exec;
    CHECK_CU(cuGraphCreate(&graph, 0));
    STEP(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    *pointer = params.dptr;
    if (child) {
        CHECK_CU(cuGraphAddMemFreeNode(&gone, graph, &node, 1, params.dptr));
        CHECK_CU(cuGraphCreate(&outer, 0));
        if (cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph) != CUDA_SUCCESS) {
            CHECK_CU(cuGraphDestroy(outer)); /* a driver may not take one that allocates */
            outer = NULL;
        }
    }
    STEP(cuGraphInstantiateWithFlags(&exec, outer ? outer : graph, 0));
    STEP(cuGraphDestroy(graph));
    if (outer)
        STEP(cuGraphDestroy(outer));
    return exec;
}

/* Says `ready` and launches at the end of its input. */
static void do_launch(size_t bytes)
{
    CUdeviceptr pointer;
    CUgraphExec exec = graph_exec(bytes, false, &pointer);
    char line[16];
    printf("ready\n");
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin);
    STEP(cuGraphLaunch(exec, NULL));
    CHECK_CU(cuCtxSynchronize());
}

static void do_graphs(void)
{
    enum { MOST = 64 };
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec exec[MOST];
    CUdeviceptr pointer[MOST], linear;
    size_t bytes = total / 16;
    CUresult rc = CUDA_SUCCESS;
    unsigned ran = 0, refused = 0;
    STEP(cuMemAlloc_v2(&linear, total / 4));
    for (unsigned i = 0; i < MOST; i++)
        exec[i] = graph_exec(bytes, false, &pointer[i]);
    for (; ran < MOST; ran++) {
        rc = ran % 3 == 1 ? cuGraphUpload(exec[ran], stream) : CUDA_SUCCESS;
        CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY, "upload: %s",
              client_error_name(rc));
        agree("an upload");
        rc = cuGraphLaunch(exec[ran], stream);
        agree("a graph's launch");
        CHECK(given() <= total, "graph %u: over the cap", ran);
        if (rc != CUDA_SUCCESS)
            break;
    }
    CHECK(rc == CUDA_ERROR_OUT_OF_MEMORY, "graph %u: %s", ran, client_error_name(rc));
    CHECK(ran >= 10, "only %u graphs ran", ran);
    refused = ran;
    STEP(cuMemFree_v2(linear));
    STEP(cuGraphLaunch(exec[refused], stream)); /* there is room for it now */
    for (unsigned i = 0; i <= refused; i++)
        CHECK_CU(cuMemFreeAsync(pointer[i], stream));
    STEP(cuStreamSynchronize(stream));
    STEP(cuDeviceGraphMemTrim(client.device));
    CHECK(given() == 0, "memory is left after a trim");
    STEP(cuGraphLaunch(exec[0], stream));
    for (unsigned i = 0; i < MOST; i++)
        STEP(cuGraphExecDestroy(exec[i]));
    CHECK_CU(cuStreamSynchronize(stream));
    cuMemFree_v2(pointer[0]);
    STEP(cuDeviceGraphMemTrim(client.device));
    for (unsigned i = 0; i < 8; i++) {
        exec[0] = graph_exec(20 * MIB + i, true, &pointer[0]);
        STEP(cuGraphLaunch(exec[0], stream));
        STEP(cuGraphLaunch(exec[0], stream));
        STEP(cuStreamSynchronize(stream));
        STEP(cuGraphExecDestroy(exec[0]));
    }
    STEP(cuDeviceGraphMemTrim(client.device));
    CHECK(given() == 0, "memory is left of child graphs");
}

/* ---- answers ----------------------------------------------------------------------------------
 */

#define ANSWER(call) printf("%s: %s\n", #call, client_error_name(call))

/* Compared with the same program without the library. */
static void do_errors_plain(void)
{
    CUDA_ARRAY_DESCRIPTOR flat = {64, 64, CU_AD_FORMAT_HALF, 2}, wrong = {0};
    CUDA_ARRAY3D_DESCRIPTOR deep = {64, 64, 4, CU_AD_FORMAT_HALF, 2, 0}, deep_wrong = {0};
    CUmipmappedArray mipmap;
    CUdeviceptr pointer;
    CUarray array;
    size_t pitch;
    ANSWER(cuMemAlloc_v2(NULL, 4096));
    ANSWER(cuMemAlloc_v2(&pointer, 0));
    ANSWER(cuMemAlloc_v2(NULL, 0));
    ANSWER(cuMemAllocPitch_v2(NULL, NULL, 64, 64, 4));
    ANSWER(cuMemAllocPitch_v2(&pointer, NULL, 64, 64, 4));
    ANSWER(cuMemAllocPitch_v2(NULL, &pitch, 64, 64, 4));
    ANSWER(cuMemAllocPitch_v2(&pointer, &pitch, 0, 64, 4));
    ANSWER(cuMemAllocPitch_v2(&pointer, &pitch, 64, 0, 4));
    ANSWER(cuMemAllocPitch_v2(&pointer, &pitch, 64, 64, 3));
    ANSWER(cuMemAllocManaged(NULL, 4096, CU_MEM_ATTACH_GLOBAL));
    ANSWER(cuMemAllocManaged(&pointer, 0, CU_MEM_ATTACH_GLOBAL));
    ANSWER(cuMemAllocManaged(&pointer, 4096, 99));
    ANSWER(cuArrayCreate_v2(NULL, &flat));
    ANSWER(cuArrayCreate_v2(&array, NULL));
    ANSWER(cuArrayCreate_v2(&array, &wrong));
    ANSWER(cuArray3DCreate_v2(NULL, &deep));
    ANSWER(cuArray3DCreate_v2(&array, NULL));
    ANSWER(cuArray3DCreate_v2(&array, &deep_wrong));
    ANSWER(cuMipmappedArrayCreate(NULL, &deep, 2));
    ANSWER(cuMipmappedArrayCreate(&mipmap, NULL, 2));
    ANSWER(cuMipmappedArrayCreate(&mipmap, &deep, 0));
    ANSWER(cuMipmappedArrayCreate(&mipmap, &deep, 99));
    ANSWER(cuArrayDestroy(NULL));
    ANSWER(cuMipmappedArrayDestroy(NULL));
}

static void do_errors_pools(void)
{
    CUmemPoolProps nothing = {0};
    CUmemoryPool pool;
    CUdeviceptr pointer;
    ANSWER(cuMemAllocAsync(NULL, 4096, NULL));
    ANSWER(cuMemAllocAsync(&pointer, 0, NULL));
    ANSWER(cuMemAllocFromPoolAsync(NULL, 4096, NULL, NULL));
    ANSWER(cuMemAllocFromPoolAsync(&pointer, 4096, NULL, NULL));
    ANSWER(cuMemFreeAsync(0, NULL));
    ANSWER(cuMemFreeAsync(12345, NULL));
    ANSWER(cuMemFree_v2(0));
    ANSWER(cuMemFree_v2(12345));
    ANSWER(cuMemPoolCreate(NULL, NULL));
    ANSWER(cuMemPoolCreate(&pool, NULL));
    ANSWER(cuMemPoolCreate(&pool, &nothing));
    ANSWER(cuMemPoolDestroy(NULL));
    ANSWER(cuMemPoolTrimTo(NULL, 0));
    ANSWER(cuMemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
    ANSWER(cuDeviceSetMemPool(client.device, NULL));
    ANSWER(cuDeviceGraphMemTrim(99));
    ANSWER(cuGraphUpload(NULL, NULL));
    ANSWER(cuGraphExecDestroy(NULL));
}

static void do_errors_physical(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
    CUmemAllocationProp nowhere = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 77}};
    CUmemGenericAllocationHandle handle;
    CUipcMemHandle ipc = {{0}};
    CUdeviceptr pointer;
    size_t left;
    ANSWER(cuMemCreate(NULL, 2 * MIB, &prop, 0));
    ANSWER(cuMemCreate(&handle, 2 * MIB, NULL, 0));
    ANSWER(cuMemCreate(&handle, 0, &prop, 0));
    ANSWER(cuMemCreate(&handle, 12345, &prop, 0));
    ANSWER(cuMemCreate(&handle, 2 * MIB, &nowhere, 0));
    ANSWER(cuMemCreate(&handle, 2 * MIB, &prop, 1));
    ANSWER(cuMemRelease(0));
    ANSWER(cuMemRetainAllocationHandle(NULL, NULL));
    ANSWER(cuMemRetainAllocationHandle(&handle, NULL));
    ANSWER(cuMemImportFromShareableHandle(NULL, NULL, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ANSWER(cuMemExportToShareableHandle(NULL, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ANSWER(cuMemMap(0, 2 * MIB, 0, 0, 0));
    ANSWER(cuMemUnmap(0, 2 * MIB));
    ANSWER(cuMemMapArrayAsync(NULL, 0, NULL));
    ANSWER(cuMemMapArrayAsync(NULL, 1, NULL));
    ANSWER(cuMulticastCreate(NULL, NULL));
    ANSWER(cuIpcGetMemHandle(NULL, 0));
    ANSWER(cuIpcGetMemHandle(&ipc, 0));
    ANSWER(cuIpcOpenMemHandle_v2(NULL, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ANSWER(cuIpcOpenMemHandle_v2(&pointer, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ANSWER(cuIpcCloseMemHandle(0));
    ANSWER(cuMemPoolExportPointer(NULL, 0));
    ANSWER(cuMemPoolImportPointer(NULL, NULL, NULL));
    ANSWER(cuImportExternalMemory(NULL, NULL));
    ANSWER(cuDestroyExternalMemory(NULL));
    ANSWER(cuMemGetInfo_v2(NULL, NULL));
    ANSWER(cuMemGetInfo_v2(&left, NULL));
    ANSWER(cuDeviceTotalMem_v2(NULL, client.device));
}

static const struct {
    const char *name;
    void (*body)(void);
} parts[] = {{"reused", do_reused},     {"first", do_first},         {"places", do_places},
             {"contexts", do_contexts}, {"pools", do_pools},         {"reset", do_reset},
             {"green", do_green},       {"destroyed", do_destroyed}, {"unknown", do_unknown},
             {"doubles", do_doubles},   {"capture", do_capture},     {"graphs", do_graphs}};

static void run(const char *name)
{
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(name, parts[i].name)) {
            parts[i].body();
            return;
        }
    client_fail_at(__FILE__, __LINE__, name, "no such part");
}

int main(int argc, char **argv)
{
    size_t left;
    client_open(&client);
    CHECK_CU(cuMemGetInfo_v2(&left, &total));
    if (argc == 2 && !strcmp(argv[1], "errors")) {
        do_errors_plain();
        do_errors_pools();
        do_errors_physical();
        return 0;
    }
    agree("the beginning");
    if (argc == 3 && !strcmp(argv[1], "many"))
        do_many((unsigned)atoi(argv[2]));
    else if (argc == 3 && !strcmp(argv[1], "live"))
        do_live((unsigned)atoi(argv[2]));
    else if (argc == 3 && !strcmp(argv[1], "launch"))
        do_launch(strtoull(argv[2], NULL, 10));
    else
        for (int i = 1; i < argc; i++)
            run(argv[i]);
    client_pass("%d parts", argc - 1);
}
