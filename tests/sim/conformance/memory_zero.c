/* Rule: an allocation of no bytes is CUDA_ERROR_INVALID_VALUE, freeing what was never allocated
 * too, and neither disturbs the context.
 * Source: CUDA Driver API, cuMemAlloc ("if bytesize is 0"), cuMemFree.
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUdeviceptr memory = 0x5a5a, real;

    client_open(&c);
    EXPECT_CU(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK(memory == 0x5a5a, "the refused call has set its output");
    EXPECT_CU(cuMemFree(0x1234560000), CUDA_ERROR_INVALID_VALUE);
    real = client_alloc(4096);
    CHECK_CU(cuMemFree(real));
    EXPECT_CU(cuMemFree(real), CUDA_ERROR_INVALID_VALUE);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    client_pass("empty allocations and foreign frees were refused");
}
