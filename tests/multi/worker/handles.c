/*
 * handles: commands that make contexts, streams and threads and take them away again while their
 * work is still under way, so that whoever looks after that work meets handles that go. Answers are
 * `result rounds`.
 */
#include <pthread.h>
#include <stdio.h>

#include "worker.h"

static CUresult handles_spin(CUstream stream, unsigned count)
{
    CUresult rc = CUDA_SUCCESS;

    for (unsigned i = 0; rc == CUDA_SUCCESS && i < count; i++)
        rc = worker_spin(stream, 300000);
    return rc;
}

/* contexts ROUNDS: a context of its own for each few kernels */
static void handles_contexts(struct job *job)
{
    uint64_t rounds = job_number(job, 1, 1), done = 0;
    CUcontext before = worker.context;
    CUresult rc = CUDA_SUCCESS;

    for (; rc == CUDA_SUCCESS && done < rounds; done++) {
        CUcontext context;
        rc = cu.cuCtxCreate_v2(&context, 0, worker.device);
        if (rc == CUDA_SUCCESS)
            rc = worker_load();
        if (rc == CUDA_SUCCESS)
            rc = handles_spin(NULL, 5);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuCtxDestroy_v2(context);
    }
    cu.cuCtxSetCurrent(before);
    if (rc == CUDA_SUCCESS)
        rc = worker_load();
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)done);
}

/* resets ROUNDS: the primary context, reset under its work */
static void handles_resets(struct job *job)
{
    uint64_t rounds = job_number(job, 1, 1), done = 0;
    CUresult rc = CUDA_SUCCESS;

    for (; rc == CUDA_SUCCESS && done < rounds; done++) {
        rc = handles_spin(NULL, 5);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuDevicePrimaryCtxReset_v2(worker.device);
        if (rc == CUDA_SUCCESS)
            rc = worker_open((int)worker.device);
    }
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)done);
}

/* unretain: what one `open` has retained of the primary context; `result` */
static void handles_unretain(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuDevicePrimaryCtxRelease_v2(worker.device));
}

/* streams ROUNDS: destroyed with work in them */
static void handles_streams(struct job *job)
{
    uint64_t rounds = job_number(job, 1, 1), done = 0;
    CUresult rc = CUDA_SUCCESS;

    for (; rc == CUDA_SUCCESS && done < rounds; done++) {
        CUstream stream;
        rc = cu.cuStreamCreate(&stream, done % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        if (rc == CUDA_SUCCESS)
            rc = handles_spin(stream, 3);
        if (rc == CUDA_SUCCESS)
            rc = cu.cuStreamDestroy_v2(stream);
    }
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)done);
}

static void *handles_moth(void *arg)
{
    CUresult *rc = arg;

    *rc = cu.cuCtxSetCurrent(worker.context);
    if (*rc == CUDA_SUCCESS)
        *rc = handles_spin(CU_STREAM_PER_THREAD, 3);
    return NULL;
}

/* moths ROUNDS: threads that launch into their own default stream and end */
static void handles_moths(struct job *job)
{
    uint64_t rounds = job_number(job, 1, 1), done = 0;
    CUresult rc = CUDA_SUCCESS;

    for (; rc == CUDA_SUCCESS && done < rounds; done++) {
        CUresult each[4] = {CUDA_SUCCESS};
        pthread_t threads[4];
        unsigned started = 0;
        while (started < 4 &&
               pthread_create(&threads[started], NULL, handles_moth, &each[started]) == 0)
            started++;
        for (unsigned i = 0; i < started; i++) {
            pthread_join(threads[i], NULL);
            rc = rc == CUDA_SUCCESS ? each[i] : rc;
        }
    }
    if (rc == CUDA_SUCCESS)
        rc = cu.cuCtxSynchronize();
    job_answer(job, "%d %llu", (int)rc, (unsigned long long)done);
}

const struct command commands_handles[] = {
    {"contexts", handles_contexts}, {"resets", handles_resets}, {"unretain", handles_unretain},
    {"streams", handles_streams},   {"moths", handles_moths},   {NULL, NULL},
};
