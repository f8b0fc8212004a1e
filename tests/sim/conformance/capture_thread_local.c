/* Rule: a THREAD_LOCAL capture forbids potentially unsafe calls to its own thread alone; other
 * threads may make them.
 * Source: CUDA Driver API, cuThreadExchangeStreamCaptureMode.
 */
#include "client.h"

struct query {
    struct client *client;
    CUevent event;
};

static void *query_run(void *arg)
{
    struct query *q = arg;
    CUdeviceptr memory;

    client_adopt(q->client);
    CHECK_CU(cuEventQuery(q->event));
    CHECK_CU(cuMemAlloc(&memory, 4096));
    CHECK_CU(cuMemFree(memory));
    return NULL;
}

static CUresult capture_with(struct query *query, CUstream stream, bool own, CUresult *result)
{
    CUgraph graph = NULL;
    CUresult end;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    client_noop(query->client, stream);
    *result = CUDA_SUCCESS;
    if (own)
        *result = cuEventQuery(query->event);
    else
        client_thread_join(client_thread(query_run, query));
    end = cuStreamEndCapture(stream, &graph);
    CHECK(!graph == (end != CUDA_SUCCESS), "the capture ended with %s and %s graph",
          client_error_name(end), graph ? "a" : "no");
    return end;
}

int main(void)
{
    struct client c;
    struct query query = {.client = &c};
    CUstream stream;
    CUresult result;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    query.event = client_mark(NULL);
    CHECK_CU(cuEventSynchronize(query.event));
    CHECK_CU(capture_with(&query, stream, false, &result));
    EXPECT_CU(capture_with(&query, stream, true, &result), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_CU(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_CU(capture_with(&query, stream, false, &result));
    client_pass("other threads' unsafe calls were allowed, the capturing thread's own was not");
}
