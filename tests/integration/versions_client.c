/*
 * versions_client: a program as the toolkit of some CUDA version would have built it. It finds the
 * driver's functions as that version's runtime does and calls each in the newest form that its
 * version knows. Prints `name@form result` for every call, so that one run can be compared with
 * another one.
 *
 *   versions_client abi VERSION     once through allocation, launch, capture, graph, event, end
 *   versions_client look NAME...    what each look-up answers: result, status, symbol, library
 *   versions_client streams MS      unfinished work in streams of all kinds of several contexts
 */
#define __CUDA_API_VERSION_INTERNAL
#include <dlfcn.h>

#include "client.h"
#include "kernels_ptx.h"

typedef CUresult proc_v1(const char *, void **, int, cuuint64_t);
typedef CUresult proc_v2(const char *, void **, int, cuuint64_t, int *);

static void *driver;
static int version;
static proc_v1 *proc1;
static proc_v2 *proc2;

static void *symbol(const char *name)
{
    return dlsym(driver, name);
}

static void open_driver(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver, "no driver: %s", dlerror());
    proc1 = (proc_v1 *)symbol("cuGetProcAddress");
    proc2 = (proc_v2 *)symbol("cuGetProcAddress_v2");
    CHECK(proc1, "the driver has no cuGetProcAddress");
}

/* ---- abi ------------------------------------------------------------------------------------- */

static bool knows(int form)
{
    return version >= form;
}

static void *find(const char *name, int form)
{
    void *found = NULL;
    int status = 0;
    CUresult rc =
        knows(12000) ? proc2(name, &found, form, 0, &status) : proc1(name, &found, form, 0);

    if (rc != CUDA_SUCCESS || !found)
        printf("%s@%d not found: %d %d\n", name, form, (int)rc, status);
    return rc == CUDA_SUCCESS ? found : NULL;
}

/* CALL(name, form, (parameter types), (arguments)) */
#define CALL(name, form, types, arguments) \
    do { \
        CUresult(*function_) types = (CUresult(*) types)find(#name, form); \
        if (function_) \
            printf("%s@%d %d\n", #name, form, (int)function_ arguments); \
    } while (0)

static CUcontext context;
static CUstream stream;
static CUfunction spin;

static void abi_open(void)
{
    CUmodule module = NULL;
    CUdevice device = -1;

    CALL(cuInit, 2000, (unsigned), (0));
    CALL(cuDeviceGet, 2000, (CUdevice *, int), (&device, 0));
    if (knows(12050))
        CALL(cuCtxCreate, 12050, (CUcontext *, void *, unsigned, CUdevice),
             (&context, NULL, 0, device));
    else
        CALL(cuCtxCreate, 11040, (CUcontext *, void *, int, unsigned, CUdevice),
             (&context, NULL, 0, 0, device));
    if (knows(13000))
        CALL(cuCtxGetDevice, 13000, (CUdevice *, CUcontext), (&device, context));
    else
        CALL(cuCtxGetDevice, 2000, (CUdevice *), (&device));
    CALL(cuModuleLoadData, 2000, (CUmodule *, const void *), (&module, kernels_ptx));
    CALL(cuModuleGetFunction, 2000, (CUfunction *, CUmodule, const char *),
         (&spin, module, "spin_ns"));
    CALL(cuStreamCreate, 2000, (CUstream *, unsigned), (&stream, CU_STREAM_NON_BLOCKING));
    printf("device %d\n", device);
}

/* BIG is above the test's cap, and not above the device's memory. */
static void abi_memory(void)
{
    const size_t big = (size_t)65 << 20;
    CUdeviceptr pointer = 0, refused = 0;
    size_t available = 0, total = 0;

    CALL(cuMemGetInfo, 3020, (size_t *, size_t *), (&available, &total));
    printf("total %zu MiB\n", total >> 20);
    CALL(cuMemAlloc, 3020, (CUdeviceptr *, size_t), (&refused, big));
    CALL(cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream), (&refused, big, stream));
    CALL(cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned),
         (&pointer, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    if (knows(12020))
        CALL(cuMemPrefetchAsync, 12020, (CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream),
             (pointer, 1 << 20, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}, 0, stream));
    else
        CALL(cuMemPrefetchAsync, 8000, (CUdeviceptr, size_t, CUdevice, CUstream),
             (pointer, 1 << 20, 0, stream));
    CALL(cuStreamSynchronize, 2000, (CUstream), (stream));
    CALL(cuMemFree, 3020, (CUdeviceptr), (pointer));
}

static void abi_launch(void)
{
    uint64_t ns = 200000;
    void *arguments[] = {&ns};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};

    CALL(cuLaunchKernelEx, 11060, (const CUlaunchConfig *, CUfunction, void **, void **),
         (&config, spin, arguments, NULL));
    CALL(cuLaunchKernel, 4000,
         (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
          CUstream, void **, void **),
         (spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

static void abi_events(void)
{
    CUevent start = NULL, end = NULL;
    float ms = -1;

    CALL(cuEventCreate, 2000, (CUevent *, unsigned), (&start, 0));
    CALL(cuEventCreate, 2000, (CUevent *, unsigned), (&end, 0));
    CALL(cuEventRecord, 2000, (CUevent, CUstream), (start, stream));
    abi_launch();
    CALL(cuEventRecord, 2000, (CUevent, CUstream), (end, stream));
    CALL(cuEventSynchronize, 2000, (CUevent), (end));
    if (knows(12080))
        CALL(cuEventElapsedTime, 12080, (float *, CUevent, CUevent), (&ms, start, end));
    else
        CALL(cuEventElapsedTime, 2000, (float *, CUevent, CUevent), (&ms, start, end));
    printf("elapsed %d\n", ms >= 0.4);
    if (knows(12050)) {
        CALL(cuCtxRecordEvent, 12050, (CUcontext, CUevent), (context, end));
        CALL(cuCtxWaitEvent, 12050, (CUcontext, CUevent), (context, end));
    }
}

static CUgraph abi_capture(void)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    size_t count = 99;

    if (knows(12030)) {
        CALL(cuGraphCreate, 10000, (CUgraph *, unsigned), (&graph, 0));
        CALL(cuStreamBeginCaptureToGraph, 12030,
             (CUstream, CUgraph, const CUgraphNode *, const void *, size_t, CUstreamCaptureMode),
             (stream, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    } else {
        CALL(cuStreamBeginCapture, 10010, (CUstream, CUstreamCaptureMode),
             (stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    }
    abi_launch();
    if (knows(12030))
        CALL(cuStreamGetCaptureInfo, 12030,
             (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
              const void **, size_t *),
             (stream, &status, &id, NULL, NULL, NULL, &count));
    else
        CALL(cuStreamGetCaptureInfo, 11030,
             (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
              size_t *),
             (stream, &status, &id, NULL, NULL, &count));
    printf("capturing %d after %zu\n", (int)status, count);
    CALL(cuStreamEndCapture, 10000, (CUstream, CUgraph *), (stream, &graph));
    return graph;
}

/* As much of CUDA_GRAPH_INSTANTIATE_PARAMS as there is, and room. */
struct instantiate {
    cuuint64_t flags;
    CUstream upload;
    void *rest[6];
};

static void abi_graph(void)
{
    CUgraph graph = abi_capture();
    CUgraphExec exec = NULL;
    struct instantiate params = {0};
    uint64_t result[4] = {0};

    if (knows(12000))
        CALL(cuGraphInstantiateWithParams, 12000, (CUgraphExec *, CUgraph, void *),
             (&exec, graph, &params));
    else
        CALL(cuGraphInstantiate, 11000, (CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t),
             (&exec, graph, NULL, NULL, 0));
    if (knows(12000))
        CALL(cuGraphExecUpdate, 12000, (CUgraphExec, CUgraph, void *), (exec, graph, result));
    else
        CALL(cuGraphExecUpdate, 10020, (CUgraphExec, CUgraph, void *, void *),
             (exec, graph, &result[0], &result[1]));
    CALL(cuGraphLaunch, 10000, (CUgraphExec, CUstream), (exec, stream));
    if (knows(13000))
        CALL(cuCtxSynchronize, 13000, (CUcontext), (context));
    else
        CALL(cuCtxSynchronize, 2000, (void), ());
    CALL(cuGraphExecDestroy, 10000, (CUgraphExec), (exec));
    CALL(cuGraphDestroy, 10000, (CUgraph), (graph));
}

static int abi(int argc, char **argv)
{
    CHECK(argc == 3, "usage: versions_client abi VERSION");
    version = atoi(argv[2]);
    CHECK(proc2 || !knows(12000), "the driver has no cuGetProcAddress_v2");
    abi_open();
    abi_memory();
    abi_events();
    abi_graph();
    CALL(cuStreamDestroy, 4000, (CUstream), (stream));
    CALL(cuCtxDestroy, 4000, (CUcontext), (context));
    return 0;
}

/* ---- look ------------------------------------------------------------------------------------ */

static void look_print(const char *how, const char *name, CUresult rc, int status, void *found)
{
    Dl_info info = {.dli_sname = "-", .dli_fname = "-"};
    const char *file;

    if (found && dladdr(found, &info) == 0)
        info.dli_sname = "unknown";
    file = strrchr(info.dli_fname, '/');
    printf("%s %s %d %d %s %s\n", how, name, (int)rc, status,
           info.dli_sname ? info.dli_sname : "unknown", file ? file + 1 : info.dli_fname);
}

static void look_version(const char *name, int form, cuuint64_t flags)
{
    char how[32];
    void *found = NULL;
    int status = -1;
    CUresult rc = proc1(name, &found, form, flags);

    snprintf(how, sizeof how, "v1:%d:%d", form, (int)flags);
    look_print(how, name, rc, status, rc == CUDA_SUCCESS ? found : NULL);
    if (!proc2)
        return;
    found = NULL;
    rc = proc2(name, &found, form, flags, &status);
    how[1] = '2';
    look_print(how, name, rc, status, rc == CUDA_SUCCESS ? found : NULL);
}

static int look(int argc, char **argv)
{
    static const int forms[] = {2000,  3020,  4000,  7000,  10000, 10010, 11020,
                                11040, 11080, 12000, 12030, 12050, 12080, 13000};

    for (int i = 2; i < argc; i++) {
        look_print("dlsym", argv[i], CUDA_SUCCESS, 0, symbol(argv[i]));
        for (size_t k = 0; k < sizeof forms / sizeof forms[0]; k++) {
            look_version(argv[i], forms[k], 0);
            look_version(argv[i], forms[k], 2);
        }
    }
    return 0;
}

/* ---- streams --------------------------------------------------------------------------------- */

#define KERNEL_NS (2 * MS)

struct lane {
    struct client client;
    CUstream stream[4];
    int streams;
    uint64_t until;
};

/* Round the lane's streams, and its thread's own one, with nothing synchronised before the end. */
static void *lane_run(void *arg)
{
    struct lane *lane = arg;

    client_adopt(&lane->client);
    for (int i = 0; client_now() < lane->until; i = (i + 1) % (lane->streams + 1))
        client_spin(&lane->client, i < lane->streams ? lane->stream[i] : CU_STREAM_PER_THREAD,
                    KERNEL_NS);
    CHECK_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    for (int i = 0; i < lane->streams; i++)
        CHECK_CU(cuStreamSynchronize(lane->stream[i]));
    return NULL;
}

static void lane_in(struct lane *lane, const struct client *client, unsigned flags, int streams)
{
    lane->client = *client;
    lane->streams = streams;
    CHECK_CU(cuCtxSetCurrent(client->context));
    for (int i = 0; i < streams; i++)
        CHECK_CU(cuStreamCreate(&lane->stream[i], flags));
}

/* The default stream among them in the first, non-blocking ones in the next two, and the last two
 * in a context of their own. */
static int streams(int argc, char **argv)
{
    struct lane lanes[5] = {0};
    struct client client, other;
    pthread_t threads[5];
    uint64_t until;

    CHECK(argc == 3, "usage: versions_client streams MS");
    client_open(&client);
    other = client;
    CHECK_CU(cuCtxCreate_v2(&other.context, 0, client.device));
    client_load(&other);
    lane_in(&lanes[0], &client, CU_STREAM_DEFAULT, 2);
    lanes[0].stream[0] = NULL;
    lane_in(&lanes[1], &client, CU_STREAM_NON_BLOCKING, 3);
    lane_in(&lanes[2], &client, CU_STREAM_NON_BLOCKING, 0);
    lane_in(&lanes[3], &other, CU_STREAM_NON_BLOCKING, 2);
    lane_in(&lanes[4], &other, CU_STREAM_DEFAULT, 1);
    until = client_now() + (uint64_t)atoi(argv[2]) * MS;
    for (int i = 0; i < 5; i++) {
        lanes[i].until = until;
        threads[i] = client_thread(lane_run, &lanes[i]);
    }
    for (int i = 0; i < 5; i++)
        client_thread_join(threads[i]);
    CHECK_CU(cuCtxDestroy_v2(other.context));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    open_driver();
    if (!strcmp(mode, "abi"))
        return abi(argc, argv);
    if (!strcmp(mode, "look"))
        return look(argc, argv);
    if (!strcmp(mode, "streams"))
        return streams(argc, argv);
    fprintf(stderr, "usage: versions_client abi|look|streams ...\n");
    return 2;
}
