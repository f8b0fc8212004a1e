/* Rule: CU_STREAM_PER_THREAD (0x2) is another stream in every thread, and each is a blocking
 * stream: the legacy stream waits for it.
 * Source: CUDA Runtime API, "Stream synchronization behavior", "Per-thread default stream".
 */
#include "client.h"

struct holder {
    struct client *client;
    struct flag flag;
    _Atomic bool launched;
};

static void *holder_run(void *arg)
{
    struct holder *h = arg;

    client_adopt(h->client);
    client_wait(h->client, CU_STREAM_PER_THREAD, h->flag.device, 1);
    CHECK(cuStreamQuery(CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY,
          "the holder's own stream is idle");
    h->launched = true;
    CHECK_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK(*h->flag.host, "the holder's synchronise returned before its kernel ended");
    return NULL;
}

static _Atomic bool visited, may_end;

/* Another context, which becomes current. */
static void make_context(struct client *c)
{
    CUresult (*create)(CUcontext *, unsigned, CUdevice);

    *(void **)&create = client_symbol("cuCtxCreate_v2");
    CHECK(create, "the driver has no cuCtxCreate_v2");
    CHECK_CU(create(&c->context, 0, c->device));
}

/* Has had a stream of its own in a context that is no more, and ends later. */
static void *visitor_run(void *arg)
{
    struct client mine = *(struct client *)arg;

    make_context(&mine);
    client_load(&mine);
    client_noop(&mine, CU_STREAM_PER_THREAD);
    CHECK_CU(cuCtxDestroy_v2(mine.context));
    visited = true;
    while (!may_end)
        client_sleep(MS);
    return NULL;
}

/* That thread's end is the end of no other stream, made since then, perhaps where its own was. */
static void check_visitor(struct client *c)
{
    struct client mine = *c;
    CUstream many[300], later[16];
    pthread_t thread;

    make_context(&mine);
    thread = client_thread(visitor_run, c);
    while (!visited)
        client_sleep(MS);
    for (unsigned i = 0; i < 300; i++)
        many[i] = client_stream(CU_STREAM_DEFAULT);
    for (unsigned i = 0; i < 300; i++)
        CHECK_CU(cuStreamDestroy_v2(many[i]));
    for (unsigned i = 0; i < 16; i++)
        later[i] = client_stream(CU_STREAM_DEFAULT);
    may_end = true;
    client_thread_join(thread);
    for (unsigned i = 0; i < 16; i++)
        CHECK_CU(cuStreamDestroy_v2(later[i]));
    CHECK_CU(cuCtxDestroy_v2(mine.context));
}

int main(void)
{
    struct client c;
    struct holder holder = {.client = &c};
    CUevent legacy;
    pthread_t thread;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    holder.flag = client_flag();
    legacy = client_event(CU_EVENT_DISABLE_TIMING);
    thread = client_thread(holder_run, &holder);
    while (!holder.launched)
        client_sleep(MS);
    client_noop(&c, CU_STREAM_PER_THREAD);
    CHECK(client_stream_within(CU_STREAM_PER_THREAD, SOON),
          "this thread's stream waits for the other thread's");
    CHECK_CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    client_noop(&c, CU_STREAM_LEGACY);
    CHECK_CU(cuEventRecord(legacy, CU_STREAM_LEGACY));
    CHECK(!client_event_within(legacy, WHILE), "the legacy stream did not wait for 0x2");
    client_raise(&holder.flag, 1);
    client_thread_join(thread);
    CHECK(client_event_within(legacy, SOON), "the legacy stream does not go on");
    check_visitor(&c);
    client_pass("0x2 named two streams in two threads, the legacy stream waited for both");
}
