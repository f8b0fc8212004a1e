/* Rule: a stream made with CU_STREAM_NON_BLOCKING neither waits for the legacy stream nor holds it.
 * Source: CUDA Driver API, cuStreamCreate; Runtime API, "Stream synchronization behavior".
 */
#include "client.h"

static void check_free(const struct client *c, CUstream held, CUstream other, const char *what)
{
    struct flag flag = client_flag();
    CUevent done = client_event(CU_EVENT_DISABLE_TIMING);

    client_wait(c, held, flag.device, 1);
    client_noop(c, other);
    CHECK_CU(cuEventRecord(done, other));
    CHECK(client_event_within(done, SOON), "%s", what);
    CHECK(cuStreamQuery(held) == CUDA_ERROR_NOT_READY, "the waiting kernel has ended");
    client_raise(&flag, 1);
    CHECK_CU(cuCtxSynchronize());
}

int main(void)
{
    struct client c;
    CUstream stream;
    unsigned flags = 0;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuStreamGetFlags(stream, &flags));
    CHECK(flags == CU_STREAM_NON_BLOCKING, "flags are %u", flags);
    check_free(&c, stream, NULL, "the legacy stream waits for a non-blocking stream");
    check_free(&c, NULL, stream, "a non-blocking stream waits for the legacy stream");
    client_pass("a non-blocking stream and the legacy stream went past each other");
}
