/*
 * launch: commands that put work on the GPU, and commands that wait for it. Answers of timed ones
 * are `result start end`, in nanoseconds of CLOCK_MONOTONIC.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "worker.h"

static CUresult launch_kernel(CUfunction function, CUstream stream, void **arguments)
{
    return cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

CUresult worker_spin(CUstream stream, uint64_t ns)
{
    void *arguments[] = {&ns};

    return launch_kernel(worker.spin, stream, arguments);
}

static void launch_timed(struct job *job, CUresult rc, uint64_t start)
{
    job_answer(job, "%d %llu %llu", (int)rc, (unsigned long long)start,
               (unsigned long long)worker_now());
}

/* spin NS [COUNT] [STREAM] */
static void launch_spin(struct job *job)
{
    uint64_t ns = job_number(job, 1, 0), count = job_number(job, 2, 1), start = worker_now();
    CUstream stream = worker_stream(job_number(job, 3, 0));
    CUresult rc = CUDA_SUCCESS;

    for (uint64_t i = 0; rc == CUDA_SUCCESS && i < count; i++)
        rc = worker_spin(stream, ns);
    launch_timed(job, rc, start);
}

/* hold [STREAM]: a kernel that ends at the next `release` */
static void launch_hold(struct job *job)
{
    uint64_t start = worker_now();
    uint32_t value = ++worker.flag_value;
    void *arguments[] = {&worker.flag_device, &value};

    launch_timed(job, launch_kernel(worker.wait, worker_stream(job_number(job, 1, 0)), arguments),
                 start);
}

static void launch_release(struct job *job)
{
    *worker.flag = worker.flag_value;
    job_answer(job, "0");
}

/* await STREAM: the stream waits for the next `release`, of this process's host memory */
static void launch_await(struct job *job)
{
    uint64_t start = worker_now();

    launch_timed(job,
                 cu.cuStreamWaitValue32_v2(worker_stream(job_number(job, 1, 4)), worker.flag_device,
                                           ++worker.flag_value, CU_STREAM_WAIT_VALUE_GEQ),
                 start);
}

static void launch_host(void *ns)
{
    worker_sleep((uint64_t)(uintptr_t)ns);
}

/* hostfn STREAM MS: a host function that takes so long */
static void launch_hostfn(struct job *job)
{
    uint64_t start = worker_now();
    void *ns = (void *)(uintptr_t)(job_number(job, 2, 0) * MS);

    launch_timed(job, cu.cuLaunchHostFunc(worker_stream(job_number(job, 1, 4)), launch_host, ns),
                 start);
}

/* share STREAM: an event for other processes, recorded in the stream; `result HANDLE` */
static void launch_share(struct job *job)
{
    CUipcEventHandle handle;
    char text[2 * sizeof handle.reserved + 1] = "";
    CUevent event;
    CUresult rc = cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);

    if (rc == CUDA_SUCCESS)
        rc = cu.cuIpcGetEventHandle(&handle, event);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuEventRecord(event, worker_stream(job_number(job, 1, 4)));
    for (size_t i = 0; rc == CUDA_SUCCESS && i < sizeof handle.reserved; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned char)handle.reserved[i]);
    job_answer(job, "%d %s", (int)rc, text);
}

/* follow STREAM HANDLE: the stream waits for another process's event */
static void launch_follow(struct job *job)
{
    const char *text = job_text(job, 2, "");
    uint64_t start = worker_now();
    CUipcEventHandle handle = {{0}};
    CUevent event;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    unsigned byte;

    for (size_t i = 0; i < sizeof handle.reserved && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
        handle.reserved[i] = (char)byte;
    rc = cu.cuIpcOpenEventHandle(&event, handle);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuStreamWaitEvent(worker_stream(job_number(job, 1, 4)), event, 0);
    launch_timed(job, rc, start);
}

/* flagged ROUNDS: a kernel that spins on a word which this very thread sets after two more
 * launches */
static void launch_flagged(struct job *job)
{
    uint64_t start = worker_now();
    CUresult rc = CUDA_SUCCESS;

    for (uint64_t i = job_number(job, 1, 1); rc == CUDA_SUCCESS && i > 0; i--) {
        uint32_t value = ++worker.flag_value;
        void *arguments[] = {&worker.flag_device, &value};
        rc = launch_kernel(worker.wait, worker_stream(4), arguments);
        for (int k = 0; rc == CUDA_SUCCESS && k < 2; k++)
            rc = worker_spin(worker_stream(4), 10000);
        *worker.flag = value;
        if (rc == CUDA_SUCCESS)
            rc = cu.cuStreamSynchronize(worker_stream(4));
    }
    launch_timed(job, rc, start);
}

/* sync [context|event|STREAM] */
static void launch_sync(struct job *job)
{
    const char *what = job_text(job, 1, "context");
    uint64_t start = worker_now();
    CUresult rc;
    CUevent event;

    if (!strcmp(what, "context")) {
        rc = cu.cuCtxSynchronize();
    } else if (!strcmp(what, "event")) {
        rc = cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuEventRecord(event, NULL);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuEventSynchronize(event);
    } else {
        rc = cu.cuStreamSynchronize(worker_stream(job_number(job, 1, 0)));
    }
    launch_timed(job, rc, start);
}

struct loop {
    uint64_t until;
    uint64_t ns;
    uint64_t batch; /* launches between two synchronises; 0: none but at the end */
    CUstream stream;
    uint64_t count;
    CUresult rc;
};

static void *launch_loop_run(void *arg)
{
    struct loop *loop = arg;

    cu.cuCtxSetCurrent(worker.context);
    while (loop->rc == CUDA_SUCCESS && worker_now() < loop->until) {
        loop->rc = worker_spin(loop->stream, loop->ns);
        loop->count++;
        if (loop->rc == CUDA_SUCCESS && loop->batch && loop->count % loop->batch == 0)
            loop->rc = cu.cuStreamSynchronize(loop->stream);
    }
    if (loop->rc == CUDA_SUCCESS)
        loop->rc = cu.cuStreamSynchronize(loop->stream);
    return NULL;
}

/* loop MS NS BATCH [STREAM]: kernels of NS for so long; `result count` */
static void launch_loop(struct job *job)
{
    struct loop loop = {.until = worker_now() + job_number(job, 1, 0) * MS,
                        .ns = job_number(job, 2, 0),
                        .batch = job_number(job, 3, 0),
                        .stream = worker_stream(job_number(job, 4, 0))};

    launch_loop_run(&loop);
    job_answer(job, "%d %llu", (int)loop.rc, (unsigned long long)loop.count);
}

/* overlapping MS NS EVERY [STREAM [SIZES]]: kernels for so long that ask to overlap with the one
 * before; each EVERYth (0: none) does not; `result count` */
static void launch_overlapping(struct job *job)
{
    uint64_t until = worker_now() + job_number(job, 1, 0) * MS, ns = job_number(job, 2, 0);
    uint64_t every = job_number(job, 3, 0), count = 0, launched = 0;
    uint64_t sizes = job_number(job, 5, 1);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = worker_stream(job_number(job, 4, 4)),
                             .attrs = &attribute};
    void *arguments[] = {&ns};
    CUresult rc = CUDA_SUCCESS;

    attribute.value.programmaticStreamSerializationAllowed = 1;
    while (rc == CUDA_SUCCESS && worker_now() < until) {
        config.numAttrs = !every || ++count % every ? 1 : 0;
        config.gridDimX = 1u << launched++ % sizes * 4;
        rc = cu.cuLaunchKernelEx(&config, worker.spin, arguments, NULL);
        count += !every;
        if (rc == CUDA_SUCCESS && count % 500 == 0)
            rc = cu.cuStreamSynchronize(config.hStream);
    }
    if (rc == CUDA_SUCCESS)
        rc = cu.cuStreamSynchronize(config.hStream);
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)count);
}

/* phases MS NS COUNT LONG_NS LONGS [STREAM]: for so long COUNT kernels of one block and NS, then
 * LONGS of 64 blocks and LONG_NS, and again, all queued; `result count` */
static void launch_phases(struct job *job)
{
    uint64_t until = worker_now() + job_number(job, 1, 0) * MS, done = 0;
    uint64_t count = job_number(job, 3, 1), all = count + job_number(job, 5, 1);
    CUstream stream = worker_stream(job_number(job, 6, 0));
    CUresult rc = CUDA_SUCCESS;

    for (; rc == CUDA_SUCCESS && worker_now() < until; done++) {
        bool is_short = done % all < count;
        uint64_t ns = job_number(job, is_short ? 2 : 4, 0);
        void *arguments[] = {&ns};
        rc = cu.cuLaunchKernel(worker.spin, is_short ? 1 : 64, 1, 1, 1, 1, 1, 0, stream, arguments,
                               NULL);
    }
    if (rc == CUDA_SUCCESS)
        rc = cu.cuStreamSynchronize(stream);
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)done);
}

/* crowd MS NS BATCH THREADS: the same in several threads, each with a stream of its own */
static void launch_crowd(struct job *job)
{
    struct loop loops[16];
    pthread_t threads[16];
    uint64_t n = job_number(job, 4, 1), count = 0;
    CUresult rc = CUDA_SUCCESS;

    if (n > 16)
        n = 16;
    for (uint64_t i = 0; i < n; i++) {
        loops[i] = (struct loop){.until = worker_now() + job_number(job, 1, 0) * MS,
                                 .ns = job_number(job, 2, 0),
                                 .batch = job_number(job, 3, 0)};
        cu.cuStreamCreate(&loops[i].stream, CU_STREAM_NON_BLOCKING);
        if (pthread_create(&threads[i], NULL, launch_loop_run, &loops[i]))
            n = i;
    }
    for (uint64_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        count += loops[i].count;
        rc = rc == CUDA_SUCCESS ? loops[i].rc : rc;
    }
    job_answer(job, "%d %llu %llu", (int)rc, (unsigned long long)count, (unsigned long long)n);
}

/* bursts MS NS COUNT PAUSE_US [EACH]: COUNT kernels, a synchronise (with EACH one behind every
 * kernel), a pause, and again; `result bursts` */
static void launch_bursts(struct job *job)
{
    uint64_t until = worker_now() + job_number(job, 1, 0) * MS, bursts = 0;
    uint64_t ns = job_number(job, 2, 0), count = job_number(job, 3, 1);
    uint64_t each = job_number(job, 5, 0);
    CUresult rc = CUDA_SUCCESS;

    while (rc == CUDA_SUCCESS && worker_now() < until) {
        for (uint64_t i = 0; rc == CUDA_SUCCESS && i < count; i++) {
            rc = worker_spin(NULL, ns);
            if (rc == CUDA_SUCCESS && each)
                rc = cu.cuCtxSynchronize();
        }
        if (rc == CUDA_SUCCESS)
            rc = cu.cuCtxSynchronize();
        bursts++;
        worker_sleep(job_number(job, 4, 0) * 1000);
    }
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)bursts);
}

/* fault: a kernel that writes where nothing is, and what the next synchronise says */
static void launch_fault(struct job *job)
{
    uint64_t start = worker_now();
    CUresult rc = launch_kernel(worker.fault, NULL, NULL);

    if (rc == CUDA_SUCCESS)
        rc = cu.cuCtxSynchronize();
    launch_timed(job, rc, start);
}

/* query [STREAM] */
static void launch_query(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuStreamQuery(worker_stream(job_number(job, 1, 0))));
}

/* ---- Every entry point that submits work, by its exported name ------------------------------- */

#define LAUNCH_GRID 1, 1, 1, 1, 1, 1, 0

static CUresult launch_by_ex(__typeof__(cuLaunchKernelEx) *function, CUstream stream,
                             void **arguments)
{
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};

    return function(&config, worker.spin, arguments, NULL);
}

static CUresult launch_by_list(CUstream stream, void **arguments)
{
    CUDA_LAUNCH_PARAMS list = {.function = worker.spin,
                               .gridDimX = 1,
                               .gridDimY = 1,
                               .gridDimZ = 1,
                               .blockDimX = 1,
                               .blockDimY = 1,
                               .blockDimZ = 1,
                               .hStream = stream,
                               .kernelParams = arguments};

    return cu.cuLaunchCooperativeKernelMultiDevice(&list, 1, 0);
}

#define ENTRY(which, ...) \
    if (!strcmp(name, #which)) \
        return cu.which(__VA_ARGS__);

static CUresult launch_copy_entry(const char *name, CUstream stream)
{
    CUdeviceptr p = worker.pad, q = worker.pad + PAD_BYTES / 2;
    CUdeviceptr_v1 p1 = (CUdeviceptr_v1)p, q1 = (CUdeviceptr_v1)q;
    CUarray a = worker.array[0], b = worker.array[1];
    CUcontext here = worker.context;

#define COPIES(suffix) \
    ENTRY(cuMemcpyDtoD_v2##suffix, p, q, 4096) \
    ENTRY(cuMemcpyAtoD_v2##suffix, p, a, 0, 4096) \
    ENTRY(cuMemcpyDtoA_v2##suffix, a, 0, p, 4096) \
    ENTRY(cuMemcpyAtoA_v2##suffix, a, 0, b, 0, 4096) \
    ENTRY(cuMemcpyPeer##suffix, p, here, q, here, 4096)
    COPIES()
    COPIES(_ptds)
    ENTRY(cuMemcpyDtoDAsync_v2, p, q, 4096, stream)
    ENTRY(cuMemcpyDtoDAsync_v2_ptsz, p, q, 4096, stream)
    ENTRY(cuMemcpyPeerAsync, p, here, q, here, 4096, stream)
    ENTRY(cuMemcpyPeerAsync_ptsz, p, here, q, here, 4096, stream)
    ENTRY(cuMemcpyDtoD, p1, q1, 4096)
    ENTRY(cuMemcpyAtoD, p1, a, 0, 4096)
    ENTRY(cuMemcpyDtoA, a, 0, p1, 4096)
    ENTRY(cuMemcpyAtoA, a, 0, b, 0, 4096)
    ENTRY(cuMemcpyDtoDAsync, p1, q1, 4096, stream)
    return (CUresult)-1;
}

static CUresult launch_entry(const char *name, CUstream stream)
{
    uint64_t ns = 100000;
    void *arguments[] = {&ns};
    CUdeviceptr p = worker.pad;

    ENTRY(cuLaunchKernel, worker.spin, LAUNCH_GRID, stream, arguments, NULL)
    ENTRY(cuLaunchKernel_ptsz, worker.spin, LAUNCH_GRID, stream, arguments, NULL)
    ENTRY(cuLaunchCooperativeKernel, worker.spin, LAUNCH_GRID, stream, arguments)
    ENTRY(cuLaunchCooperativeKernel_ptsz, worker.spin, LAUNCH_GRID, stream, arguments)
    if (!strcmp(name, "cuLaunchKernelEx"))
        return launch_by_ex(cu.cuLaunchKernelEx, stream, arguments);
    if (!strcmp(name, "cuLaunchKernelEx_ptsz"))
        return launch_by_ex(cu.cuLaunchKernelEx_ptsz, stream, arguments);
    if (!strcmp(name, "cuLaunchCooperativeKernelMultiDevice"))
        return launch_by_list(stream, arguments);
    ENTRY(cuLaunch, worker.noop)
    ENTRY(cuLaunchGrid, worker.noop, 1, 1)
    ENTRY(cuLaunchGridAsync, worker.noop, 1, 1, stream)
    ENTRY(cuGraphLaunch, worker.graph, stream)
    ENTRY(cuGraphLaunch_ptsz, worker.graph, stream)
#define SETS(bits) \
    ENTRY(cuMemsetD##bits, (CUdeviceptr_v1)p, 7, 256) \
    ENTRY(cuMemsetD2D##bits, (CUdeviceptr_v1)p, 512, 7, 16, 16) \
    ENTRY(cuMemsetD##bits##_v2, p, 7, 256) \
    ENTRY(cuMemsetD##bits##_v2_ptds, p, 7, 256) \
    ENTRY(cuMemsetD##bits##Async, p, 7, 256, stream) \
    ENTRY(cuMemsetD##bits##Async_ptsz, p, 7, 256, stream) \
    ENTRY(cuMemsetD2D##bits##_v2, p, 512, 7, 16, 16) \
    ENTRY(cuMemsetD2D##bits##_v2_ptds, p, 512, 7, 16, 16) \
    ENTRY(cuMemsetD2D##bits##Async, p, 512, 7, 16, 16, stream) \
    ENTRY(cuMemsetD2D##bits##Async_ptsz, p, 512, 7, 16, 16, stream)
    SETS(8)
    SETS(16)
    SETS(32)
    return launch_copy_entry(name, stream);
}

/* call NAME [STREAM] */
static void launch_call(struct job *job)
{
    CUstream stream = worker_stream(job_number(job, 2, 0));
    uint64_t start = worker_now();

    launch_timed(job, launch_entry(job_text(job, 1, ""), stream), start);
}

/* pad: the scratch memory that `call` needs for memsets and copies, and the old launches' shape */
static void launch_pad(struct job *job)
{
    CUDA_ARRAY_DESCRIPTOR d = {
        .Width = 4096, .Height = 0, .NumChannels = 1, .Format = CU_AD_FORMAT_FLOAT};
    CUresult rc = worker.pad ? CUDA_SUCCESS : cu.cuMemAlloc_v2(&worker.pad, PAD_BYTES);

    for (int i = 0; rc == CUDA_SUCCESS && i < 2; i++)
        if (!worker.array[i])
            rc = cu.cuArrayCreate_v2(&worker.array[i], &d);
    cu.cuFuncSetBlockShape(worker.noop, 1, 1, 1);
    job_answer(job, "%d", (int)rc);
}

const struct command commands_launch[] = {
    {"spin", launch_spin},
    {"hold", launch_hold},
    {"release", launch_release},
    {"await", launch_await},
    {"hostfn", launch_hostfn},
    {"share", launch_share},
    {"follow", launch_follow},
    {"flagged", launch_flagged},
    {"sync", launch_sync},
    {"loop", launch_loop},
    {"crowd", launch_crowd},
    {"phases", launch_phases},
    {"overlapping", launch_overlapping},
    {"bursts", launch_bursts},
    {"fault", launch_fault},
    {"query", launch_query},
    {"call", launch_call},
    {"pad", launch_pad},
    {NULL, NULL},
};
