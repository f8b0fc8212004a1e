/* Rule: before cuInit every call but the version says CUDA_ERROR_NOT_INITIALIZED; flags must be 0;
 * error names exist for all errors; device ordinals are checked.
 * Source: CUDA Driver API, "Initialization", "Device Management", "Error Handling".
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUdevice device = -1;
    int count = -1, version = 0;
    const char *text = NULL;
    char name[256] = "";

    EXPECT_CU(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    EXPECT_CU(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK(device == -1, "the failed call has set its output");
    CHECK_CU(cuDriverGetVersion(&version));
    CHECK(version >= 11000, "driver version %d", version);
    EXPECT_CU(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    client_init(&c);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&count));
    CHECK(count >= 1, "%d devices", count);
    EXPECT_CU(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    CHECK_CU(cuDeviceGetName(name, sizeof name, c.device));
    CHECK(*name, "the device has no name");
    CHECK_CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"), "error 2 is called %s", text);
    CHECK_CU(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK(text && *text, "error 2 has no text");
    EXPECT_CU(cuGetErrorName((CUresult)123456, &text), CUDA_ERROR_INVALID_VALUE);
    client_pass("driver %d, %d device(s), the first is %s", version, count, name);
}
