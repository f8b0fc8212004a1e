/*
 * Copies. What the device reaches by itself (device memory, arrays, pinned and registered host
 * memory) it moves in stream order. Pageable host memory passes through a block that it reaches: a
 * small one for data to the device, which the call leaves behind, else one that the call waits for.
 * Very large and pitched blocks this thread moves itself when their turn in the stream is over.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>

#include "capture.h"
#include "core.h"

#define BOUNCE_MOST (UINT64_C(64) << 20)

enum end_kind { END_DEVICE, END_HOST, END_PAGEABLE };

/* How the host takes part: waits for the end, only where it must, or never for the device's own. */
enum copy_mode { COPY_BLOCKING, COPY_ASYNC };

static enum end_kind copy_end(uint64_t address, uint64_t bytes, CUresult *result)
{
    struct region region;

    if (!region_find(address, &region)) {
        if (memory_is_device(address))
            return END_DEVICE;
        return END_PAGEABLE;
    }
    if (!region_covers(address, bytes))
        *result = CUDA_ERROR_INVALID_VALUE;
    return region.kind == REGION_PINNED || region.kind == REGION_REGISTERED ||
                   (region.kind == REGION_POOL && (region.flags & REGION_ON_HOST))
               ? END_HOST
               : END_DEVICE;
}

/* From the first byte of one side to the last one. */
static uint64_t copy_extent(const struct command_copy *copy, uint64_t pitch, uint64_t slice)
{
    return (copy->depth - 1) * slice + (copy->height - 1) * pitch + copy->width;
}

static void copy_here(const struct command_copy *copy)
{
    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++)
            memmove(region_host(copy->to + z * copy->to_slice + y * copy->to_pitch),
                    region_host(copy->from + z * copy->from_slice + y * copy->from_pitch),
                    copy->width);
}

static CUresult copy_raw(struct stream *stream, const struct command_copy *copy, uint64_t *seq)
{
    struct command command = {.kind = COMMAND_COPY, .copy = *copy};

    return stream_submit_raw(stream, &command, seq);
}

/* What is in front of a blocking copy has run before the copy begins. */
static CUresult copy_settle(struct stream *stream)
{
    CUresult result = CUDA_SUCCESS;

    if (stream->legacy && !submit_legacy_done(stream))
        result = submit_dependencies(stream, NULL, 0);
    return result ? result : stream_wait(stream, stream_last(stream));
}

/* The bytes of a small block travel in a staging block, so that the caller's may change at once. */
static CUresult copy_staged(struct stream *stream, const struct command_copy *copy, bool *done)
{
    struct command_copy staged = *copy;
    unsigned char *stage = stage_take();
    uint64_t seq;
    CUresult result;

    *done = stage != NULL;
    if (!stage)
        return CUDA_SUCCESS;
    memcpy(stage, region_host(copy->from), copy->width);
    staged.from = (uint64_t)(uintptr_t)stage;
    result = copy_raw(stream, &staged, &seq);
    stage_give(stage, result ? NULL : stream, seq);
    return result;
}

/* A block that pageable memory passes through, so that the device moves the bytes in its turn. */
static CUresult copy_bounced(struct stream *stream, const struct command_copy *copy, void *block,
                             bool to_device)
{
    struct command_copy bounced = *copy;
    uint64_t seq;
    CUresult result;

    if (to_device) {
        memcpy(block, region_host(copy->from), copy->width);
        bounced.from = (uint64_t)(uintptr_t)block;
    } else {
        bounced.to = (uint64_t)(uintptr_t)block;
    }
    result = copy_raw(stream, &bounced, &seq);
    if (!result)
        result = stream_wait(stream, seq);
    if (!result && !to_device)
        memcpy(region_host(copy->to), block, copy->width);
    return result;
}

/* The stream's turn comes, its time passes on the device, this thread moves the bytes. */
static CUresult copy_timed(struct stream *stream, const struct command_copy *copy)
{
    struct command_copy timed = *copy;
    uint64_t seq;
    CUresult result;

    timed.from = 0;
    result = copy_raw(stream, &timed, &seq);
    if (!result)
        result = stream_wait(stream, seq);
    if (!result)
        copy_here(copy);
    return result;
}

static CUresult copy_pageable(struct stream *stream, const struct command_copy *copy)
{
    bool linear = copy->height == 1 && copy->depth == 1;
    void *block = linear && copy->direction != COPY_HTOH && copy->width <= BOUNCE_MOST
                      ? shared_take(copy->width)
                      : NULL;
    CUresult result;

    if (!block)
        return copy_timed(stream, copy);
    result = copy_bounced(stream, copy, block, copy->direction == COPY_HTOD);
    shared_put(block);
    return result;
}

static CUresult copy_submit(struct stream *stream, struct command_copy *copy, enum copy_mode mode)
{
    CUresult result = CUDA_SUCCESS;
    enum end_kind to =
        copy_end(copy->to, copy_extent(copy, copy->to_pitch, copy->to_slice), &result);
    enum end_kind from =
        copy_end(copy->from, copy_extent(copy, copy->from_pitch, copy->from_slice), &result);
    struct command command = {.kind = COMMAND_COPY};
    uint64_t seq;
    bool done = false;

    if (result)
        return result;
    copy->direction = to == END_DEVICE     ? from == END_DEVICE ? COPY_DTOD : COPY_HTOD
                      : from == END_DEVICE ? COPY_DTOH
                                           : COPY_HTOH;
    if (capture_active()) {
        command.copy = *copy;
        result = capture_take_command(stream, &command, &done);
        if (result || done)
            return result;
    }
    if (from == END_PAGEABLE && to == END_DEVICE && copy->width <= SIM_STAGE && copy->height == 1 &&
        copy->depth == 1) {
        if (mode == COPY_BLOCKING)
            result = copy_settle(stream);
        if (!result)
            result = copy_staged(stream, copy, &done);
    }
    if (result || done)
        return result;
    if (to == END_PAGEABLE || from == END_PAGEABLE)
        return copy_pageable(stream, copy);
    result = copy_raw(stream, copy, &seq);
    if (!result && mode == COPY_BLOCKING && copy->direction != COPY_DTOD)
        result = stream_wait(stream, seq);
    return result;
}

static CUresult copy_linear(CUstream handle, uint64_t to, uint64_t from, uint64_t bytes,
                            enum copy_mode mode)
{
    struct command_copy copy = {.to = to, .from = from, .width = bytes, .height = 1, .depth = 1};
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);

    if (!result && mode == COPY_BLOCKING && stream->legacy && capture_active())
        result = capture_check_legacy(stream->context);
    if (!result && bytes && (!to || !from))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result || !bytes)
        return result;
    return copy_submit(stream, &copy, mode);
}

#define HOST(pointer) ((uint64_t)(uintptr_t)(pointer))

/* Each copy in its blocking form (legacy and per-thread default stream) and in its stream form. */
#define COPY_BLOCKING_ENTRIES(name, ptds, params, to, from) \
    CUresult name params \
    { \
        ENTRY(); \
        return copy_linear(CU_STREAM_LEGACY, to, from, ByteCount, COPY_BLOCKING); \
    } \
    CUresult ptds params \
    { \
        ENTRY(); \
        return copy_linear(CU_STREAM_PER_THREAD, to, from, ByteCount, COPY_BLOCKING); \
    }

#define COPY_ASYNC_ENTRIES(name, ptsz, params, to, from) \
    CUresult name params \
    { \
        ENTRY(); \
        return copy_linear(hStream, to, from, ByteCount, COPY_ASYNC); \
    } \
    CUresult ptsz params \
    { \
        ENTRY(); \
        return copy_linear(PER_THREAD(hStream), to, from, ByteCount, COPY_ASYNC); \
    }

COPY_BLOCKING_ENTRIES(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
                      dst, src)
COPY_BLOCKING_ENTRIES(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds,
                      (CUdeviceptr dst, const void *src, size_t ByteCount), dst, HOST(src))
COPY_BLOCKING_ENTRIES(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds,
                      (void *dst, CUdeviceptr src, size_t ByteCount), HOST(dst), src)
COPY_BLOCKING_ENTRIES(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds,
                      (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), dst, src)
COPY_ASYNC_ENTRIES(cuMemcpyAsync, cuMemcpyAsync_ptsz,
                   (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), dst, src)
COPY_ASYNC_ENTRIES(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
                   (CUdeviceptr dst, const void *src, size_t ByteCount, CUstream hStream), dst,
                   HOST(src))
COPY_ASYNC_ENTRIES(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
                   (void *dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), HOST(dst), src)
COPY_ASYNC_ENTRIES(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
                   (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), dst, src)
COPY_BLOCKING_ENTRIES(cuMemcpyPeer, cuMemcpyPeer_ptds,
                      (CUdeviceptr dst, __attribute__((unused)) CUcontext dstContext,
                       CUdeviceptr src, __attribute__((unused)) CUcontext srcContext,
                       size_t ByteCount),
                      dst, src)
COPY_ASYNC_ENTRIES(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
                   (CUdeviceptr dst, __attribute__((unused)) CUcontext dstContext, CUdeviceptr src,
                    __attribute__((unused)) CUcontext srcContext, size_t ByteCount,
                    CUstream hStream),
                   dst, src)

/* --- arrays in one dimension --- */

static CUresult copy_array(CUarray handle, uint64_t offset, uint64_t bytes, uint64_t *address)
{
    const struct array *array = array_check(handle);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!array->address)
        return array->sparse ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (offset > array->pitch || bytes > array->pitch - offset)
        return CUDA_ERROR_INVALID_VALUE;
    *address = array->address + offset;
    return CUDA_SUCCESS;
}

static CUresult copy_from_array(CUstream stream, uint64_t to, CUarray array, size_t offset,
                                size_t bytes, enum copy_mode mode)
{
    uint64_t from;
    CUresult result = sim_check();

    if (!result)
        result = copy_array(array, offset, bytes, &from);
    return result ? result : copy_linear(stream, to, from, bytes, mode);
}

static CUresult copy_to_array(CUstream stream, CUarray array, size_t offset, uint64_t from,
                              size_t bytes, enum copy_mode mode)
{
    uint64_t to;
    CUresult result = sim_check();

    if (!result)
        result = copy_array(array, offset, bytes, &to);
    return result ? result : copy_linear(stream, to, from, bytes, mode);
}

#define ARRAY_ENTRY(name, params, stream, function, a, b, c, mode) \
    CUresult name params \
    { \
        ENTRY(); \
        return function(stream, a, b, c, ByteCount, mode); \
    }
#define ARRAY_BLOCKING(name, params, function, a, b, c) \
    ARRAY_ENTRY(name##_v2, params, CU_STREAM_LEGACY, function, a, b, c, COPY_BLOCKING) \
    ARRAY_ENTRY(name##_v2_ptds, params, CU_STREAM_PER_THREAD, function, a, b, c, COPY_BLOCKING)
#define ARRAY_ASYNC(name, params, function, a, b, c) \
    ARRAY_ENTRY(name##_v2, params, hStream, function, a, b, c, COPY_ASYNC) \
    ARRAY_ENTRY(name##_v2_ptsz, params, PER_THREAD(hStream), function, a, b, c, COPY_ASYNC)

ARRAY_BLOCKING(cuMemcpyDtoA, (CUarray array, size_t offset, CUdeviceptr src, size_t ByteCount),
               copy_to_array, array, offset, src)
ARRAY_BLOCKING(cuMemcpyHtoA, (CUarray array, size_t offset, const void *src, size_t ByteCount),
               copy_to_array, array, offset, HOST(src))
ARRAY_BLOCKING(cuMemcpyAtoD, (CUdeviceptr dst, CUarray array, size_t offset, size_t ByteCount),
               copy_from_array, dst, array, offset)
ARRAY_BLOCKING(cuMemcpyAtoH, (void *dst, CUarray array, size_t offset, size_t ByteCount),
               copy_from_array, HOST(dst), array, offset)
ARRAY_ASYNC(cuMemcpyHtoAAsync,
            (CUarray array, size_t offset, const void *src, size_t ByteCount, CUstream hStream),
            copy_to_array, array, offset, HOST(src))
ARRAY_ASYNC(cuMemcpyAtoHAsync,
            (void *dst, CUarray array, size_t offset, size_t ByteCount, CUstream hStream),
            copy_from_array, HOST(dst), array, offset)

static CUresult copy_between_arrays(CUstream stream, CUarray to, size_t to_offset, CUarray from,
                                    size_t from_offset, size_t bytes)
{
    uint64_t target;
    CUresult result = sim_check();

    if (!result)
        result = copy_array(to, to_offset, bytes, &target);
    return result ? result
                  : copy_from_array(stream, target, from, from_offset, bytes, COPY_BLOCKING);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount)
{
    ENTRY();
    return copy_between_arrays(CU_STREAM_LEGACY, dstArray, dstOffset, srcArray, srcOffset,
                               ByteCount);
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                              size_t srcOffset, size_t ByteCount)
{
    ENTRY();
    return copy_between_arrays(CU_STREAM_PER_THREAD, dstArray, dstOffset, srcArray, srcOffset,
                               ByteCount);
}

/* --- two and three dimensions --- */

struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    uint64_t x, y, z, pitch, rows;
};

/* Where one side begins and how far its rows and slices lie apart. */
static CUresult copy_side(const struct side *side, uint64_t width, uint64_t height,
                          uint64_t *address, uint64_t *pitch, uint64_t *slice)
{
    uint64_t rows = side->rows ? side->rows : height;

    *pitch = side->pitch ? side->pitch : width;
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        const struct array *array = array_check(side->array);

        if (!array)
            return CUDA_ERROR_INVALID_HANDLE;
        if (!array->address)
            return array->sparse ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
        if (side->x + width > array->pitch || side->y + height > array->rows)
            return CUDA_ERROR_INVALID_VALUE;
        *address = array->address;
        *pitch = array->pitch;
        rows = array->rows;
    } else if (side->type == CU_MEMORYTYPE_HOST) {
        *address = HOST(side->host);
    } else {
        *address = side->device;
    }
    if (*pitch < width && height > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *slice = *pitch * rows;
    *address += side->z * *slice + side->y * *pitch + side->x;
    return *address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_box(CUstream handle, const struct side *to, const struct side *from,
                         uint64_t width, uint64_t height, uint64_t depth, enum copy_mode mode)
{
    struct command_copy copy = {.width = width, .height = height, .depth = depth};
    struct stream *stream;
    CUresult result = stream_find(handle, &stream);

    if (!result && mode == COPY_BLOCKING && stream->legacy && capture_active())
        result = capture_check_legacy(stream->context);
    if (result || !width || !height || !depth)
        return result;
    result = copy_side(to, width, height, &copy.to, &copy.to_pitch, &copy.to_slice);
    if (!result)
        result = copy_side(from, width, height, &copy.from, &copy.from_pitch, &copy.from_slice);
    return result ? result : copy_submit(stream, &copy, mode);
}

static CUresult copy_2d(CUstream stream, const CUDA_MEMCPY2D *p, enum copy_mode mode)
{
    struct side to, from;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    to = (struct side){.type = p->dstMemoryType,
                       .host = p->dstHost,
                       .device = p->dstDevice,
                       .array = p->dstArray,
                       .x = p->dstXInBytes,
                       .y = p->dstY,
                       .pitch = p->dstPitch};
    from = (struct side){.type = p->srcMemoryType,
                         .host = p->srcHost,
                         .device = p->srcDevice,
                         .array = p->srcArray,
                         .x = p->srcXInBytes,
                         .y = p->srcY,
                         .pitch = p->srcPitch};
    return copy_box(stream, &to, &from, p->WidthInBytes, p->Height, 1, mode);
}

static CUresult copy_3d(CUstream stream, const CUDA_MEMCPY3D *p, enum copy_mode mode)
{
    struct side to, from;

    if (!p || p->srcLOD || p->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    to = (struct side){.type = p->dstMemoryType,
                       .host = p->dstHost,
                       .device = p->dstDevice,
                       .array = p->dstArray,
                       .x = p->dstXInBytes,
                       .y = p->dstY,
                       .z = p->dstZ,
                       .pitch = p->dstPitch,
                       .rows = p->dstHeight};
    from = (struct side){.type = p->srcMemoryType,
                         .host = p->srcHost,
                         .device = p->srcDevice,
                         .array = p->srcArray,
                         .x = p->srcXInBytes,
                         .y = p->srcY,
                         .z = p->srcZ,
                         .pitch = p->srcPitch,
                         .rows = p->srcHeight};
    return copy_box(stream, &to, &from, p->WidthInBytes, p->Height, p->Depth, mode);
}

static CUresult copy_3d_peer(CUstream stream, const CUDA_MEMCPY3D_PEER *p, enum copy_mode mode)
{
    CUDA_MEMCPY3D same = {0};

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    same.srcXInBytes = p->srcXInBytes;
    same.srcY = p->srcY;
    same.srcZ = p->srcZ;
    same.srcMemoryType = p->srcMemoryType;
    same.srcHost = p->srcHost;
    same.srcDevice = p->srcDevice;
    same.srcArray = p->srcArray;
    same.srcPitch = p->srcPitch;
    same.srcHeight = p->srcHeight;
    same.dstXInBytes = p->dstXInBytes;
    same.dstY = p->dstY;
    same.dstZ = p->dstZ;
    same.dstMemoryType = p->dstMemoryType;
    same.dstHost = p->dstHost;
    same.dstDevice = p->dstDevice;
    same.dstArray = p->dstArray;
    same.dstPitch = p->dstPitch;
    same.dstHeight = p->dstHeight;
    same.WidthInBytes = p->WidthInBytes;
    same.Height = p->Height;
    same.Depth = p->Depth;
    return copy_3d(stream, &same, mode);
}

#define BOX_ENTRY(name, type, stream, function, mode) \
    CUresult name(const type *pCopy) \
    { \
        ENTRY(); \
        return function(stream, pCopy, mode); \
    }
#define BOX_ASYNC_ENTRY(name, type, stream, function) \
    CUresult name(const type *pCopy, CUstream hStream) \
    { \
        ENTRY(); \
        return function(stream, pCopy, COPY_ASYNC); \
    }

BOX_ENTRY(cuMemcpy2D_v2, CUDA_MEMCPY2D, CU_STREAM_LEGACY, copy_2d, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, CU_STREAM_PER_THREAD, copy_2d, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, CU_STREAM_LEGACY, copy_2d, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, CU_STREAM_PER_THREAD, copy_2d, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy3D_v2, CUDA_MEMCPY3D, CU_STREAM_LEGACY, copy_3d, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, CU_STREAM_PER_THREAD, copy_3d, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, CU_STREAM_LEGACY, copy_3d_peer, COPY_BLOCKING)
BOX_ENTRY(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, CU_STREAM_PER_THREAD, copy_3d_peer,
          COPY_BLOCKING)
BOX_ASYNC_ENTRY(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, hStream, copy_2d)
BOX_ASYNC_ENTRY(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, PER_THREAD(hStream), copy_2d)
BOX_ASYNC_ENTRY(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, hStream, copy_3d)
BOX_ASYNC_ENTRY(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, PER_THREAD(hStream), copy_3d)
BOX_ASYNC_ENTRY(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, hStream, copy_3d_peer)
BOX_ASYNC_ENTRY(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, PER_THREAD(hStream), copy_3d_peer)

/* --- several copies in one call --- */

#if CUDA_VERSION >= 12080
static CUresult copy_batch(CUstream stream, const CUdeviceptr *to, const CUdeviceptr *from,
                           const size_t *bytes, size_t count, size_t *failed)
{
    CUresult result = CUDA_SUCCESS;

    if (!to || !from || !bytes || !count || !stream || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++) {
        result = copy_linear(stream, to[i], from[i], bytes[i], COPY_ASYNC);
        if (result && failed)
            *failed = i;
    }
    return result;
}

#define BATCH_PARAMS \
    CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, \
        __attribute__((unused)) CUmemcpyAttributes *attrs, \
        __attribute__((unused)) size_t *attrsIdxs, __attribute__((unused)) size_t numAttrs

CUresult cuMemcpyBatchAsync(BATCH_PARAMS, size_t *failIdx, CUstream hStream)
{
    ENTRY();
    return copy_batch(hStream, dsts, srcs, sizes, count, failIdx);
}

CUresult cuMemcpyBatchAsync_ptsz(BATCH_PARAMS, size_t *failIdx, CUstream hStream)
{
    ENTRY();
    return copy_batch(PER_THREAD(hStream), dsts, srcs, sizes, count, failIdx);
}
#endif

#if CUDA_VERSION >= 13000
CUresult cuMemcpyBatchAsync_v2(BATCH_PARAMS, CUstream hStream)
{
    ENTRY();
    return copy_batch(hStream, dsts, srcs, sizes, count, NULL);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(BATCH_PARAMS, CUstream hStream)
{
    ENTRY();
    return copy_batch(PER_THREAD(hStream), dsts, srcs, sizes, count, NULL);
}
#endif
