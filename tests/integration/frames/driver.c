/* The launches of a libcuda.so.1 that is otherwise the benchmark's, which does nothing: they check
 * that their arguments came as frames_client.c passes them, and call what `extra` names, as a tool
 * inside a driver would. Linked before that one's, which is weak. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <stdint.h>

#include "frames.h"

#define EXPORT __attribute__((visibility("default")))

/* Aligned as the ABI has it at a call: a driver's vector instructions fault otherwise. */
static int frames_aligned(void *frame)
{
    return ((uintptr_t)frame & 15) == 0;
}

static CUresult frames_result(int good)
{
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int frames_shape(const unsigned *shape)
{
    for (unsigned i = 0; i < FRAMES_SHAPE; i++)
        if (shape[i] != FRAMES_FIRST + i)
            return 0;
    return 1;
}

static void frames_call(void **extra)
{
    if (extra && extra[0])
        ((frames_callback *)extra[0])(extra[1]);
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void **params, void **extra)
{
    unsigned shape[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes};
    int aligned = frames_aligned(__builtin_frame_address(0));
    frames_call(extra);
    return frames_result(aligned && f && frames_shape(shape) && params[0] == (void *)stream &&
                         params[1] == (void *)extra);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
                                          unsigned int grid_z, unsigned int block_x,
                                          unsigned int block_y, unsigned int block_z,
                                          unsigned int shared_bytes, CUstream stream, void **params)
{
    unsigned shape[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes};
    return frames_result(frames_aligned(__builtin_frame_address(0)) && f && frames_shape(shape) &&
                         params[0] == (void *)stream);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
                                 void **extra)
{
    return frames_result(frames_aligned(__builtin_frame_address(0)) && f &&
                         params[0] == (void *)config && params[1] == (void *)extra);
}
