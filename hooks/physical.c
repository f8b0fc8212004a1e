/*
 * physical: see physical.h. A record for each piece of memory, found by its handles and by the
 * addresses it is mapped at (handles.c). `handles` and `kept` count what keeps it; with the last of
 * them it is given back, after the driver has been told. One lock over all records, never held
 * across a call of the driver. Records of a process that ends are gone with it.
 */
#include "physical.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocs.h"
#include "charge.h"
#include "contexts.h"
#include "gate.h"
#include "handles.h"
#include "log.h"
#include "real.h"

/* The least that physical memory is mapped in, by current devices' granularity. */
#define PHYSICAL_GRAIN (UINT64_C(2) << 20)
/* How far before an address its mapping's start is looked for. */
#define PHYSICAL_STEPS 65536u

struct physical {
    struct gate *gate; /* NULL: not counted */
    uint64_t bytes;    /* charged */
    uint64_t imported; /* of another process, as far as mappings have shown */
    unsigned handles;  /* that the program has to release */
    unsigned kept;     /* mappings, tiles, bindings, and calls under way */
    bool foreign;      /* another process's */
    bool exported;
    struct physical_bond *bonds; /* a multicast object's */
};

/* Memory that an array or a multicast object keeps. */
struct physical_bond {
    struct physical_bond *next;
    struct physical *memory;
    uint64_t place[4]; /* where: level and layer, offset, origin, extent */
};

static struct lock physical_lock;

/* ---- Records ---- */

static void physical_unbind_all(struct physical_bond *bond);

/* The last holder has gone. Under the lock. */
static void physical_end(struct physical *memory)
{
    if (memory->bytes)
        charge_give_back(memory->gate, memory->bytes);
    if (memory->exported)
        charge_exported(memory->gate, -(int64_t)memory->bytes, true);
    if (memory->imported && memory->gate)
        charge_imported(memory->gate, -(int64_t)memory->imported);
    physical_unbind_all(memory->bonds);
    free(memory);
}

static void physical_let_go(struct physical *memory)
{
    memory->kept--;
    if (memory->kept == 0 && memory->handles == 0)
        physical_end(memory);
}

static void physical_unbind_all(struct physical_bond *bond)
{
    while (bond) {
        struct physical_bond *next = bond->next;
        physical_let_go(bond->memory);
        free(bond);
        bond = next;
    }
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct handles_item item;
    return handles_peek(HANDLES_MEMORY, handle, &item) ? item.object : NULL;
}

/* The memory mapped at an address, which may lie behind the mapping's start. */
static struct physical *physical_at(uint64_t address)
{
    struct handles_item item;
    uint64_t start = address / PHYSICAL_GRAIN * PHYSICAL_GRAIN;
    for (unsigned i = 0; i < PHYSICAL_STEPS && start; i++, start -= PHYSICAL_GRAIN)
        if (handles_peek(HANDLES_MAPPING, start, &item))
            return address - start < item.bytes ? item.object : NULL;
    return NULL;
}

/* A record known by `handle`; NULL when there is no memory: it then stays charged. */
static struct physical *physical_add(CUmemGenericAllocationHandle handle, struct physical like)
{
    struct handles_item before, item = {.object = malloc(sizeof like), .owner = ALLOCS_NOBODY};
    struct physical *memory = item.object;
    if (memory) {
        *memory = like;
        memory->handles = 1;
    }
    if (memory && handles_put(HANDLES_MEMORY, handle, item, &before))
        return memory;
    free(memory);
    log_error("allocs-full", "no memory to remember an allocation: it stays counted until the "
                             "process ends");
    return NULL;
}

/* ---- Handles ---- */

CUresult physical_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                         const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct charge charge;
    bool device = guest_attached() && prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct gate *gate = device ? gate_of_device(prop->location.id) : NULL;
    CUresult rc;
    if (!charge_reserve_on(&charge, gate, bytes, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    do
        rc = real.cuMemCreate(handle, bytes, prop, flags);
    while (charge_again(&charge, rc));
    if (!charge.gate)
        return rc;
    int error = errno;
    lock_take(&physical_lock);
    if (rc != CUDA_SUCCESS)
        charge_give_back(charge.gate, charge.item.bytes);
    else
        physical_add(*handle, (struct physical){.gate = charge.gate, .bytes = charge.item.bytes});
    lock_put(&physical_lock);
    errno = error;
    return rc;
}

/* The handle's number may be another thread's as soon as the driver has released it. */
struct physical *physical_release(CUmemGenericAllocationHandle handle)
{
    struct handles_item item;
    if (!handles_count())
        return NULL;
    lock_take(&physical_lock);
    struct physical *memory = physical_of(handle);
    if (memory) {
        memory->kept++;
        if (--memory->handles == 0)
            handles_take(HANDLES_MEMORY, handle, &item);
    }
    lock_put(&physical_lock);
    return memory;
}

void physical_released(CUresult rc, CUmemGenericAllocationHandle handle, struct physical *memory)
{
    struct handles_item before, item = {.object = memory, .owner = ALLOCS_NOBODY};
    int error = errno;
    if (!memory)
        return;
    lock_take(&physical_lock);
    if (rc != CUDA_SUCCESS && memory->handles++ == 0)
        handles_put(HANDLES_MEMORY, handle, item, &before);
    physical_let_go(memory);
    lock_put(&physical_lock);
    errno = error;
}

void physical_retained(CUresult rc, const CUmemGenericAllocationHandle *handle, const void *address)
{
    struct handles_item before, item = {.owner = ALLOCS_NOBODY};
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    struct physical *memory = physical_of(*handle);
    if (!memory) {
        memory = item.object = physical_at((uintptr_t)address);
        if (memory)
            handles_put(HANDLES_MEMORY, *handle, item, &before);
    }
    if (memory)
        memory->handles++;
    lock_put(&physical_lock);
}

/* Whose device it is on, is the driver's to say. */
static struct gate *physical_gate(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    bool device = real.cuMemGetAllocationPropertiesFromHandle(&prop, handle) == CUDA_SUCCESS &&
                  prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return device ? gate_of_device(prop.location.id) : NULL;
}

void physical_imported(CUresult rc, const CUmemGenericAllocationHandle *handle)
{
    int error = errno;
    if (rc != CUDA_SUCCESS || !guest_attached())
        return;
    struct gate *gate = physical_gate(*handle);
    lock_take(&physical_lock);
    struct physical *memory = physical_of(*handle);
    if (memory)
        memory->handles++;
    else
        physical_add(*handle, (struct physical){.gate = gate, .foreign = true});
    lock_put(&physical_lock);
    errno = error;
}

void physical_multicast(CUresult rc, const CUmemGenericAllocationHandle *handle)
{
    int error = errno;
    if (rc != CUDA_SUCCESS || !guest_attached())
        return;
    lock_take(&physical_lock);
    physical_add(*handle, (struct physical){0});
    lock_put(&physical_lock);
    errno = error;
}

void physical_exported(CUresult rc, CUmemGenericAllocationHandle handle)
{
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    struct physical *memory = physical_of(handle);
    if (memory && memory->bytes && !memory->exported) {
        memory->exported = true;
        charge_exported(memory->gate, (int64_t)memory->bytes, false);
    }
    lock_put(&physical_lock);
}

/* ---- Mappings ---- */

static void physical_see_import(struct physical *memory, uint64_t bytes)
{
    if (!memory->foreign || bytes <= memory->imported)
        return;
    if (memory->gate)
        charge_imported(memory->gate, (int64_t)(bytes - memory->imported));
    memory->imported = bytes;
}

void physical_mapped(CUresult rc, CUdeviceptr address, size_t bytes,
                     CUmemGenericAllocationHandle handle)
{
    struct handles_item before, item = {.bytes = bytes, .owner = ALLOCS_NOBODY};
    struct allocs_item was,
        inside = {.bytes = bytes, .whose = allocs_whose(0, ALLOCS_NOBODY), .kind = ALLOCS_MAPPED};
    int error = errno;
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    struct physical *memory = item.object = physical_of(handle);
    if (memory && handles_put(HANDLES_MAPPING, address, item, &before)) {
        memory->kept++;
        physical_see_import(memory, bytes);
        allocs_put(address, inside, &was); /* not remembered: copies there count as the host's */
        if (before.object)
            physical_let_go(before.object);
    }
    lock_put(&physical_lock);
    errno = error;
}

/* A range of whole mappings; the first that is not known ends it. */
void physical_unmapped(CUresult rc, CUdeviceptr address, size_t bytes)
{
    struct handles_item item;
    uint64_t end = address + bytes;
    int error = errno;
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    while (address < end && handles_take(HANDLES_MAPPING, address, &item) && item.bytes) {
        allocs_take(address);
        physical_let_go(item.object);
        address += item.bytes;
    }
    lock_put(&physical_lock);
    errno = error;
}

/* ---- Bonds ---- */

static bool physical_bond(struct physical_bond **list, struct physical *memory,
                          const uint64_t place[4])
{
    struct physical_bond *bond = malloc(sizeof *bond);
    if (!bond)
        return false;
    *bond = (struct physical_bond){.next = *list, .memory = memory};
    memcpy(bond->place, place, sizeof bond->place);
    memory->kept++;
    *list = bond;
    return true;
}

static void physical_unbond(struct physical_bond **list, const uint64_t place[4])
{
    for (struct physical_bond *bond; (bond = *list) != NULL; list = &bond->next)
        if (memcmp(bond->place, place, sizeof bond->place) == 0) {
            *list = bond->next;
            bond->next = NULL;
            physical_unbind_all(bond);
            return;
        }
}

static void physical_place(const CUarrayMapInfo *info, uint64_t place[4])
{
    bool level = info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    place[0] = level ? (uint64_t)info->subresource.sparseLevel.level << 32 |
                           info->subresource.sparseLevel.layer
                     : UINT64_C(1) << 63 | info->subresource.miptail.layer;
    place[1] = level ? (uint64_t)info->subresource.sparseLevel.offsetX << 32 |
                           info->subresource.sparseLevel.offsetY
                     : info->subresource.miptail.offset;
    place[2] = level ? info->subresource.sparseLevel.offsetZ : info->subresource.miptail.size;
    place[3] = 0;
}

/* The list of an array's bonds is kept as the object of its handle. */
static void physical_tile(const CUarrayMapInfo *info, unsigned owner)
{
    uint64_t array = (uintptr_t)info->resource.array, place[4];
    struct handles_item before, item = {.owner = owner};
    handles_take(HANDLES_TILED, array, &item);
    struct physical_bond *list = item.object;
    physical_place(info, place);
    physical_unbond(&list, place);
    struct physical *memory = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP
                                  ? physical_of(info->memHandle.memHandle)
                                  : NULL;
    if (memory)
        physical_bond(&list, memory, place);
    item.object = list;
    if (list)
        handles_put(HANDLES_TILED, array, item, &before);
}

void physical_tiled(CUresult rc, const CUarrayMapInfo *list, unsigned count)
{
    int error = errno;
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    unsigned owner = contexts_owner(); /* asks the driver: not under the lock */
    lock_take(&physical_lock);
    for (unsigned i = 0; i < count; i++)
        physical_tile(&list[i], owner);
    lock_put(&physical_lock);
    errno = error;
}

void physical_array_gone(const void *array)
{
    struct handles_item item;
    int error = errno;
    if (!handles_take(HANDLES_TILED, (uintptr_t)array, &item))
        return;
    lock_take(&physical_lock);
    physical_unbind_all(item.object);
    lock_put(&physical_lock);
    errno = error;
}

void physical_context_gone(unsigned owner)
{
    struct handles_item item;
    lock_take(&physical_lock);
    while (handles_take_of(HANDLES_TILED, owner, &item))
        physical_unbind_all(item.object);
    lock_put(&physical_lock);
}

static void physical_bind(CUmemGenericAllocationHandle multicast, size_t offset,
                          struct physical *memory, size_t bytes)
{
    struct physical *object = physical_of(multicast);
    if (object && memory)
        physical_bond(&object->bonds, memory, (uint64_t[4]){offset, bytes});
}

void physical_bound(CUresult rc, CUmemGenericAllocationHandle multicast, size_t offset,
                    CUmemGenericAllocationHandle handle, size_t bytes)
{
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    physical_bind(multicast, offset, physical_of(handle), bytes);
    lock_put(&physical_lock);
}

void physical_bound_address(CUresult rc, CUmemGenericAllocationHandle multicast, size_t offset,
                            CUdeviceptr address, size_t bytes)
{
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    physical_bind(multicast, offset, physical_at(address), bytes);
    lock_put(&physical_lock);
}

void physical_unbound(CUresult rc, CUmemGenericAllocationHandle multicast, size_t offset,
                      size_t bytes)
{
    int error = errno;
    if (rc != CUDA_SUCCESS || !handles_count())
        return;
    lock_take(&physical_lock);
    struct physical *object = physical_of(multicast);
    if (object)
        physical_unbond(&object->bonds, (uint64_t[4]){offset, bytes});
    lock_put(&physical_lock);
    errno = error;
}
