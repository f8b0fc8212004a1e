/* Rule: device memory exported by one process is the same memory in another.
 * Source: CUDA Driver API, cuIpcGetMemHandle, cuIpcOpenMemHandle.
 */
#include "client.h"

static int owner_run(struct child *parent, void *arg)
{
    struct client c;
    CUdeviceptr memory;
    CUipcMemHandle handle;
    uint32_t word = 0;

    (void)arg;
    client_open(&c);
    memory = client_alloc(1 << 20);
    client_fill(&c, NULL, memory, 0x1234, 1 << 18);
    CHECK_CU(cuCtxSynchronize());
    if (cuIpcGetMemHandle(&handle, memory) == CUDA_ERROR_NOT_SUPPORTED)
        client_skip("no interprocess memory here");
    CHECK_CU(cuIpcGetMemHandle(&handle, memory));
    for (size_t i = 0; i < sizeof handle; i += sizeof(uint64_t)) {
        uint64_t part;

        memcpy(&part, handle.reserved + i, sizeof part);
        client_tell(parent, part);
    }
    client_hear(parent);
    CHECK_CU(cuMemcpyDtoH(&word, memory + 4096, sizeof word));
    CHECK(word == 0x5678, "the owner sees %#x", word);
    return 0;
}

/* The first word tells whether the owner has anything to export. */
static bool hear_handle(const struct child *owner, CUipcMemHandle *handle)
{
    for (size_t i = 0; i < sizeof *handle; i += sizeof(uint64_t)) {
        uint64_t part;

        if (!i && read(owner->from, &part, sizeof part) != sizeof part)
            return false;
        if (i)
            part = client_hear(owner);
        memcpy(handle->reserved + i, &part, sizeof part);
    }
    return true;
}

int main(void)
{
    struct child owner = client_fork(owner_run, NULL);
    struct client c;
    CUipcMemHandle handle;
    CUdeviceptr theirs;
    uint32_t word = 0;

    client_open(&c);
    if (!hear_handle(&owner, &handle)) {
        client_join_passed(&owner);
        return 1;
    }
    CHECK_CU(cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    CHECK_CU(cuMemcpyDtoH(&word, theirs + 4096, sizeof word));
    CHECK(word == 0x1234, "the importer sees %#x", word);
    client_set(&c, NULL, theirs + 4096, 0x5678);
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuIpcCloseMemHandle(theirs));
    client_tell(&owner, 1);
    client_join_passed(&owner);
    client_pass("two processes read and wrote the same device memory");
}
