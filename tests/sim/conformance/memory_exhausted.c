/* Rule: device memory runs out with CUDA_ERROR_OUT_OF_MEMORY and the outputs untouched; the context
 * stays usable, and what is freed can be had again at once.
 * Source: CUDA Driver API, cuMemAlloc, cuMemFree, cuMemGetInfo.
 */
#include "client.h"

#define CHUNKS_MAX 4096
#define SENTINEL ((CUdeviceptr)0x5a5a5a5a)

static CUdeviceptr chunks[CHUNKS_MAX];

/* Takes chunks until the driver refuses; how many it got. */
static unsigned take_all(size_t bytes)
{
    unsigned count;

    for (count = 0; count < CHUNKS_MAX; count++) {
        CUdeviceptr chunk = SENTINEL;
        CUresult error = cuMemAlloc(&chunk, bytes);

        if (error == CUDA_ERROR_OUT_OF_MEMORY) {
            CHECK(chunk == SENTINEL, "the refused call has set its output to %#llx", chunk);
            return count;
        }
        CHECK_CU(error);
        chunks[count] = chunk;
    }
    client_skip("memory did not run out after %u chunks", CHUNKS_MAX);
}

int main(void)
{
    struct client c;
    size_t chunk, before, after;
    unsigned first, second;

    client_open(&c);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    before = client_free_bytes();
    chunk = before / 16 & ~(size_t)0x1fffff;
    CHECK(chunk, "only %zu bytes are free", before);
    first = take_all(chunk);
    CHECK(first >= 12 && first <= 17, "%u chunks of a sixteenth", first);
    after = client_free_bytes();
    CHECK(after < before / 4, "with %u chunks taken %zu of %zu bytes are free", first, after,
          before);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemFree(chunks[--first]));
    CHECK_CU(cuMemAlloc(&chunks[first++], chunk));
    for (unsigned i = 0; i < first; i++)
        CHECK_CU(cuMemFree(chunks[i]));
    second = take_all(chunk);
    CHECK(second + 1 >= first, "the second time %u chunks, the first time %u", second, first);
    client_pass("%u chunks of %zu MiB, refused cleanly, the same again after freeing", first,
                chunk >> 20);
}
