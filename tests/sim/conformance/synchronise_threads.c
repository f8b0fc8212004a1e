/* Rule: while one thread waits in cuCtxSynchronize, another may launch, record and query in the
 * same context, and may be the one that lets the first go on. The wait covers what was there at the
 * call.
 * Source: CUDA Driver API, cuCtxSynchronize; the driver API is thread-safe.
 */
#include "client.h"

struct waiter {
    struct client *client;
    _Atomic bool begun;
    _Atomic bool done;
};

static void *waiter_run(void *arg)
{
    struct waiter *w = arg;

    client_adopt(w->client);
    w->begun = true;
    CHECK_CU(cuCtxSynchronize());
    w->done = true;
    return NULL;
}

int main(void)
{
    struct client c;
    struct waiter waiter = {.client = &c};
    CUstream held, other;
    CUevent event;
    struct flag flag;
    pthread_t thread;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    held = client_stream(CU_STREAM_NON_BLOCKING);
    other = client_stream(CU_STREAM_NON_BLOCKING);
    event = client_event(CU_EVENT_DISABLE_TIMING);
    flag = client_flag();
    client_wait(&c, held, flag.device, 1);
    thread = client_thread(waiter_run, &waiter);
    while (!waiter.begun)
        client_sleep(MS);
    client_sleep(50 * MS);
    for (int i = 0; i < 10; i++) {
        client_noop(&c, other);
        CHECK_CU(cuEventRecord(event, other));
        CHECK(client_event_within(event, SOON), "a launch beside a synchronise does not run");
    }
    CHECK(!waiter.done, "the synchronise returned before the waiting kernel ended");
    client_raise(&flag, 1);
    client_thread_join(thread);
    CHECK(waiter.done, "the synchronise did not return");
    client_pass("ten launches went past a thread that synchronised the context");
}
