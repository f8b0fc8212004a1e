/*
 * driver_newer: what the driver API has got since CUDA 11.8, as far as it submits work, takes
 * memory, makes contexts or looks functions up. Included by driver.h alone. Prototypes stand here
 * without conditions: where cuda.h has one too, the compiler proves that both say the same. Of the
 * structures only those are described that the hooks read; assertions prove their layout with every
 * header. Nothing here may depend on which functions the driver at run time has.
 */
#ifndef CUSLICE_HOOKS_DRIVER_NEWER_H
#define CUSLICE_HOOKS_DRIVER_NEWER_H

#include <stddef.h>

#pragma GCC visibility push(default)

/* ---- CUDA 12.0 ---- */
#if CUDA_VERSION < 12000
typedef enum CUdriverProcAddressQueryResult_enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2
} CUdriverProcAddressQueryResult;
typedef enum CUlibraryOption_enum CUlibraryOption;
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct CUgraphExecUpdateResultInfo_st CUgraphExecUpdateResultInfo;
#endif
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status);
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params);
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result);
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **option_values, unsigned int option_count);
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, CUjit_option *jit,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **option_values, unsigned int option_count);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library);
CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library,
                            const char *name);
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel);

/* ---- CUDA 12.1 ---- */
#if CUDA_VERSION < 12010
typedef struct CUmulticastObjectProp_st CUmulticastObjectProp;
#endif
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle handle, size_t handle_offset,
                            size_t bytes, unsigned long long flags);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags);
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                           size_t bytes);

/* ---- CUDA 12.2 ---- */
#define PREFETCH_PARAMETERS \
    CUdeviceptr pointer, size_t count, CUmemLocation location, unsigned int flags, CUstream stream
#if CUDA_VERSION < 12020
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
#endif
CUresult cuMemPrefetchAsync_v2(PREFETCH_PARAMETERS);
CUresult cuMemPrefetchAsync_v2_ptsz(PREFETCH_PARAMETERS);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *params);
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params);
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params);

/* ---- CUDA 12.3 ---- */
#define TO_GRAPH_PARAMETERS \
    CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, \
        size_t count, CUstreamCaptureMode mode
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
CUresult cuStreamBeginCaptureToGraph(TO_GRAPH_PARAMETERS);
CUresult cuStreamBeginCaptureToGraph_ptsz(TO_GRAPH_PARAMETERS);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params);

/* ---- CUDA 12.4 ---- */
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device,
                          unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx context);
CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event);
CUresult cuGreenCtxWaitEvent(CUgreenCtx context, CUevent event);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuFuncLoad(CUfunction function);

/* ---- CUDA 12.5 ---- */
typedef struct CUctxCreateParams_st CUctxCreateParams;
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                        CUdevice device);
CUresult cuCtxRecordEvent(CUcontext context, CUevent event);
CUresult cuCtxWaitEvent(CUcontext context, CUevent event);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned int flags,
                                int priority);
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green);
CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext *context, CUgreenCtx *green);

/* ---- CUDA 12.6 and 12.8 ---- */
#define DECOMPRESS_PARAMETERS \
    CUmemDecompressParams *params, size_t count, unsigned int flags, size_t *index, CUstream stream
#define COPIES_PARAMETERS \
    CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, \
        CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count
#if CUDA_VERSION < 12080
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef enum CUmemcpy3DOperandType_enum {
    CU_MEMCPY_OPERAND_TYPE_POINTER = 1,
    CU_MEMCPY_OPERAND_TYPE_ARRAY = 2,
    CU_MEMCPY_OPERAND_TYPE_MAX = 0x7FFFFFFF
} CUmemcpy3DOperandType;
typedef struct CUmemcpy3DOperand_st {
    CUmemcpy3DOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t rowLength;
            size_t layerHeight;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUarray array;
            size_t offset[3];
        } array;
    } op;
} CUmemcpy3DOperand;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st {
    CUmemcpy3DOperand src;
    CUmemcpy3DOperand dst;
    size_t extent[3];
    unsigned int order; /* an enumeration */
    unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;
#endif
_Static_assert(offsetof(CUmemcpy3DOperand, op.ptr.ptr) == 8 &&
                   offsetof(CUmemcpy3DOperand, op.array.array) == 8 &&
                   sizeof(CUmemcpy3DOperand) == 40,
               "an operand of a batched copy, as every header has it");
_Static_assert(offsetof(CUDA_MEMCPY3D_BATCH_OP, src) == 0 &&
                   offsetof(CUDA_MEMCPY3D_BATCH_OP, dst) == 40 &&
                   sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112,
               "a batched copy, as every header has it");
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
CUresult cuMemBatchDecompressAsync(DECOMPRESS_PARAMETERS);
CUresult cuMemBatchDecompressAsync_ptsz(DECOMPRESS_PARAMETERS);
CUresult cuMemcpyBatchAsync(COPIES_PARAMETERS, size_t *failed, CUstream stream);
CUresult cuMemcpyBatchAsync_ptsz(COPIES_PARAMETERS, size_t *failed, CUstream stream);
CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
                              unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
                                   unsigned long long flags, CUstream stream);
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end);

/* ---- CUDA 13.0 ---- */
#define DISCARD_PARAMETERS CUdeviceptr *pointers, size_t *sizes, size_t count
#define PREFETCHES_PARAMETERS \
    DISCARD_PARAMETERS, CUmemLocation *locations, size_t *indices, size_t location_count, \
        unsigned long long flags, CUstream stream
CUresult cuCtxSynchronize_v2(CUcontext context);
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context);
CUresult cuMemcpyBatchAsync_v2(COPIES_PARAMETERS, CUstream stream);
CUresult cuMemcpyBatchAsync_v2_ptsz(COPIES_PARAMETERS, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
                                 unsigned long long flags, CUstream stream);
CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
                                      unsigned long long flags, CUstream stream);
CUresult cuMemPrefetchBatchAsync(PREFETCHES_PARAMETERS);
CUresult cuMemPrefetchBatchAsync_ptsz(PREFETCHES_PARAMETERS);
CUresult cuMemDiscardAndPrefetchBatchAsync(PREFETCHES_PARAMETERS);
CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(PREFETCHES_PARAMETERS);
CUresult cuMemDiscardBatchAsync(DISCARD_PARAMETERS, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardBatchAsync_ptsz(DISCARD_PARAMETERS, unsigned long long flags, CUstream stream);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type);
CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);

#undef PREFETCH_PARAMETERS
#undef TO_GRAPH_PARAMETERS
#undef DECOMPRESS_PARAMETERS
#undef COPIES_PARAMETERS
#undef DISCARD_PARAMETERS
#undef PREFETCHES_PARAMETERS

#pragma GCC visibility pop

#endif
