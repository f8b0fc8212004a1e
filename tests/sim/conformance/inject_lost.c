/* Rule of the simulated device: a kernel told to be `lost` takes the device from everybody: later
 * calls of all processes fail, none hangs. Skipped on hardware.
 * Source: tests/sim/README.md; on hardware what an unrecoverable fault (Xid 79) does.
 */
#include "client.h"
#include "trace.h"

static int bystander_run(struct child *parent, void *arg)
{
    struct client c;
    CUresult error;

    (void)arg;
    client_open(&c);
    client_spin(&c, NULL, FOR_EVER);
    client_tell(parent, 1);
    error = cuCtxSynchronize();
    client_tell(parent, error);
    return 0;
}

int main(void)
{
    struct child bystander;
    struct client c;
    CUresult mine, theirs;

    client_setting("SIMCUDA_KERNELS", "noop=lost");
    client_setting("SIMCUDA_SLICE", "1ms");
    if (!client_trace())
        client_skip("no simulated device");
    bystander = client_fork(bystander_run, NULL);
    client_open(&c);
    client_hear(&bystander);
    client_noop(&c, NULL);
    mine = cuCtxSynchronize();
    theirs = (CUresult)client_hear(&bystander);
    CHECK(mine != CUDA_SUCCESS && theirs != CUDA_SUCCESS, "errors %d and %d", (int)mine,
          (int)theirs);
    EXPECT_CU(cuCtxSynchronize(), mine);
    client_join_passed(&bystander);
    client_pass("a lost device returned %s to its own process and %s to another",
                client_error_name(mine), client_error_name(theirs));
}
