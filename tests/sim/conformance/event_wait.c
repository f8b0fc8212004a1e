/* Rule: cuStreamWaitEvent waits for the record that was the event's last one at the time of the
 * call; a later record moves the event, not the wait. Waiting for an event never recorded is void.
 * Source: CUDA Driver API, cuStreamWaitEvent, cuEventRecord.
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUstream a, b, idle;
    CUevent event, done;
    struct flag flag;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    a = client_stream(CU_STREAM_NON_BLOCKING);
    b = client_stream(CU_STREAM_NON_BLOCKING);
    idle = client_stream(CU_STREAM_NON_BLOCKING);
    event = client_event(CU_EVENT_DISABLE_TIMING);
    done = client_event(CU_EVENT_DISABLE_TIMING);
    flag = client_flag();

    CHECK_CU(cuStreamWaitEvent(b, event, 0));
    client_noop(&c, b);
    CHECK(client_stream_within(b, SOON), "a wait for an event never recorded holds");

    client_wait(&c, a, flag.device, 1);
    CHECK_CU(cuEventRecord(event, a));
    CHECK_CU(cuStreamWaitEvent(b, event, 0));
    CHECK_CU(cuEventRecord(event, idle));
    client_noop(&c, b);
    CHECK_CU(cuEventRecord(done, b));
    CHECK(client_event_within(event, SOON), "the event still stands for its earlier record");
    CHECK(!client_event_within(done, WHILE), "the stream did not wait for the earlier record");
    client_raise(&flag, 1);
    CHECK(client_event_within(done, SOON), "the stream does not go on");
    client_pass("a stream waited for the record that was there when it was told to");
}
