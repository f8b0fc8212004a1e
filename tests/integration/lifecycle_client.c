/*
 * lifecycle_client: a program that begins and ends things at awkward moments. Says `ready` when its
 * work is under way, and what it did at the end; a failed call fails the program.
 *
 *   lifecycle_client churn MS           contexts, the primary one and streams come and go under
 *                                       their work, in threads of their own, beside a steady one
 *   lifecycle_client end HOW NS         four threads work without end, in kernels of NS; a line on
 *                                       standard input ends the process: HOW is exit, quick_exit,
 *                                       _exit, thread, main, abort, term, exec, late or early
 *   lifecycle_client cancel ROUNDS      threads that are cancelled wherever they are
 *   lifecycle_client forks ROUNDS       children of all kinds, made beside working threads
 */
#define __CUDA_API_VERSION_INTERNAL
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "client.h"

#define WORKERS 4

static struct client client;
static volatile bool stopping;
static volatile bool ending; /* the process is: the driver may refuse now */

/* ---- Work without end ------------------------------------------------------------------------ */

struct work {
    struct client client;
    CUstream stream;
    uint64_t ns;
    uint64_t count;
};

static void *work_run(void *arg)
{
    struct work *work = arg;

    client_adopt(&work->client);
    for (; !stopping; work->count++) {
        void *arguments[] = {&work->ns};
        CUresult rc =
            cuLaunchKernel(work->client.spin, 1, 1, 1, 1, 1, 1, 0, work->stream, arguments, NULL);
        if (rc != CUDA_SUCCESS && ending)
            return NULL;
        CHECK_CU(rc);
    }
    CHECK_CU(cuStreamSynchronize(work->stream));
    return NULL;
}

static struct client another_context(void)
{
    struct client other = client;

    CHECK_CU(cuCtxCreate_v2(&other.context, 0, client.device));
    client_load(&other);
    CHECK_CU(cuCtxSetCurrent(client.context));
    return other;
}

/* In the default stream, a thread's own, a non-blocking one, and another context's. */
static void work_begin(struct work *work, pthread_t *thread, uint64_t ns)
{
    for (int i = 0; i < WORKERS; i++)
        work[i] = (struct work){.client = client, .ns = ns};
    work[1].stream = CU_STREAM_PER_THREAD;
    work[2].stream = client_stream(CU_STREAM_NON_BLOCKING);
    work[3].client = another_context();
    for (int i = 0; i < WORKERS; i++)
        thread[i] = client_thread(work_run, &work[i]);
    printf("ready\n");
}

static void work_end(pthread_t *thread)
{
    stopping = true;
    for (int i = 0; i < WORKERS; i++)
        client_thread_join(thread[i]);
}

/* ---- churn ----------------------------------------------------------------------------------- */

static uint64_t churn_until;

static void *churn_contexts(void *arg)
{
    uint64_t *rounds = arg;

    for (; client_now() < churn_until; ++*rounds) {
        struct client mine = client;
        CHECK_CU(cuCtxCreate_v2(&mine.context, 0, client.device));
        client_load(&mine);
        client_spin(&mine, NULL, 3 * MS);
        client_spin(&mine, CU_STREAM_PER_THREAD, 3 * MS);
        client_spin(&mine, client_stream(CU_STREAM_NON_BLOCKING), 3 * MS);
        CHECK_CU(cuCtxDestroy_v2(mine.context));
    }
    return NULL;
}

/* The primary context is this thread's alone. */
static void *churn_primary(void *arg)
{
    uint64_t *rounds = arg;

    for (; client_now() < churn_until; ++*rounds) {
        struct client mine = client;
        CHECK_CU(cuDevicePrimaryCtxRetain(&mine.context, client.device));
        CHECK_CU(cuCtxSetCurrent(mine.context));
        client_load(&mine);
        client_spin(&mine, NULL, 3 * MS);
        client_spin(&mine, client_stream(CU_STREAM_NON_BLOCKING), 3 * MS);
        CHECK_CU(*rounds % 2 ? cuDevicePrimaryCtxReset_v2(client.device)
                             : cuDevicePrimaryCtxRelease_v2(client.device));
    }
    return NULL;
}

static void *churn_streams(void *arg)
{
    struct work *work = arg;

    client_adopt(&work->client);
    for (; client_now() < churn_until; work->count++) {
        CUstream stream =
            client_stream(work->count % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
        client_spin(&work->client, stream, 2 * MS);
        CHECK_CU(cuStreamDestroy_v2(stream));
    }
    return NULL;
}

static int churn(int ms)
{
    uint64_t contexts = 0, resets = 0;
    struct work steady = {.ns = MS}, fleeting = {.ns = MS};
    pthread_t threads[4];

    client_init(&client);
    CHECK_CU(cuCtxCreate_v2(&client.context, 0, client.device));
    client_load(&client);
    steady.client = fleeting.client = client;
    steady.stream = client_stream(CU_STREAM_NON_BLOCKING);
    printf("ready\n");
    churn_until = client_now() + (uint64_t)ms * MS;
    threads[0] = client_thread(churn_contexts, &contexts);
    threads[1] = client_thread(churn_primary, &resets);
    threads[2] = client_thread(churn_streams, &fleeting);
    threads[3] = client_thread(work_run, &steady);
    for (int i = 0; i < 3; i++)
        client_thread_join(threads[i]);
    stopping = true;
    client_thread_join(threads[3]);
    printf("%d %d %d %d\n", (int)contexts, (int)resets, (int)fleeting.count, (int)steady.count);
    return 0;
}

/* ---- end ------------------------------------------------------------------------------------- */

static CUdeviceptr end_memory;

/* What destructors of programs do; results do not matter so late, coming back does. */
static void end_handler(void)
{
    uint64_t ns = 1000;
    void *arguments[] = {&ns};

    cuLaunchKernel(client.spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
    cuMemFree_v2(end_memory);
    cuStreamSynchronize(NULL);
    cuCtxDestroy_v2(client.context);
}

static void *end_here(void *arg)
{
    (void)arg;
    exit(3);
}

static void *end_later(void *arg)
{
    client_sleep(300 * MS);
    work_end(arg);
    exit(3);
}

static void end_by(const char *how, pthread_t *threads)
{
    if (!strcmp(how, "_exit"))
        _exit(3);
    if (!strcmp(how, "quick_exit"))
        quick_exit(3);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "term"))
        raise(SIGTERM);
    if (!strcmp(how, "exec"))
        execl("/bin/sh", "sh", "-c", "exit 3", (char *)NULL);
    if (!strcmp(how, "thread"))
        client_thread_join(client_thread(end_here, NULL));
    if (!strcmp(how, "main")) {
        client_thread(end_later, threads);
        pthread_exit(NULL);
    }
    exit(3);
}

static int end(const char *how, uint64_t ns)
{
    static struct work work[WORKERS];
    static pthread_t threads[WORKERS];
    char line[16];

    if (!strcmp(how, "late"))
        atexit(end_handler);
    client_open(&client);
    if (!strcmp(how, "early"))
        atexit(end_handler);
    end_memory = client_alloc(1 << 20);
    work_begin(work, threads, ns);
    CHECK(fgets(line, sizeof line, stdin), "nobody says when to end");
    ending = true;
    end_by(how, threads);
    return 1;
}

/* ---- cancel ---------------------------------------------------------------------------------- */

/* Cancelled on the way in, at the gate, behind it, or in its sleep. */
static void *cancel_run(void *arg)
{
    const uint64_t *pause = arg;

    client_adopt(&client);
    for (;;) {
        client_spin(&client, CU_STREAM_PER_THREAD, 2 * MS);
        client_sleep(*pause);
        pthread_testcancel();
    }
    return NULL;
}

static int cancel(int rounds)
{
    pthread_t threads[6];
    uint64_t pause = MS;
    void *result;

    client_open(&client);
    printf("ready\n");
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 6; i++)
            threads[i] = client_thread(cancel_run, &pause);
        client_sleep((uint64_t)(round % 7) * 3 * MS);
        for (int i = 0; i < 6; i++)
            CHECK(pthread_cancel(threads[i]) == 0, "round %d", round);
        for (int i = 0; i < 6; i++)
            CHECK(pthread_join(threads[i], &result) == 0 && result == PTHREAD_CANCELED, "round %d",
                  round);
    }
    CHECK_CU(cuCtxSynchronize());
    client_spin(&client, NULL, MS);
    CHECK_CU(cuCtxSynchronize());
    printf("%d\n", rounds);
    return 0;
}

/* ---- forks ----------------------------------------------------------------------------------- */

extern char **environ;

static void forks_spawn(pid_t *pid)
{
    char *const words[] = {(char[]){"true"}, NULL};

    CHECK(posix_spawnp(pid, "true", NULL, NULL, words, environ) == 0, "posix_spawnp");
}

/* What a child of a process that initialised CUDA does: nothing, exit with handlers, a call that is
 * refused, another program. */
static pid_t forks_child(int kind)
{
    pid_t pid = -1;

    if (kind == 3) {
        forks_spawn(&pid);
        return pid;
    }
    pid = fork();
    if (pid != 0)
        return pid;
    if (kind == 0)
        _exit(0);
    if (kind == 1)
        exit(0);
    if (kind == 2)
        _exit(cuCtxSynchronize() == CUDA_SUCCESS);
    execlp("true", "true", (char *)NULL);
    _exit(127);
}

static int forks(int rounds)
{
    static struct work work[WORKERS];
    pthread_t threads[WORKERS];
    uint64_t count = 0;
    int status;

    client_open(&client);
    work_begin(work, threads, MS);
    for (int round = 0; round < rounds; round++) {
        pid_t pid = forks_child(round % 5);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
              "child of kind %d: status %d", round % 5, status);
    }
    work_end(threads);
    for (int i = 0; i < WORKERS; i++)
        count += work[i].count;
    printf("%d %d\n", rounds, (int)count);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(mode, "churn"))
        return churn(atoi(argv[2]));
    if (!strcmp(mode, "end") && argc == 4)
        return end(argv[2], strtoull(argv[3], NULL, 0));
    if (!strcmp(mode, "cancel"))
        return cancel(atoi(argv[2]));
    if (!strcmp(mode, "forks"))
        return forks(atoi(argv[2]));
    fprintf(stderr, "usage: lifecycle_client churn|end|cancel|forks ...\n");
    return 2;
}
