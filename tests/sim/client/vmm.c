/*
 * Virtual memory management: physical allocations, reserved addresses, mappings of one onto the
 * other. A mapping is a second view of the device memory in this process, told to the device as
 * well. One lock.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "capture.h"
#include "core.h"

#define GRAIN (UINT64_C(2) << 20)

struct reservation {
    struct reservation *next;
    uint64_t address, bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct reservation *reservations;

static CUresult vmm_enter(void)
{
    CUresult result = sim_check();

    if (!result && capture_active())
        result = capture_check_unsafe();
    return result;
}

/* --- physical memory --- */

static bool vmm_is_host(const CUmemAllocationProp *prop)
{
    return (int)prop->location.type >= 2 && (int)prop->location.type <= 4; /* host kinds, 12.2 on */
}

static CUresult vmm_check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (vmm_is_host(prop))
        return CUDA_SUCCESS;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return prop->location.id < 0 || (unsigned)prop->location.id >= sim.devices
               ? CUDA_ERROR_INVALID_DEVICE
               : CUDA_SUCCESS;
}

static CUresult vmm_back(struct physical *physical, const CUmemAllocationProp *prop, size_t size)
{
    void *block;

    physical->host = vmm_is_host(prop);
    if (!physical->host)
        return memory_take_free((unsigned)prop->location.id, size, ALLOC_PHYSICAL,
                                &physical->address);
    block = shared_take(size);
    physical->address = (CUdeviceptr)(uintptr_t)block;
    return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct physical *physical;
    CUresult result;

    ENTRY();
    result = vmm_enter();
    if (!result)
        result = vmm_check_prop(prop);
    if (!result && (!handle || !size || size % GRAIN || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result &&
        (prop->requestedHandleTypes & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                                        (sim.fabric ? (unsigned)CU_MEM_HANDLE_TYPE_FABRIC : 0))))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result)
        return result;
    physical = object_new(OBJECT_PHYSICAL, sizeof(*physical));
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = vmm_back(physical, prop, size);
    if (result) {
        object_end(physical);
        return result;
    }
    physical->prop = *prop;
    physical->bytes = size;
    physical->handles = 1;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

static struct physical *vmm_physical(CUmemGenericAllocationHandle handle)
{
    return object_check((void *)(uintptr_t)handle, OBJECT_PHYSICAL);
}

/* Under the lock: the memory goes when neither handle nor mapping is left. */
static CUresult vmm_drop(struct physical *physical)
{
    CUresult result = CUDA_SUCCESS;

    if (physical->handles || physical->mappings)
        return CUDA_SUCCESS;
    if (physical->multicast)
        multicast_end(physical->multicast);
    else if (physical->host)
        shared_put((void *)(uintptr_t)physical->address);
    else
        result = memory_put(physical->address);
    object_end(physical);
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical *physical;
    CUresult result;

    ENTRY();
    result = vmm_enter();
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    physical = vmm_physical(handle);
    if (!physical || !physical->handles) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        physical->handles--;
        result = vmm_drop(physical);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

struct physical *physical_new(uint64_t bytes)
{
    struct physical *physical = object_new(OBJECT_PHYSICAL, sizeof(*physical));

    if (!physical)
        return NULL;
    physical->bytes = bytes;
    physical->handles = 1;
    return physical;
}

struct physical *physical_check(CUmemGenericAllocationHandle handle)
{
    return vmm_physical(handle);
}

struct physical *physical_hold(CUmemGenericAllocationHandle handle, uint64_t offset, uint64_t bytes)
{
    struct physical *physical;

    pthread_mutex_lock(&lock);
    physical = vmm_physical(handle);
    if (physical && !physical->host && !physical->multicast && offset <= physical->bytes &&
        bytes <= physical->bytes - offset)
        physical->mappings++;
    else
        physical = NULL;
    pthread_mutex_unlock(&lock);
    return physical;
}

struct physical *physical_map(CUmemGenericAllocationHandle handle, unsigned device, uint64_t offset,
                              uint64_t bytes, CUdeviceptr *address)
{
    struct physical *physical = physical_hold(handle, offset, bytes);

    if (!physical)
        return NULL;
    if (!(physical->prop.allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) ||
        (unsigned)physical->prop.location.id != device) {
        physical_unmap(physical);
        return NULL;
    }
    *address = physical->address + offset;
    return physical;
}

CUresult physical_unmap(struct physical *physical)
{
    CUresult result;

    pthread_mutex_lock(&lock);
    result = physical_unmap_locked(physical);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult physical_unmap_locked(struct physical *physical)
{
    physical->mappings--;
    return vmm_drop(physical);
}

bool physical_describe(CUmemGenericAllocationHandle handle, unsigned type,
                       struct shared_memory *shared)
{
    const struct physical *physical = vmm_physical(handle);

    if (!physical || physical->host || physical->multicast ||
        !(physical->prop.requestedHandleTypes & type) || (type & (type - 1)))
        return false;
    shared->device = (unsigned)physical->prop.location.id;
    shared->address = physical->address;
    shared->bytes = physical->bytes;
    return true;
}

CUresult physical_import(CUmemGenericAllocationHandle *handle, unsigned type,
                         const struct shared_memory *shared)
{
    struct physical *physical = object_new(OBJECT_PHYSICAL, sizeof(*physical));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (physical)
        result = share_hold(NULL, shared);
    if (result) {
        if (physical)
            object_end(physical);
        return result;
    }
    physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->prop.location.id = (int)shared->device;
    physical->prop.requestedHandleTypes = (CUmemAllocationHandleType)type;
    physical->address = shared->address;
    physical->bytes = shared->bytes;
    physical->handles = 1;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    struct region region;
    struct physical *physical;
    CUresult result;

    ENTRY();
    result = vmm_enter();
    if (result)
        return result;
    if (!handle || !region_find((uint64_t)(uintptr_t)addr, &region) ||
        region.kind != REGION_VIRTUAL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    physical = region_find((uint64_t)(uintptr_t)addr, &region) ? region.owner : NULL;
    if (physical)
        physical->handles++;
    pthread_mutex_unlock(&lock);
    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    const struct physical *physical;

    ENTRY();
    if (sim_check())
        return sim_check();
    physical = vmm_physical(handle);
    if (!prop || !physical || physical->multicast)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CUresult result;

    ENTRY();
    (void)option;
    result = sim_check();
    if (!result)
        result = vmm_check_prop(prop);
    if (!result && !granularity)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *granularity = GRAIN;
    return result;
}

/* --- addresses --- */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    struct reservation *reservation;
    uint64_t grain = alignment > GRAIN ? alignment : GRAIN;
    uint64_t start, end;
    unsigned char *base;
    CUresult result;

    ENTRY();
    (void)addr;
    result = vmm_enter();
    if (!result && (!ptr || !size || size % GRAIN || flags || (alignment & (alignment - 1)) ||
                    size > (UINT64_C(1) << 46)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    reservation = calloc(1, sizeof(*reservation));
    base = mmap(NULL, size + grain, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!reservation || base == MAP_FAILED) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    start = SIM_ALIGN((uintptr_t)base, grain);
    end = (uintptr_t)base + size + grain;
    if (start > (uintptr_t)base)
        munmap(base, start - (uintptr_t)base);
    if (end > start + size)
        munmap((void *)(uintptr_t)(start + size), end - start - size);
    reservation->address = start;
    reservation->bytes = size;
    pthread_mutex_lock(&lock);
    reservation->next = reservations;
    reservations = reservation;
    pthread_mutex_unlock(&lock);
    *ptr = start;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    struct reservation *found = NULL;
    CUresult result;

    ENTRY();
    result = vmm_enter();
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    for (struct reservation **at = &reservations; *at; at = &(*at)->next)
        if ((*at)->address == ptr && (*at)->bytes == size && !region_any(ptr, size)) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)ptr, size);
    free(found);
    return CUDA_SUCCESS;
}

static bool vmm_reserved(uint64_t address, uint64_t bytes)
{
    for (const struct reservation *r = reservations; r; r = r->next)
        if (address >= r->address && bytes <= r->bytes && address - r->address <= r->bytes - bytes)
            return true;
    return false;
}

/* A second view of shared memory: a move of nothing that leaves the old one where it is. */
static bool vmm_view(uint64_t from, uint64_t bytes, uint64_t at)
{
    void *view = mremap((void *)(uintptr_t)from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                        (void *)(uintptr_t)at);

    return view != MAP_FAILED;
}

static void vmm_unview(uint64_t address, uint64_t bytes)
{
    if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        sim_log("an unmapped range stays visible to the host");
}

static CUresult vmm_map(uint64_t address, size_t size, struct physical *physical)
{
    struct region region = {.address = address,
                            .bytes = size,
                            .kind = REGION_VIRTUAL,
                            .device = physical->host ? 0 : (unsigned)physical->prop.location.id,
                            .owner = physical,
                            .backing = physical->address};
    uint64_t in[] = {address, size, physical->address};
    CUresult result = CUDA_SUCCESS;

    if (!physical->multicast && !vmm_view(physical->address, size, address))
        return CUDA_ERROR_MAP_FAILED;
    if (!physical->multicast)
        result = call_device(CALL_MAP, in, 3, NULL, NULL);
    if (!result)
        result = region_add(&region);
    if (result) {
        vmm_unview(address, size);
        return result;
    }
    physical->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    struct physical *physical;
    CUresult result;

    ENTRY();
    result = vmm_enter();
    if (result)
        return result;
    physical = vmm_physical(handle);
    if (physical && physical->multicast)
        multicast_await(physical->multicast);
    pthread_mutex_lock(&lock);
    physical = vmm_physical(handle);
    if (!physical || offset || flags || !size || size % GRAIN || size > physical->bytes ||
        ptr % GRAIN || !vmm_reserved(ptr, size) || region_any(ptr, size))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = vmm_map(ptr, size, physical);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether a range is nothing but mappings, each of them whole if `whole`. */
static bool vmm_mapped(uint64_t address, uint64_t bytes, bool whole)
{
    while (bytes) {
        struct region region;
        uint64_t end;

        if (!region_find(address, &region) || region.kind != REGION_VIRTUAL)
            return false;
        end = region.address + region.bytes;
        if (whole && (region.address != address || region.bytes > bytes))
            return false;
        if (end - address >= bytes)
            return true;
        bytes -= end - address;
        address = end;
    }
    return true;
}

/* Takes one mapping away; the bytes it had. */
static uint64_t vmm_unmap_one(uint64_t address)
{
    struct physical *physical;
    struct region region;
    uint64_t in[3] = {address, 0, 0};

    if (!region_remove(address, &region))
        return 0;
    physical = region.owner;
    if (!physical->multicast)
        call_device(CALL_MAP, in, 3, NULL, NULL);
    vmm_unview(address, region.bytes);
    physical->mappings--;
    vmm_drop(physical);
    return region.bytes;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct context *context;
    CUresult result;

    ENTRY();
    result = vmm_enter();
    if (!result && !size)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    context = context_current();
    if (context && atomic_load(&context->alive))
        context_wait(context);
    pthread_mutex_lock(&lock);
    if (!vmm_mapped(ptr, size, true))
        result = CUDA_ERROR_INVALID_VALUE;
    while (size && !result) {
        uint64_t bytes = vmm_unmap_one(ptr);

        ptr += bytes;
        size -= bytes;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static bool vmm_location_right(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location->id >= 0 && (unsigned)location->id < sim.devices;
    return (int)location->type >= 2 && (int)location->type <= 4;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!desc || !count || !size || !vmm_mapped(ptr, size, false))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!vmm_location_right(&desc[i].location))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result)
        return result;
    if (!flags || !location || !region_find(ptr, &region) || region.kind != REGION_VIRTUAL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
