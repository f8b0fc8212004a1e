/* Rule: while a thread captures in GLOBAL mode, a potentially unsafe call (here an event query) of
 * any other thread fails with 900 and invalidates the capture; its end then returns 901 and no
 * graph. A thread that is in RELAXED mode itself may make the call.
 * Source: CUDA Driver API, cuThreadExchangeStreamCaptureMode; Programming Guide, "Prohibited and
 * Unhandled Operations", "Invalidation".
 */
#include "client.h"

struct query {
    struct client *client;
    CUevent event;
    CUstreamCaptureMode mode;
    CUresult result;
};

static void *query_run(void *arg)
{
    struct query *q = arg;
    CUstreamCaptureMode mode = q->mode;

    client_adopt(q->client);
    CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL, "a new thread's mode is %d", (int)mode);
    q->result = cuEventQuery(q->event);
    CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == q->mode, "the mode given back is %d", (int)mode);
    return NULL;
}

/* Captures one kernel while another thread in the given mode queries an event; the query's result
 * goes to *result, that of the end of the capture is returned. */
static CUresult capture_beside(struct client *c, CUstreamCaptureMode mode, CUresult *result)
{
    struct query query = {.client = c, .mode = mode};
    CUstream stream = client_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    CUresult end;

    query.event = client_mark(NULL);
    CHECK_CU(cuEventSynchronize(query.event));
    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    client_noop(c, stream);
    client_thread_join(client_thread(query_run, &query));
    end = cuStreamEndCapture(stream, &graph);
    CHECK(!graph == (end != CUDA_SUCCESS), "the capture ended with %s and %s graph",
          client_error_name(end), graph ? "a" : "no");
    *result = query.result;
    return end;
}

int main(void)
{
    struct client c;
    CUresult query, end;

    client_open(&c);
    end = capture_beside(&c, CU_STREAM_CAPTURE_MODE_GLOBAL, &query);
    EXPECT_CU(query, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_CU(end, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end = capture_beside(&c, CU_STREAM_CAPTURE_MODE_RELAXED, &query);
    CHECK_CU(query);
    CHECK_CU(end);
    end = capture_beside(&c, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, &query);
    CHECK_CU(query);
    CHECK_CU(end);
    client_pass("another thread's event query failed and broke the capture, except in a thread "
                "that had left GLOBAL mode");
}
