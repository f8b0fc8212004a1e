/*
 * Memsets of every width, with and without pitch: work of the compute engine in stream order. The
 * forms without a stream run in the legacy (or the thread's) stream and do not wait either.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "capture.h"
#include "core.h"

static CUresult memset_submit(CUstream handle, CUdeviceptr to, size_t pitch, unsigned value,
                              unsigned element, size_t width, size_t height, bool blocking)
{
    struct command command = {.kind = COMMAND_MEMSET};
    struct stream *stream;
    size_t extent;
    CUresult result = stream_find(handle, &stream);

    if (!result && blocking && stream->legacy && capture_active())
        result = capture_check_legacy(stream->context);
    if (result || !width || !height)
        return result;
    if (to % element || __builtin_mul_overflow(height - 1, pitch, &extent) ||
        width > (SIZE_MAX - extent) / element || (height > 1 && pitch < width * element) ||
        !memory_is_reachable((const void *)(uintptr_t)to, extent + width * element))
        return CUDA_ERROR_INVALID_VALUE;
    command.memset.to = to;
    command.memset.pitch = pitch;
    command.memset.width = width;
    command.memset.height = height;
    command.memset.value = value;
    command.memset.element = element;
    return stream_submit(stream, &command, NULL);
}

#define MEMSET_LINEAR(name, type, element) \
    CUresult name##_v2(CUdeviceptr dst, type value, size_t N) \
    { \
        ENTRY(); \
        return memset_submit(CU_STREAM_LEGACY, dst, 0, value, element, N, 1, true); \
    } \
    CUresult name##_v2_ptds(CUdeviceptr dst, type value, size_t N) \
    { \
        ENTRY(); \
        return memset_submit(CU_STREAM_PER_THREAD, dst, 0, value, element, N, 1, true); \
    } \
    CUresult name##Async(CUdeviceptr dst, type value, size_t N, CUstream hStream) \
    { \
        ENTRY(); \
        return memset_submit(hStream, dst, 0, value, element, N, 1, false); \
    } \
    CUresult name##Async_ptsz(CUdeviceptr dst, type value, size_t N, CUstream hStream) \
    { \
        ENTRY(); \
        return memset_submit(PER_THREAD(hStream), dst, 0, value, element, N, 1, false); \
    }

#define MEMSET_PITCHED(name, type, element) \
    CUresult name##_v2(CUdeviceptr dst, size_t pitch, type value, size_t Width, size_t Height) \
    { \
        ENTRY(); \
        return memset_submit(CU_STREAM_LEGACY, dst, pitch, value, element, Width, Height, true); \
    } \
    CUresult name##_v2_ptds(CUdeviceptr dst, size_t pitch, type value, size_t Width, \
                            size_t Height) \
    { \
        ENTRY(); \
        return memset_submit(CU_STREAM_PER_THREAD, dst, pitch, value, element, Width, Height, \
                             true); \
    } \
    CUresult name##Async(CUdeviceptr dst, size_t pitch, type value, size_t Width, size_t Height, \
                         CUstream hStream) \
    { \
        ENTRY(); \
        return memset_submit(hStream, dst, pitch, value, element, Width, Height, false); \
    } \
    CUresult name##Async_ptsz(CUdeviceptr dst, size_t pitch, type value, size_t Width, \
                              size_t Height, CUstream hStream) \
    { \
        ENTRY(); \
        return memset_submit(PER_THREAD(hStream), dst, pitch, value, element, Width, Height, \
                             false); \
    }

MEMSET_LINEAR(cuMemsetD8, unsigned char, 1)
MEMSET_LINEAR(cuMemsetD16, unsigned short, 2)
MEMSET_LINEAR(cuMemsetD32, unsigned, 4)
MEMSET_PITCHED(cuMemsetD2D8, unsigned char, 1)
MEMSET_PITCHED(cuMemsetD2D16, unsigned short, 2)
MEMSET_PITCHED(cuMemsetD2D32, unsigned, 4)
