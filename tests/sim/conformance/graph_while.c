/* Rule: the body of a WHILE node whose value is not 0 runs SIMCUDA_ROUNDS times, as if device code
 * then set the value to 0; the launch is one graph with the time of all rounds.
 * Source: tests/sim/README.md, settings; the simulated device runs no device code. Simulator only.
 */
#include "client.h"
#include "trace.h"

enum { ROUNDS = 5 };

static CUgraphExec loop(const struct client *c, uint64_t ns)
{
    void *arguments[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = c->spin, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
                                      .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                                      .kernelParams = arguments};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUgraphExec executable;
    CUgraphNode node;
    CUgraph graph;

    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, c->context, 1,
                                            CU_GRAPH_COND_ASSIGN_DEFAULT));
    params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
    params.conditional.size = 1;
#if CUDA_VERSION >= 13000
    CHECK_CU(cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
#else
    CHECK_CU(cuGraphAddNode(&node, graph, NULL, 0, &params));
#endif
    CHECK_CU(cuGraphAddKernelNode(&node, params.conditional.phGraph_out[0], NULL, 0, &kernel));
    CHECK_CU(cuGraphInstantiate(&executable, graph, 0));
    return executable;
}

int main(void)
{
    struct trace_run run;
    struct client c;
    FILE *trace;
    uint64_t took;

    client_setting("SIMCUDA_ROUNDS", "5");
    client_open(&c);
    trace = trace_open();
    CHECK_CU(cuGraphLaunch(loop(&c, 2 * MS), NULL));
    CHECK_CU(cuCtxSynchronize());
    client_sleep(100 * MS);
    do
        CHECK(trace_next_run(trace, &run), "the trace has no graph");
    while (strcmp(run.kind, "graph") != 0 || run.pid != getpid());
    took = run.end - run.start;
    CHECK(took == ROUNDS * 2 * MS, "the graph took %llu ns", (unsigned long long)took);
    CHECK(!trace_next_run(trace, &run) || strcmp(run.kind, "graph") != 0, "more than one graph");
    client_pass("five rounds of 2 ms ran as one graph of 10 ms");
}
