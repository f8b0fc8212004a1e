/* Rule: the child of a process that has initialised CUDA cannot use it (CUDA_ERROR_NOT_INITIALIZED
 * on hardware); the parent's work is not disturbed. A child that execs starts afresh.
 * Source: CUDA Programming Guide, "CUDA and fork"; the error is what public reports show.
 */
#include "client.h"

static int child_run(struct child *parent, void *arg)
{
    struct client *c = arg;
    CUdeviceptr memory = 0;
    int device = 0;
    CUresult alloc = cuMemAlloc(&memory, 4096), get = cuCtxGetDevice(&device);

    (void)c;
    client_tell(parent, alloc);
    client_tell(parent, get);
    _exit(0);
}

static int exec_run(struct child *parent, void *arg)
{
    char *program = arg;

    (void)parent;
    execl("/proc/self/exe", program, "afresh", (char *)NULL);
    return 1;
}

static int run_afresh(void)
{
    struct client c;

    client_open(&c);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    return 0;
}

int main(int count, char **words)
{
    struct client c;
    struct child child, fresh;
    struct flag flag;

    if (count > 1)
        return run_afresh();
    client_open(&c);
    flag = client_flag();
    client_wait(&c, NULL, flag.device, 1);
    child = client_fork(child_run, &c);
    EXPECT_CU((CUresult)client_hear(&child), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CU((CUresult)client_hear(&child), CUDA_ERROR_NOT_INITIALIZED);
    client_join_passed(&child);
    CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY, "the child's end ended the parent's work");
    client_raise(&flag, 1);
    CHECK_CU(cuCtxSynchronize());
    fresh = client_fork(exec_run, words[0]);
    client_join_passed(&fresh);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    client_pass("a forked child was refused, one that execs started afresh, the parent went on");
}
