/*
 * driver: NVIDIA's own declarations of the driver API, every version of every entry point. The
 * macros of cuda.h that rename symbols are off, so that a name here is the exported name, and each
 * hook is checked by the compiler against NVIDIA's prototype of the function it stands for. What an
 * older cuda.h lacks is declared beside it, so that the set of hooks is the same with every header.
 */
#ifndef CUSLICE_HOOKS_DRIVER_H
#define CUSLICE_HOOKS_DRIVER_H

#define __CUDA_API_VERSION_INTERNAL 1
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>

#if CUDA_VERSION < 11080
#error "cuda.h of CUDA 11.8 or newer is needed"
#endif

#include "driver_newer.h"

#endif
