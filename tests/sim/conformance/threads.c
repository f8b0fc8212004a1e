/* Rule: the driver may be called from many threads at once: each works through streams and events
 * of its own, makes and destroys them, waits for other threads' events, and every launch runs once.
 * Source: CUDA Programming Guide, "Driver API": contexts may be used by several threads.
 */
#include "client.h"

#define THREADS 6
#define ROUNDS 150
#define KERNELS 8

struct worker {
    struct client *client;
    unsigned number;
    CUdeviceptr word;
    CUevent mark; /* recorded again and again; the neighbour's streams wait for it */
    struct worker *neighbour;
    uint32_t launched;
};

static void worker_round(struct worker *w, unsigned round)
{
    CUstream stream = client_stream(round & 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    CUevent done = client_event(CU_EVENT_DISABLE_TIMING);

    for (int i = 0; i < KERNELS; i++) {
        client_add(w->client, stream, w->word, 1);
        w->launched++;
    }
    CHECK_CU(cuEventRecord(w->mark, stream));
    CHECK_CU(cuStreamWaitEvent(stream, w->neighbour->mark, 0));
    client_add(w->client, stream, w->word, 1);
    w->launched++;
    if (round % 16 == w->number)
        client_noop(w->client, NULL);
    CHECK_CU(cuEventRecord(done, stream));
    CHECK_CU(round % 3 ? cuEventSynchronize(done) : cuStreamSynchronize(stream));
    CHECK_CU(cuEventQuery(done));
    CHECK_CU(cuEventDestroy(done));
    CHECK_CU(cuStreamDestroy(stream));
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;

    client_adopt(w->client);
    for (unsigned round = 0; round < ROUNDS; round++)
        worker_round(w, round);
    return NULL;
}

int main(void)
{
    struct client c;
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint32_t found, sum = 0;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = &c, .number = i, .word = client_alloc(sizeof found),
                                     .mark = client_event(CU_EVENT_DISABLE_TIMING),
                                     .neighbour = &workers[(i + 1) % THREADS]};
        CHECK_CU(cuMemsetD32(workers[i].word, 0, 1));
    }
    CHECK_CU(cuCtxSynchronize());
    for (int i = 0; i < THREADS; i++)
        threads[i] = client_thread(worker_run, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        client_thread_join(threads[i]);
    for (int i = 0; i < THREADS; i++) {
        CHECK_CU(cuMemcpyDtoH(&found, workers[i].word, sizeof found));
        CHECK(found == workers[i].launched, "of %u additions of thread %d %u have run",
              workers[i].launched, i, found);
        sum += found;
    }
    client_pass("%d threads made %u launches in %d streams, each ran once", THREADS, sum,
                THREADS * ROUNDS);
}
