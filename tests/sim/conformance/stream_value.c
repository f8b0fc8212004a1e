/* Rule: cuStreamWriteValue writes in stream order; cuStreamWaitValue holds its stream, and no
 * other, until the word satisfies the condition, whoever writes it.
 * Source: CUDA Driver API, "Stream Memory Operations".
 */
#include "client.h"

static void check_write(const struct client *c, CUstream stream)
{
    struct flag word = client_flag(), hold = client_flag();

    client_wait(c, stream, hold.device, 1);
    CHECK_CU(cuStreamWriteValue32(stream, word.device, 11, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(!client_word_within(word.host, 11, WHILE), "the write did not wait for the kernel");
    client_raise(&hold, 1);
    CHECK(client_word_within(word.host, 11, SOON), "the write does not come: %u", *word.host);
    CHECK_CU(cuStreamSynchronize(stream));
}

/* The host writes `before`, which must hold the stream, then `after`, which must release it. */
static void check_wait(const struct client *c, CUstream stream, uint32_t value, unsigned condition,
                       uint32_t before, uint32_t after)
{
    struct flag word = client_flag();
    CUevent done = client_event(CU_EVENT_DISABLE_TIMING);

    client_raise(&word, before);
    CHECK_CU(cuStreamWaitValue32(stream, word.device, value, condition));
    client_noop(c, stream);
    CHECK_CU(cuEventRecord(done, stream));
    CHECK(!client_event_within(done, WHILE), "condition %u does not hold at %u", condition, before);
    client_raise(&word, after);
    CHECK(client_event_within(done, SOON), "condition %u holds at %u", condition, after);
}

/* One stream of the context releases the other. */
static void check_between(const struct client *c, CUstream a, CUstream b)
{
    struct flag word = client_flag();

    CHECK_CU(cuStreamWaitValue32(a, word.device, 5, CU_STREAM_WAIT_VALUE_GEQ));
    client_noop(c, a);
    client_spin(c, b, 20 * MS);
    CHECK_CU(cuStreamWriteValue32(b, word.device, 6, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(client_stream_within(a, SOON), "a stream does not see the other one's write");
}

static void check_64(CUstream stream)
{
    CUdeviceptr device;
    volatile uint64_t *word = client_pinned(sizeof *word, &device);

    CHECK_CU(cuStreamWriteValue64(stream, device, 1ull << 40, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK_CU(cuStreamWaitValue64(stream, device, 1ull << 40, CU_STREAM_WAIT_VALUE_EQ));
    CHECK(client_stream_within(stream, SOON), "the stream does not see its own 64-bit write");
    CHECK(*word == 1ull << 40, "the word is %#llx", (unsigned long long)*word);
}

int main(void)
{
    struct client c;
    CUstream stream, other;
    struct flag word;
    CUresult error;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    other = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_flag();
    error = cuStreamWriteValue32(stream, word.device, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (error == CUDA_ERROR_NOT_SUPPORTED)
        client_skip("no stream memory operations here");
    CHECK_CU(error);
    check_write(&c, stream);
    check_wait(&c, stream, 7, CU_STREAM_WAIT_VALUE_GEQ, 6, 8);
    check_wait(&c, stream, 2, CU_STREAM_WAIT_VALUE_GEQ, 0x80000010, 3);
    check_wait(&c, stream, 7, CU_STREAM_WAIT_VALUE_EQ, 8, 7);
    check_wait(&c, stream, 4, CU_STREAM_WAIT_VALUE_AND, 3, 6);
    check_between(&c, stream, other);
    if (client_attribute(&c, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
        check_64(stream);
    client_pass("writes came in order, waits held until their word was right");
}
