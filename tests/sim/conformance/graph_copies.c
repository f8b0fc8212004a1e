/* Rule: copies recorded from and to pageable memory read and write it when the graph runs, not when
 * it was recorded; a captured launch of a graph becomes a child graph; a node that is switched off
 * in the executable graph does nothing.
 * Source: CUDA Driver API, cuGraphAddMemcpyNode, cuGraphAddChildGraphNode, cuGraphNodeSetEnabled.
 */
#include "client.h"

#define BYTES (1u << 20)

static unsigned char from[BYTES], to[BYTES];

static CUgraphExec make_round_trip(CUstream stream, CUdeviceptr memory)
{
    CUgraphExec executable;
    CUgraph graph;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuMemcpyHtoDAsync(memory, from, BYTES, stream));
    CHECK_CU(cuMemcpyDtoHAsync(to, memory, BYTES, stream));
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    return executable;
}

static void check_trip(CUgraphExec executable, CUstream stream, int out, int back)
{
    memset(from, out, BYTES);
    memset(to, 0, BYTES);
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(to[0] == back && to[BYTES - 1] == back, "%d went out, %d and %d came back", out, to[0],
          to[BYTES - 1]);
}

static CUgraphNode find_copy_in(CUgraph graph)
{
    CUgraphNode outer, inner[2];
    CUgraphNodeType type;
    size_t count = 1;
    CUgraph child;

    CHECK_CU(cuGraphGetNodes(graph, &outer, &count));
    CHECK_CU(cuGraphNodeGetType(outer, &type));
    CHECK(count == 1 && type == CU_GRAPH_NODE_TYPE_GRAPH, "%zu nodes, the first of type %d", count,
          (int)type);
    CHECK_CU(cuGraphChildGraphNodeGetGraph(outer, &child));
    count = 2;
    CHECK_CU(cuGraphGetNodes(child, inner, &count));
    CHECK(count == 2, "the child has %zu nodes", count);
    return inner[0];
}

int main(void)
{
    CUgraphExec executable, outer;
    CUdeviceptr memory;
    CUgraphNode copy;
    CUstream stream;
    CUgraph graph;
    struct client c;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    memory = client_alloc(BYTES);
    executable = make_round_trip(stream, memory);
    check_trip(executable, stream, 3, 3);
    check_trip(executable, stream, 4, 4);
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphInstantiate(&outer, graph, 0));
    check_trip(outer, stream, 5, 5);
    copy = find_copy_in(graph);
    CHECK_CU(cuGraphNodeSetEnabled(outer, copy, 0));
    check_trip(outer, stream, 6, 5);
    CHECK_CU(cuGraphNodeSetEnabled(outer, copy, 1));
    check_trip(outer, stream, 7, 7);
    client_pass("1 MiB of pageable memory went out and back, alone and as a child graph");
}
