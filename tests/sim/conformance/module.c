/* Rule: functions and variables are found by the names that the module has, others are not; text
 * that is no module is refused; a function knows its limits; an unloaded module can be loaded
 * again.
 * Source: CUDA Driver API, "Module Management", "Execution Control".
 */
#include "client.h"

static const char wrong[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry x(\n";

int main(void)
{
    struct client c;
    CUmodule module;
    CUfunction function = NULL, sentinel = (CUfunction)&c;
    CUdeviceptr cells = 0;
    size_t bytes = 0;
    uint32_t words[16];
    int threads = 0;

    client_open(&c);
    function = sentinel;
    EXPECT_CU(cuModuleGetFunction(&function, c.module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    EXPECT_CU(cuModuleGetFunction(&function, c.module, "spin"), CUDA_ERROR_NOT_FOUND);
    CHECK_CU(cuModuleGetGlobal(&cells, &bytes, c.module, "cells"));
    CHECK(bytes == sizeof words, "the variable has %zu bytes", bytes);
    CHECK_CU(cuMemcpyDtoH(words, cells, sizeof words));
    for (int i = 0; i < 16; i++)
        CHECK(!words[i], "word %d of the variable is %u", i, words[i]);
    client_set(&c, NULL, cells, 3);
    CHECK_CU(cuMemcpyDtoH(words, cells, sizeof words));
    CHECK(words[0] == 3, "a kernel's write to the variable is %u", words[0]);
    EXPECT_CU(cuModuleGetGlobal(&cells, &bytes, c.module, "no_such_cells"), CUDA_ERROR_NOT_FOUND);
    CHECK_CU(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, c.noop));
    CHECK(threads >= 512 && threads <= 1024, "%d threads per block", threads);
    EXPECT_CU(cuModuleLoadData(&module, wrong), CUDA_ERROR_INVALID_PTX);
    CHECK_CU(cuModuleUnload(c.module));
    client_load(&c);
    CHECK_CU(cuModuleGetGlobal(&cells, &bytes, c.module, "cells"));
    CHECK_CU(cuMemcpyDtoH(words, cells, sizeof words));
    CHECK(!words[0], "a freshly loaded variable is %u", words[0]);
    client_pass("names, variables and errors of a module are as documented");
}
