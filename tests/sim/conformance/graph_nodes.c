/* Rule: a graph built by hand runs its memset, kernel, copy, host, empty and child nodes in the
 * order of their dependencies.
 * Source: CUDA Driver API, "Graph Management", cuGraphAdd*Node.
 */
#include "client.h"

static void count_up(void *arg)
{
    ++*(unsigned *)arg;
}

static CUgraphNode add_kernel(CUgraph graph, CUfunction function, CUgraphNode after,
                              CUdeviceptr word, uint32_t value)
{
    void *arguments[] = {&word, &value};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function, .gridDimX = 1, .gridDimY = 1,
                                      .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
                                      .blockDimZ = 1, .kernelParams = arguments};
    CUgraphNode node;

    CHECK_CU(cuGraphAddKernelNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params));
    return node;
}

static CUgraphNode add_memset(CUgraph graph, CUcontext context, CUdeviceptr word)
{
    CUDA_MEMSET_NODE_PARAMS params = {.dst = word, .elementSize = 4, .width = 1, .height = 1,
                                      .value = 5};
    CUgraphNode node;

    CHECK_CU(cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, context));
    return node;
}

static CUgraphNode add_copy(CUgraph graph, CUcontext context, CUgraphNode after, uint32_t *to,
                            CUdeviceptr from)
{
    CUDA_MEMCPY3D params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from,
                            .srcPitch = sizeof *to, .srcHeight = 1,
                            .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to,
                            .dstPitch = sizeof *to, .dstHeight = 1,
                            .WidthInBytes = sizeof *to, .Height = 1, .Depth = 1};
    CUgraphNode node;

    CHECK_CU(cuGraphAddMemcpyNode(&node, graph, &after, 1, &params, context));
    return node;
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUgraph graph, child;
    CUgraphExec executable;
    CUgraphNode node;
    CUdeviceptr word, ignored;
    CUDA_HOST_NODE_PARAMS host = {.fn = count_up};
    unsigned visits = 0;
    uint32_t *seen;
    size_t nodes = 0;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_alloc(sizeof *seen);
    seen = client_pinned(sizeof *seen, &ignored);
    host.userData = &visits;
    CHECK_CU(cuGraphCreate(&child, 0));
    add_kernel(child, c.add, NULL, word, 20);
    CHECK_CU(cuGraphCreate(&graph, 0));
    node = add_memset(graph, c.context, word);
    node = add_kernel(graph, c.add, node, word, 300);
    CHECK_CU(cuGraphAddEmptyNode(&node, graph, &node, 1));
    CHECK_CU(cuGraphAddHostNode(&node, graph, &node, 1, &host));
    CHECK_CU(cuGraphAddChildGraphNode(&node, graph, &node, 1, child));
    add_copy(graph, c.context, node, seen, word);
    CHECK_CU(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 6, "the graph has %zu nodes, not 6", nodes);
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    for (unsigned i = 1; i <= 3; i++) {
        CHECK_CU(cuGraphLaunch(executable, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK(*seen == 325 && visits == i, "launch %u: word %u, host node ran %u times", i, *seen,
              visits);
    }
    client_pass("six kinds of node ran in the order of their dependencies");
}
