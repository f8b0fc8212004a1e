/* Rule: a graph launch is one element of its stream: it waits for what is in front, what is behind
 * waits for all of it, and destroying the executable graph while it runs lets it finish.
 * Source: CUDA Driver API, cuGraphLaunch, cuGraphExecDestroy.
 */
#include "client.h"

static CUgraphExec make_graph(const struct client *c, CUstream stream, CUdeviceptr word)
{
    CUgraph graph;
    CUgraphExec executable;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_spin(c, stream, 20 * MS);
    client_add(c, stream, word, 2);
    client_spin(c, stream, 20 * MS);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    CHECK_CU(cuGraphUpload(executable, stream));
    CHECK_CU(cuGraphDestroy(graph));
    return executable;
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUgraphExec executable;
    CUevent start, end, done;
    CUdeviceptr device;
    volatile uint32_t *word;
    struct flag flag;
    double ms;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    start = client_event(CU_EVENT_DEFAULT);
    end = client_event(CU_EVENT_DEFAULT);
    done = client_event(CU_EVENT_DISABLE_TIMING);
    word = client_pinned(sizeof *word, &device);
    flag = client_flag();
    executable = make_graph(&c, stream, device);
    CHECK_CU(cuStreamSynchronize(stream));

    client_wait(&c, stream, flag.device, 1);
    client_set(&c, stream, device, 100);
    CHECK_CU(cuEventRecord(start, stream));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuEventRecord(end, stream));
    client_add(&c, stream, device, 1000);
    CHECK_CU(cuEventRecord(done, stream));
    CHECK(!client_event_within(start, WHILE) && !*word, "the graph did not wait its turn");
    CHECK_CU(cuGraphExecDestroy(executable));
    client_raise(&flag, 1);
    CHECK(client_event_within(done, SOON), "the graph does not end");
    CHECK(*word == 1104, "the word is %u, not 1104", *word);
    ms = client_elapsed_ms(start, end);
    CHECK(ms > 79 && ms < 5000, "two graphs of 40 ms took %.3f ms", ms);
    client_pass("two launches of a 40 ms graph kept their place and took %.3f ms", ms);
}
