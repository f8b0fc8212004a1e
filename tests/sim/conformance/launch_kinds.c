/* Rule: every way to launch a kernel passes the parameters that the module declares: an array of
 * pointers, a packed buffer, cuLaunchKernelEx, a cooperative launch; an empty or an oversized grid
 * is refused and runs nothing.
 * Source: CUDA Driver API, "Execution Control", cuLaunchKernel, cuLaunchKernelEx,
 * cuLaunchCooperativeKernel.
 */
#include "client.h"

static void launch_packed(const struct client *c, CUstream stream, CUdeviceptr word, uint32_t value)
{
    struct {
        CUdeviceptr word;
        uint32_t value;
    } packed = {word, value};
    size_t size = offsetof(__typeof__(packed), value) + sizeof packed.value;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};

    CHECK_CU(cuLaunchKernel(c->add, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
}

static void launch_ex(const struct client *c, CUstream stream, void **arguments)
{
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .hStream = stream};

    CHECK_CU(cuLaunchKernelEx(&config, c->add, arguments, NULL));
}

static void launch_refused(const struct client *c, CUstream stream, void **arguments)
{
    EXPECT_CU(cuLaunchKernel(c->add, 0, 1, 1, 1, 1, 1, 0, stream, arguments, NULL),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLaunchKernel(c->add, 1, 1, 1, 4096, 1, 1, 0, stream, arguments, NULL),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL),
              CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUdeviceptr word;
    uint32_t value = 100, found = 0;
    void *arguments[] = {&word, &value};

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_alloc(sizeof found);
    CHECK_CU(cuMemsetD32Async(word, 0, 1, stream));
    client_add(&c, stream, word, 1);
    launch_packed(&c, stream, word, 10);
    launch_ex(&c, stream, arguments);
    /* The driver has copied the arguments when the call returns. */
    value = 1000;
    CHECK_CU(cuLaunchCooperativeKernel(c.add, 1, 1, 1, 1, 1, 1, 0, stream, arguments));
    value = 100000;
    launch_refused(&c, stream, arguments);
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuMemcpyDtoH(&found, word, sizeof found));
    CHECK(found == 1111, "the four launches added up to %u, not 1111", found);
    client_pass("four kinds of launch ran with their parameters, three bad ones were refused");
}
