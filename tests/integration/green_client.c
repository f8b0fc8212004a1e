/*
 * green_client: a program that works in green contexts and launches graphs with conditional nodes,
 * in the ways that test_green.py looks at. Says `ready` when CUDA is open and waits for a line; a
 * failed call fails the program. Prints how many kernels (graphs) it launched.
 *
 *   green_client streams MS      the primary context is current; streams of two green contexts
 *   green_client current MS      one green context is current, the primary one never is; its
 *                                default stream, and streams of both
 *   green_client destroyed MS    green contexts that end with work under way, one after the other
 *   green_client last MS         the same, and each is the primary context's only holder
 *   green_client conditional MS  graphs whose bodies run or do not
 */
#define __CUDA_API_VERSION_INTERNAL
#include "client.h"

static struct client client;
static uint64_t until, launched;

static void ready(int ms)
{
    char line[16];

    printf("ready\n");
    CHECK(fgets(line, sizeof line, stdin), "nobody says when to begin");
    until = client_now() + (uint64_t)ms * MS;
}

static CUgreenCtx make(unsigned part)
{
    CUdevResource whole, parts[2];
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    unsigned count = 2;

    CHECK_CU(cuDeviceGetDevResource(client.device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_CU(cuDevSmResourceSplitByCount(parts, &count, &whole, NULL, 0, 16));
    CHECK_CU(cuDevResourceGenerateDesc(&descriptor, &parts[part], 1));
    CHECK_CU(cuGreenCtxCreate(&green, descriptor, client.device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static CUstream stream_of(CUgreenCtx green)
{
    CUstream stream;

    CHECK_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static void spin(CUstream stream, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        client_spin(&client, stream, MS / 2);
    launched += count;
}

/* ---- streams --------------------------------------------------------------------------------- */

static void streams(int ms)
{
    CUstream of[3];
    CUgreenCtx green[2];

    client_open(&client);
    for (unsigned i = 0; i < 2; i++) {
        green[i] = make(i);
        of[i] = stream_of(green[i]);
    }
    of[2] = client_stream(CU_STREAM_NON_BLOCKING);
    ready(ms);
    for (unsigned round = 0; client_now() < until; round++) {
        for (unsigned i = 0; i < 3; i++)
            spin(of[i], 4);
        CHECK_CU(cuStreamSynchronize(of[round % 3]));
    }
    CHECK_CU(cuCtxSynchronize());
    for (unsigned i = 0; i < 3; i++)
        CHECK_CU(cuStreamDestroy_v2(of[i]));
    for (unsigned i = 0; i < 2; i++)
        CHECK_CU(cuGreenCtxDestroy(green[i]));
}

/* ---- current --------------------------------------------------------------------------------- */

/* To synchronise the current green context leaves the other one's work on the GPU. */
static void current(int ms)
{
    CUgreenCtx green[2];
    CUstream of[2];

    client_init(&client);
    for (unsigned i = 0; i < 2; i++) {
        green[i] = make(i);
        of[i] = stream_of(green[i]);
    }
    CHECK_CU(cuCtxFromGreenCtx(&client.context, green[0]));
    CHECK_CU(cuCtxPushCurrent_v2(client.context));
    client_load(&client);
    ready(ms);
    while (client_now() < until) {
        spin(of[0], 2);
        spin(of[1], 8);
        spin(NULL, 1);
        CHECK_CU(cuCtxSynchronize());
    }
    for (unsigned i = 0; i < 2; i++)
        CHECK_CU(cuStreamSynchronize(of[i]));
    CHECK_CU(cuCtxPopCurrent_v2(&client.context));
    for (unsigned i = 0; i < 2; i++)
        CHECK_CU(cuGreenCtxDestroy(green[i]));
}

/* ---- destroyed, last ------------------------------------------------------------------------- */

static void destroyed(int ms)
{
    client_open(&client);
    ready(ms);
    for (unsigned round = 0; client_now() < until; round++) {
        CUgreenCtx green = make(0);
        CUstream stream = stream_of(green);

        spin(stream, 8);
        CHECK_CU(cuGreenCtxDestroy(green));
        EXPECT_CU(cuLaunchKernel(client.noop, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                  CUDA_ERROR_CONTEXT_IS_DESTROYED);
        if (round % 4 == 3)
            CHECK_CU(cuCtxSynchronize());
    }
    CHECK_CU(cuCtxSynchronize());
}

static void last(int ms)
{
    client_init(&client);
    ready(ms);
    while (client_now() < until) {
        CUgreenCtx green = make(0);
        CUcontext popped;
        unsigned flags;
        int active;

        CHECK_CU(cuCtxFromGreenCtx(&client.context, green));
        CHECK_CU(cuCtxPushCurrent_v2(client.context));
        client_load(&client);
        spin(stream_of(green), 8);
        CHECK_CU(cuCtxPopCurrent_v2(&popped));
        CHECK_CU(cuGreenCtxDestroy(green));
        CHECK_CU(cuDevicePrimaryCtxGetState(client.device, &flags, &active));
        CHECK(!active, "the primary context outlives its last holder");
    }
}

/* ---- conditional ----------------------------------------------------------------------------- */

static void add_spin(CUgraph graph)
{
    uint64_t ns = MS / 2;
    void *arguments[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS params = {.func = client.spin, .gridDimX = 1, .gridDimY = 1,
                                      .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
                                      .blockDimZ = 1, .kernelParams = arguments};
    CUgraphNode node;

    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
}

static CUgraphExec conditional_graph(CUgraphConditionalNodeType type, unsigned value)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;

    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, client.context,
                                            value, CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.type = type;
    params.conditional.size = 1;
    params.conditional.ctx = client.context;
    CHECK_CU(cuGraphAddNode(&node, graph, NULL, 0, &params));
    add_spin(graph);
    add_spin(params.conditional.phGraph_out[0]);
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void conditional(int ms)
{
    CUgraphExec exec[3];
    CUstream stream;

    client_open(&client);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    exec[0] = conditional_graph(CU_GRAPH_COND_TYPE_IF, 0);
    exec[1] = conditional_graph(CU_GRAPH_COND_TYPE_IF, 1);
    exec[2] = conditional_graph(CU_GRAPH_COND_TYPE_WHILE, 1);
    ready(ms);
    for (; client_now() < until; launched += 3) {
        for (unsigned i = 0; i < 3; i++)
            CHECK_CU(cuGraphLaunch(exec[i], stream));
        CHECK_CU(cuStreamSynchronize(stream));
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int ms);
    } modes[] = {{"streams", streams},
                 {"current", current},
                 {"destroyed", destroyed},
                 {"last", last},
                 {"conditional", conditional}};

    setvbuf(stdout, NULL, _IOLBF, 0);
    for (unsigned i = 0; argc == 3 && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argv[1], modes[i].name)) {
            modes[i].run(atoi(argv[2]));
            printf("%d\n", (int)launched);
            return 0;
        }
    return 2;
}
