/* Rule: a blocking copy from pageable memory to the device begins, and so returns, only when what
 * was in front of it in its stream has run, however small it is.
 * Source: CUDA Driver API, "API synchronization behavior", "Memcpy", synchronous: a stream sync is
 * performed before such a copy.
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUstream blocking;
    CUdeviceptr device;
    CUevent own, other;
    uint32_t word = 7;

    client_open(&c);
    blocking = client_stream(CU_STREAM_DEFAULT);
    device = client_alloc(sizeof word);
    own = client_event(CU_EVENT_DISABLE_TIMING);
    other = client_event(CU_EVENT_DISABLE_TIMING);

    client_spin(&c, NULL, 50 * MS);
    CHECK_CU(cuEventRecord(own, NULL));
    CHECK_CU(cuMemcpyHtoD(device, &word, sizeof word));
    CHECK_CU(cuEventQuery(own));

    client_spin(&c, blocking, 50 * MS);
    CHECK_CU(cuEventRecord(other, blocking));
    CHECK_CU(cuMemcpyHtoD(device, &word, sizeof word));
    CHECK_CU(cuEventQuery(other));
    client_pass("what was in front of the copy had run when it returned");
}
