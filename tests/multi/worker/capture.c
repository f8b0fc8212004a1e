/*
 * capture: commands that record streams into graphs and replay them.
 */
#include <stdio.h>
#include <string.h>

#include "worker.h"

static CUstreamCaptureMode capture_mode(const char *name)
{
    if (!strcmp(name, "relaxed"))
        return CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!strcmp(name, "thread"))
        return CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    return CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* capture global|thread|relaxed [STREAM] */
static void capture_begin(struct job *job)
{
    CUstream stream = worker_stream(job_number(job, 2, 4));

    job_answer(job, "%d",
               (int)cu.cuStreamBeginCapture_v2(stream, capture_mode(job_text(job, 1, ""))));
}

/* captured [STREAM]: ends it; `result nodes`, and keeps the graph for `replay` */
static void capture_end(struct job *job)
{
    CUgraph graph = NULL;
    size_t nodes = 0;
    CUresult rc = cu.cuStreamEndCapture(worker_stream(job_number(job, 1, 4)), &graph);

    if (rc == CUDA_SUCCESS)
        rc = cu.cuGraphGetNodes(graph, NULL, &nodes);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuGraphInstantiateWithFlags(&worker.graph, graph, 0);
    worker.recorded = graph;
    job_answer(job, "%d %zu", (int)rc, nodes);
}

/* retune NS: every kernel of the executable graph lasts so long from now on; `result nodes` */
static void capture_retune(struct job *job)
{
    CUgraphNode nodes[16];
    size_t count = sizeof nodes / sizeof nodes[0];
    uint64_t ns = job_number(job, 1, 0);
    void *arguments[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    CUresult rc = cu.cuGraphGetNodes(worker.recorded, nodes, &count);

    for (size_t i = 0; rc == CUDA_SUCCESS && i < count; i++) {
        rc = cu.cuGraphKernelNodeGetParams_v2(nodes[i], &params);
        params.kernelParams = arguments;
        if (rc == CUDA_SUCCESS)
            rc = cu.cuGraphExecKernelNodeSetParams_v2(worker.graph, nodes[i], &params);
    }
    job_answer(job, "%d %zu", (int)rc, count);
}

/* recording [STREAM]: `result status` */
static void capture_status(struct job *job)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult rc = cu.cuStreamIsCapturing(worker_stream(job_number(job, 1, 4)), &status);

    job_answer(job, "%d %d", (int)rc, (int)status);
}

/* replay MS [BATCH] [STREAM]: launches the graph for so long, a synchronise after each BATCH;
 * `result count` */
static void capture_replay(struct job *job)
{
    uint64_t until = worker_now() + job_number(job, 1, 0) * MS, count = 0;
    uint64_t batch = job_number(job, 2, 1);
    CUstream stream = worker_stream(job_number(job, 3, 4));
    CUresult rc = CUDA_SUCCESS;

    while (rc == CUDA_SUCCESS && worker_now() < until) {
        rc = cu.cuGraphLaunch(worker.graph, stream);
        if (rc == CUDA_SUCCESS && ++count % batch == 0)
            rc = cu.cuStreamSynchronize(stream);
    }
    if (rc == CUDA_SUCCESS)
        rc = cu.cuStreamSynchronize(stream);
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)count);
}

/* record ROUNDS MODE: captures, ends, replays, all in one go, so that a neighbour's turns fall on
 * every part of it; `result rounds` */
static void capture_rounds(struct job *job)
{
    uint64_t rounds = job_number(job, 1, 1), done = 0;
    CUstream stream = worker_stream(4);
    CUgraph graph;
    CUgraphExec exec;
    CUresult rc = CUDA_SUCCESS;

    for (; rc == CUDA_SUCCESS && done < rounds; done++) {
        rc = cu.cuStreamBeginCapture_v2(stream, capture_mode(job_text(job, 2, "")));
        for (int i = 0; rc == CUDA_SUCCESS && i < 5; i++) {
            rc = worker_spin(stream, 100000);
            worker_sleep(2 * MS);
        }
        if (rc == CUDA_SUCCESS)
            rc = cu.cuStreamEndCapture(stream, &graph);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuGraphInstantiateWithFlags(&exec, graph, 0);
        for (int i = 0; rc == CUDA_SUCCESS && i < 5; i++)
            rc = cu.cuGraphLaunch(exec, stream);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuStreamSynchronize(stream);
    }
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)done);
}

const struct command commands_capture[] = {
    {"capture", capture_begin},
    {"captured", capture_end},
    {"recording", capture_status},
    {"replay", capture_replay},
    {"record", capture_rounds},
    {"retune", capture_retune},
    {NULL, NULL},
};
