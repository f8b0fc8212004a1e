/* Rule: an allocation node's memory is there while its graph uses it: taken by the first launch,
 * kept by the graph allocator after the free until a trim; a graph whose allocation was not freed
 * cannot be launched again, unless it was instantiated to free it itself.
 * Source: CUDA Programming Guide, "Graph Memory Nodes"; CUDA Driver API, cuGraphAddMemAllocNode,
 * cuDeviceGetGraphMemAttribute, cuDeviceGraphMemTrim.
 */
#include "client.h"

#define BYTES (10u << 20)
#define COUNT 1000u

static uint64_t attribute(CUgraphMem_attribute which)
{
    cuuint64_t value = 0;

    CHECK_CU(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

/* Allocates, fills, and leaves the node of the fill in *last. */
static CUgraph make_graph(const struct client *c, uint32_t value, CUdeviceptr *memory,
                          CUgraphNode *last)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.bytesize = BYTES};
    CUDA_MEMSET_NODE_PARAMS fill = {.elementSize = 4, .width = COUNT, .height = 1, .value = value};
    CUgraph graph;
    CUgraphNode node;

    alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    CHECK(alloc.dptr, "an allocation node without an address");
    fill.dst = alloc.dptr;
    CHECK_CU(cuGraphAddMemsetNode(last, graph, &node, 1, &fill, c->context));
    *memory = alloc.dptr;
    return graph;
}

static void check_filled(CUstream stream, CUdeviceptr memory, uint32_t value)
{
    uint32_t words[COUNT];

    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemcpyDtoH(words, memory, sizeof words));
    CHECK(words[0] == value && words[COUNT - 1] == value, "the graph's memory holds %u and %u",
          words[0], words[COUNT - 1]);
}

static void check_not_freed(const struct client *c, CUstream stream)
{
    CUgraphExec executable, freeing;
    CUdeviceptr memory;
    CUgraphNode last;
    CUgraph graph = make_graph(c, 7, &memory, &last);

    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    CHECK_CU(cuGraphLaunch(executable, stream));
    check_filled(stream, memory, 7);
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) >= BYTES, "nothing is told to be used");
    EXPECT_CU(cuGraphLaunch(executable, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemFree(memory));
    CHECK_CU(cuGraphExecDestroy(executable));
    CHECK_CU(cuGraphInstantiate(&freeing, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    CHECK_CU(cuGraphLaunch(freeing, stream));
    CHECK_CU(cuGraphLaunch(freeing, stream));
    check_filled(stream, memory, 7);
    CHECK_CU(cuMemFree(memory));
    CHECK_CU(cuGraphExecDestroy(freeing));
    CHECK_CU(cuGraphDestroy(graph));
}

/* The graph frees what it allocates: it can be launched at will, and holds memory until a trim. */
static void check_freed(const struct client *c, CUstream stream)
{
    CUgraphExec executable;
    CUdeviceptr memory;
    CUgraphNode last, node;
    CUgraph graph = make_graph(c, 9, &memory, &last);

    CHECK_CU(cuGraphAddMemFreeNode(&node, graph, &last, 1, memory));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++)
        CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) >= BYTES, "no high mark");
    CHECK_CU(cuGraphExecDestroy(executable));
    CHECK_CU(cuGraphDestroy(graph));
}

int main(void)
{
    size_t before, after, total;
    CUstream stream;
    struct client c;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuMemGetInfo(&before, &total));
    check_not_freed(&c, stream);
    check_freed(&c, stream);
    CHECK_CU(cuDeviceGraphMemTrim(0));
    CHECK(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0, "memory is still told to be used");
    CHECK(attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0, "a trim left memory");
    CHECK_CU(cuMemGetInfo(&after, &total));
    CHECK(after + (4u << 20) >= before, "%zu bytes did not come back", before - after);
    client_pass("graphs took 10 MiB at their launch and a trim gave it back");
}
