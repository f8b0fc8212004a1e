/*
 * worker: reads commands, hands them to their threads, writes the answers. See worker.h.
 */
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels_ptx.h"

#define THREADS 16
#define LINE 4096

struct worker worker;

struct thread {
    pthread_t thread;
    bool started;
    int in[2]; /* a pipe of command lines */
};

static struct thread threads[THREADS];
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

uint64_t worker_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

void worker_sleep(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / (1000 * MS)), (long)(ns % (1000 * MS))};

    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

void job_answer(struct job *job, const char *format, ...)
{
    size_t used = strlen(job->answer);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(job->answer + used, sizeof job->answer - used, format, arguments);
    va_end(arguments);
}

const char *job_text(const struct job *job, int index, const char *otherwise)
{
    return index < job->count ? job->word[index] : otherwise;
}

uint64_t job_number(const struct job *job, int index, uint64_t otherwise)
{
    return index < job->count ? strtoull(job->word[index], NULL, 0) : otherwise;
}

CUstream worker_stream(uint64_t number)
{
    if (number == WORKER_LEGACY)
        return CU_STREAM_LEGACY;
    if (number == WORKER_PER_THREAD)
        return CU_STREAM_PER_THREAD;
    if (number == 0 || number >= sizeof worker.stream / sizeof worker.stream[0])
        return NULL;
    if (!worker.stream[number])
        cu.cuStreamCreate(&worker.stream[number],
                          number >= 4 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    return worker.stream[number];
}

CUresult worker_load(void)
{
    const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {{"noop", &worker.noop},
                   {"spin_ns", &worker.spin},
                   {"wait_flag", &worker.wait},
                   {"add_u32", &worker.add},
                   {"fault", &worker.fault}};
    CUmodule module;
    CUresult rc = cu.cuModuleLoadData(&module, kernels_ptx);

    for (size_t i = 0; rc == CUDA_SUCCESS && i < sizeof kernels / sizeof kernels[0]; i++)
        rc = cu.cuModuleGetFunction(kernels[i].function, module, kernels[i].name);
    return rc;
}

static CUresult worker_make_flag(void)
{
    void *host;
    CUresult rc =
        cu.cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);

    if (rc != CUDA_SUCCESS)
        return rc;
    memset(host, 0, 64);
    worker.flag = host;
    return cu.cuMemHostGetDevicePointer_v2(&worker.flag_device, host, 0);
}

CUresult worker_open(int ordinal)
{
    CUresult rc = cu.cuInit(0);

    if (rc == CUDA_SUCCESS)
        rc = cu.cuDeviceGet(&worker.device, ordinal);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuDevicePrimaryCtxRetain(&worker.context, worker.device);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuCtxSetCurrent(worker.context);
    if (rc == CUDA_SUCCESS)
        rc = worker_load();
    return rc == CUDA_SUCCESS ? worker_make_flag() : rc;
}

static const struct command *worker_find(const char *name)
{
    const struct command *const tables[] = {
        commands_launch,  commands_memory,  commands_contexts, commands_capture,
        commands_handles, commands_process, commands_share};

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct command *c = tables[i]; c->name; c++)
            if (!strcmp(c->name, name))
                return c;
    return NULL;
}

void worker_run(struct job *job)
{
    const struct command *command = job->count ? worker_find(job->word[0]) : NULL;

    job->answer[0] = '\0';
    if (command)
        command->run(job);
    else
        job_answer(job, "no such command: %s", job_text(job, 0, ""));
}

static void worker_split(struct job *job, char *line)
{
    job->count = 0;
    for (char *word = strtok_r(line, " \n", &line); word && job->count < JOB_WORDS;
         word = strtok_r(NULL, " \n", &line))
        job->word[job->count++] = word;
}

static void worker_do(unsigned number, char *line)
{
    static __thread struct job job;
    char text[sizeof job.answer + 16];
    int length, cancel;

    worker_split(&job, line);
    worker_run(&job);
    length = snprintf(text, sizeof text, "%u %s\n", number, job.answer);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_mutex_lock(&output);
    if (write(STDOUT_FILENO, text, (size_t)length) != length)
        _exit(3);
    pthread_mutex_unlock(&output);
    pthread_setcancelstate(cancel, NULL);
}

static void *worker_thread(void *arg)
{
    struct thread *thread = arg;
    FILE *in = fdopen(thread->in[0], "r");
    char line[LINE];

    if (worker.context)
        cu.cuCtxSetCurrent(worker.context);
    while (in && fgets(line, sizeof line, in))
        worker_do((unsigned)(thread - threads), line);
    return NULL;
}

static bool worker_hand(unsigned number, const char *line)
{
    struct thread *thread = &threads[number];
    size_t length = strlen(line);

    if (!thread->started) {
        if (pipe(thread->in) < 0 || pthread_create(&thread->thread, NULL, worker_thread, thread))
            return false;
        thread->started = true;
    }
    return write(thread->in[1], line, length) == (ssize_t)length;
}

int main(int argc, char **argv)
{
    char line[LINE];

    if (argc != 2) {
        fprintf(stderr, "usage: worker DOOR\n");
        return 2;
    }
    if (!calls_find(argv[1]))
        return 2;
    /* Not stdio: `exec` and forked children must find the rest of the input where it is. */
    for (size_t used = 0; used < sizeof line - 1;) {
        ssize_t got = read(STDIN_FILENO, line + used, 1);
        if (got <= 0)
            break;
        if (line[used++] != '\n')
            continue;
        line[used] = '\0';
        used = 0;
        char *rest;
        unsigned number = (unsigned)strtoul(line, &rest, 10) % THREADS;
        if (number == 0)
            worker_do(0, rest);
        else if (!worker_hand(number, rest))
            return 3;
    }
    return 0;
}
