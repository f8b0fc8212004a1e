/* Rule: cuCtxSynchronize from another thread, itself in RELAXED mode, fails with 900 and
 * invalidates a capture of that context whatever the capture's mode; so does cuCtxRecordEvent.
 * Source: CUDA Driver API, cuCtxSynchronize and cuCtxRecordEvent ("if the context has a stream in
 * the capture mode"); Programming Guide, "Prohibited and Unhandled Operations".
 */
#include "client.h"

struct intruder {
    struct client *client;
    CUresult (*record)(CUcontext, CUevent);
    CUevent event;
    CUresult result;
};

static void *intruder_run(void *arg)
{
    struct intruder *i = arg;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    client_adopt(i->client);
    CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
    i->result = i->record ? i->record(i->client->context, i->event) : cuCtxSynchronize();
    return NULL;
}

static void check_intruder(struct intruder *intruder, CUstreamCaptureMode mode)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;

    CHECK_CU(cuStreamBeginCapture(stream, mode));
    client_noop(intruder->client, stream);
    client_thread_join(client_thread(intruder_run, intruder));
    EXPECT_CU(intruder->result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CU(cuStreamIsCapturing(stream, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "capture status %d", (int)status);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(!graph, "a broken capture gave a graph");
    CHECK_CU(cuStreamDestroy(stream));
}

int main(void)
{
    struct client c;
    struct intruder intruder = {.client = &c};

    client_open(&c);
    intruder.event = client_event(CU_EVENT_DISABLE_TIMING);
    check_intruder(&intruder, CU_STREAM_CAPTURE_MODE_GLOBAL);
    check_intruder(&intruder, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    check_intruder(&intruder, CU_STREAM_CAPTURE_MODE_RELAXED);
    *(void **)&intruder.record = client_symbol("cuCtxRecordEvent");
    if (intruder.record)
        check_intruder(&intruder, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_CU(cuCtxSynchronize());
    client_pass("synchronising the context broke captures of all three modes%s",
                intruder.record ? ", and so did cuCtxRecordEvent" : "");
}
