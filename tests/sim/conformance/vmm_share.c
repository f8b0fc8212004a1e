/* Rule: memory of cuMemCreate exported as a file descriptor, or as a fabric handle of 64 bytes, is
 * the same memory in the process that imports it; it takes no more memory there, and it lives on
 * when its maker has released it or is dead. A descriptor holds it, too, until it is closed.
 * Source: CUDA Driver API, cuMemExportToShareableHandle, cuMemImportFromShareableHandle,
 * cuMemRelease.
 */
#include "client.h"
#include "descriptor.h"

#include <signal.h>
#include <sys/wait.h>

#define BYTES ((size_t)64 << 20)

static int sockets[2];

static CUmemGenericAllocationHandle make(const struct client *c, CUmemAllocationHandleType type)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = type,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device}};
    CUmemGenericAllocationHandle handle;

    CHECK_CU(cuMemCreate(&handle, BYTES, &prop, 0));
    return handle;
}

static CUdeviceptr map(const struct client *c, CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr base;

    CHECK_CU(cuMemAddressReserve(&base, BYTES, 0, 0, 0));
    CHECK_CU(cuMemMap(base, BYTES, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(base, BYTES, &access, 1));
    return base;
}

static int maker_run(struct child *parent, void *arg)
{
    CUmemGenericAllocationHandle handle;
    struct client c;
    int fd;

    (void)arg;
    client_open(&c);
    if (client_attribute(&c, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
        CUmemFabricHandle fabric;
        uint64_t words[sizeof fabric / 8];

        handle = make(&c, CU_MEM_HANDLE_TYPE_FABRIC);
        CHECK_CU(cuMemExportToShareableHandle(&fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
        EXPECT_CU(
            cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
        client_set(&c, NULL, map(&c, handle), 0xfab);
        CHECK_CU(cuCtxSynchronize());
        memcpy(words, &fabric, sizeof fabric);
        client_tell(parent, 1);
        for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
            client_tell(parent, words[i]);
    } else {
        client_tell(parent, 0);
    }
    handle = make(&c, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_CU(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    client_set(&c, NULL, map(&c, handle), 0xfd);
    CHECK_CU(cuCtxSynchronize());
    CHECK(descriptor_send(sockets[1], fd), "cannot send a descriptor");
    close(fd);
    client_hear(parent); /* until killed */
    return 1;
}

static CUmemGenericAllocationHandle import_fabric(const struct child *maker)
{
    CUmemGenericAllocationHandle handle;
    CUmemFabricHandle fabric;
    uint64_t words[sizeof fabric / 8];

    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = client_hear(maker);
    memcpy(&fabric, words, sizeof fabric);
    CHECK_CU(cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    return handle;
}

static void check_word(const struct client *c, CUmemGenericAllocationHandle handle, uint32_t wanted)
{
    CUdeviceptr base = map(c, handle);
    uint32_t word = 0;

    CHECK_CU(cuMemcpyDtoH(&word, base, sizeof word));
    CHECK(word == wanted, "the importer sees %#x instead of %#x", word, wanted);
    CHECK_CU(cuMemUnmap(base, BYTES));
    CHECK_CU(cuMemAddressFree(base, BYTES));
}

/* A process's own descriptor holds what it has released, and closing it lets go. */
static void check_descriptor(const struct client *c)
{
    size_t before = client_free_bytes();
    CUmemGenericAllocationHandle handle = make(c, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), again;
    uint64_t end;
    int fd, copy;

    CHECK_CU(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_CU(cuMemRelease(handle));
    copy = dup(fd);
    close(fd);
    client_sleep(100 * MS);
    CHECK(before - client_free_bytes() >= BYTES,
          "the memory is gone although a descriptor is open");
    CHECK_CU(cuMemImportFromShareableHandle(&again, (void *)(uintptr_t)copy,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_CU(cuMemRelease(again));
    close(copy);
    end = client_now() + SOON;
    while (client_free_bytes() < before && client_now() < end)
        client_sleep(MS);
    CHECK(client_free_bytes() >= before, "the memory stays after the last descriptor");
}

int main(void)
{
    CUmemGenericAllocationHandle handle, fabric = 0;
    struct child maker;
    struct client c;
    size_t before, left;
    uint64_t end;
    int fd, status;
    bool has_fabric;

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), "no sockets");
    maker = client_fork(maker_run, NULL);
    client_open(&c);
    client_noop(&c, NULL);
    has_fabric = client_hear(&maker);
    if (has_fabric)
        fabric = import_fabric(&maker);
    fd = descriptor_receive(sockets[0]);
    CHECK(fd >= 0, "cannot receive a descriptor");
    before = client_free_bytes();
    CHECK_CU(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CHECK(before - client_free_bytes() < BYTES / 2, "an import takes memory");
    check_word(&c, handle, 0xfd);
    CHECK(!kill(maker.pid, SIGKILL), "kill failed");
    status = client_join(&maker);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the maker ended with %#x",
          (unsigned)status);
    end = client_now() + SOON;
    while (client_free_bytes() <= before &&
           client_now() < end) /* its context's memory comes back */
        client_sleep(MS);
    client_sleep(WHILE);
    left = client_free_bytes();
    check_word(&c, handle, 0xfd);
    CHECK_CU(cuMemRelease(handle));
    CHECK(client_free_bytes() >= left + BYTES,
          "the dead maker's memory stays after the last release");
    if (has_fabric) {
        check_word(&c, fabric, 0xfab);
        CHECK_CU(cuMemRelease(fabric));
        CHECK(client_free_bytes() >= left + 2 * BYTES, "the fabric handle's memory stays");
    }
    check_descriptor(&c);
    client_pass("a descriptor%s: one memory, alive until its last holder",
                has_fabric ? " and a fabric handle" : "");
}
