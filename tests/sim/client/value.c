/*
 * Host functions, callbacks, and writes and waits of values in stream order. Any thread.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "core.h"

static CUresult value_host(CUstream handle, void (*function)(void), void *argument, bool callback)
{
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);
    struct command command = {.kind = COMMAND_HOST};

    if (!result && !function)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    command.host.function = (uint64_t)(uintptr_t)function;
    command.host.argument = (uint64_t)(uintptr_t)argument;
    command.host.handle = (uint64_t)(uintptr_t)handle;
    command.host.callback = callback;
    return stream_submit(stream, &command, NULL);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    ENTRY();
    return value_host(hStream, (void (*)(void))fn, userData, false);
}

CUresult cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
    ENTRY();
    return value_host(PER_THREAD(hStream), (void (*)(void))fn, userData, false);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned flags)
{
    ENTRY();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return value_host(hStream, (void (*)(void))callback, userData, true);
}

CUresult cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
                                  unsigned flags)
{
    ENTRY();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return value_host(PER_THREAD(hStream), (void (*)(void))callback, userData, true);
}

/* --- values --- */

static CUresult value_submit(struct stream *stream, enum command_kind kind, CUdeviceptr address,
                             uint64_t value, uint32_t bytes, unsigned flags)
{
    struct command command = {.kind = kind};

    if (address % bytes || !memory_is_reachable((const void *)(uintptr_t)address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    command.value.address = address;
    command.value.value = value;
    command.value.bytes = bytes;
    if (kind == COMMAND_VALUE_WAIT) {
        if ((flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) > CU_STREAM_WAIT_VALUE_NOR)
            return CUDA_ERROR_INVALID_VALUE;
        command.value.operation = flags & CU_STREAM_WAIT_VALUE_NOR;
    } else if (flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return stream_submit(stream, &command, NULL);
}

static CUresult value_entry(CUstream handle, enum command_kind kind, CUdeviceptr address,
                            uint64_t value, uint32_t bytes, unsigned flags)
{
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);

    if (result)
        return result;
    if (kind == COMMAND_VALUE_WRITE)
        sim_spend(sim.write_cost);
    return value_submit(stream, kind, address, value, bytes, flags);
}

#define VALUE_ENTRIES(name, type, kind, bytes) \
    CUresult name(CUstream stream, CUdeviceptr addr, type value, unsigned flags) \
    { \
        ENTRY(); \
        return value_entry(stream, kind, addr, value, bytes, flags); \
    } \
    CUresult name##_ptsz(CUstream stream, CUdeviceptr addr, type value, unsigned flags) \
    { \
        ENTRY(); \
        return value_entry(PER_THREAD(stream), kind, addr, value, bytes, flags); \
    }

VALUE_ENTRIES(cuStreamWriteValue32, cuuint32_t, COMMAND_VALUE_WRITE, 4)
VALUE_ENTRIES(cuStreamWriteValue32_v2, cuuint32_t, COMMAND_VALUE_WRITE, 4)
VALUE_ENTRIES(cuStreamWriteValue64, cuuint64_t, COMMAND_VALUE_WRITE, 8)
VALUE_ENTRIES(cuStreamWriteValue64_v2, cuuint64_t, COMMAND_VALUE_WRITE, 8)
VALUE_ENTRIES(cuStreamWaitValue32, cuuint32_t, COMMAND_VALUE_WAIT, 4)
VALUE_ENTRIES(cuStreamWaitValue32_v2, cuuint32_t, COMMAND_VALUE_WAIT, 4)
VALUE_ENTRIES(cuStreamWaitValue64, cuuint64_t, COMMAND_VALUE_WAIT, 8)
VALUE_ENTRIES(cuStreamWaitValue64_v2, cuuint64_t, COMMAND_VALUE_WAIT, 8)

static CUresult value_one(struct stream *stream, const CUstreamBatchMemOpParams *op)
{
    switch (op->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return value_submit(stream, COMMAND_VALUE_WRITE, op->writeValue.address,
                            op->writeValue.value, 4, op->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return value_submit(stream, COMMAND_VALUE_WRITE, op->writeValue.address,
                            op->writeValue.value64, 8, op->writeValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return value_submit(stream, COMMAND_VALUE_WAIT, op->waitValue.address, op->waitValue.value,
                            4, op->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return value_submit(stream, COMMAND_VALUE_WAIT, op->waitValue.address,
                            op->waitValue.value64, 8, op->waitValue.flags);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult value_batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *ops,
                            unsigned flags)
{
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);

    if (!result && (flags || (count && !ops) || count > 256))
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && !result; i++)
        result = value_one(stream, &ops[i]);
    return result;
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams *paramArray,
                            unsigned flags)
{
    ENTRY();
    return value_batch(stream, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_ptsz(CUstream stream, unsigned count,
                                 CUstreamBatchMemOpParams *paramArray, unsigned flags)
{
    ENTRY();
    return value_batch(PER_THREAD(stream), count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                               CUstreamBatchMemOpParams *paramArray, unsigned flags)
{
    ENTRY();
    return value_batch(stream, count, paramArray, flags);
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams *paramArray, unsigned flags)
{
    ENTRY();
    return value_batch(PER_THREAD(stream), count, paramArray, flags);
}
