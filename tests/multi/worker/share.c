/*
 * share: commands that give memory to other processes and take theirs. What is not text goes
 * through a socket that the worker has inherited (its number is an argument).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "descriptor.h"
#include "worker.h"

#define SHARED 256

/* What this process has, under the number that a command gave. */
struct shared {
    CUdeviceptr pointer;
    CUmemGenericAllocationHandle handle;
    CUmemoryPool pool;
    CUexternalMemory external;
    uint64_t bytes;
};

static struct shared shared[SHARED];
static unsigned shared_count; /* commands of this file come one at a time */

static void share_answer(struct job *job, CUresult rc, struct shared one)
{
    if (rc == CUDA_SUCCESS && shared_count < SHARED) {
        shared[shared_count] = one;
        job_answer(job, "0 %u", shared_count++);
    } else {
        job_answer(job, "%d", (int)rc);
    }
}

static struct shared *share_of(const struct job *job, int index)
{
    return &shared[job_number(job, index, 0) % SHARED];
}

static void share_write_hex(struct job *job, CUresult rc, const void *data, size_t bytes)
{
    job_answer(job, "%d ", (int)rc);
    for (size_t i = 0; i < bytes && rc == CUDA_SUCCESS; i++)
        job_answer(job, "%02x", ((const unsigned char *)data)[i]);
}

static void share_read_hex(const struct job *job, int index, void *data, size_t bytes)
{
    const char *text = job_text(job, index, "");
    for (size_t i = 0; i < bytes && sscanf(text + 2 * i, "%2hhx", (unsigned char *)data + i) == 1;
         i++)
        ;
}

/* Gives the driver's descriptor away. */
static bool share_send(int socket, int fd)
{
    bool sent = descriptor_send(socket, fd);
    close(fd);
    return sent;
}

/* ---- by interprocess handle: share-alloc BYTES, ipc-get N, ipc-open HEX, ipc-close N -----------
 */

static void share_alloc(struct job *job)
{
    struct shared one = {.bytes = job_number(job, 1, 0)};
    share_answer(job, cu.cuMemAlloc_v2(&one.pointer, one.bytes), one);
}

static void share_free(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuMemFree_v2(share_of(job, 1)->pointer));
}

static void share_ipc_get(struct job *job)
{
    CUipcMemHandle handle;
    CUresult rc = cu.cuIpcGetMemHandle(&handle, share_of(job, 1)->pointer);
    share_write_hex(job, rc, &handle, sizeof handle);
}

static void share_ipc_open(struct job *job)
{
    struct shared one = {0};
    CUipcMemHandle handle;
    share_read_hex(job, 1, &handle, sizeof handle);
    share_answer(job,
                 cu.cuIpcOpenMemHandle_v2(&one.pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                 one);
}

static void share_ipc_close(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuIpcCloseMemHandle(share_of(job, 1)->pointer));
}

/* ---- virtual memory: vmm-make BYTES fd|fabric, vmm-give N fd SOCKET | N fabric, vmm-take fd
 * SOCKET | fabric HEX, vmm-map N BYTES, vmm-unmap N, vmm-release N
 * -------------------------------------- */

static CUmemAllocationHandleType share_type(const char *name)
{
    return strcmp(name, "fd") ? CU_MEM_HANDLE_TYPE_FABRIC
                              : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static void share_vmm_make(struct job *job)
{
    struct shared one = {.bytes = job_number(job, 1, 0)};
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = share_type(job_text(job, 2, "fd")),
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker.device}};
    share_answer(job, cu.cuMemCreate(&one.handle, one.bytes, &prop, 0), one);
}

static void share_vmm_give(struct job *job)
{
    CUmemAllocationHandleType type = share_type(job_text(job, 2, "fd"));
    CUmemFabricHandle fabric;
    int fd = -1;
    bool plain = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUresult rc = cu.cuMemExportToShareableHandle(plain ? (void *)&fd : (void *)&fabric,
                                                  share_of(job, 1)->handle, type, 0);
    if (!plain)
        share_write_hex(job, rc, &fabric, sizeof fabric);
    else
        job_answer(job, "%d", rc ? (int)rc : share_send((int)job_number(job, 3, 0), fd) ? 0 : -1);
}

static void share_vmm_take(struct job *job)
{
    CUmemAllocationHandleType type = share_type(job_text(job, 1, "fd"));
    CUmemFabricHandle fabric;
    struct shared one = {0};
    void *from = &fabric;
    int fd = -1;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        share_read_hex(job, 2, &fabric, sizeof fabric);
    } else {
        fd = descriptor_receive((int)job_number(job, 2, 0));
        from = (void *)(uintptr_t)fd;
    }
    share_answer(job, cu.cuMemImportFromShareableHandle(&one.handle, from, type), one);
    if (fd >= 0)
        close(fd);
}

static void share_vmm_map(struct job *job)
{
    struct shared *one = share_of(job, 1);
    CUresult rc = CUDA_SUCCESS;
    one->bytes = job_number(job, 2, 0);
    if (!one->pointer)
        rc = cu.cuMemAddressReserve(&one->pointer, one->bytes, 0, 0, 0);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuMemMap(one->pointer, one->bytes, 0, one->handle, 0);
    job_answer(job, "%d", (int)rc);
}

static void share_vmm_unmap(struct job *job)
{
    struct shared *one = share_of(job, 1);
    job_answer(job, "%d", (int)cu.cuMemUnmap(one->pointer, one->bytes));
}

static void share_vmm_release(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuMemRelease(share_of(job, 1)->handle));
}

/* ---- pools: pool-make, pool-give N SOCKET, pool-take SOCKET, pool-alloc N BYTES, pool-pointer N,
 * pool-open N HEX, pool-free N -------------------------------------------------------------------
 */

static void share_pool_make(struct job *job)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker.device}};
    struct shared one = {0};
    share_answer(job, cu.cuMemPoolCreate(&one.pool, &props), one);
}

static void share_pool_give(struct job *job)
{
    int fd = -1;
    CUresult rc = cu.cuMemPoolExportToShareableHandle(&fd, share_of(job, 1)->pool,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    job_answer(job, "%d", rc ? (int)rc : share_send((int)job_number(job, 2, 0), fd) ? 0 : -1);
}

static void share_pool_take(struct job *job)
{
    struct shared one = {0};
    int fd = descriptor_receive((int)job_number(job, 1, 0));
    share_answer(job,
                 cu.cuMemPoolImportFromShareableHandle(&one.pool, (void *)(uintptr_t)fd,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                 one);
    close(fd);
}

static void share_pool_alloc(struct job *job)
{
    struct shared one = {.bytes = job_number(job, 2, 0)};
    share_answer(job,
                 cu.cuMemAllocFromPoolAsync(&one.pointer, one.bytes, share_of(job, 1)->pool, NULL),
                 one);
}

static void share_pool_pointer(struct job *job)
{
    CUmemPoolPtrExportData data;
    CUresult rc = cu.cuMemPoolExportPointer(&data, share_of(job, 1)->pointer);
    share_write_hex(job, rc, &data, sizeof data);
}

static void share_pool_open(struct job *job)
{
    CUmemPoolPtrExportData data;
    struct shared one = {0};
    share_read_hex(job, 2, &data, sizeof data);
    share_answer(job, cu.cuMemPoolImportPointer(&one.pointer, share_of(job, 1)->pool, &data), one);
}

static void share_pool_free(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuMemFreeAsync(share_of(job, 1)->pointer, NULL));
}

/* ---- external-take SOCKET BYTES, external-put N ------------------------------------------------
 */

static void share_external_take(struct job *job)
{
    struct shared one = {.bytes = job_number(job, 2, 0)};
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC form = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                             .size = one.bytes};
    form.handle.fd = descriptor_receive((int)job_number(job, 1, 0));
    share_answer(job, cu.cuImportExternalMemory(&one.external, &form), one);
}

static void share_external_put(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuDestroyExternalMemory(share_of(job, 1)->external));
}

const struct command commands_share[] = {
    {"share-alloc", share_alloc},
    {"share-free", share_free},
    {"ipc-get", share_ipc_get},
    {"ipc-open", share_ipc_open},
    {"ipc-close", share_ipc_close},
    {"vmm-make", share_vmm_make},
    {"vmm-give", share_vmm_give},
    {"vmm-take", share_vmm_take},
    {"vmm-map", share_vmm_map},
    {"vmm-unmap", share_vmm_unmap},
    {"vmm-release", share_vmm_release},
    {"pool-make", share_pool_make},
    {"pool-give", share_pool_give},
    {"pool-take", share_pool_take},
    {"pool-alloc", share_pool_alloc},
    {"pool-pointer", share_pool_pointer},
    {"pool-open", share_pool_open},
    {"pool-free", share_pool_free},
    {"external-take", share_external_take},
    {"external-put", share_external_put},
    {NULL, NULL},
};
