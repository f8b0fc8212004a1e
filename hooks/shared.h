/*
 * shared: memory that crosses processes. Who made it pays for it; who opens it does not. How much
 * is open to others, and of others, is a figure of each client, so that what an exporter leaves
 * behind can be told. Program threads.
 */
#ifndef CUSLICE_HOOKS_SHARED_H
#define CUSLICE_HOOKS_SHARED_H

#include "driver.h"

/* An allocation, or one of a pool, may be opened by others from now on. */
void shared_exported(CUresult rc, CUdeviceptr pointer);

/* Another process's allocation is open here at *pointer. */
void shared_opened(CUresult rc, const CUdeviceptr *pointer);

/* External memory. */
void shared_imported(CUresult rc, const CUexternalMemory *memory,
                     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc);
void shared_let_go(CUresult rc, CUexternalMemory memory);

#endif
