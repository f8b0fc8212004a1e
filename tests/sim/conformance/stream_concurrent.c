/* Rule: kernels of different streams run at the same time while the device has room for both.
 * Source: CUDA Programming Guide, "Concurrent Kernel Execution".
 * On the simulated device SIMCUDA_CAPACITY kernels have room (here 128).
 */
#include "client.h"

#define LENGTH (150 * MS)

int main(void)
{
    struct client c;
    CUstream a, b;
    CUevent done;
    struct flag flag;
    uint64_t before, both;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_open(&c);
    a = client_stream(CU_STREAM_NON_BLOCKING);
    b = client_stream(CU_STREAM_NON_BLOCKING);
    done = client_event(CU_EVENT_DISABLE_TIMING);
    flag = client_flag();
    client_wait(&c, a, flag.device, 1);
    client_noop(&c, b);
    CHECK_CU(cuEventRecord(done, b));
    CHECK(client_event_within(done, SOON), "a kernel waits for one in another stream");
    CHECK(cuStreamQuery(a) == CUDA_ERROR_NOT_READY, "the waiting kernel has ended");
    client_raise(&flag, 1);
    CHECK_CU(cuCtxSynchronize());

    before = client_now();
    client_spin(&c, a, LENGTH);
    client_spin(&c, b, LENGTH);
    CHECK_CU(cuCtxSynchronize());
    both = client_now() - before;
    CHECK(both < LENGTH * 17 / 10, "two kernels of %llu ms took %.1f ms", LENGTH / MS,
          (double)both / MS);
    client_pass("two kernels of %llu ms in two streams took %.1f ms", LENGTH / MS,
                (double)both / MS);
}
