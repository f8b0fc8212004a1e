/* Rule: what a capture refuses: the legacy stream, a second begin, an end by another thread (908)
 * or on a stream that it did not begin on (903), forked work that was not joined (904).
 * Source: CUDA Driver API, cuStreamBeginCapture, cuStreamEndCapture; Programming Guide,
 * "Cross-stream Dependencies and Events".
 */
#include "client.h"

struct ender {
    struct client *client;
    CUstream stream;
    CUresult result;
};

static void *ender_run(void *arg)
{
    struct ender *e = arg;
    CUgraph graph = NULL;

    client_adopt(e->client);
    e->result = cuStreamEndCapture(e->stream, &graph);
    return NULL;
}

static void check_thread(struct client *c)
{
    struct ender ender = {.client = c, .stream = client_stream(CU_STREAM_NON_BLOCKING)};
    CUgraph graph = NULL;

    CHECK_CU(cuStreamBeginCapture(ender.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    client_noop(c, ender.stream);
    client_thread_join(client_thread(ender_run, &ender));
    EXPECT_CU(ender.result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    (void)cuStreamEndCapture(ender.stream, &graph);
    CHECK_CU(cuStreamBeginCapture(ender.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_noop(c, ender.stream);
    client_thread_join(client_thread(ender_run, &ender));
    CHECK_CU(ender.result);
}

/* Begins a capture on a and lets b take part by an event. */
static void fork_capture(const struct client *c, CUstream a, CUstream b, CUevent event)
{
    CHECK_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_noop(c, a);
    CHECK_CU(cuEventRecord(event, a));
    CHECK_CU(cuStreamWaitEvent(b, event, 0));
    client_noop(c, b);
}

static void check_forks(const struct client *c)
{
    CUstream a = client_stream(CU_STREAM_NON_BLOCKING), b = client_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = client_event(CU_EVENT_DISABLE_TIMING);
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;

    fork_capture(c, a, b, event);
    CHECK_CU(cuStreamIsCapturing(b, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the forked stream's status is %d",
          (int)status);
    EXPECT_CU(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(!graph, "a capture that was not joined gave a graph");
    fork_capture(c, a, b, event);
    EXPECT_CU(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    (void)cuStreamEndCapture(a, &graph);
    client_noop(c, a);
    client_noop(c, b);
    CHECK_CU(cuCtxSynchronize());
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUgraph graph = NULL;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    EXPECT_CU(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_ERROR_ILLEGAL_STATE);
    (void)cuStreamEndCapture(stream, &graph);
    check_thread(&c);
    check_forks(&c);
    client_pass("five misuses of a capture were refused, the streams worked afterwards");
}
