/* Rule: NULL outputs are refused with CUDA_ERROR_INVALID_VALUE or, where the call has several
 * outputs, may be left out; never a crash, and a call that fails leaves the other output alone.
 * Source: CUDA Driver API lists CUDA_ERROR_INVALID_VALUE for each; which of several outputs may be
 * NULL is not documented, so the line printed tells what this driver does.
 */
#include "client.h"

#define SENTINEL ((size_t)0x5a5a5a5a5a5aull)

static CUresult info_without_free(size_t total)
{
    size_t value = SENTINEL;
    CUresult error = cuMemGetInfo(NULL, &value);

    CHECK(error == CUDA_SUCCESS ? value == total : value == SENTINEL, "total is %zu", value);
    return error;
}

static CUresult info_without_total(size_t total)
{
    size_t value = SENTINEL;
    CUresult error = cuMemGetInfo(&value, NULL);

    CHECK(error == CUDA_SUCCESS ? value <= total : value == SENTINEL, "free is %zu", value);
    return error;
}

static void check_known(const char *name, CUresult error)
{
    CHECK(error == CUDA_SUCCESS || error == CUDA_ERROR_INVALID_VALUE, "%s returns %s", name,
          client_error_name(error));
}

int main(void)
{
    struct client c;
    size_t left, total;
    CUresult without_free, without_total, without_both;

    client_open(&c);
    CHECK_CU(cuMemGetInfo(&left, &total));
    without_free = info_without_free(total);
    without_total = info_without_total(total);
    without_both = cuMemGetInfo(NULL, NULL);
    check_known("cuMemGetInfo without free", without_free);
    check_known("cuMemGetInfo without total", without_total);
    check_known("cuMemGetInfo without both", without_both);
    EXPECT_CU(cuDeviceTotalMem(NULL, c.device), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAlloc(NULL, 4096), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemFree(0));
    client_pass("cuMemGetInfo without free %s, without total %s, without both %s",
                client_error_name(without_free), client_error_name(without_total),
                client_error_name(without_both));
}
