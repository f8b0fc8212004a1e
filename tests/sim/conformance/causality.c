/* Rule: nothing ends before what it waits for: by the events' times, what a host write or a host
 * function releases is never earlier than the write or the function's return.
 * Source: CUDA Driver API, cuEventElapsedTime (resolution about 0.5 us); the rest is causality.
 */
#include "client.h"

#define ROUNDS 60
#define PAUSE (2 * MS)
#define ERROR_MS 0.02

enum cause { BY_KERNEL, BY_WAIT_VALUE, BY_HOST_FUNCTION };

struct scene {
    struct client client;
    CUstream stream;
    CUevent start;
    CUevent end;
    struct flag flag;
    uint64_t released;
    uint32_t round;
};

static void scene_release(void *arg)
{
    struct scene *s = arg;

    client_sleep(PAUSE);
    s->released = client_now();
    client_raise(&s->flag, s->round);
}

static void scene_wait(struct scene *s, enum cause cause)
{
    if (cause == BY_KERNEL)
        client_wait(&s->client, s->stream, s->flag.device, s->round);
    else if (cause == BY_WAIT_VALUE)
        CHECK_CU(cuStreamWaitValue32(s->stream, s->flag.device, s->round,
                                     CU_STREAM_WAIT_VALUE_GEQ));
    else
        CHECK_CU(cuLaunchHostFunc(s->stream, scene_release, s));
}

/* How much earlier than the release the end is, at worst; in ms, 0 or less when all is well. */
static double scene_play(struct scene *s, enum cause cause)
{
    double worst = -1e9;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t seen;
        double early;

        s->round++;
        CHECK_CU(cuEventRecord(s->start, s->stream));
        CHECK_CU(cuEventSynchronize(s->start));
        seen = client_now();
        scene_wait(s, cause);
        CHECK_CU(cuEventRecord(s->end, s->stream));
        if (cause != BY_HOST_FUNCTION)
            scene_release(s);
        CHECK_CU(cuEventSynchronize(s->end));
        early = (double)(s->released - seen) / MS - client_elapsed_ms(s->start, s->end);
        worst = early > worst ? early : worst;
    }
    return worst;
}

int main(void)
{
    static const char *names[] = {"a kernel that spins", "a stream's wait", "a host function"};
    struct scene scene = {0};
    double worst;

    client_open(&scene.client);
    scene.stream = client_stream(CU_STREAM_NON_BLOCKING);
    scene.start = client_event(CU_EVENT_DEFAULT);
    scene.end = client_event(CU_EVENT_DEFAULT);
    scene.flag = client_flag();
    for (int cause = BY_KERNEL; cause <= BY_HOST_FUNCTION; cause++) {
        worst = scene_play(&scene, (enum cause)cause);
        CHECK(worst < ERROR_MS, "%s ended %.3f ms before it was released", names[cause], worst);
    }
    client_pass("%d ends of each of three kinds came after their releases", ROUNDS);
}
