/* Rule: the body of a conditional node runs when its handle's default value says so, each time
 * that the graph is launched; such a graph can neither be cloned nor be a child, and one executable
 * graph of it may exist at a time.
 * Source: CUDA Driver API, cuGraphConditionalHandleCreate, CUDA_CONDITIONAL_NODE_PARAMS,
 * CU_GRAPH_NODE_TYPE_CONDITIONAL.
 */
#include "client.h"

static struct client c;

static CUgraphNode add(CUgraph graph, CUgraphNode after, CUdeviceptr word, uint32_t value)
{
    void *arguments[] = {&word, &value};
    CUDA_KERNEL_NODE_PARAMS params = {.func = c.add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                                      .kernelParams = arguments};
    CUgraphNode node;

    CHECK_CU(cuGraphAddKernelNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params));
    return node;
}

/* A conditional node at the beginning of a graph; its bodies. */
static CUgraphNode condition(CUgraph graph, CUgraphConditionalNodeType type, unsigned size,
                             unsigned value, CUgraph **bodies)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphNodeType found;
    CUgraphNode node;

    CHECK_CU(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, c.context, value,
                                            CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = c.context;
#if CUDA_VERSION >= 13000
    CHECK_CU(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
#else
    CHECK_CU(cuGraphAddNode(&node, graph, NULL, 0, &params));
#endif
    CHECK_CU(cuGraphNodeGetType(node, &found));
    CHECK(found == CU_GRAPH_NODE_TYPE_CONDITIONAL, "the node is of type %d", (int)found);
    *bodies = params.conditional.phGraph_out;
    return node;
}

static uint32_t launch(CUgraphExec executable, CUdeviceptr word, CUstream stream)
{
    uint32_t seen;

    CHECK_CU(cuMemsetD32(word, 0, 1));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuGraphLaunch(executable, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemcpyDtoH(&seen, word, 4));
    return seen;
}

static void check_refusals(CUgraph graph)
{
    CUgraph copy, parent;
    CUgraphExec second;
    CUgraphNode node;

    CHECK(cuGraphClone(&copy, graph) != CUDA_SUCCESS, "the graph can be cloned");
    CHECK_CU(cuGraphCreate(&parent, 0));
    CHECK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph) != CUDA_SUCCESS,
          "the graph can be a child");
    CHECK(cuGraphInstantiate(&second, graph, 0) != CUDA_SUCCESS,
          "two executable graphs of one graph exist");
    CHECK_CU(cuGraphDestroy(parent));
}

/* Adds 1 in the first body, 10 in the second, 100 behind it; twice what one launch added. */
static uint32_t run(CUgraphConditionalNodeType type, unsigned size, unsigned value)
{
    CUdeviceptr word = client_alloc(4);
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraphExec executable;
    CUgraph graph, *bodies;
    CUgraphNode node;
    uint32_t seen;

    CHECK_CU(cuGraphCreate(&graph, 0));
    node = condition(graph, type, size, value, &bodies);
    add(bodies[0], NULL, word, 1);
    if (size > 1)
        add(bodies[1], NULL, word, 10);
    add(graph, node, word, 100);
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    check_refusals(graph);
    seen = launch(executable, word, stream);
    CHECK_CU(cuGraphExecDestroy(executable));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK(launch(executable, word, stream) == seen, "the second executable graph differs");
    CHECK_CU(cuGraphExecDestroy(executable));
    return seen;
}

static void expect(const char *what, uint32_t seen, uint32_t wanted)
{
    CHECK(seen == wanted, "%s: %u, not %u", what, seen, wanted);
}

int main(void)
{
    client_open(&c);
    if (!client_symbol("cuGraphConditionalHandleCreate"))
        client_skip("the driver has no conditional nodes");
    expect("if, 1", run(CU_GRAPH_COND_TYPE_IF, 1, 1), 202);
    expect("if, 0", run(CU_GRAPH_COND_TYPE_IF, 1, 0), 200);
    expect("if or else, 3", run(CU_GRAPH_COND_TYPE_IF, 2, 3), 202);
    expect("if or else, 0", run(CU_GRAPH_COND_TYPE_IF, 2, 0), 220);
    expect("switch, 1", run(CU_GRAPH_COND_TYPE_SWITCH, 2, 1), 220);
    expect("switch, 5", run(CU_GRAPH_COND_TYPE_SWITCH, 2, 5), 200);
    expect("while, 0", run(CU_GRAPH_COND_TYPE_WHILE, 1, 0), 200);
    client_pass("the bodies ran that the values said");
}
