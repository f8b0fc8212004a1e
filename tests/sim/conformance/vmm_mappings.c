/* Rule: a handle may be mapped several times, and from its front by less than it has; its memory
 * goes with the last of handles (one more by cuMemRetainAllocationHandle) and mappings. cuMemUnmap
 * takes whole mappings, several in a row too. None of it needs a context.
 * Source: CUDA Driver API, cuMemMap, cuMemUnmap, cuMemRelease, cuMemRetainAllocationHandle.
 */
#include "client.h"

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static size_t grain;

static void allow(CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
}

static void *without_context(void *arg)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr base;
    CUcontext current;

    (void)arg;
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK(!current, "the thread has a context");
    CHECK_CU(cuMemCreate(&handle, 2 * grain, &prop, 0));
    CHECK_CU(cuMemAddressReserve(&base, 2 * grain, 0, 0, 0));
    CHECK_CU(cuMemMap(base, 2 * grain, 0, handle, 0));
    allow(base, 2 * grain);
    CHECK_CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(base + grain)));
    CHECK(again == handle, "the retained handle is another one");
    CHECK_CU(cuMemRelease(again));
    CHECK_CU(cuMemUnmap(base, 2 * grain));
    CHECK_CU(cuMemAddressFree(base, 2 * grain));
    CHECK_CU(cuMemRelease(handle));
    return NULL;
}

static void check_views(const struct client *c, CUdeviceptr base,
                        CUmemGenericAllocationHandle handle)
{
    uint32_t word = 0;

    CHECK_CU(cuMemMap(base, 4 * grain, 0, handle, 0));
    CHECK_CU(cuMemMap(base + 4 * grain, 4 * grain, 0, handle, 0));
    CHECK_CU(cuMemMap(base + 8 * grain, grain, 0, handle, 0));
    allow(base, 9 * grain);
    client_set(c, NULL, base + 16, 0xabc);
    CHECK_CU(cuMemcpyDtoH(&word, base + 4 * grain + 16, sizeof word));
    CHECK(word == 0xabc, "the second mapping shows %#x", word);
    word = 0;
    CHECK_CU(cuMemcpyDtoH(&word, base + 8 * grain + 16, sizeof word));
    CHECK(word == 0xabc, "the short mapping shows %#x", word);
    EXPECT_CU(cuMemMap(base + 8 * grain, grain, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemMap(base + 9 * grain, 8 * grain, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemUnmap(base, grain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemUnmap(base, 5 * grain), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr base;
    struct client c;
    size_t before, bytes;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        client_skip("no virtual memory management here");
    prop.location.id = c.device;
    CHECK_CU(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    before = client_free_bytes();
    client_thread_join(client_thread(without_context, NULL));
    CHECK(client_free_bytes() == before, "the thread without a context left something");
    CHECK_CU(cuMemCreate(&handle, 4 * grain, &prop, 0));
    bytes = before - client_free_bytes();
    CHECK(bytes >= 4 * grain, "the handle took %zu bytes", bytes);
    CHECK_CU(cuMemAddressReserve(&base, 16 * grain, 0, 0, 0));
    check_views(&c, base, handle);
    CHECK(before - client_free_bytes() <= bytes + 2 * grain, "mappings take memory");
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemUnmap(base, 8 * grain));
    CHECK(before - client_free_bytes() >= 4 * grain, "free although one mapping is left");
    CHECK_CU(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(base + 8 * grain)));
    CHECK_CU(cuMemUnmap(base + 8 * grain, grain));
    CHECK(before - client_free_bytes() >= 4 * grain, "free although a handle is retained");
    CHECK_CU(cuMemRelease(again));
    CHECK(before - client_free_bytes() < 4 * grain, "the memory does not come back");
    CHECK_CU(cuMemAddressFree(base, 16 * grain));
    client_pass("three mappings, one memory, freed with the last of them");
}
