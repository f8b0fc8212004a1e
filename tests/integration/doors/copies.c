/*
 * copies: makes one copy by the entry point it is told, from and to what it is told. A plain client
 * of the driver that speaks the tests' line protocol: `T copy NAME WAY` is answered by
 * `T result start end`. WAY is source and target: d device, h host, a array, by the descriptor's
 * type; u device and v host memory by their unified address.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES 256
#define DEVICE_BYTES ((size_t)8 << 20)

static CUdeviceptr device, pinned_device;
static void *pinned;
static CUarray array;
static CUcontext context;
static char pageable[2 * BYTES];

static unsigned long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

/* Well inside the allocation, and apart for source and target. */
static CUdeviceptr inside(int target)
{
    return device + ((size_t)5 << 20) + (target ? (size_t)1 << 20 : 0);
}

static CUdeviceptr address(char kind, int target)
{
    return kind == 'd' || kind == 'u' ? inside(target)
                                      : (CUdeviceptr)(size_t)pinned + (target ? BYTES : 0);
}

static CUmemorytype type(char kind)
{
    return kind == 'd'   ? CU_MEMORYTYPE_DEVICE
           : kind == 'h' ? CU_MEMORYTYPE_HOST
           : kind == 'a' ? CU_MEMORYTYPE_ARRAY
                         : CU_MEMORYTYPE_UNIFIED;
}

#define SIDE(copy, side, kind, target) \
    (copy).side##MemoryType = type(kind); \
    (copy).side##Device = (__typeof__((copy).side##Device))address(kind, target); \
    (copy).side##Host = pageable + target * BYTES; \
    (copy).side##Array = array; \
    (copy).side##Pitch = BYTES
#define FILL(copy) \
    SIDE(copy, src, way[0], 0); \
    SIDE(copy, dst, way[1], 1); \
    (copy).WidthInBytes = BYTES; \
    (copy).Height = 1
#define FILL_3D(copy) \
    FILL(copy); \
    (copy).srcHeight = (copy).dstHeight = (copy).Depth = 1

#define ENTRY(which, ...) \
    if (!strcmp(name, #which)) \
        return which(__VA_ARGS__);

static CUresult copy_described(const char *name, const char *way)
{
    CUDA_MEMCPY2D_v1 flat_v1 = {0};
    CUDA_MEMCPY3D_v1 deep_v1 = {0};
    CUDA_MEMCPY2D flat = {0};
    CUDA_MEMCPY3D deep = {0};
    CUDA_MEMCPY3D_PEER peer = {.srcContext = context, .dstContext = context};

    FILL(flat_v1);
    FILL(flat);
    FILL_3D(deep_v1);
    FILL_3D(deep);
    FILL_3D(peer);
    ENTRY(cuMemcpy2D, &flat_v1)
    ENTRY(cuMemcpy2D_v2, &flat)
    ENTRY(cuMemcpy2D_v2_ptds, &flat)
    ENTRY(cuMemcpy2DUnaligned, &flat_v1)
    ENTRY(cuMemcpy2DUnaligned_v2, &flat)
    ENTRY(cuMemcpy2DUnaligned_v2_ptds, &flat)
    ENTRY(cuMemcpy2DAsync, &flat_v1, NULL)
    ENTRY(cuMemcpy2DAsync_v2, &flat, NULL)
    ENTRY(cuMemcpy2DAsync_v2_ptsz, &flat, NULL)
    ENTRY(cuMemcpy3D, &deep_v1)
    ENTRY(cuMemcpy3D_v2, &deep)
    ENTRY(cuMemcpy3D_v2_ptds, &deep)
    ENTRY(cuMemcpy3DAsync, &deep_v1, NULL)
    ENTRY(cuMemcpy3DAsync_v2, &deep, NULL)
    ENTRY(cuMemcpy3DAsync_v2_ptsz, &deep, NULL)
    ENTRY(cuMemcpy3DPeer, &peer)
    ENTRY(cuMemcpy3DPeer_ptds, &peer)
    ENTRY(cuMemcpy3DPeerAsync, &peer, NULL)
    ENTRY(cuMemcpy3DPeerAsync_ptsz, &peer, NULL)
    return (CUresult)-1;
}

#if CUDA_VERSION >= 13000
/* The first of two copies is to the host: the second one decides. */
static CUresult copy_batch(const char *name, const char *way)
{
    CUdeviceptr to[2] = {address('v', 1), address(way[1], 1)};
    CUdeviceptr from[2] = {address('u', 0), address(way[0], 0)};
    size_t sizes[2] = {BYTES, BYTES}, place = 0, failed = 0;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP list[2] = {{0}, {0}};
    CUstream stream;

    for (int i = 0; i < 2; i++) {
        list[i].src.type = list[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        list[i].src.op.ptr.ptr = from[i];
        list[i].dst.op.ptr.ptr = to[i];
        list[i].extent.width = BYTES;
        list[i].extent.height = list[i].extent.depth = 1;
    }
    if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return (CUresult)-1;
#define BATCH to, from, sizes, 2, &attributes, &place, 1
    ENTRY(cuMemcpyBatchAsync, BATCH, &failed, stream)
    ENTRY(cuMemcpyBatchAsync_ptsz, BATCH, &failed, stream)
    ENTRY(cuMemcpyBatchAsync_v2, BATCH, stream)
    ENTRY(cuMemcpyBatchAsync_v2_ptsz, BATCH, stream)
    ENTRY(cuMemcpy3DBatchAsync, 2, list, &failed, 0, stream)
    ENTRY(cuMemcpy3DBatchAsync_ptsz, 2, list, &failed, 0, stream)
    ENTRY(cuMemcpy3DBatchAsync_v2, 2, list, 0, stream)
    ENTRY(cuMemcpy3DBatchAsync_v2_ptsz, 2, list, 0, stream)
    return (CUresult)-1;
}
#else
static CUresult copy_batch(const char *name, const char *way)
{
    (void)name;
    (void)way;
    return CUDA_ERROR_NOT_SUPPORTED;
}
#endif

static CUresult copy_plain(const char *name, const char *way)
{
    CUdeviceptr to = address(way[1], 1), from = address(way[0], 0), d = device;
    CUdeviceptr_v1 d1 = (CUdeviceptr_v1)device;
    void *h = pageable;

    ENTRY(cuMemcpy, to, from, BYTES)
    ENTRY(cuMemcpy_ptds, to, from, BYTES)
    ENTRY(cuMemcpyAsync, to, from, BYTES, NULL)
    ENTRY(cuMemcpyAsync_ptsz, to, from, BYTES, NULL)
#define BOTH(which, end, more, ...) \
    ENTRY(which##_v2, __VA_ARGS__) \
    ENTRY(which##_v2##end, __VA_ARGS__)
    BOTH(cuMemcpyDtoH, _ptds, , h, d, BYTES)
    BOTH(cuMemcpyHtoD, _ptds, , d, h, BYTES)
    BOTH(cuMemcpyAtoH, _ptds, , h, array, 0, BYTES)
    BOTH(cuMemcpyHtoA, _ptds, , array, 0, h, BYTES)
    BOTH(cuMemcpyDtoHAsync, _ptsz, , h, d, BYTES, NULL)
    BOTH(cuMemcpyHtoDAsync, _ptsz, , d, h, BYTES, NULL)
    BOTH(cuMemcpyAtoHAsync, _ptsz, , h, array, 0, BYTES, NULL)
    BOTH(cuMemcpyHtoAAsync, _ptsz, , array, 0, h, BYTES, NULL)
    ENTRY(cuMemcpyDtoH, h, d1, BYTES)
    ENTRY(cuMemcpyHtoD, d1, h, BYTES)
    ENTRY(cuMemcpyAtoH, h, array, 0, BYTES)
    ENTRY(cuMemcpyHtoA, array, 0, h, BYTES)
    ENTRY(cuMemcpyDtoHAsync, h, d1, BYTES, NULL)
    ENTRY(cuMemcpyHtoDAsync, d1, h, BYTES, NULL)
    ENTRY(cuMemcpyAtoHAsync, h, array, 0, BYTES, NULL)
    ENTRY(cuMemcpyHtoAAsync, array, 0, h, BYTES, NULL)
    return (CUresult)-1;
}

static CUresult copy(const char *name, const char *way)
{
    CUresult rc = copy_plain(name, way);
    if (rc == (CUresult)-1)
        rc = copy_described(name, way);
    return rc == (CUresult)-1 ? copy_batch(name, way) : rc;
}

static CUresult begin(void)
{
    CUDA_ARRAY_DESCRIPTOR d = {
        .Width = 4096, .Height = 4, .NumChannels = 1, .Format = CU_AD_FORMAT_FLOAT};
    CUdevice ordinal;
    CUresult rc = cuInit(0);

    if (rc == CUDA_SUCCESS)
        rc = cuDeviceGet(&ordinal, 0);
    if (rc == CUDA_SUCCESS)
        rc = cuDevicePrimaryCtxRetain(&context, ordinal);
    if (rc == CUDA_SUCCESS)
        rc = cuCtxSetCurrent(context);
    if (rc == CUDA_SUCCESS)
        rc = cuMemAlloc_v2(&device, DEVICE_BYTES);
    if (rc == CUDA_SUCCESS)
        rc = cuMemHostAlloc(&pinned, 2 * BYTES, CU_MEMHOSTALLOC_PORTABLE);
    return rc == CUDA_SUCCESS ? cuArrayCreate_v2(&array, &d) : rc;
}

int main(void)
{
    char line[256], name[128], way[8];

    while (fgets(line, sizeof line, stdin)) {
        unsigned long long start = now();
        CUresult rc = (CUresult)-1;
        if (!strcmp(line, "0 open\n"))
            rc = begin();
        else if (!strcmp(line, "0 sync\n"))
            rc = cuCtxSynchronize();
        else if (!strcmp(line, "0 free\n"))
            rc = cuMemFree_v2(device);
        else if (sscanf(line, "0 copy %127s %7s", name, way) == 2)
            rc = copy(name, way);
        printf("0 %d %llu %llu\n", (int)rc, start, now());
        fflush(stdout);
    }
    return 0;
}
