/* Rule: a RELAXED capture forbids no potentially unsafe call, and so does a thread that exchanged
 * its mode to RELAXED, even the one that captures in GLOBAL mode.
 * Source: CUDA Driver API, cuThreadExchangeStreamCaptureMode.
 */
#include "client.h"

static void make_unsafe_calls(CUevent event)
{
    CUdeviceptr memory;

    CHECK_CU(cuEventQuery(event));
    CHECK_CU(cuMemAlloc(&memory, 4096));
    CHECK_CU(cuMemFree(memory));
}

static void check_capture(const struct client *c, CUstreamCaptureMode capture, CUevent event)
{
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraph graph = NULL;
    size_t nodes = 0;

    CHECK_CU(cuStreamBeginCapture(stream, capture));
    client_noop(c, stream);
    if (capture != CU_STREAM_CAPTURE_MODE_RELAXED)
        CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
    make_unsafe_calls(event);
    if (capture != CU_STREAM_CAPTURE_MODE_RELAXED)
        CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
    client_noop(c, stream);
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    CHECK_CU(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 2, "the graph has %zu nodes", nodes);
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuStreamDestroy(stream));
}

int main(void)
{
    struct client c;
    CUevent event;

    client_open(&c);
    event = client_mark(NULL);
    CHECK_CU(cuEventSynchronize(event));
    check_capture(&c, CU_STREAM_CAPTURE_MODE_RELAXED, event);
    check_capture(&c, CU_STREAM_CAPTURE_MODE_GLOBAL, event);
    check_capture(&c, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, event);
    client_pass("event query and allocation were legal in relaxed mode");
}
