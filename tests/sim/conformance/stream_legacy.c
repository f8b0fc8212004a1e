/* Rule: the legacy stream is a barrier: what is put into it waits for all earlier work of the
 * context's blocking streams, and their later work waits for it.
 * Source: CUDA Runtime API, "Stream synchronization behavior", "Legacy default stream".
 */
#include "client.h"

static void check_behind(const struct client *c, CUstream legacy, const char *name)
{
    CUstream a = client_stream(CU_STREAM_DEFAULT), b = client_stream(CU_STREAM_DEFAULT);
    CUevent before = client_event(CU_EVENT_DEFAULT), barrier = client_event(CU_EVENT_DEFAULT);
    CUevent after = client_event(CU_EVENT_DEFAULT);
    struct flag flag = client_flag();

    client_wait(c, a, flag.device, 1);
    CHECK_CU(cuEventRecord(before, a));
    client_noop(c, legacy);
    CHECK_CU(cuEventRecord(barrier, legacy));
    client_noop(c, b);
    CHECK_CU(cuEventRecord(after, b));
    CHECK(!client_event_within(barrier, WHILE), "%s did not wait for a blocking stream", name);
    CHECK(!client_event_within(after, 0), "a blocking stream did not wait for %s", name);
    client_raise(&flag, 1);
    CHECK(client_event_within(after, SOON), "nothing runs after the barrier");
    CHECK_CU(cuEventQuery(barrier));
    CHECK(client_elapsed_ms(before, barrier) >= 0, "%s ran before what it waited for", name);
    CHECK(client_elapsed_ms(barrier, after) >= 0, "a stream ran before %s", name);
    CHECK_CU(cuStreamDestroy(a));
    CHECK_CU(cuStreamDestroy(b));
}

int main(void)
{
    struct client c;

    client_open(&c);
    check_behind(&c, NULL, "stream 0");
    check_behind(&c, CU_STREAM_LEGACY, "CU_STREAM_LEGACY");
    client_pass("the legacy stream waited for a blocking stream and held up another");
}
