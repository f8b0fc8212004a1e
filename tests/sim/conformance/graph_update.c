/* Rule: a kernel node's parameters can be changed in an executable graph; launches made before keep
 * the old ones. cuGraphExecUpdate takes them over from a graph of the same shape and refuses
 * another shape.
 * Source: CUDA Programming Guide, "Updating Instantiated Graphs"; cuGraphExecKernelNodeSetParams,
 * cuGraphExecUpdate.
 */
#include "client.h"

static CUgraph record(const struct client *c, CUstream stream, CUdeviceptr word, uint32_t value,
                      int kernels)
{
    CUgraph graph;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < kernels; i++)
        client_add(c, stream, word, value);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    return graph;
}

static void check_set_params(CUgraphExec executable, CUgraph graph, CUdeviceptr word,
                             uint32_t value)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS params;
    void *arguments[] = {&word, &value};
    size_t nodes = 1;

    CHECK_CU(cuGraphGetNodes(graph, &node, &nodes));
    CHECK_CU(cuGraphKernelNodeGetParams(node, &params));
    CHECK(params.gridDimX == 1 && params.blockDimX == 1, "the node's grid is %u x %u",
          params.gridDimX, params.blockDimX);
    params.kernelParams = arguments;
    params.extra = NULL;
    CHECK_CU(cuGraphExecKernelNodeSetParams(executable, node, &params));
}

static void check_update(const struct client *c, CUgraphExec executable, CUstream stream,
                         CUdeviceptr word)
{
    CUgraph same = record(c, stream, word, 100, 1), other = record(c, stream, word, 7, 2);
    CUgraphExecUpdateResultInfo info;

    CHECK_CU(cuGraphExecUpdate(executable, same, &info));
    CHECK_CU(cuGraphLaunch(executable, stream));
    EXPECT_CU(cuGraphExecUpdate(executable, other, &info),
              CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "update result %d",
          (int)info.result);
    CHECK_CU(cuGraphDestroy(same));
    CHECK_CU(cuGraphDestroy(other));
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUgraph graph;
    CUgraphExec executable;
    CUdeviceptr device;
    volatile uint32_t *word;
    struct flag flag;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_pinned(sizeof *word, &device);
    flag = client_flag();
    graph = record(&c, stream, device, 1, 1);
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    client_wait(&c, stream, flag.device, 1);
    CHECK_CU(cuGraphLaunch(executable, stream));
    check_set_params(executable, graph, device, 10);
    CHECK_CU(cuGraphLaunch(executable, stream));
    check_update(&c, executable, stream, device);
    client_raise(&flag, 1);
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(*word == 111, "the three launches added up to %u, not 111", *word);
    client_pass("each launch ran with the parameters the graph had at that time");
}
