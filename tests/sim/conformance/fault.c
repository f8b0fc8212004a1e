/* Rule: a kernel that touches an illegal address leaves its context with the sticky error 700:
 * every later call that needs the context returns it. Another process does not notice.
 * Source: CUDA Driver API, CUDA_ERROR_ILLEGAL_ADDRESS ("the process must be terminated and
 * relaunched"); CUDA Programming Guide, "Error Checking".
 */
#include "client.h"

static int bystander_run(struct child *parent, void *arg)
{
    struct client c;
    CUstream stream;
    unsigned kernels = 0;

    (void)arg;
    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    client_tell(parent, 1);
    client_hear(parent);
    for (uint64_t end = client_now() + SECOND; client_now() < end; kernels++) {
        client_spin(&c, stream, MS);
        CHECK_CU(cuStreamSynchronize(stream));
    }
    CHECK(kernels > 10, "only %u kernels in a second", kernels);
    return 0;
}

int main(void)
{
    struct child bystander = client_fork(bystander_run, NULL);
    struct client c;
    CUstream stream, other;
    CUevent event;
    CUdeviceptr memory = 0;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    other = client_stream(CU_STREAM_NON_BLOCKING);
    event = client_event(CU_EVENT_DISABLE_TIMING);
    client_hear(&bystander);
    client_tell(&bystander, 1);
    client_sleep(200 * MS);
    CHECK_CU(cuEventRecord(event, stream));
    CHECK_CU(cuLaunchKernel(c.fault, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    EXPECT_CU(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CU(cuStreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CU(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_CU(cuMemAlloc(&memory, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(!memory, "the failed call has set its output");
    EXPECT_CU(cuLaunchKernel(c.noop, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL),
              CUDA_ERROR_ILLEGAL_ADDRESS);
    client_join_passed(&bystander);
    client_pass("error 700 stuck to its context, another process went on");
}
