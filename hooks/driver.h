/*
 * driver: NVIDIA's own declarations of the driver API, every version of every entry point. The
 * macros of cuda.h that rename symbols are off, so that a name here is the exported name, and each
 * hook is checked by the compiler against NVIDIA's prototype of the function it stands for.
 */
#ifndef CUSLICE_HOOKS_DRIVER_H
#define CUSLICE_HOOKS_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL 1
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>

#if CUDA_VERSION < 12000
#error "cuda.h of CUDA 12.0 or newer is needed"
#endif

#endif
