/*
 * Multicast objects: a team of devices, and which memory of each is bound where. The object is a
 * handle like those of cuMemCreate, without memory of its own; a binding holds the bound memory as
 * a mapping would. Nothing is broadcast: a mapping of it is an address that no command can use.
 * Lock: this file's, then vmm.c's.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>

#include "capture.h"
#include "core.h"

#define GRAIN (UINT64_C(2) << 20)

struct binding {
    struct binding *next;
    unsigned device;
    uint64_t offset, bytes;
    struct physical *physical; /* NULL: `held` */
    CUdeviceptr held;          /* a pool's memory */
};

struct multicast {
    unsigned wanted, added;
    uint32_t team; /* a bit per device */
    uint64_t bytes;
    struct binding *bindings;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t joined = PTHREAD_COND_INITIALIZER;

static CUresult multicast_enter(void)
{
    CUresult result = sim_check();

    if (!result && capture_active())
        result = capture_check_unsafe();
    if (!result && !sim.multicast)
        result = CUDA_ERROR_NOT_SUPPORTED;
    return result;
}

static CUresult multicast_check_prop(const CUmulticastObjectProp *prop)
{
    if (!prop || !prop->numDevices || prop->flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->handleTypes)
        return CUDA_ERROR_NOT_SUPPORTED;
    return prop->numDevices > sim.devices ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static struct multicast *multicast_find(CUmemGenericAllocationHandle handle)
{
    const struct physical *physical = physical_check(handle);

    return physical ? physical->multicast : NULL;
}

/* --- the object and its team --- */

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
                           const CUmulticastObjectProp *prop)
{
    struct physical *physical;
    CUresult result;

    ENTRY();
    result = multicast_enter();
    if (!result)
        result = multicast_check_prop(prop);
    if (!result && (!mcHandle || !prop->size || prop->size % GRAIN))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    physical = physical_new(prop->size);
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->multicast = calloc(1, sizeof(*physical->multicast));
    if (!physical->multicast) {
        object_end(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->multicast->wanted = prop->numDevices;
    physical->multicast->bytes = prop->size;
    *mcHandle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev)
{
    struct multicast *multicast;
    CUresult result;

    ENTRY();
    result = multicast_enter();
    if (!result && (dev < 0 || (unsigned)dev >= sim.devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    multicast = multicast_find(mcHandle);
    if (!multicast || multicast->added == multicast->wanted || multicast->team >> dev & 1) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        multicast->team |= UINT32_C(1) << dev;
        multicast->added++;
        pthread_cond_broadcast(&joined);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void multicast_await(struct multicast *multicast)
{
    pthread_mutex_lock(&lock);
    while (multicast->added < multicast->wanted)
        pthread_cond_wait(&joined, &lock);
    pthread_mutex_unlock(&lock);
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option)
{
    CUresult result;

    ENTRY();
    result = multicast_enter();
    if (!result)
        result = multicast_check_prop(prop);
    if (!result && (!granularity || (option != CU_MULTICAST_GRANULARITY_MINIMUM &&
                                     option != CU_MULTICAST_GRANULARITY_RECOMMENDED)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *granularity = GRAIN;
    return result;
}

/* --- bindings --- */

static bool binding_fits(const struct multicast *multicast, const struct binding *wanted)
{
    if (!wanted->bytes || wanted->bytes % GRAIN || wanted->offset % GRAIN ||
        wanted->bytes > multicast->bytes || wanted->offset > multicast->bytes - wanted->bytes ||
        !(multicast->team >> wanted->device & 1))
        return false;
    for (const struct binding *b = multicast->bindings; b; b = b->next)
        if (b->device == wanted->device && wanted->offset < b->offset + b->bytes &&
            b->offset < wanted->offset + wanted->bytes)
            return false;
    return true;
}

static void binding_let_go(const struct binding *binding, bool locked)
{
    if (!binding->physical)
        memory_put(binding->held);
    else if (locked)
        physical_unmap_locked(binding->physical);
    else
        physical_unmap(binding->physical);
}

/* Puts a binding, whose memory is held already, into the object; lets go of it if that fails. */
static CUresult binding_add(CUmemGenericAllocationHandle handle, const struct binding *wanted)
{
    struct binding *binding = malloc(sizeof(*binding));
    struct multicast *multicast;
    CUresult result = binding ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    pthread_mutex_lock(&lock);
    multicast = multicast_find(handle);
    if (!result && (!multicast || !binding_fits(multicast, wanted)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        *binding = *wanted;
        binding->next = multicast->bindings;
        multicast->bindings = binding;
    }
    pthread_mutex_unlock(&lock);
    if (result) {
        free(binding);
        binding_let_go(wanted, false);
    }
    return result;
}

/* The object to bind to, once its team is complete. */
static CUresult binding_enter(CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct multicast *multicast;
    CUresult result = multicast_enter();

    if (result)
        return result;
    multicast = multicast_find(handle);
    if (!multicast || flags)
        return CUDA_ERROR_INVALID_VALUE;
    multicast_await(multicast);
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                            CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
                            unsigned long long flags)
{
    struct binding binding = {.offset = mcOffset, .bytes = size};
    CUresult result;

    ENTRY();
    result = binding_enter(mcHandle, flags);
    if (!result && memOffset % GRAIN)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    binding.physical = physical_hold(memHandle, memOffset, size);
    if (!binding.physical)
        return CUDA_ERROR_INVALID_VALUE;
    binding.device = (unsigned)binding.physical->prop.location.id;
    return binding_add(mcHandle, &binding);
}

/* Holds what lies behind an address: of cuMemCreate, or a pool's. */
static CUresult binding_hold_address(struct binding *binding, CUdeviceptr address)
{
    struct shared_memory shared;
    struct region region;
    CUresult result;

    if (!region_find(address, &region) || binding->bytes > region.bytes ||
        address - region.address > region.bytes - binding->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    binding->device = region.device;
    if (region.kind == REGION_VIRTUAL) {
        binding->physical = physical_hold((CUmemGenericAllocationHandle)(uintptr_t)region.owner,
                                          address - region.address, binding->bytes);
        return binding->physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (!pool_chunk(address, &shared))
        return CUDA_ERROR_INVALID_VALUE;
    binding->held = shared.address;
    result = share_identify(&shared);
    return result ? result : share_hold(NULL, &shared);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags)
{
    struct binding binding = {.offset = mcOffset, .bytes = size};
    CUresult result;

    ENTRY();
    result = binding_enter(mcHandle, flags);
    if (!result && memptr % GRAIN)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = binding_hold_address(&binding, memptr);
    return result ? result : binding_add(mcHandle, &binding);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
                           size_t size)
{
    struct binding *found = NULL;
    struct multicast *multicast;
    CUresult result;

    ENTRY();
    result = multicast_enter();
    if (!result && (dev < 0 || (unsigned)dev >= sim.devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    multicast = multicast_find(mcHandle);
    for (struct binding **at = multicast ? &multicast->bindings : NULL; at && *at;
         at = &(*at)->next)
        if ((*at)->device == (unsigned)dev && (*at)->offset == mcOffset && (*at)->bytes == size) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    binding_let_go(found, false);
    free(found);
    return CUDA_SUCCESS;
}

void multicast_end(struct multicast *multicast)
{
    while (multicast->bindings) {
        struct binding *binding = multicast->bindings;

        multicast->bindings = binding->next;
        binding_let_go(binding, true);
        free(binding);
    }
    free(multicast);
}
