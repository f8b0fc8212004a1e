/* Rule: what is put into one stream runs in that order and never overlaps: memset, kernels, copies.
 * Source: CUDA Programming Guide, "Streams": commands of a stream execute in sequence.
 */
#include "client.h"

#define ROUNDS 500

int main(void)
{
    struct client c;
    CUstream stream;
    CUdeviceptr word, copy, pinned;
    uint32_t *seen;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_alloc(sizeof *seen);
    copy = client_alloc(sizeof *seen);
    seen = client_pinned(ROUNDS * sizeof *seen, &pinned);
    CHECK_CU(cuMemsetD32Async(word, 7, 1, stream));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        client_add(&c, stream, word, 1);
        CHECK_CU(cuMemcpyDtoDAsync(copy, word, sizeof *seen, stream));
        CHECK_CU(cuMemcpyDtoHAsync(&seen[i], copy, sizeof *seen, stream));
    }
    CHECK_CU(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < ROUNDS; i++)
        CHECK(seen[i] == 8 + i, "copy %u saw %u, expected %u", i, seen[i], 8 + i);
    client_pass("%d additions, each seen by the copies behind it and by no other", ROUNDS);
}
