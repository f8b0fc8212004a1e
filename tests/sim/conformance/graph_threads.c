/* Rule: threads that capture, instantiate and launch graphs at the same time, each in
 * THREAD_LOCAL mode on its own stream, do not disturb each other.
 * Source: CUDA Driver API, cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode.
 */
#include "client.h"

#define THREADS 4
#define ROUNDS 40
#define NODES 5

struct worker {
    struct client *client;
    CUdeviceptr word;
};

static void worker_round(const struct worker *w, CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec executable;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

    CHECK_CU(cuStreamBeginCapture(stream, mode));
    for (int i = 0; i < NODES; i++)
        client_add(w->client, stream, w->word, 1);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuGraphExecDestroy(executable));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuStreamSynchronize(stream));
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;
    CUstream stream;

    client_adopt(w->client);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < ROUNDS; round++)
        worker_round(w, stream);
    return NULL;
}

int main(void)
{
    struct client c;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint32_t found;

    client_open(&c);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = &c, .word = client_alloc(sizeof found)};
        CHECK_CU(cuMemsetD32(workers[i].word, 0, 1));
    }
    CHECK_CU(cuCtxSynchronize());
    for (int i = 0; i < THREADS; i++)
        threads[i] = client_thread(worker_run, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        client_thread_join(threads[i]);
    for (int i = 0; i < THREADS; i++) {
        CHECK_CU(cuMemcpyDtoH(&found, workers[i].word, sizeof found));
        CHECK(found == 2 * NODES * ROUNDS, "thread %d's graphs added up to %u, not %d", i, found,
              2 * NODES * ROUNDS);
    }
    client_pass("%d threads captured and launched %d graphs each", THREADS, ROUNDS);
}
