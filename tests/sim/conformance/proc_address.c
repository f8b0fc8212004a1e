/* Rule: cuGetProcAddress answers by base name, version and flags: the newest function not newer
 * than the version asked for, its per-thread flavour where flags ask for it and there is one, NULL
 * with a status where there is none; and its answers are the addresses of the exported symbols.
 * Source: CUDA Driver API, cuGetProcAddress.
 */
#include "client.h"

struct question {
    const char *name;
    int version;
    cuuint64_t flags;
    const char *symbol; /* NULL: none */
    CUdriverProcAddressQueryResult status;
};

#define LEGACY CU_GET_PROC_ADDRESS_LEGACY_STREAM
#define THREAD CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#define FOUND CU_GET_PROC_ADDRESS_SUCCESS

static const struct question questions[] = {
    {"cuMemAlloc", 2000, LEGACY, "cuMemAlloc", FOUND},
    {"cuMemAlloc", 3020, LEGACY, "cuMemAlloc_v2", FOUND},
    {"cuMemAlloc", 12000, CU_GET_PROC_ADDRESS_DEFAULT, "cuMemAlloc_v2", FOUND},
    {"cuMemAlloc", 12000, THREAD, "cuMemAlloc_v2", FOUND},
    {"cuLaunchKernel", 4000, LEGACY, "cuLaunchKernel", FOUND},
    {"cuLaunchKernel", 7000, THREAD, "cuLaunchKernel_ptsz", FOUND},
    {"cuMemcpyHtoD", 3020, LEGACY, "cuMemcpyHtoD_v2", FOUND},
    {"cuMemcpyHtoD", 7000, THREAD, "cuMemcpyHtoD_v2_ptds", FOUND},
    {"cuStreamBeginCapture", 10000, LEGACY, "cuStreamBeginCapture", FOUND},
    {"cuStreamBeginCapture", 10010, LEGACY, "cuStreamBeginCapture_v2", FOUND},
    {"cuGetProcAddress", 11030, LEGACY, "cuGetProcAddress", FOUND},
    {"cuGetProcAddress", 12000, LEGACY, "cuGetProcAddress_v2", FOUND},
    {"cuLaunchKernelEx", 11000, LEGACY, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT},
    {"cuNoSuchFunction", 12000, LEGACY, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND},
};

static void check_question(const struct question *q)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
    void *found = &status, *expected = q->symbol ? client_symbol(q->symbol) : NULL;

    CHECK_CU(cuGetProcAddress(q->name, &found, q->version, q->flags, &status));
    CHECK(status == q->status, "%s at %d: status %d, expected %d", q->name, q->version, (int)status,
          (int)q->status);
    CHECK(!q->symbol || expected, "the driver does not export %s", q->symbol);
    CHECK(found == expected, "%s at %d with flags %d is %p, expected %s at %p", q->name, q->version,
          (int)q->flags, found, q->symbol ? q->symbol : "none", expected);
    found = &status;
    CHECK_CU(cuGetProcAddress(q->name, &found, q->version, q->flags, NULL));
    CHECK(found == expected, "%s is another one without a status pointer", q->name);
}

int main(void)
{
    size_t count = sizeof questions / sizeof *questions;
    struct client c;
    void *found = NULL;
    int version = 0;

    client_init(&c);
    CHECK_CU(cuDriverGetVersion(&version));
    for (size_t i = 0; i < count; i++)
        check_question(&questions[i]);
    EXPECT_CU(cuGetProcAddress("cuMemAlloc", &found, version + 1000, LEGACY, NULL),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuGetProcAddress(NULL, &found, 12000, LEGACY, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuGetProcAddress("cuMemAlloc", NULL, 12000, LEGACY, NULL), CUDA_ERROR_INVALID_VALUE);
    client_pass("%zu names came out as documented on driver %d", count, version);
}
