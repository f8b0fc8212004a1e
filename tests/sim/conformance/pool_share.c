/* Rule: a pool made to be shared is exported by descriptor and imported elsewhere, where it makes
 * no memory of its own but gives pointers to the maker's; what such a pointer leads to lives until
 * both sides have freed it, and takes nothing in the importer. Source: CUDA Driver API,
 * cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle, cuMemPoolExportPointer,
 * cuMemPoolImportPointer.
 */
#include "client.h"
#include "descriptor.h"

#define BYTES ((size_t)64 << 20)

static int sockets[2];

static int maker_run(struct child *parent, void *arg)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemPoolPtrExportData data;
    uint64_t words[sizeof data / 8];
    CUmemoryPool pool, plain;
    CUdeviceptr memory;
    struct client c;
    int fd;

    (void)arg;
    client_open(&c);
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = c.device;
    CHECK_CU(cuMemPoolCreate(&pool, &props));
    CHECK_CU(cuMemAllocFromPoolAsync(&memory, BYTES, pool, NULL));
    client_set(&c, NULL, memory + 8, 0xb00);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(
        cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK_CU(cuMemPoolExportPointer(&data, memory));
    CHECK(descriptor_send(sockets[1], fd), "cannot send a descriptor");
    close(fd);
    memcpy(words, &data, sizeof data);
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        client_tell(parent, words[i]);
    client_hear(parent);
    CHECK_CU(cuMemFreeAsync(memory, NULL));
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemPoolDestroy(pool));
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CHECK_CU(cuMemPoolCreate(&plain, &props));
    CHECK(cuMemPoolExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "a pool that was not made for it is exported");
    client_tell(parent, 1);
    client_hear(parent);
    return 0;
}

static void check_word(CUdeviceptr memory)
{
    uint32_t word = 0;

    CHECK_CU(cuMemcpyDtoH(&word, memory + 8, sizeof word));
    CHECK(word == 0xb00, "the importer sees %#x", word);
}

int main(void)
{
    CUmemPoolPtrExportData data;
    uint64_t words[sizeof data / 8];
    struct child maker;
    CUdeviceptr memory, own;
    CUmemoryPool pool;
    struct client c;
    size_t before;
    int fd;

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), "no sockets");
    maker = client_fork(maker_run, NULL);
    client_open(&c);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    fd = descriptor_receive(sockets[0]);
    CHECK(fd >= 0, "cannot receive a descriptor");
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = client_hear(&maker);
    memcpy(&data, words, sizeof data);
    before = client_free_bytes();
    CHECK_CU(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    CHECK(cuMemAllocFromPoolAsync(&own, BYTES, pool, NULL), "an imported pool makes memory");
    CHECK_CU(cuMemPoolImportPointer(&memory, pool, &data));
    CHECK(before - client_free_bytes() < BYTES / 2, "an imported pointer takes memory");
    check_word(memory);
    client_tell(&maker, 1);
    client_hear(&maker);
    CHECK(before - client_free_bytes() < BYTES / 2 && client_free_bytes() < before + BYTES,
          "the memory went with its maker");
    check_word(memory);
    CHECK_CU(cuMemFree(memory));
    CHECK(client_free_bytes() >= before + BYTES, "the memory stays when both sides have freed it");
    CHECK_CU(cuMemPoolDestroy(pool));
    client_tell(&maker, 1);
    client_join_passed(&maker);
    client_pass("one pool's memory in two processes, free when both let go");
}
