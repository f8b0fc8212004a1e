/* burn MS SECONDS: keeps the device busy with kernels of so many milliseconds, each of which fills
 * it, for so many seconds, and prints how many it ran and how long they took on the device.
 *
 * One thread, one stream, at most eight kernels queued. With a third word it waits for that file to
 * appear before it begins, so that several start together. Half a minute late it is ended by its
 * alarm. A plain CUDA client: the GPU checks run it beside others, with and without the library
 * under test.
 */
#include "client.h"

#define AHEAD 8

struct burn {
    struct client client;
    CUstream stream;
    CUevent start[AHEAD];
    CUevent end[AHEAD];
    unsigned launched;
    unsigned finished;
    double busy_ms;
};

static void burn_launch(struct burn *b, uint64_t ns)
{
    unsigned i = b->launched++ % AHEAD;

    CHECK_CU(cuEventRecord(b->start[i], b->stream));
    client_spin_wide(&b->client, b->stream, ns);
    CHECK_CU(cuEventRecord(b->end[i], b->stream));
}

static void burn_finish(struct burn *b)
{
    unsigned i = b->finished++ % AHEAD;

    CHECK_CU(cuEventSynchronize(b->end[i]));
    b->busy_ms += client_elapsed_ms(b->start[i], b->end[i]);
}

static void burn_await(const char *path)
{
    while (path && access(path, F_OK))
        client_sleep(MS);
}

int main(int count, char **words)
{
    struct burn burn = {0};
    uint64_t ns, end;

    if (count < 3) {
        fprintf(stderr, "usage: burn MS SECONDS [FILE]\n");
        return 2;
    }
    ns = (uint64_t)(atof(words[1]) * MS);
    alarm((unsigned)atof(words[2]) + 30);
    client_open(&burn.client);
    burn.stream = client_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < AHEAD; i++) {
        burn.start[i] = client_event(CU_EVENT_DEFAULT);
        burn.end[i] = client_event(CU_EVENT_DEFAULT);
    }
    burn_await(count > 3 ? words[3] : NULL);
    for (end = client_now() + (uint64_t)(atof(words[2]) * SECOND); client_now() < end;) {
        burn_launch(&burn, ns);
        if (burn.launched - burn.finished == AHEAD)
            burn_finish(&burn);
    }
    printf("%u kernels\n", burn.finished);
    while (burn.finished < burn.launched)
        burn_finish(&burn);
    client_pass("%u kernels of %s ms took %.1f ms on the device", burn.finished, words[1],
                burn.busy_ms);
}
