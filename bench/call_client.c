/* call_client: times calls of the driver, one measurement for each line on its standard input, so
 * that several of these processes can take turns while all of them stay alive.
 *
 *   launch direct|looked-up COUNT BATCH   calls of cuLaunchKernel, through the link or through the
 *                                         pointer that cuGetProcAddress gives; a synchronise, not
 *                                         timed, after every BATCH of them
 *   first                                 one call, and no other before it
 *   threads N COUNT                       COUNT calls in each of N threads at once; answered by the
 *                                         CPU time of all
 *   memory-threads N LIVE COUNT           the next, in each of N threads at once, each with LIVE of
 *                                         its own; answered by the CPU time of all, and the time
 *                                         from the first one's start to the last one's end
 *   memory LIVE COUNT                     pairs of cuMemFree and cuMemAlloc, each on one of LIVE
 *                                         allocations picked at random
 *
 * Each is answered by the nanoseconds that all COUNT took together. Prints "ready" first; the end
 * of the input is its end. A plain CUDA client, the legacy stream, one thread but for `threads`
 * and `memory-threads`.
 */
#include "client.h"

#include <time.h>

#define CALL_BYTES 4096u
#define CALL_LIVE_MAX 1000000u
#define CALL_THREADS_MAX 64u
#define CALL_MEMORY_THREADS_MAX 8u

typedef CUresult call_launch_function(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, CUstream, void **, void **);

struct call_live {
    CUdeviceptr *pointer;
    unsigned count;
    uint32_t random;
};

struct call {
    struct client client;
    call_launch_function *direct;
    call_launch_function *looked_up;
    struct call_live live;
};

static struct call_live call_live_make(unsigned most)
{
    struct call_live live = {.pointer = calloc(most, sizeof *live.pointer), .random = 1};

    CHECK(live.pointer, "no memory");
    return live;
}

static void call_open(struct call *call)
{
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    client_open(&call->client);
    CHECK_CU(
        cuGetProcAddress("cuLaunchKernel", &function, 4000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    CHECK(function, "the driver has no cuLaunchKernel");
    *(void **)&call->looked_up = function;
    call->direct = cuLaunchKernel;
    call->live = call_live_make(CALL_LIVE_MAX);
}

/* Work that comes after a pause. */
static uint64_t call_first(struct call *call)
{
    uint64_t start = client_now();
    CUresult rc = cuLaunchKernel(call->client.noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    uint64_t ns = client_now() - start;

    CHECK_CU(rc);
    CHECK_CU(cuCtxSynchronize());
    return ns;
}

/* One launch untimed first: what happens once per thread or per turn is not a launch's cost. */
static uint64_t call_launch(struct call *call, call_launch_function *launch, uint64_t count,
                            uint64_t batch)
{
    CUfunction noop = call->client.noop;
    uint64_t ns = 0;

    CHECK_CU(launch(noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK_CU(cuCtxSynchronize());
    for (uint64_t left = count, now; left; left -= now) {
        CUresult bad = CUDA_SUCCESS;
        now = left < batch ? left : batch;
        uint64_t start = client_now();
        for (uint64_t i = 0; i < now; i++)
            bad |= launch(noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        ns += client_now() - start;
        CHECK_CU(bad);
        CHECK_CU(cuCtxSynchronize());
    }
    return ns;
}

struct call_thread {
    const struct call *call;
    pthread_barrier_t *together;
    uint64_t count;
    unsigned live;
    uint64_t ns; /* of its CPU time */
    uint64_t from_ns, to_ns;
};

static uint64_t call_cpu_time(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0, "no clock");
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static void *call_thread_run(void *arg)
{
    struct call_thread *thread = arg;
    call_launch_function *launch = thread->call->direct;
    CUfunction noop = thread->call->client.noop;
    CUresult bad = CUDA_SUCCESS;

    client_adopt(&thread->call->client);
    CHECK_CU(launch(noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    pthread_barrier_wait(thread->together);
    uint64_t start = call_cpu_time();
    for (uint64_t i = 0; i < thread->count; i++)
        bad |= launch(noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    thread->ns = call_cpu_time() - start;
    CHECK_CU(bad);
    return NULL;
}

static void call_keep(struct call_live *live, unsigned count)
{
    while (live->count < count)
        CHECK_CU(cuMemAlloc(&live->pointer[live->count++], CALL_BYTES));
    while (live->count > count)
        CHECK_CU(cuMemFree(live->pointer[--live->count]));
}

static unsigned call_pick(struct call_live *live)
{
    live->random = live->random * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)live->random * live->count >> 32);
}

static CUresult call_pairs(struct call_live *live, uint64_t count)
{
    CUresult bad = CUDA_SUCCESS;

    for (uint64_t i = 0; i < count; i++) {
        CUdeviceptr *one = &live->pointer[call_pick(live)];
        bad |= cuMemFree(*one);
        bad |= cuMemAlloc(one, CALL_BYTES);
    }
    return bad;
}

static uint64_t call_memory(struct call_live *live, unsigned kept, uint64_t count)
{
    call_keep(live, kept);
    uint64_t start = client_now();
    CUresult bad = call_pairs(live, count);
    uint64_t ns = client_now() - start;
    CHECK_CU(bad);
    return ns;
}

static void *call_memory_run(void *arg)
{
    struct call_thread *thread = arg;
    struct call_live live = call_live_make(thread->live);

    client_adopt(&thread->call->client);
    call_keep(&live, thread->live);
    CHECK_CU(call_pairs(&live, thread->count / 10)); /* what happens once, and cold caches */
    pthread_barrier_wait(thread->together);
    uint64_t start = call_cpu_time();
    thread->from_ns = client_now();
    CUresult bad = call_pairs(&live, thread->count);
    thread->to_ns = client_now();
    thread->ns = call_cpu_time() - start;
    CHECK_CU(bad);
    call_keep(&live, 0);
    free(live.pointer);
    return NULL;
}

/* The CPU time of all; *elapsed_ns, where the threads note it. */
static uint64_t call_threads(const struct call *call, void *(*run)(void *), unsigned n,
                             unsigned live, uint64_t count, uint64_t *elapsed_ns)
{
    static struct call_thread thread[CALL_THREADS_MAX];
    pthread_t id[CALL_THREADS_MAX];
    pthread_barrier_t together;
    uint64_t ns = 0, from = UINT64_MAX, to = 0;

    CHECK(pthread_barrier_init(&together, NULL, n) == 0, "no barrier");
    for (unsigned i = 0; i < n; i++) {
        thread[i] = (struct call_thread){call, &together, count, live, 0, 0, 0};
        id[i] = client_thread(run, &thread[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        client_thread_join(id[i]);
        ns += thread[i].ns;
        from = thread[i].from_ns < from ? thread[i].from_ns : from;
        to = thread[i].to_ns > to ? thread[i].to_ns : to;
    }
    *elapsed_ns = to - from;
    pthread_barrier_destroy(&together);
    CHECK_CU(cuCtxSynchronize());
    return ns;
}

static void call_answer(struct call *call, const char *line)
{
    unsigned long long count, batch;
    unsigned live, threads;
    char way[16];
    uint64_t ns, elapsed = 0;

    if (sscanf(line, "launch %15s %llu %llu", way, &count, &batch) == 3) {
        CHECK(count && batch, "nothing to measure: %s", line);
        ns =
            call_launch(call, strcmp(way, "direct") ? call->looked_up : call->direct, count, batch);
    } else if (strcmp(line, "first\n") == 0) {
        ns = call_first(call);
    } else if (sscanf(line, "threads %u %llu", &threads, &count) == 2) {
        CHECK(threads && threads <= CALL_THREADS_MAX && count, "out of range: %s", line);
        ns = call_threads(call, call_thread_run, threads, 0, count, &elapsed);
        elapsed = 0;
    } else if (sscanf(line, "memory-threads %u %u %llu", &threads, &live, &count) == 3) {
        CHECK(threads && threads <= CALL_MEMORY_THREADS_MAX && live && count, "out of range: %s",
              line);
        ns = call_threads(call, call_memory_run, threads, live, count, &elapsed);
    } else {
        CHECK(sscanf(line, "memory %u %llu", &live, &count) == 2, "cannot read: %s", line);
        CHECK(live && live <= CALL_LIVE_MAX && count, "out of range: %s", line);
        ns = call_memory(&call->live, live, count);
    }
    printf("%llu", (unsigned long long)ns);
    if (elapsed)
        printf(" %llu", (unsigned long long)elapsed);
    puts("");
    fflush(stdout);
}

int main(void)
{
    static struct call call;
    char line[128];

    call_open(&call);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        call_answer(&call, line);
    call_keep(&call.live, 0);
    return 0;
}
