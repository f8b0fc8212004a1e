/* Rule: while a stream captures, nothing put into it runs; the graph runs it all, as often as it is
 * launched, with the dependencies that events between streams made.
 * Source: CUDA Programming Guide, "Creating a Graph Using Stream Capture", "Cross-stream
 * Dependencies and Events".
 */
#include "client.h"

#define REPLAYS 5

/* word += 1, then word += 10 on the other stream, then word copied to the host. */
static CUgraph record(const struct client *c, CUstream a, CUstream b, CUdeviceptr word,
                      uint32_t *host)
{
    CUevent fork = client_event(CU_EVENT_DISABLE_TIMING);
    CUevent join = client_event(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = NULL;

    CHECK_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    client_add(c, a, word, 1);
    CHECK_CU(cuEventRecord(fork, a));
    CHECK_CU(cuStreamWaitEvent(b, fork, 0));
    client_add(c, b, word, 10);
    CHECK_CU(cuEventRecord(join, b));
    CHECK_CU(cuStreamWaitEvent(a, join, 0));
    CHECK_CU(cuMemcpyDtoHAsync(host, word, sizeof *host, a));
    CHECK_CU(cuStreamEndCapture(a, &graph));
    return graph;
}

int main(void)
{
    struct client c;
    CUstream a, b;
    CUdeviceptr word, ignored;
    CUgraph graph;
    CUgraphExec executable;
    uint32_t *host;
    size_t nodes = 0;

    client_open(&c);
    a = client_stream(CU_STREAM_NON_BLOCKING);
    b = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_alloc(sizeof *host);
    host = client_pinned(sizeof *host, &ignored);
    CHECK_CU(cuMemsetD32(word, 0, 1));
    CHECK_CU(cuCtxSynchronize());
    graph = record(&c, a, b, word, host);
    client_sleep(50 * MS);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemcpyDtoH(host, word, sizeof *host));
    CHECK(*host == 0, "captured kernels have run: the word is %u", *host);
    CHECK_CU(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 3, "the graph has %zu nodes, not 3", nodes);
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    for (uint32_t i = 1; i <= REPLAYS; i++) {
        CHECK_CU(cuGraphLaunch(executable, a));
        CHECK_CU(cuStreamSynchronize(a));
        CHECK(*host == 11 * i, "after %u launches the host has %u", i, *host);
    }
    CHECK_CU(cuGraphExecDestroy(executable));
    client_pass("a capture over two streams ran nothing, its graph ran %d times", REPLAYS);
}
