/* Rule: memory of cuMemCreate imported as external memory by its descriptor takes nothing more; the
 * buffers and arrays mapped from it are that memory; when the exporter is dead it stays until the
 * importer has destroyed its object and freed its buffers, and is nobody's meanwhile.
 * Source: CUDA Driver API, "External Resource Interoperability"; for the orphan this is a rule of
 * the simulated device (tests/sim/README.md, "Trace").
 */
#include "client.h"
#include "descriptor.h"

#include <signal.h>
#include <sys/wait.h>

#define BYTES ((size_t)64 << 20)
#define HALF (BYTES / 2)

static int sockets[2];

static int maker_run(struct child *parent, void *arg)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    struct client c;
    int fd;

    (void)arg;
    client_open(&c);
    prop.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = access.location.id = c.device;
    CHECK_CU(cuMemCreate(&handle, BYTES, &prop, 0));
    CHECK_CU(cuMemAddressReserve(&base, BYTES, 0, 0, 0));
    CHECK_CU(cuMemMap(base, BYTES, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(base, BYTES, &access, 1));
    client_fill(&c, NULL, base, 0xe1, BYTES / 4);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(
        cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CHECK(descriptor_send(sockets[1], fd), "cannot send a descriptor");
    close(fd);
    client_hear(parent); /* until killed */
    return 1;
}

static CUexternalMemory import(int fd)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC form = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                             .size = BYTES};
    CUexternalMemory memory, other;

    form.handle.fd = fd;
    if (cuImportExternalMemory(&memory, &form) == CUDA_ERROR_NOT_SUPPORTED)
        client_skip("this driver does not import its own descriptors");
    form.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP;
    CHECK(cuImportExternalMemory(&other, &form), "a handle of another system is taken");
    return memory;
}

static CUdeviceptr map_buffer(CUexternalMemory memory, size_t offset, size_t bytes)
{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC form = {.offset = offset, .size = bytes};
    CUdeviceptr address;

    CHECK_CU(cuExternalMemoryGetMappedBuffer(&address, memory, &form));
    return address;
}

static void check_views(const struct client *c, CUexternalMemory memory, CUdeviceptr first)
{
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC form = {.offset = HALF, .numLevels = 1};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC wrong = {.offset = HALF, .size = BYTES};
    CUdeviceptr second = map_buffer(memory, HALF, HALF), no;
    CUmipmappedArray mipmap;
    CUarray level;
    uint32_t word = 0;

    EXPECT_CU(cuExternalMemoryGetMappedBuffer(&no, memory, &wrong), CUDA_ERROR_INVALID_VALUE);
    client_set(c, NULL, first + HALF, 0xe2);
    CHECK_CU(cuMemcpyDtoH(&word, second, sizeof word));
    CHECK(word == 0xe2, "the second buffer shows %#x", word);
    CHECK_CU(cuMemcpyDtoH(&word, second + 4, sizeof word));
    CHECK(word == 0xe1, "the exporter's bytes are %#x", word);
    CHECK_CU(cuMemFree(second));
    form.arrayDesc.Width = 256;
    form.arrayDesc.Height = 256;
    form.arrayDesc.NumChannels = 1;
    form.arrayDesc.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    CHECK_CU(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &form));
    CHECK_CU(cuMipmappedArrayGetLevel(&level, mipmap, 0));
    CHECK_CU(cuMemcpyAtoH(&word, level, 0, sizeof word));
    CHECK(word == 0xe2, "the array shows %#x", word);
    CHECK_CU(cuMipmappedArrayDestroy(mipmap));
}

int main(void)
{
    CUexternalMemory memory;
    struct child maker;
    struct client c;
    struct handed_out books;
    size_t before;
    uint64_t end;
    CUdeviceptr buffer;
    int fd, status;

    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), "no sockets");
    maker = client_fork(maker_run, NULL);
    client_open(&c);
    client_noop(&c, NULL);
    fd = descriptor_receive(sockets[0]);
    CHECK(fd >= 0, "cannot receive a descriptor");
    before = client_free_bytes();
    memory = import(fd);
    buffer = map_buffer(memory, 0, BYTES);
    CHECK(before - client_free_bytes() < BYTES / 2, "an import takes memory");
    check_views(&c, memory, buffer);
    CHECK(!kill(maker.pid, SIGKILL), "kill failed");
    status = client_join(&maker);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the maker ended with %#x",
          (unsigned)status);
    end = client_now() + SOON;
    while (client_free_bytes() <= before &&
           client_now() < end) /* its context's memory comes back */
        client_sleep(MS);
    client_sleep(WHILE);
    before = client_free_bytes();
    if (client_symbol("simcudaHandedOut")) {
        books = client_handed_out(c.device);
        CHECK(!books.memory && books.orphaned == BYTES, "memory %llu, orphans %llu", books.memory,
              books.orphaned);
    }
    CHECK_CU(cuDestroyExternalMemory(memory));
    CHECK_CU(cuMemFree(buffer));
    CHECK(client_free_bytes() >= before + BYTES, "the memory stays after its last holder");
    client_pass("the exporter's memory lived until the importer let it go");
}
