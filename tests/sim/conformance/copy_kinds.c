/* Rule: linear copies in all directions, the direction-less cuMemcpy and two-dimensional copies
 * move the right bytes and no others.
 * Source: CUDA Driver API, "Memory Management", cuMemcpy*, cuMemcpy2D.
 */
#include "client.h"

#define BYTES 4096u
#define PITCH 256u
#define WIDTH 100u
#define HEIGHT 8u

static void check_linear(CUdeviceptr a, CUdeviceptr b)
{
    unsigned char out[BYTES], in[BYTES] = {0};

    for (unsigned i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i * 31);
    CHECK_CU(cuMemcpyHtoD(a, out, BYTES));
    CHECK_CU(cuMemcpyDtoD(b, a, BYTES));
    CHECK_CU(cuMemcpyDtoH(in, b, BYTES));
    CHECK(!memcmp(in, out, BYTES), "host, device, device, host: other bytes");
    CHECK_CU(cuMemsetD8(b, 0, BYTES));
    CHECK_CU(cuMemcpy(b + 16, a + 32, 64));
    CHECK_CU(cuMemcpyDtoH(in, b, BYTES));
    CHECK(!memcmp(in + 16, out + 32, 64), "cuMemcpy moved other bytes");
    CHECK(!in[15] && !in[80], "cuMemcpy touched its surroundings");
}

static void check_rectangle(CUdeviceptr a)
{
    unsigned char out[WIDTH * HEIGHT], in[PITCH * HEIGHT];
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = out, .srcPitch = WIDTH,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = a, .dstPitch = PITCH,
                          .WidthInBytes = WIDTH, .Height = HEIGHT};

    for (unsigned i = 0; i < sizeof out; i++)
        out[i] = (unsigned char)(i + 1);
    CHECK_CU(cuMemsetD8(a, 0xee, sizeof in));
    CHECK_CU(cuMemcpy2D(&copy));
    CHECK_CU(cuMemcpyDtoH(in, a, sizeof in));
    for (unsigned row = 0; row < HEIGHT; row++) {
        CHECK(!memcmp(in + row * PITCH, out + row * WIDTH, WIDTH), "row %u differs", row);
        CHECK(in[row * PITCH + WIDTH] == 0xee, "row %u is too wide", row);
    }
}

int main(void)
{
    struct client c;
    CUdeviceptr a, b;

    client_open(&c);
    a = client_alloc(BYTES);
    b = client_alloc(BYTES);
    check_linear(a, b);
    check_rectangle(a);
    client_pass("linear, direction-less and rectangular copies moved the right bytes");
}
