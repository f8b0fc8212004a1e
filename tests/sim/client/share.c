/*
 * Device memory shared between processes: by a handle of bytes (cuIpc), by a file descriptor for
 * physical memory and pools. A descriptor is a small sealed memfd that says which memory is meant.
 * The device counts holders: memory goes when its maker and all importers have let it go. Any
 * thread.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core.h"

enum share_kind { SHARE_MEMORY = 1, SHARE_PHYSICAL, SHARE_POOL, SHARE_POOL_POINTER };

/* What travels between the processes. */
struct token {
    uint32_t magic;
    uint32_t kind;
    struct shared_memory memory;
    uint64_t offset; /* pool pointers: of the block in its chunk */
    uint64_t size;
};
_Static_assert(sizeof(struct token) <= CU_IPC_HANDLE_SIZE, "fits a handle");

CUresult share_hold(const struct context *context, const struct shared_memory *shared)
{
    uint64_t in[] = {shared->address, shared->serial, 0, context ? context->slot : SIM_CONTEXTS};

    return call_device(CALL_SHARE, in, 4, NULL, NULL);
}

/* What tells the allocation from a later one at its place. */
CUresult share_identify(struct shared_memory *shared)
{
    uint64_t in[] = {shared->address, 0, 1, 0}, out[4];
    CUresult result = call_device(CALL_SHARE, in, 4, out, NULL);

    if (!result)
        shared->serial = out[1];
    return result;
}

static bool token_valid(const struct token *token, enum share_kind kind)
{
    return token->magic == SIM_MAGIC && token->kind == (uint32_t)kind &&
           token->memory.device < sim.devices;
}

static CUresult token_to_file(const struct token *token, int *out)
{
    int fd = memfd_create("simcuda-handle", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (write(fd, token, sizeof(*token)) != (ssize_t)sizeof(*token) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *out = fd;
    return CUDA_SUCCESS;
}

static CUresult token_from_file(void *handle, struct token *token, enum share_kind kind)
{
    int fd = (int)(intptr_t)handle;

    if (pread(fd, token, sizeof(*token), 0) != (ssize_t)sizeof(*token) || !token_valid(token, kind))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult share_of_descriptor(int fd, struct shared_memory *shared)
{
    struct token token;
    CUresult result = token_from_file((void *)(intptr_t)fd, &token, SHARE_PHYSICAL);

    if (!result)
        *shared = token.memory;
    return result;
}

/* --- plain allocations --- */

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct token token = {.magic = SIM_MAGIC, .kind = SHARE_MEMORY};
    struct context *context;
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!pHandle || !region_find(dptr, &region) || region.kind != REGION_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    token.memory.device = region.device;
    token.memory.address = region.address;
    token.memory.bytes = region.bytes;
    result = share_identify(&token.memory);
    if (result)
        return result;
    memset(pHandle, 0, sizeof(*pHandle));
    memcpy(pHandle, &token, sizeof(token));
    return CUDA_SUCCESS;
}

/* Makes another process's memory known here under its address, which is the same everywhere. */
static CUresult share_import(struct context *context, const struct token *token, CUdeviceptr *out)
{
    struct region region;
    CUresult result;

    if (region_find(token->memory.address + token->offset, &region))
        return region.kind == REGION_IMPORTED ? CUDA_ERROR_ALREADY_MAPPED
                                              : CUDA_ERROR_INVALID_CONTEXT;
    result = share_hold(context, &token->memory);
    if (result)
        return result;
    region = (struct region){
        .address = token->memory.address + token->offset,
        .bytes = token->size ? token->size : token->memory.bytes,
        .kind = REGION_IMPORTED,
        .context = context,
        .device = token->memory.device,
        .flags = token->kind == SHARE_POOL_POINTER ? REGION_FREED_BY_FREE : 0,
        .backing = token->memory.address,
    };
    result = region_add(&region);
    if (result)
        memory_put(token->memory.address);
    else
        *out = region.address;
    return result;
}

static CUresult share_open(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags)
{
    struct token token;
    struct context *context;
    CUresult result = sim_enter(&context);

    if (result)
        return result;
    memcpy(&token, handle, sizeof(token));
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !token_valid(&token, SHARE_MEMORY))
        return CUDA_ERROR_INVALID_VALUE;
    return share_import(context, &token, out);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned Flags)
{
    ENTRY();
    return share_open(pdptr, &handle, Flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned Flags)
{
    ENTRY();
    return share_open(pdptr, &handle, Flags);
}

CUresult share_close(CUdeviceptr address)
{
    struct region region;

    if (!region_find(address, &region) || region.kind != REGION_IMPORTED ||
        region.address != address || !region_remove(address, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return memory_put(region.backing);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (!result)
        result = context_wait(context);
    return result ? result : share_close(dptr);
}

/* --- physical memory --- */

static CUresult token_to_fabric(const struct token *token, CUmemFabricHandle *out)
{
    _Static_assert(sizeof(*token) <= sizeof(*out), "fits a handle");
    memset(out, 0, sizeof(*out));
    memcpy(out, token, sizeof(*token));
    return CUDA_SUCCESS;
}

/* The descriptor itself keeps the memory: it is locked, and the lock ends when nobody has the file
 * open any more, which the device looks for. */
static void share_hold_by_file(const struct shared_memory *shared, int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    uint64_t in[] = {shared->address, (uint64_t)fd};

    if (fcntl(fd, F_OFD_SETLK, &lock) || call_device(CALL_EXPORT, in, 2, NULL, NULL))
        sim_log("an exported descriptor does not hold its memory");
}

static bool share_type_right(CUmemAllocationHandleType type)
{
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_FABRIC;
}

static CUresult token_from_handle(void *handle, CUmemAllocationHandleType type, struct token *token,
                                  enum share_kind kind)
{
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return token_from_file(handle, token, kind);
    if (!sim.fabric)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(token, handle, sizeof(*token));
    return token_valid(token, kind) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    struct token token = {.magic = SIM_MAGIC, .kind = SHARE_PHYSICAL};
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!shareableHandle || flags || !physical_describe(handle, handleType, &token.memory))
        return CUDA_ERROR_INVALID_VALUE;
    result = share_identify(&token.memory);
    if (result)
        return result;
    if (handleType == CU_MEM_HANDLE_TYPE_FABRIC)
        return token_to_fabric(&token, shareableHandle);
    result = token_to_file(&token, shareableHandle);
    if (!result)
        share_hold_by_file(&token.memory, *(int *)shareableHandle);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    struct token token;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!handle || !share_type_right(shHandleType))
        return CUDA_ERROR_INVALID_VALUE;
    result = token_from_handle(osHandle, shHandleType, &token, SHARE_PHYSICAL);
    return result ? result : physical_import(handle, shHandleType, &token.memory);
}

/* --- pools: an imported one makes nothing, it only opens pointers --- */

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags)
{
    struct token token = {.magic = SIM_MAGIC, .kind = SHARE_POOL};
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!handle_out || flags || !pool_exportable(pool, handleType, &token.memory.device))
        return CUDA_ERROR_INVALID_VALUE;
    return handleType == CU_MEM_HANDLE_TYPE_FABRIC ? token_to_fabric(&token, handle_out)
                                                   : token_to_file(&token, handle_out);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    struct token token;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!pool_out || flags || !share_type_right(handleType))
        return CUDA_ERROR_INVALID_VALUE;
    result = token_from_handle(handle, handleType, &token, SHARE_POOL);
    return result ? result : pool_import(pool_out, token.memory.device);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    struct token token = {.magic = SIM_MAGIC, .kind = SHARE_POOL_POINTER};
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!shareData_out || !pool_describe(ptr, &token.memory, &token.size))
        return CUDA_ERROR_INVALID_VALUE;
    token.offset = ptr - token.memory.address;
    result = share_identify(&token.memory);
    if (result)
        return result;
    memset(shareData_out, 0, sizeof(*shareData_out));
    memcpy(shareData_out, &token, sizeof(token));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData *shareData)
{
    struct token token;
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (!ptr_out || !shareData || !pool_imported(pool))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&token, shareData, sizeof(token));
    if (!token_valid(&token, SHARE_POOL_POINTER))
        return CUDA_ERROR_INVALID_VALUE;
    return share_import(context, &token, ptr_out);
}
