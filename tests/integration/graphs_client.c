/*
 * graphs_client: a program that captures and launches graphs in the ways that test_graphs.py looks
 * at. Says `ready` when CUDA is open and waits for a line; a failed call fails the program.
 *
 *   graphs_client capture MODE STREAM MS   captures and replays, with threads at work beside it:
 *                                          STREAM is free, blocking, thread or ptsz
 *   graphs_client abandon HOW MS           captures that end otherwise than by their end call; then
 *                                          work in two streams: HOW is stream, context, primary,
 *                                          thread, invalid or unjoined
 *   graphs_client leave                    exits while a capture goes on and others work
 *   graphs_client kinds MS                 uploads, updates, child graphs, all of them checked
 *   graphs_client long NS MS               one graph of ten kernels that takes NS
 *   graphs_client many COUNT               what a launch and an instantiation cost, with one and
 *                                          with COUNT executable graphs alive, in ns
 */
#define __CUDA_API_VERSION_INTERNAL
#include "client.h"

static struct client client;
static uint64_t until;
static volatile bool stopping;

static void ready(void)
{
    char line[16];

    printf("ready\n");
    CHECK(fgets(line, sizeof line, stdin), "nobody says when to begin");
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;

    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* ---- capture --------------------------------------------------------------------------------- */

static CUstreamCaptureMode mode_named(const char *name)
{
    return !strcmp(name, "global")   ? CU_STREAM_CAPTURE_MODE_GLOBAL
           : !strcmp(name, "thread") ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                     : CU_STREAM_CAPTURE_MODE_RELAXED;
}

/* Where a capture goes; `begin` and `end` are of the flavour that gives NULL this meaning. */
struct lane {
    CUstream stream;
    __typeof__(cuStreamBeginCapture_v2) *begin;
    __typeof__(cuStreamEndCapture) *end;
    __typeof__(cuLaunchKernel) *launch;
    __typeof__(cuGraphLaunch) *replay;
    __typeof__(cuStreamSynchronize) *wait;
};

static struct lane lane_named(const char *name)
{
    struct lane lane = {NULL,           cuStreamBeginCapture_v2, cuStreamEndCapture,
                        cuLaunchKernel, cuGraphLaunch,           cuStreamSynchronize};

    if (!strcmp(name, "ptsz"))
        return (struct lane){NULL,
                             cuStreamBeginCapture_v2_ptsz,
                             cuStreamEndCapture_ptsz,
                             cuLaunchKernel_ptsz,
                             cuGraphLaunch_ptsz,
                             cuStreamSynchronize_ptsz};
    lane.stream =
        !strcmp(name, "thread")
            ? CU_STREAM_PER_THREAD
            : client_stream(!strcmp(name, "free") ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    return lane;
}

static void lane_spin(const struct lane *lane, uint64_t ns)
{
    void *arguments[] = {&ns};

    CHECK_CU(lane->launch(client.spin, 1, 1, 1, 1, 1, 1, 0, lane->stream, arguments, NULL));
}

/* Some recorded launches, with pauses in which a slice can end. */
static CUgraph lane_record(const struct lane *lane, CUstreamCaptureMode mode)
{
    CUgraph graph;
    size_t nodes = 0;

    CHECK_CU(lane->begin(lane->stream, mode));
    for (int i = 0; i < 4; i++) {
        lane_spin(lane, MS / 4);
        client_sleep(4 * MS);
    }
    CHECK_CU(lane->end(lane->stream, &graph));
    CHECK_CU(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 4, "%zu nodes recorded", nodes);
    return graph;
}

static void *beside_run(void *arg)
{
    CUstream stream = arg;
    uint64_t count = 0;

    client_adopt(&client);
    while (!stopping) {
        client_spin(&client, stream, MS / 2);
        if (++count % 8 == 0)
            CHECK_CU(cuStreamSynchronize(stream));
    }
    CHECK_CU(cuStreamSynchronize(stream));
    return NULL;
}

static int capture(const char *mode, const char *stream, int ms)
{
    struct lane lane;
    pthread_t threads[2];
    uint64_t rounds = 0;

    client_open(&client);
    lane = lane_named(stream);
    threads[0] = client_thread(beside_run, CU_STREAM_PER_THREAD);
    threads[1] = client_thread(beside_run, client_stream(CU_STREAM_NON_BLOCKING));
    ready();
    until = client_now() + (uint64_t)ms * MS;
    for (; client_now() < until; rounds++) {
        CUgraph graph = lane_record(&lane, mode_named(mode));
        CUgraphExec exec = instantiate(graph);
        for (int i = 0; i < 3; i++)
            CHECK_CU(lane.replay(exec, lane.stream));
        CHECK_CU(lane.wait(lane.stream));
        CHECK_CU(cuGraphExecDestroy(exec));
        CHECK_CU(cuGraphDestroy(graph));
    }
    stopping = true;
    client_thread_join(threads[0]);
    client_thread_join(threads[1]);
    printf("%d\n", (int)rounds);
    return 0;
}

/* ---- abandon --------------------------------------------------------------------------------- */

/* Begun in the current context, whose kernels are `in`'s. */
static CUstream abandon_begin(const struct client *in, CUstreamCaptureMode mode)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);

    CHECK_CU(cuStreamBeginCapture_v2(stream, mode));
    client_spin(in, stream, MS);
    return stream;
}

static void *abandon_thread(void *arg)
{
    (void)arg;
    client_adopt(&client);
    CHECK_CU(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    client_spin(&client, CU_STREAM_PER_THREAD, MS);
    return NULL;
}

/* The driver may refuse to destroy what a capture goes on in, and then has broken the capture. */
static CUresult abandon_broken(CUresult rc, CUstream stream)
{
    CUgraph graph;

    if (rc == CUDA_SUCCESS)
        return rc;
    CHECK(rc == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the end of a context gave %d", (int)rc);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return rc;
}

static void abandon_context(void)
{
    struct client mine = client;
    CUstream stream;

    CHECK_CU(cuCtxCreate_v2(&mine.context, 0, client.device));
    client_load(&mine);
    stream = abandon_begin(&mine, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (abandon_broken(cuCtxDestroy_v2(mine.context), stream) != CUDA_SUCCESS)
        CHECK_CU(cuCtxDestroy_v2(mine.context));
    client_adopt(&client);
}

/* A primary context of its own time: the client's work is in a created one. */
static void abandon_primary(void)
{
    struct client mine = client;
    CUstream stream;

    CHECK_CU(cuDevicePrimaryCtxRetain(&mine.context, client.device));
    client_adopt(&mine);
    client_load(&mine);
    stream = abandon_begin(&mine, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (abandon_broken(cuDevicePrimaryCtxReset_v2(client.device), stream) != CUDA_SUCCESS)
        CHECK_CU(cuDevicePrimaryCtxReset_v2(client.device));
    client_adopt(&client);
}

/* Broken by a query of an event recorded in it; its end call fails. */
static void abandon_invalid(void)
{
    CUstream stream = abandon_begin(&client, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent event = client_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph;

    CHECK_CU(cuEventRecord(event, stream));
    CHECK(cuEventQuery(event) != CUDA_SUCCESS, "a captured event can be asked");
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Ended while another stream had not come back. */
static void abandon_unjoined(void)
{
    CUstream stream = abandon_begin(&client, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstream other = client_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = client_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph;

    CHECK_CU(cuEventRecord(event, stream));
    CHECK_CU(cuStreamWaitEvent(other, event, 0));
    client_spin(&client, other, MS);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

static void abandon_by(const char *how)
{
    if (!strcmp(how, "stream"))
        CHECK_CU(cuStreamDestroy_v2(abandon_begin(&client, CU_STREAM_CAPTURE_MODE_RELAXED)));
    else if (!strcmp(how, "context"))
        abandon_context();
    else if (!strcmp(how, "primary"))
        abandon_primary();
    else if (!strcmp(how, "thread"))
        client_thread_join(client_thread(abandon_thread, NULL));
    else if (!strcmp(how, "invalid"))
        abandon_invalid();
    else
        abandon_unjoined();
}

static int abandon(const char *how, int ms)
{
    CUstream streams[2];
    int count = 0;

    client_init(&client);
    CHECK_CU(cuCtxCreate_v2(&client.context, 0, client.device));
    client_load(&client);
    for (int i = 0; i < 2; i++)
        streams[i] = client_stream(CU_STREAM_NON_BLOCKING);
    ready();
    for (int i = 0; i < 3; i++)
        abandon_by(how);
    printf("abandoned\n");
    until = client_now() + (uint64_t)ms * MS;
    for (; client_now() < until; count++)
        client_spin(&client, streams[count % 2], MS / 2);
    CHECK_CU(cuStreamSynchronize(streams[0]));
    CHECK_CU(cuStreamSynchronize(streams[1]));
    printf("%d\n", count);
    return 0;
}

/* ---- leave ----------------------------------------------------------------------------------- */

static void *leave_run(void *arg)
{
    uint64_t ns = MS / 2;
    void *arguments[] = {&ns};

    client_adopt(&client);
    while (cuLaunchKernel(client.spin, 1, 1, 1, 1, 1, 1, 0, arg, arguments, NULL) == CUDA_SUCCESS)
        ;
    return NULL;
}

static int leave(void)
{
    client_open(&client);
    client_thread(leave_run, CU_STREAM_PER_THREAD);
    client_thread(leave_run, client_stream(CU_STREAM_NON_BLOCKING));
    ready();
    abandon_begin(&client, CU_STREAM_CAPTURE_MODE_GLOBAL);
    client_sleep(100 * MS);
    exit(3);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static CUgraph record_add(CUstream stream, CUdeviceptr word, uint32_t value)
{
    CUgraph graph;

    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    client_spin(&client, stream, MS);
    client_add(&client, stream, word, value);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* A graph that holds the given one twice. */
static CUgraph parent_of(CUgraph child)
{
    CUgraphNode first, second;
    CUgraph graph;

    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddChildGraphNode(&first, graph, NULL, 0, child));
    CHECK_CU(cuGraphAddChildGraphNode(&second, graph, &first, 1, child));
    return graph;
}

/* One round: uploaded and launched, updated and launched, as a child, twice in it, launched. */
static uint32_t kinds_round(CUstream stream, CUdeviceptr word)
{
    CUgraph one = record_add(stream, word, 1), ten = record_add(stream, word, 10);
    CUgraph hundreds = record_add(stream, word, 100), parent = parent_of(hundreds);
    CUgraphExec exec = instantiate(one), whole = instantiate(parent);
    CUgraphExecUpdateResultInfo info;

    CHECK_CU(cuGraphUpload(exec, stream));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuGraphExecUpdate_v2(exec, ten, &info));
    CHECK_CU(cuGraphUpload(exec, stream));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuGraphLaunch(whole, stream));
    CHECK_CU(cuGraphExecDestroy(exec)); /* with its launches still to come */
    CHECK_CU(cuGraphExecDestroy(whole));
    CHECK_CU(cuGraphDestroy(one));
    CHECK_CU(cuGraphDestroy(ten));
    CHECK_CU(cuGraphDestroy(parent));
    CHECK_CU(cuGraphDestroy(hundreds));
    return 211;
}

static int kinds(int ms)
{
    CUstream stream;
    CUdeviceptr word;
    uint32_t wanted = 0, found = 0;
    int rounds = 0;

    client_open(&client);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_alloc(sizeof found);
    client_set(&client, stream, word, 0);
    ready();
    until = client_now() + (uint64_t)ms * MS;
    for (; client_now() < until; rounds++)
        wanted += kinds_round(stream, word);
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemcpyDtoH_v2(&found, word, sizeof found));
    CHECK(found == wanted, "after %d rounds the word is %u, not %u", rounds, found, wanted);
    printf("%d\n", rounds);
    return 0;
}

/* ---- long ------------------------------------------------------------------------------------ */

static int long_graph(uint64_t ns, int ms)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    int rounds = 0;

    client_open(&client);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 10; i++)
        client_spin(&client, stream, ns / 10);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    exec = instantiate(graph);
    ready();
    until = client_now() + (uint64_t)ms * MS;
    for (; client_now() < until; rounds++)
        CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    printf("%d\n", rounds);
    return 0;
}

/* ---- many ------------------------------------------------------------------------------------ */

#define MANY_SAMPLE 400

/* The middle one of several, so that what the machine did meanwhile does not count. */
static int64_t median(int64_t *sample, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && sample[k] < sample[k - 1]; k--) {
            int64_t swap = sample[k];
            sample[k] = sample[k - 1];
            sample[k - 1] = swap;
        }
    return sample[count / 2];
}

static int64_t many_launch(const CUgraphExec *execs, int count, CUstream stream)
{
    static int64_t sample[MANY_SAMPLE];

    for (int i = 0; i < MANY_SAMPLE; i++) {
        CUgraphExec exec = execs[(int64_t)i * count / MANY_SAMPLE];
        uint64_t start = client_now();
        CHECK_CU(cuGraphLaunch(exec, stream));
        sample[i] = (int64_t)(client_now() - start);
        CHECK_CU(cuStreamSynchronize(stream));
    }
    return median(sample, MANY_SAMPLE);
}

static int64_t many_instantiate(CUgraphExec *execs, int count, CUgraph graph)
{
    static int64_t sample[MANY_SAMPLE];

    for (int i = 0; i < count; i++) {
        uint64_t start = client_now();
        execs[i] = instantiate(graph);
        sample[i % MANY_SAMPLE] = (int64_t)(client_now() - start);
    }
    return median(sample, count < MANY_SAMPLE ? count : MANY_SAMPLE);
}

static int many(int count)
{
    CUgraphExec *execs = calloc((size_t)count, sizeof *execs);
    CUstream stream;
    CUgraph graph;
    int64_t instantiate_one, instantiate_all, launch_one, launch_all;

    CHECK(execs && count > MANY_SAMPLE, "room for %d graphs", count);
    client_open(&client);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    client_noop(&client, stream);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    ready();
    instantiate_one = many_instantiate(execs, MANY_SAMPLE, graph);
    launch_one = many_launch(execs, 1, stream);
    instantiate_all = many_instantiate(execs + MANY_SAMPLE, count - MANY_SAMPLE, graph);
    launch_all = many_launch(execs, count, stream);
    for (int i = 0; i < count; i++)
        CHECK_CU(cuGraphExecDestroy(execs[i]));
    printf("%d %d %d %d\n", (int)launch_one, (int)launch_all, (int)instantiate_one,
           (int)instantiate_all);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(mode, "capture") && argc == 5)
        return capture(argv[2], argv[3], atoi(argv[4]));
    if (!strcmp(mode, "abandon") && argc == 4)
        return abandon(argv[2], atoi(argv[3]));
    if (!strcmp(mode, "leave"))
        return leave();
    if (!strcmp(mode, "kinds") && argc == 3)
        return kinds(atoi(argv[2]));
    if (!strcmp(mode, "long") && argc == 4)
        return long_graph(strtoull(argv[2], NULL, 0), atoi(argv[3]));
    if (!strcmp(mode, "many") && argc == 3)
        return many(atoi(argv[2]));
    fprintf(stderr, "usage: graphs_client capture|abandon|leave|kinds|long|many ...\n");
    return 2;
}
