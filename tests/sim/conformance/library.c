/* Rule: a library (12.0 and later) gives kernels by name without a context; cuKernelGetFunction
 * gives the function of the current context, and a launch takes either handle.
 * Source: CUDA Driver API, "Library Management".
 */
#include "client.h"

#include "kernels_ptx.h"

int main(void)
{
    struct client c;
    CUlibrary library;
    CUkernel kernel = NULL;
    CUfunction function;
    CUdeviceptr device;
    volatile uint32_t *word;
    uint32_t value = 5;
    void *arguments[] = {&device, &value};

    (void)pdl_ptx;
    client_open(&c);
    word = client_pinned(sizeof *word, &device);
    CHECK_CU(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    EXPECT_CU(cuLibraryGetKernel(&kernel, library, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "add_u32"));
    CHECK_CU(cuKernelGetFunction(&function, kernel));
    CHECK_CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK_CU(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK_CU(cuCtxSynchronize());
    CHECK(*word == 10, "two launches added up to %u, not 10", *word);
    CHECK_CU(cuLibraryUnload(library));
    client_pass("a kernel ran by its own handle and by its function's");
}
