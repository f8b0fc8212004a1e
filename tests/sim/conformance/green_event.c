/* Rule: an event of a green context covers its streams and no others, one of the primary context
 * covers the green contexts' too; a green context waits for an event in all its streams; after its
 * end its streams can no longer be named, while their work runs to its end.
 * Source: CUDA Driver API, cuGreenCtxRecordEvent, cuGreenCtxWaitEvent, cuCtxRecordEvent,
 * cuGreenCtxDestroy.
 */
#include "client.h"

static struct client c;
static CUgreenCtx greens[2];
static CUstream streams[3]; /* of the two, and the primary context's */
static struct flag flags[3];

static void make(void)
{
    CUdevResource whole, parts[2];
    unsigned count = 2;

    CHECK_CU(cuDeviceGetDevResource(c.device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_CU(cuDevSmResourceSplitByCount(parts, &count, &whole, NULL, 0, 8));
    CHECK(count == 2, "%u parts", count);
    for (int i = 0; i < 2; i++) {
        CUdevResourceDesc descriptor;

        CHECK_CU(cuDevResourceGenerateDesc(&descriptor, &parts[i], 1));
        CHECK_CU(
            cuGreenCtxCreate(&greens[i], descriptor, c.device, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK_CU(cuGreenCtxStreamCreate(&streams[i], greens[i], CU_STREAM_NON_BLOCKING, 0));
    }
    streams[2] = client_stream(CU_STREAM_NON_BLOCKING);
}

static void occupy(void)
{
    for (int i = 0; i < 3; i++) {
        flags[i] = client_flag();
        client_wait(&c, streams[i], flags[i].device, 1);
    }
}

static void check_record(void)
{
    CUevent all = client_event(CU_EVENT_DISABLE_TIMING);
    CUevent one = client_event(CU_EVENT_DISABLE_TIMING);

    occupy();
    CHECK_CU(cuGreenCtxRecordEvent(greens[0], one));
    CHECK_CU(cuCtxRecordEvent(c.context, all));
    client_raise(&flags[1], 1);
    client_raise(&flags[2], 1);
    CHECK(client_stream_within(streams[1], SOON) && client_stream_within(streams[2], SOON),
          "the others do not end");
    CHECK(!client_event_within(one, WHILE), "the green context's own work is not covered");
    CHECK(!client_event_within(all, WHILE), "the primary context's event leaves it out");
    client_raise(&flags[0], 1);
    CHECK(client_event_within(one, SOON) && client_event_within(all, SOON), "no end of it");
    occupy();
    CHECK_CU(cuGreenCtxRecordEvent(greens[0], one));
    client_raise(&flags[0], 1);
    CHECK(client_event_within(one, SOON), "the green context's event covers others' work");
    client_raise(&flags[1], 1);
    client_raise(&flags[2], 1);
    CHECK_CU(cuCtxSynchronize());
}

static void check_wait(void)
{
    struct flag held = client_flag();
    CUevent event;

    client_wait(&c, streams[2], held.device, 1);
    event = client_mark(streams[2]);
    CHECK_CU(cuGreenCtxWaitEvent(greens[0], event));
    client_noop(&c, streams[0]);
    client_noop(&c, streams[1]);
    CHECK(client_stream_within(streams[1], SOON), "another green context waits, too");
    CHECK(!client_stream_within(streams[0], WHILE), "the green context does not wait");
    client_raise(&held, 1);
    CHECK(client_stream_within(streams[0], SOON), "it waits for ever");
}

static void check_end(void)
{
    struct flag held = client_flag();
    CUevent event = client_event(CU_EVENT_DISABLE_TIMING);

    client_wait(&c, streams[0], held.device, 1);
    CHECK_CU(cuCtxRecordEvent(c.context, event));
    CHECK_CU(cuGreenCtxDestroy(greens[0]));
    EXPECT_CU(cuStreamQuery(streams[0]), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_CU(cuStreamDestroy(streams[0]), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CHECK(!client_event_within(event, WHILE), "its work has ended with it");
    client_raise(&held, 1);
    CHECK(client_event_within(event, SOON), "its work does not end");
    client_noop(&c, streams[1]);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuGreenCtxDestroy(greens[1]));
}

int main(void)
{
    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    if (!client_symbol("cuGreenCtxStreamCreate") || !client_symbol("cuCtxRecordEvent"))
        client_skip("the driver has no streams of green contexts");
    make();
    check_record();
    check_wait();
    check_end();
    client_pass("events told the green contexts' work apart, and ended work ran on");
}
