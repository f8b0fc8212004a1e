/* Rule: an address range larger than the device can be reserved; pieces of 2 and 20 MiB are
 * created, mapped and made accessible one after the other, unmapped in the middle and put there
 * anew, and the device's free memory follows each step. Source: CUDA Driver API, "Virtual Memory
 * Management"; the use that expandable segments make of it.
 */
#include "client.h"

enum { PIECES = 24 };
#define MIB ((size_t)1 << 20)

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

/* As such a segment does it: the handle goes as soon as it is mapped. */
static void put_piece(CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;

    CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
    CHECK_CU(cuMemMap(at, bytes, 0, handle, 0));
    CHECK_CU(cuMemRelease(handle));
    CHECK_CU(cuMemSetAccess(at, bytes, &access, 1));
}

int main(void)
{
    size_t before, total, reserved, step, held = 0, piece;
    CUdeviceptr base;
    struct client c;

    client_open(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        client_skip("no virtual memory management here");
    prop.location.id = c.device;
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemGetInfo(&before, &total));
    reserved = (total + total / 8) / (20 * MIB) * (20 * MIB);
    for (unsigned round = 0; round < 2; round++) {
        step = round ? 20 * MIB : 2 * MIB;
        CHECK_CU(cuMemAddressReserve(&base, reserved, 0, 0, 0));
        CHECK(client_free_bytes() == before, "the reservation takes memory");
        for (piece = 0; piece < PIECES; piece++) {
            put_piece(base + piece * step, step);
            held += step;
            CHECK(before - client_free_bytes() >= held, "%zu bytes held, free fell by %zu", held,
                  before - client_free_bytes());
        }
        client_fill(&c, NULL, base, 7, PIECES * step / 4);
        CHECK_CU(cuCtxSynchronize());
        for (piece = PIECES / 3; piece < PIECES / 2; piece++, held -= step)
            CHECK_CU(cuMemUnmap(base + piece * step, step));
        CHECK(before - client_free_bytes() < held + step, "%zu bytes held, free fell by %zu", held,
              before - client_free_bytes());
        put_piece(base + PIECES / 3 * step, step);
        client_fill(&c, NULL, base, 8, (PIECES / 3 + 1) * step / 4);
        CHECK_CU(cuCtxSynchronize());
        CHECK_CU(cuMemUnmap(base, (PIECES / 3 + 1) * step));
        CHECK_CU(cuMemUnmap(base + PIECES / 2 * step, (PIECES - PIECES / 2) * step));
        CHECK(client_free_bytes() == before, "%zu bytes do not come back",
              before - client_free_bytes());
        CHECK_CU(cuMemAddressFree(base, reserved));
        held = 0;
    }
    client_pass("segments in a reservation of %zu MiB, free memory right after each step",
                reserved >> 20);
}
