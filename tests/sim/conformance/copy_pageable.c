/* Rule: an asynchronous copy from pageable memory has taken its bytes when it returns; one to
 * pageable memory has delivered them when it returns.
 * Source: CUDA Driver API, "API synchronization behavior", "Memcpy", asynchronous.
 */
#include "client.h"

#define WORDS 4096u

int main(void)
{
    struct client c;
    CUstream stream;
    CUdeviceptr device;
    uint32_t *host = malloc(WORDS * sizeof *host);

    client_open(&c);
    CHECK(host, "no memory");
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    device = client_alloc(WORDS * sizeof *host);
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = i;
    CHECK_CU(cuMemcpyHtoDAsync(device, host, WORDS * sizeof *host, stream));
    memset(host, 0xff, WORDS * sizeof *host);
    client_spin(&c, stream, 50 * MS);
    client_add(&c, stream, device, 5);
    CHECK_CU(cuMemcpyDtoHAsync(host, device, WORDS * sizeof *host, stream));
    CHECK(host[0] == 5, "word 0 is %#x when the copy returns", host[0]);
    for (uint32_t i = 1; i < WORDS; i++)
        CHECK(host[i] == i, "word %u is %#x when the copy returns", i, host[i]);
    client_pass("pageable bytes were taken and delivered by the time of the return");
}
