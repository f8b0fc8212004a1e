/* Rule: destroying a stream that has work returns at once and the work runs to its end.
 * Source: CUDA Driver API, cuStreamDestroy.
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUstream stream;
    struct flag flag;
    CUdeviceptr pinned;
    volatile uint32_t *word;
    CUevent done;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    done = client_event(CU_EVENT_DISABLE_TIMING);
    flag = client_flag();
    word = client_pinned(sizeof *word, &pinned);
    client_wait(&c, stream, flag.device, 1);
    client_set(&c, stream, pinned, 42);
    CHECK_CU(cuEventRecord(done, stream));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK(!client_event_within(done, WHILE), "the work ended while its kernel was to wait");
    CHECK(*word == 0, "a kernel behind the waiting one has run");
    client_raise(&flag, 1);
    CHECK(client_event_within(done, SOON), "the destroyed stream's work does not run");
    CHECK(*word == 42, "the kernel behind did not run: %u", *word);
    client_pass("the stream's work outlived its handle");
}
