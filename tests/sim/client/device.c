/*
 * What the devices say about themselves. The figures are those of a data-centre GPU of compute
 * capability 9.0 and agree with each other; names, UUIDs and PCI places follow from the ordinal.
 * Any thread, no lock.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "identity.h"

enum { MAJOR = IDENTITY_ARCH / 10, MINOR = IDENTITY_ARCH % 10, CLOCK_KHZ = 1755000 };

struct attribute {
    CUdevice_attribute id;
    int value;
};

#define A(name, value) \
    { \
        CU_DEVICE_ATTRIBUTE_##name, value \
    }

static const struct attribute attributes[] = {
    A(MAX_THREADS_PER_BLOCK, 1024),
    A(MAX_BLOCK_DIM_X, 1024),
    A(MAX_BLOCK_DIM_Y, 1024),
    A(MAX_BLOCK_DIM_Z, 64),
    A(MAX_GRID_DIM_X, 2147483647),
    A(MAX_GRID_DIM_Y, 65535),
    A(MAX_GRID_DIM_Z, 65535),
    A(MAX_SHARED_MEMORY_PER_BLOCK, 49152),
    A(TOTAL_CONSTANT_MEMORY, 65536),
    A(WARP_SIZE, 32),
    A(MAX_PITCH, 2147483647),
    A(MAX_REGISTERS_PER_BLOCK, 65536),
    A(CLOCK_RATE, CLOCK_KHZ),
    A(TEXTURE_ALIGNMENT, 512),
    A(GPU_OVERLAP, 1),
    A(MULTIPROCESSOR_COUNT, IDENTITY_PROCESSORS),
    A(CAN_MAP_HOST_MEMORY, 1),
    A(MAXIMUM_TEXTURE1D_WIDTH, 131072),
    A(MAXIMUM_TEXTURE2D_WIDTH, 131072),
    A(MAXIMUM_TEXTURE2D_HEIGHT, 65536),
    A(MAXIMUM_TEXTURE3D_WIDTH, 16384),
    A(MAXIMUM_TEXTURE3D_HEIGHT, 16384),
    A(MAXIMUM_TEXTURE3D_DEPTH, 16384),
    A(MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768),
    A(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768),
    A(MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048),
    A(SURFACE_ALIGNMENT, 512),
    A(CONCURRENT_KERNELS, 1),
    A(PCI_DEVICE_ID, 0),
    A(PCI_DOMAIN_ID, 0),
    A(MEMORY_CLOCK_RATE, 2619000),
    A(GLOBAL_MEMORY_BUS_WIDTH, 5120),
    A(L2_CACHE_SIZE, 52428800),
    A(MAX_THREADS_PER_MULTIPROCESSOR, 2048),
    A(ASYNC_ENGINE_COUNT, 2),
    A(UNIFIED_ADDRESSING, 1),
    A(MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768),
    A(MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048),
    A(MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768),
    A(MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768),
    A(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192),
    A(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192),
    A(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768),
    A(TEXTURE_PITCH_ALIGNMENT, 32),
    A(MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768),
    A(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768),
    A(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046),
    A(MAXIMUM_SURFACE1D_WIDTH, 32768),
    A(MAXIMUM_SURFACE2D_WIDTH, 131072),
    A(MAXIMUM_SURFACE2D_HEIGHT, 65536),
    A(MAXIMUM_SURFACE3D_WIDTH, 16384),
    A(MAXIMUM_SURFACE3D_HEIGHT, 16384),
    A(MAXIMUM_SURFACE3D_DEPTH, 16384),
    A(MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768),
    A(MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048),
    A(MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768),
    A(MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768),
    A(MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048),
    A(MAXIMUM_SURFACECUBEMAP_WIDTH, 32768),
    A(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768),
    A(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046),
    A(MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456),
    A(MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072),
    A(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000),
    A(MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120),
    A(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768),
    A(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768),
    A(COMPUTE_CAPABILITY_MAJOR, MAJOR),
    A(COMPUTE_CAPABILITY_MINOR, MINOR),
    A(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768),
    A(STREAM_PRIORITIES_SUPPORTED, 1),
    A(GLOBAL_L1_CACHE_SUPPORTED, 1),
    A(LOCAL_L1_CACHE_SUPPORTED, 1),
    A(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472),
    A(MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
    A(MANAGED_MEMORY, 1),
    A(HOST_NATIVE_ATOMIC_SUPPORTED, 0),
    A(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
    A(PAGEABLE_MEMORY_ACCESS, 0),
    A(COMPUTE_PREEMPTION_SUPPORTED, 1),
    A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
    A(CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
    A(CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
    A(COOPERATIVE_LAUNCH, 1),
    A(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448),
    A(CAN_FLUSH_REMOTE_WRITES, 0),
    A(HOST_REGISTER_SUPPORTED, 1),
    A(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0),
    A(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0),
    A(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
    A(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1),
    A(MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
    A(GENERIC_COMPRESSION_SUPPORTED, 0),
    A(MAX_PERSISTING_L2_CACHE_SIZE, 32768000),
    A(MAX_ACCESS_POLICY_WINDOW_SIZE, 134213632),
    A(RESERVED_SHARED_MEMORY_PER_BLOCK, 1024),
    A(SPARSE_CUDA_ARRAY_SUPPORTED, 1),
    A(READ_ONLY_HOST_REGISTER_SUPPORTED, 1),
    A(TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0),
    A(MEMORY_POOLS_SUPPORTED, 1),
    A(GPU_DIRECT_RDMA_SUPPORTED, 0),
    A(CLUSTER_LAUNCH, 1),
    A(DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 1),
    A(IPC_EVENT_SUPPORTED, 1),
    A(UNIFIED_FUNCTION_POINTERS, 0),
};

int device_multiprocessors(void)
{
    return IDENTITY_PROCESSORS;
}

unsigned device_arch(unsigned device)
{
    (void)device;
    return IDENTITY_ARCH;
}

static CUresult device_enter(CUdevice device, const void *out)
{
    CUresult result = sim_check();

    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (device < 0 || (unsigned)device >= sim.devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && !count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *count = (int)visible_count();
    return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result;

    ENTRY();
    result = device_enter(visible_device(ordinal), device);
    if (!result)
        *device = visible_device(ordinal);
    return result;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, name);
    if (!result && len <= 0)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        snprintf(name, (size_t)len, "%s", identity_name());
    return result;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = device_enter(device, uuid);

    if (result)
        return result;
    identity_uuid((unsigned)device, (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    ENTRY();
    return device_uuid(uuid, dev);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    ENTRY();
    return device_uuid(uuid, dev);
}

CUresult cuDeviceGetLuid(char *luid, unsigned *deviceNodeMask, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, luid);
    if (!result && !deviceNodeMask)
        result = CUDA_ERROR_INVALID_VALUE;
    /* A locally unique id is a thing of Windows. */
    return result ? result : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice dev)
{
    CUresult result;
    uint64_t total;

    ENTRY();
    result = device_enter(dev, bytes);
    if (result)
        return result;
    total = atomic_load(&sim.board->device[dev].total);
    *bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, bytes);
    if (!result)
        *bytes = atomic_load(&sim.board->device[dev].total);
    return result;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, pi);
    if (result)
        return result;
    if (attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = 0;
    if (attrib == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)
        *pi = sim.fabric;
    if (attrib == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
        *pi = (int)sim.board->paging;
    if (attrib == CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)
        *pi =
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (sim.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0);
    if (attrib == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)
        *pi = sim.multicast;
    if (attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        *pi = (int)identity_bus((unsigned)dev);
    for (unsigned i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if (attributes[i].id == attrib)
            *pi = attributes[i].value;
    /* Value 92 of drivers from 11 on and of the first API alike: stream memory operations. */
    if ((int)attrib == 92 || (int)attrib == 122)
        *pi = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, major);
    if (!result && !minor)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    *major = MAJOR;
    *minor = MINOR;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, prop);
    if (result)
        return result;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = CLOCK_KHZ,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, pciBusId);
    if (!result && len < 13)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        identity_pci_text((unsigned)dev, 4, pciBusId, (size_t)len);
    return result;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned domain = 0, bus, slot, function = 0;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 &&
        sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
        (domain = 0, sscanf(pciBusId, "%x:%x.%x", &bus, &slot, &function)) != 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < visible_count() && !domain && !slot && !function; i++)
        if (identity_bus((unsigned)visible_device((int)i)) == bus) {
            *dev = visible_device((int)i);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, canAccessPeer);
    if (!result)
        result = device_enter(peerDev, canAccessPeer);
    if (!result)
        *canAccessPeer = dev != peerDev;
    return result;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice)
{
    CUresult result;

    ENTRY();
    result = device_enter(srcDevice, value);
    if (!result)
        result = device_enter(dstDevice, value);
    if (!result && srcDevice == dstDevice)
        result = CUDA_ERROR_INVALID_DEVICE;
    if (!result)
        *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned Flags)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = sim_enter(&context);
    if (result)
        return result;
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    return context_check(peerContext, &(struct green *){NULL}) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    ENTRY();
    return cuCtxEnablePeerAccess(peerContext, 0);
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    CUresult result;

    ENTRY();
    result = device_enter(dev, pi);
    if (!result && type >= CU_EXEC_AFFINITY_TYPE_MAX)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *pi = 0;
    return result;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev)
{
    CUresult result;

    ENTRY();
    (void)format;
    result = device_enter(dev, maxWidthInElements);
    if (!result && (!numChannels || numChannels > 4))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *maxWidthInElements = 268435456;
    return result;
}

/* Profiling is accepted without visible effect. Declared here: not every toolkit brings its header.
 */
__attribute__((visibility("default"))) CUresult cuProfilerStart(void);
__attribute__((visibility("default"))) CUresult cuProfilerStop(void);

CUresult cuProfilerStart(void)
{
    struct context *context;

    ENTRY();
    return sim_enter(&context);
}

CUresult cuProfilerStop(void)
{
    struct context *context;

    ENTRY();
    return sim_enter(&context);
}
