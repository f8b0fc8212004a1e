/* Rule: even in RELAXED mode it is an error to query or synchronise an event that was last recorded
 * inside a capture (907), or the capturing stream itself (900). Once recorded outside a capture the
 * event is an ordinary one again.
 * Source: CUDA Driver API, cuThreadExchangeStreamCaptureMode; errors CUDA_ERROR_CAPTURED_EVENT and
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
 */
#include "client.h"

static void check_event(const struct client *c, CUstream stream, CUevent event)
{
    CUgraph graph = NULL;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_noop(c, stream);
    CHECK_CU(cuEventRecord(event, stream));
    EXPECT_CU(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_CU(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    /* Whether these calls have broken the capture is not documented. */
    if (cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS)
        CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuEventRecord(event, stream));
    CHECK_CU(cuEventSynchronize(event));
    CHECK_CU(cuEventQuery(event));
}

static void check_stream(const struct client *c, CUstream stream)
{
    CUgraph graph = NULL;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_noop(c, stream);
    EXPECT_CU(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_noop(c, stream);
    EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CU(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    client_noop(c, stream);
    CHECK_CU(cuStreamSynchronize(stream));
}

int main(void)
{
    struct client c;
    CUstream stream;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    check_event(&c, stream, client_event(CU_EVENT_DISABLE_TIMING));
    check_stream(&c, stream);
    client_pass("captured events and capturing streams refused to be queried and synchronised");
}
