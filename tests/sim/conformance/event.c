/* Rule: an event that was never recorded is complete; a recorded one is complete when the work in
 * front of it is; elapsed time needs two complete events with timing.
 * Source: CUDA Driver API, "Event Management": cuEventRecord, cuEventQuery, cuEventSynchronize,
 * cuEventElapsedTime.
 */
#include "client.h"

static CUresult elapsed(CUevent start, CUevent end)
{
    CUresult (*call)(float *, CUevent, CUevent);
    float ms;

    *(void **)&call = client_symbol("cuEventElapsedTime");
    return call(&ms, start, end);
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUevent start, end, plain, fresh;
    struct flag flag;
    double ms;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    start = client_event(CU_EVENT_DEFAULT);
    end = client_event(CU_EVENT_BLOCKING_SYNC);
    plain = client_event(CU_EVENT_DISABLE_TIMING);
    fresh = client_event(CU_EVENT_DEFAULT);
    flag = client_flag();
    CHECK_CU(cuEventQuery(fresh));
    CHECK_CU(cuEventSynchronize(fresh));
    CHECK_CU(cuEventRecord(start, stream));
    client_wait(&c, stream, flag.device, 1);
    CHECK_CU(cuEventRecord(end, stream));
    CHECK_CU(cuEventRecord(plain, stream));
    CHECK(client_event_within(start, SOON), "an event in front of the kernel does not complete");
    EXPECT_CU(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    EXPECT_CU(elapsed(start, end), CUDA_ERROR_NOT_READY);
    client_sleep(30 * MS);
    client_raise(&flag, 1);
    CHECK_CU(cuEventSynchronize(end));
    CHECK_CU(cuEventQuery(end));
    CHECK_CU(cuEventSynchronize(plain));
    ms = client_elapsed_ms(start, end);
    CHECK(ms >= 29 && ms < 10000, "elapsed time %.3f ms", ms);
    EXPECT_CU(elapsed(start, plain), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CU(elapsed(start, fresh), CUDA_ERROR_INVALID_HANDLE);
    CHECK_CU(cuEventDestroy(end));
    client_pass("query, synchronise and elapsed time (%.3f ms) are as documented", ms);
}
