/* Rule of the simulated driver: SIMCUDA_FAIL makes a call fail with an error, once or always, or
 * makes it slow; a failing call has no effect. Skipped on hardware.
 * Source: tests/sim/README.md, settings.
 */
#include "client.h"
#include "trace.h"

int main(void)
{
    struct client c;
    CUdeviceptr memory = 0x5a5a;
    CUstream stream = NULL;
    uint64_t before;

    client_setting("SIMCUDA_FAIL",
                   "cuMemAlloc_v2=2@3,cuStreamCreate=999,cuCtxSynchronize=slow:50ms");
    client_open(&c);
    fclose(trace_open());
    client_alloc(4096);
    client_alloc(4096);
    EXPECT_CU(cuMemAlloc(&memory, 4096), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(memory == 0x5a5a, "the failing call has set its output");
    client_alloc(4096);
    EXPECT_CU(cuStreamCreate(&stream, 0), CUDA_ERROR_UNKNOWN);
    EXPECT_CU(cuStreamCreate(&stream, 0), CUDA_ERROR_UNKNOWN);
    CHECK(!stream, "the failing call has made a stream");
    before = client_now();
    CHECK_CU(cuCtxSynchronize());
    CHECK(client_now() - before >= 50 * MS, "the slow call took %.3f ms",
          (double)(client_now() - before) / MS);
    client_pass("calls failed once, always and slowly, as told");
}
