/* Rule: copies between pinned host memory and the device run beside a kernel of another stream, and
 * one direction beside the other.
 * Source: CUDA Programming Guide, "Overlap of Data Transfer and Kernel Execution", "Concurrent Data
 * Transfers"; attribute ASYNC_ENGINE_COUNT.
 */
#include "client.h"

#define WORDS (1u << 20)

int main(void)
{
    struct client c;
    CUstream held, up, down;
    CUdeviceptr to, from, ignored;
    uint32_t *source, *sink;
    struct flag flag;
    int engines;

    client_open(&c);
    engines = client_attribute(&c, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
    if (!engines)
        client_skip("the device has no copy engine");
    held = client_stream(CU_STREAM_NON_BLOCKING);
    up = client_stream(CU_STREAM_NON_BLOCKING);
    down = client_stream(CU_STREAM_NON_BLOCKING);
    to = client_alloc(WORDS * sizeof *source);
    from = client_alloc(WORDS * sizeof *source);
    source = client_pinned(WORDS * sizeof *source, &ignored);
    sink = client_pinned(WORDS * sizeof *sink, &ignored);
    flag = client_flag();
    client_fill(&c, NULL, from, 0xabcd1234, WORDS);
    CHECK_CU(cuCtxSynchronize());
    for (uint32_t i = 0; i < WORDS; i++)
        source[i] = i * 2654435761u;

    client_wait(&c, held, flag.device, 1);
    CHECK_CU(cuMemcpyHtoDAsync(to, source, WORDS * sizeof *source, up));
    CHECK_CU(cuMemcpyDtoHAsync(sink, from, WORDS * sizeof *sink, down));
    CHECK(client_stream_within(up, SOON), "a copy to the device waits for a kernel");
    CHECK(client_stream_within(down, SOON), "a copy to the host waits for a kernel");
    CHECK(cuStreamQuery(held) == CUDA_ERROR_NOT_READY, "the waiting kernel has ended");
    for (uint32_t i = 0; i < WORDS; i++)
        CHECK(sink[i] == 0xabcd1234, "word %u is %#x", i, sink[i]);
    client_raise(&flag, 1);
    memset(sink, 0, WORDS * sizeof *sink);
    CHECK_CU(cuMemcpyDtoH(sink, to, WORDS * sizeof *sink));
    CHECK(!memcmp(sink, source, WORDS * sizeof *sink), "the device got other bytes");
    client_pass("4 MiB each way went past a running kernel (%d copy engines)", engines);
}
