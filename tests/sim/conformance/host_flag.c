/* Rule: a kernel that spins on a word of host memory sees the host's later write, and launches
 * behind it return in the meantime: a thread may launch such a kernel, launch two more, and only
 * then write the word.
 * Source: CUDA Programming Guide, "Mapped Memory", "Asynchronous Concurrent Execution".
 */
#include "client.h"

#define ROUNDS 8

int main(void)
{
    struct client c;
    CUstream stream;
    struct flag flag;
    uint64_t worst = 0;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    flag = client_flag();
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint64_t before = client_now(), launched;

        client_wait(&c, stream, flag.device, round);
        client_noop(&c, stream);
        client_noop(&c, stream);
        launched = client_now() - before;
        worst = launched > worst ? launched : worst;
        CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY, "the kernel did not wait");
        client_raise(&flag, round);
        CHECK(client_stream_within(stream, SOON), "the kernel does not see the host's write");
    }
    CHECK(worst < SOON, "three launches took %.1f ms", (double)worst / MS);
    client_pass("%d kernels were released by the thread that launched behind them (launches took "
                "at most %.3f ms)", ROUNDS, (double)worst / MS);
}
