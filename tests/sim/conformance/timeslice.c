/* Rule: kernels of two processes do not run at the same time (without MPS): the device is
 * time-sliced between them, and both get on.
 * Source: NVIDIA documentation of the compute modes and of MPS ("without MPS, work of different
 * processes is time-sliced"). Slice and switch times have no official figure; none is checked.
 */
#include "client.h"

#define KERNELS 20
#define LENGTH (20 * MS)

static int worker_run(struct child *parent, void *arg)
{
    struct client c;
    CUstream stream;
    uint64_t start;

    (void)arg;
    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    client_spin_wide(&c, stream, MS);
    CHECK_CU(cuStreamSynchronize(stream));
    client_tell(parent, 1);
    client_hear(parent);
    start = client_now();
    for (int i = 0; i < KERNELS; i++)
        client_spin_wide(&c, stream, LENGTH);
    CHECK_CU(cuStreamSynchronize(stream));
    client_tell(parent, client_now() - start);
    return 0;
}

int main(void)
{
    struct child workers[2] = {client_fork(worker_run, NULL), client_fork(worker_run, NULL)};
    uint64_t took[2], longest = 0, alone = KERNELS * LENGTH;

    for (int i = 0; i < 2; i++)
        client_hear(&workers[i]);
    for (int i = 0; i < 2; i++)
        client_tell(&workers[i], 1);
    for (int i = 0; i < 2; i++) {
        took[i] = client_hear(&workers[i]);
        longest = took[i] > longest ? took[i] : longest;
    }
    for (int i = 0; i < 2; i++)
        client_join_passed(&workers[i]);
    CHECK(longest > alone * 16 / 10, "two processes of %.0f ms each took %.0f ms together",
          (double)alone / MS, (double)longest / MS);
    CHECK(took[0] > alone * 11 / 10 && took[1] > alone * 11 / 10,
          "one process did not notice the other: %.0f and %.0f ms", (double)took[0] / MS,
          (double)took[1] / MS);
    client_pass("two processes of %.0f ms each took %.0f and %.0f ms side by side",
                (double)alone / MS, (double)took[0] / MS, (double)took[1] / MS);
}
