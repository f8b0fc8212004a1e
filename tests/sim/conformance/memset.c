/* Rule: memsets of 8, 16 and 32 bit units and of rectangles fill exactly their range, in stream
 * order.
 * Source: CUDA Driver API, "Memory Management", cuMemsetD*.
 */
#include "client.h"

#define BYTES 4096u

int main(void)
{
    struct client c;
    CUstream stream;
    CUdeviceptr device;
    unsigned char *seen;
    CUdeviceptr ignored;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    device = client_alloc(BYTES);
    seen = client_pinned(BYTES, &ignored);
    CHECK_CU(cuMemsetD8Async(device, 0x11, BYTES, stream));
    CHECK_CU(cuMemsetD16Async(device + 256, 0x2233, 64, stream));
    CHECK_CU(cuMemsetD32Async(device + 512, 0x44556677, 64, stream));
    CHECK_CU(cuMemsetD2D8Async(device + 1024, 256, 0x88, 16, 4, stream));
    CHECK_CU(cuMemcpyDtoHAsync(seen, device, BYTES, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(seen[255] == 0x11 && seen[384] == 0x11, "the 16-bit memset missed its range");
    CHECK(seen[256] == 0x33 && seen[383] == 0x22, "the 16-bit memset wrote %#x", seen[256]);
    CHECK(seen[512] == 0x77 && seen[767] == 0x44, "the 32-bit memset wrote %#x", seen[512]);
    CHECK(seen[511] == 0x11 && seen[768] == 0x11, "the 32-bit memset missed its range");
    for (unsigned row = 0; row < 4; row++) {
        CHECK(seen[1024 + row * 256] == 0x88 && seen[1024 + row * 256 + 15] == 0x88,
              "row %u was not set", row);
        CHECK(seen[1024 + row * 256 + 16] == 0x11, "row %u is too wide", row);
    }
    CHECK_CU(cuMemsetD32(device, 0, 1));
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemcpyDtoH(seen, device, 8));
    CHECK(!seen[3] && seen[4] == 0x11, "the blocking memset missed its range");
    client_pass("five memsets filled exactly their ranges");
}
