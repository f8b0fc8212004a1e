/* Rule: a pool that cannot grow refuses with CUDA_ERROR_OUT_OF_MEMORY and leaves the output alone;
 * the stream goes on.
 * Source: CUDA Driver API, cuMemAllocFromPoolAsync.
 */
#include "client.h"

#define SENTINEL ((CUdeviceptr)0x5a5a5a5a)

int main(void)
{
    struct client c;
    CUstream stream;
    CUdeviceptr memory = SENTINEL;
    size_t left, total;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED))
        client_skip("no memory pools here");
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuMemGetInfo(&left, &total));
    EXPECT_CU(cuMemAllocAsync(&memory, total + ((size_t)1 << 30), stream),
              CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(memory == SENTINEL, "the refused call has set its output to %#llx", memory);
    CHECK_CU(cuMemAllocAsync(&memory, 1 << 20, stream));
    CHECK_CU(cuMemsetD8Async(memory, 0, 1 << 20, stream));
    CHECK_CU(cuMemFreeAsync(memory, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    client_pass("an impossible request was refused cleanly, the next one was served");
}
