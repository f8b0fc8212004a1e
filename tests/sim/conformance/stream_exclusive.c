/* Rule: kernels of different streams that each fill the device run one after the other.
 * Source: CUDA Programming Guide, "Concurrent Kernel Execution": a kernel that uses many resources
 * is less likely to run beside others.
 * On the simulated device one kernel fills it when SIMCUDA_CAPACITY is 1.
 */
#include "client.h"

#define LENGTH (100 * MS)

int main(void)
{
    struct client c;
    CUstream a, b;
    uint64_t before, both;

    client_setting("SIMCUDA_CAPACITY", "1");
    client_open(&c);
    a = client_stream(CU_STREAM_NON_BLOCKING);
    b = client_stream(CU_STREAM_NON_BLOCKING);
    client_spin_wide(&c, a, MS);
    CHECK_CU(cuCtxSynchronize());
    before = client_now();
    client_spin_wide(&c, a, LENGTH);
    client_spin_wide(&c, b, LENGTH);
    CHECK_CU(cuCtxSynchronize());
    both = client_now() - before;
    CHECK(both > LENGTH * 18 / 10, "two kernels of %llu ms took only %.1f ms", LENGTH / MS,
          (double)both / MS);
    client_pass("two device-filling kernels of %llu ms took %.1f ms", LENGTH / MS,
                (double)both / MS);
}
