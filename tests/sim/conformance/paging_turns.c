/* Rule of the simulated device: two processes whose managed memory does not fit together move pages
 * at every switch of contexts when they compete, and once per turn when they take turns: the same
 * kernels take several times as long together as one process after the other.
 * Source: tests/sim/README.md, "Paging"; reports of thrashing under time slicing.
 */
#include "client.h"

#define MIB ((size_t)1 << 20)
#define KERNEL (20 * MS)

static int worker_run(struct child *parent, void *arg)
{
    struct client c;
    CUdeviceptr memory;

    (void)arg;
    client_open(&c);
    CHECK_CU(cuMemAllocManaged(&memory, 600 * MIB, CU_MEM_ATTACH_GLOBAL));
    client_tell(parent, 1);
    while (client_hear(parent)) {
        client_spin(&c, NULL, KERNEL);
        CHECK_CU(cuCtxSynchronize());
        client_tell(parent, client_now());
    }
    return 0;
}

static uint64_t together(const struct child workers[2])
{
    uint64_t start = client_now(), first, second;

    client_tell(&workers[0], 1);
    client_tell(&workers[1], 1);
    first = client_hear(&workers[0]);
    second = client_hear(&workers[1]);
    return (first > second ? first : second) - start;
}

static uint64_t in_turns(const struct child workers[2])
{
    uint64_t start = client_now();

    client_tell(&workers[0], 1);
    client_hear(&workers[0]);
    client_tell(&workers[1], 1);
    return client_hear(&workers[1]) - start;
}

int main(void)
{
    struct child workers[2];
    uint64_t beside, behind;
    struct client c;

    client_setting("SIMCUDA_MEMORY", "1Gi");
    client_setting("SIMCUDA_CONTEXT_BYTES", "32Mi");
    client_setting("SIMCUDA_PAGE_RATE", "50G");
    workers[0] = client_fork(worker_run, NULL);
    workers[1] = client_fork(worker_run, NULL);
    client_hear(&workers[0]);
    client_hear(&workers[1]);
    client_init(&c);
    if (!client_trace() || !client_symbol("simcudaManaged"))
        client_skip("the simulated device's pages alone are counted");
    in_turns(workers);
    behind = in_turns(workers);
    beside = together(workers);
    CHECK(behind >= 2 * KERNEL, "two kernels one after the other took %llu ns",
          (unsigned long long)behind);
    CHECK(beside > 2 * behind, "together %llu ns, in turns %llu ns", (unsigned long long)beside,
          (unsigned long long)behind);
    client_tell(&workers[0], 0);
    client_tell(&workers[1], 0);
    client_join_passed(&workers[0]);
    client_join_passed(&workers[1]);
    client_pass("two kernels of 20 ms: %.0f ms in turns, %.0f ms together", (double)behind / MS,
                (double)beside / MS);
}
