/* Rule: cuCtxRecordEvent covers all work of all streams that the context has at the call,
 * non-blocking and per-thread ones too, and nothing that comes later.
 * Source: CUDA Driver API, cuCtxRecordEvent (12.5 and later).
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUresult (*record)(CUcontext, CUevent);
    CUstream streams[4], later;
    struct flag flags[4], last;
    CUevent event;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    *(void **)&record = client_symbol("cuCtxRecordEvent");
    if (!record)
        client_skip("the driver has no cuCtxRecordEvent");
    streams[0] = client_stream(CU_STREAM_NON_BLOCKING);
    streams[1] = client_stream(CU_STREAM_DEFAULT);
    streams[2] = CU_STREAM_PER_THREAD;
    streams[3] = client_stream(CU_STREAM_NON_BLOCKING);
    later = client_stream(CU_STREAM_NON_BLOCKING);
    event = client_event(CU_EVENT_DISABLE_TIMING);
    for (int i = 0; i < 4; i++)
        flags[i] = client_flag();
    last = client_flag();
    for (int i = 0; i < 4; i++)
        client_wait(&c, streams[i], flags[i].device, 1);
    CHECK_CU(record(c.context, event));
    client_wait(&c, later, last.device, 1);
    for (int i = 0; i < 4; i++) {
        CHECK(!client_event_within(event, WHILE), "stream %d is not covered", i);
        client_raise(&flags[i], 1);
    }
    CHECK(client_event_within(event, SOON), "the event does not complete");
    CHECK(cuStreamQuery(later) == CUDA_ERROR_NOT_READY, "the later work has ended");
    client_raise(&last, 1);
    CHECK_CU(cuCtxSynchronize());
    client_pass("the event covered four streams and not the work that came later");
}
