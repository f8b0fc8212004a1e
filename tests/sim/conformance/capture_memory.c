/* Rule: stream-ordered allocations and frees in a capture become memory nodes: nothing is allocated
 * before the launch, captured work may use the address, and every launch finds the memory there.
 * Source: CUDA Programming Guide, "Graph Memory Nodes", "Stream Capture".
 */
#include "client.h"

#define BYTES (1u << 20)
#define WORD 77u

static CUgraph record(const struct client *c, CUstream stream, uint32_t *seen)
{
    CUdeviceptr memory = 0;
    CUgraph graph;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(cuMemAllocAsync(&memory, BYTES, stream));
    CHECK(memory, "a captured allocation without an address");
    CHECK_CU(cuMemsetD32Async(memory, WORD, BYTES / 4, stream));
    client_add(c, stream, memory, 1);
    CHECK_CU(cuMemcpyDtoHAsync(seen, memory, sizeof *seen, stream));
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    return graph;
}

int main(void)
{
    size_t count = 5, before, after, total;
    CUgraphNode nodes[5];
    CUgraphNodeType first, last;
    CUgraphExec executable;
    CUdeviceptr ignored;
    CUstream stream;
    CUgraph graph;
    struct client c;
    uint32_t *seen;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    seen = client_pinned(sizeof *seen, &ignored);
    CHECK_CU(cuMemGetInfo(&before, &total));
    graph = record(&c, stream, seen);
    CHECK_CU(cuMemGetInfo(&after, &total));
    CHECK(before == after, "recording took %zd bytes", (ssize_t)(before - after));
    CHECK_CU(cuGraphGetNodes(graph, nodes, &count));
    CHECK(count == 5, "%zu nodes", count);
    CHECK_CU(cuGraphNodeGetType(nodes[0], &first));
    CHECK_CU(cuGraphNodeGetType(nodes[4], &last));
    CHECK(first == CU_GRAPH_NODE_TYPE_MEM_ALLOC && last == CU_GRAPH_NODE_TYPE_MEM_FREE,
          "the ends are nodes of types %d and %d", (int)first, (int)last);
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++) {
        *seen = 0;
        CHECK_CU(cuGraphLaunch(executable, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK(*seen == WORD + 1, "launch %d saw %u", i, *seen);
    }
    CHECK_CU(cuGraphExecDestroy(executable));
    CHECK_CU(cuGraphDestroy(graph));
    client_pass("a captured allocation was used by three launches of its graph");
}
