/* Rule: pitched, managed and array allocations take device memory (managed once it is touched
 * there) and give it back; pointer attributes tell what kind each pointer is.
 * Source: CUDA Driver API, cuMemAllocPitch, cuMemAllocManaged, cuArrayCreate,
 * cuPointerGetAttribute.
 */
#include "client.h"

#define SIDE ((size_t)8192)

static unsigned kind_of(CUdeviceptr pointer)
{
    unsigned kind = 0;

    CHECK_CU(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer));
    return kind;
}

static void check_pitch(void)
{
    size_t before = client_free_bytes(), pitch = 0, wide = 1000, high = (64 << 20) / 1000;
    CUdeviceptr memory;

    CHECK_CU(cuMemAllocPitch(&memory, &pitch, wide, high, 4));
    CHECK(pitch >= wide && pitch % 4 == 0, "the pitch is %zu", pitch);
    CHECK(before - client_free_bytes() >= pitch * high / 2, "pitched memory is not taken");
    CHECK(kind_of(memory) == CU_MEMORYTYPE_DEVICE, "pitched memory is no device memory");
    CHECK_CU(cuMemFree(memory));
}

static void check_array(void)
{
    CUDA_ARRAY_DESCRIPTOR wanted = {.Width = SIDE,
                                    .Height = SIDE,
                                    .NumChannels = 1,
                                    .Format = CU_AD_FORMAT_FLOAT},
                          found;
    size_t before = client_free_bytes(), bytes = SIDE * SIDE * 4, taken;
    CUarray array;

    CHECK_CU(cuArrayCreate(&array, &wanted));
    taken = before - client_free_bytes();
    CHECK(taken >= bytes, "an array of %zu bytes made free fall by %zu", bytes, taken);
    CHECK_CU(cuArrayGetDescriptor(&found, array));
    CHECK(found.Width == SIDE && found.Height == SIDE, "the array is %zu x %zu", found.Width,
          found.Height);
    CHECK_CU(cuArrayDestroy(array));
    CHECK(before - client_free_bytes() < bytes / 2, "the array's memory does not come back");
}

static void check_managed(const struct client *c)
{
    CUdeviceptr memory;
    unsigned managed = 0;
    volatile uint32_t *host;

    CHECK_CU(cuMemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    CHECK_CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
    CHECK(managed, "managed memory is not told as such");
    host = (volatile uint32_t *)(uintptr_t)memory;
    *host = 4;
    client_add(c, NULL, memory, 3);
    CHECK_CU(cuCtxSynchronize());
    CHECK(*host == 7, "host and kernel made %u of 4 + 3", *host);
    CHECK_CU(cuMemFree(memory));
}

int main(void)
{
    struct client c;
    CUdeviceptr plain, base = 0, pinned;
    size_t bytes = 0;

    client_open(&c);
    plain = client_alloc(1 << 20);
    client_pinned(4096, &pinned);
    CHECK(kind_of(plain) == CU_MEMORYTYPE_DEVICE, "cuMemAlloc gives no device memory");
    CHECK(kind_of(pinned) == CU_MEMORYTYPE_HOST, "cuMemHostAlloc gives no host memory");
    CHECK_CU(cuMemGetAddressRange(&base, &bytes, plain + 4096));
    CHECK(base == plain && bytes >= 1 << 20, "the range is %zu bytes", bytes);
    check_pitch();
    check_array();
    if (client_attribute(&c, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
        check_managed(&c);
    client_pass("each kind of allocation was what it was asked to be");
}
