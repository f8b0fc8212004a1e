/* Rule: the current context is a stack per thread; a thread without one is refused; a created
 * context is its own world; the primary context lives while somebody retains it.
 * Source: CUDA Driver API, "Context Management", "Primary Context Management".
 */
#include "client.h"

static void *stranger_run(void *arg)
{
    CUcontext context = arg;
    CUdeviceptr memory;

    CHECK_CU(cuCtxGetCurrent(&context));
    CHECK(!context, "a new thread has a context");
    EXPECT_CU(cuMemAlloc(&memory, 4096), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    return NULL;
}

/* By name, because the flavour that the header chooses has other parameters in every version. */
static CUcontext create_context(CUdevice device)
{
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUcontext context;

    *(void **)&create = client_symbol("cuCtxCreate_v2");
    CHECK(create, "the driver has no cuCtxCreate_v2");
    CHECK_CU(create(&context, CU_CTX_SCHED_AUTO, device));
    return context;
}

static void check_stack(const struct client *c)
{
    CUcontext created = create_context(c->device), current = NULL, popped = NULL;
    struct client own = *c;

    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK(current == created, "a created context is not current");
    client_load(&own);
    client_noop(&own, NULL);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuCtxPopCurrent(&popped));
    CHECK(popped == created, "another context was popped");
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK(current == c->context, "the context below is not current again");
    CHECK_CU(cuCtxPushCurrent(created));
    CHECK_CU(cuCtxDestroy(created));
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK(current != created, "a destroyed context is current");
}

int main(void)
{
    struct client c;
    CUcontext again;
    unsigned flags = 0;
    int active = 0;

    client_init(&c);
    CHECK_CU(cuDevicePrimaryCtxGetState(c.device, &flags, &active));
    CHECK(!active, "the primary context is active before its first use");
    client_open(&c);
    CHECK_CU(cuDevicePrimaryCtxRetain(&again, c.device));
    CHECK(again == c.context, "the primary context is another one the second time");
    CHECK_CU(cuDevicePrimaryCtxRelease(c.device));
    CHECK_CU(cuDevicePrimaryCtxGetState(c.device, &flags, &active));
    CHECK(active, "the primary context went with the first of two releases");
    client_thread_join(client_thread(stranger_run, NULL));
    check_stack(&c);
    CHECK_CU(cuCtxSetCurrent(c.context));
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuDevicePrimaryCtxRelease(c.device));
    CHECK_CU(cuDevicePrimaryCtxGetState(c.device, &flags, &active));
    CHECK(!active, "the primary context outlives its last release");
    client_pass("created and primary contexts came and went as documented");
}
