/*
 * nvml: the bodies of nvml.def (see nvml.h). They run on the program's threads: the library is
 * asked first, its errors pass unchanged, and only then are figures made to agree with
 * cuMemGetInfo's. A client asks its own ring; any other process looks at the ring of the device
 * with that UUID for the length of the call. No thread, no lock, no file made, nothing printed.
 * Where anything is not as expected, the library's answer stays.
 */
#include "nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "gate.h"
#include "identity.h"
#include "ledger.h"
#include "libc.h"
#include "onlooker.h"
#include "query.h"
#include "slot.h"

/* ---- The library's own functions ---- */

/* Nothing behind the pointer: the library is not loaded, so nobody has initialised it; or it is too
 * old to have this one. */
#define MISSING(name, ...) \
    static nvmlReturn_t nvml_missing_##name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        if (!nvml_load()) \
            return NVML_ERROR_UNINITIALIZED; \
        return nvml_real.name == nvml_missing_##name ? NVML_ERROR_FUNCTION_NOT_FOUND \
                                                     : nvml_real.name(PAIRS_PASS(__VA_ARGS__)); \
    }
#define MASK(name, mask, ...) static nvmlReturn_t nvml_missing_##name(PAIRS_DECLARE(__VA_ARGS__));
#define USE(name, ...) static nvmlReturn_t nvml_missing_##name(PAIRS_DECLARE(__VA_ARGS__));
#include "nvml.def"

struct nvml_real nvml_real = {
#define MASK(name, ...) .name = nvml_missing_##name,
#define USE(name, ...) .name = nvml_missing_##name,
#include "nvml.def"
};

#define MASK(name, mask, ...) MISSING(name, __VA_ARGS__)
#define USE(name, ...) MISSING(name, __VA_ARGS__)
#include "nvml.def"

static void nvml_fill(void *library)
{
    void *function;
#define MASK(name, ...) USE(name)
#define USE(name, ...) \
    function = libc_dlsym(library, #name); \
    if (function) \
        __atomic_store_n((void **)(void *)&nvml_real.name, function, __ATOMIC_RELEASE);
#include "nvml.def"
}

/* As real_load: no lock of ours, and whoever comes second fills in the same. The library stays from
 * now on, since the program may keep what it looked up. */
bool nvml_load(void)
{
    static void *_Atomic loaded;
    if (loaded)
        return true;
    libc_find();
    void *library = libc_dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library) {
        nvml_fill(library);
        loaded = library;
    }
    return library != NULL;
}

/* ---- How this process sees a device ---- */

struct nvml_sight {
    uint8_t uuid[16];
    unsigned index;           /* as the program may count it */
    struct gate *gate;        /* NULL: not a device of this client */
    const struct ring *ring;  /* in which its tenant has books; NULL: there are none */
    struct onlooker onlooker; /* what `ring` is where there is no gate */
    bool shared;              /* a tenant of more than this process */
    uint64_t limit;           /* cap on that tenant, where there is no gate */
};

/* An instance is the only device that a CUDA program sees. */
static bool nvml_name(nvmlDevice_t device, struct nvml_sight *sight)
{
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    if (nvml_real.nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS ||
        cap_parse_uuid(text, sight->uuid) < 0)
        return false;
    if (text[0] == 'M')
        sight->index = 0;
    else if (nvml_real.nvmlDeviceGetIndex(device, &sight->index) != NVML_SUCCESS)
        sight->index = UINT32_MAX;
    return true;
}

static struct gate *nvml_gate(const uint8_t uuid[16])
{
    for (unsigned i = 0; i < guest.gates; i++)
        if (memcmp(guest.gate[i].uuid, uuid, sizeof guest.gate[i].uuid) == 0)
            return &guest.gate[i];
    return NULL;
}

/* The settings of a process that has not attached, read once; NULL when its caps cannot be read,
 * so that no program of its kind runs. `mine`: for a thread that comes while another reads. */
static const struct config *nvml_settings(struct config *mine)
{
    enum { NEW, BUSY, GOOD, BAD };
    static struct config kept;
    static _Atomic int state;
    int new = NEW;
    int now = atomic_load(&state);
    if (now == NEW || now == BUSY) {
        now = config_peek(mine) < 0 ? BAD : GOOD;
        if (atomic_compare_exchange_strong(&state, &new, BUSY)) {
            kept = *mine;
            atomic_store(&state, now);
        }
        return now == GOOD ? mine : NULL;
    }
    return now == GOOD ? &kept : NULL;
}

/* The tenant's own record goes before the settings here, which a process beside it may lack. One
 * that nobody is in and the administrator has not set is the next client's to change. */
static uint64_t nvml_tenant_limit(struct cuslice_tenant *tenant, uint64_t own)
{
    bool stands = !tenant_empty(tenant) ||
                  (atomic_load(&tenant->settings_by_admin) & TENANT_MEM_LIMIT) ||
                  own == CUSLICE_NO_LIMIT;
    return stands ? atomic_load(&tenant->mem_limit) : own;
}

static uint64_t nvml_lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The cap of a process that is no client here. Where there are books they get it: the onlooker has
 * a copy, and what is counted against a process's own cap is then the tenant's sum, as this process
 * has none and speaks for the others. */
static bool nvml_cap(struct nvml_sight *sight, const struct config *config, uint64_t total)
{
    uint64_t own =
        cap_resolve(&config->mem_limit, sight->index, sight->uuid, total, config->replicas);
    uint64_t process =
        cap_resolve(&config->process_mem_limit, sight->index, sight->uuid, total, config->replicas);
    struct cuslice_tenant *tenant = onlooker_tenant(&sight->onlooker);
    sight->limit = own;
    if (tenant) {
        if (!tenant_empty(tenant) && atomic_load(&tenant->mode) != CUSLICE_ENFORCE)
            return false;
        sight->ring = &sight->onlooker.ring;
        sight->limit = nvml_tenant_limit(tenant, own);
    }
    sight->limit = nvml_lower(sight->limit, process);
    if (tenant)
        atomic_store(&tenant->mem_limit, sight->limit);
    return sight->limit != CUSLICE_NO_LIMIT;
}

static bool nvml_look_outside(struct nvml_sight *sight, const struct config *config, uint64_t total)
{
    char key[CUSLICE_TEXT];
    if (!config || config->mode != CONFIG_ENFORCE)
        return false;
    sight->shared = identity_key(config, key);
    const char *tenant = sight->shared ? key : NULL;
    if (onlooker_open(&sight->onlooker, config->dir, sight->uuid, tenant) == 0) {
        uint64_t bytes = ring_shared(&sight->onlooker.ring)->device_bytes;
        total = bytes && bytes < total ? bytes : total;
    }
    return nvml_cap(sight, config, total);
}

/* False when nothing is to be changed. `total`: the device's size as far as it is known; nvml_leave
 * follows in both cases. */
static bool nvml_look(struct nvml_sight *sight, nvmlDevice_t device, uint64_t total)
{
    struct config mine;
    int state = atomic_load(&guest.state);
    bool known = state == GUEST_ATTACHED || state == GUEST_REFUSED;
    *sight = (struct nvml_sight){.onlooker.ring.segment.fd = -1};
    if (state == GUEST_OFF || state == GUEST_GONE || !nvml_name(device, sight))
        return false;
    sight->gate = state == GUEST_ATTACHED ? nvml_gate(sight->uuid) : NULL;
    if (!sight->gate)
        return nvml_look_outside(sight, known ? &guest_config : nvml_settings(&mine), total);
    sight->ring = sight->gate->ring;
    return guest.mode == CONFIG_ENFORCE &&
           nvml_lower(ledger_limit(sight->ring), sight->ring->process_limit) != CUSLICE_NO_LIMIT;
}

static void nvml_leave(struct nvml_sight *sight)
{
    onlooker_close(&sight->onlooker);
}

/* ---- Memory ---- */

/* A tenant without books uses nothing. Who is of no tenant sees the device's use under its cap. */
static void nvml_clip(const struct nvml_sight *sight, uint64_t *free, uint64_t *total)
{
    uint64_t used = sight->shared || *total < *free ? 0 : *total - *free;
    uint64_t left = sight->limit > used ? sight->limit - used : 0;
    *free = nvml_lower(*free, left);
    *total = nvml_lower(*total, sight->limit);
}

static bool nvml_mask(nvmlDevice_t device, uint64_t *free, uint64_t *total)
{
    struct nvml_sight sight;
    bool masked = nvml_look(&sight, device, *total);
    if (masked && sight.gate)
        query_mask(sight.gate, free, total);
    else if (masked && sight.ring)
        ledger_mask(sight.ring, free, total);
    else if (masked)
        nvml_clip(&sight, free, total);
    nvml_leave(&sight);
    return masked;
}

static void nvml_memory(nvmlDevice_t device, nvmlMemory_t *memory)
{
    uint64_t free = memory ? memory->free : 0, total = memory ? memory->total : 0;
    if (!memory || !nvml_mask(device, &free, &total))
        return;
    *memory = (nvmlMemory_t){.total = total, .free = free, .used = total > free ? total - free : 0};
}

/* What the device keeps for itself is no part of a cap below its size. */
static void nvml_memory_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    if (!memory || memory->version != nvmlMemory_v2)
        return;
    uint64_t free = memory->free, total = memory->total;
    if (!nvml_mask(device, &free, &total))
        return;
    if (total < memory->total)
        memory->reserved = 0;
    memory->total = total;
    memory->free = free;
    memory->used = total > free + memory->reserved ? total - free - memory->reserved : 0;
}

/* ---- Who is there ---- */

/* How the entries of all lists begin. */
struct nvml_entry {
    unsigned int pid;
    unsigned long long bytes;
};
#define NVML_SAME(type) \
    _Static_assert(offsetof(type, pid) == offsetof(struct nvml_entry, pid) && \
                       offsetof(type, usedGpuMemory) == offsetof(struct nvml_entry, bytes), \
                   "an entry's head")
NVML_SAME(nvmlProcessInfo_v1_t);
NVML_SAME(nvmlProcessInfo_t);
NVML_SAME(nvmlProcessDetail_v1_t);

static void nvml_entry(const struct ring *ring, struct nvml_entry *entry)
{
    if (entry->bytes == (unsigned long long)NVML_VALUE_NOT_AVAILABLE)
        return;
    unsigned slot = onlooker_find(ring, entry->pid);
    if (slot == CUSLICE_SLOTS)
        return;
    const struct cuslice_slot *s = &ring_shared(ring)->slot[slot];
    entry->bytes = slot_bytes(s) + atomic_load(&s->context_bytes);
}

/* Only where process ids are the host's for certain, in the list and here. */
static void nvml_list(nvmlDevice_t device, void *list, size_t stride, const unsigned int *count)
{
    struct nvml_sight sight;
    if (!list || !count || *count == 0 || !tenant_on_host(tenant_pid_namespace()))
        return;
    if (nvml_look(&sight, device, UINT64_MAX) && sight.ring)
        for (unsigned i = 0; i < *count; i++)
            nvml_entry(sight.ring, (void *)((char *)list + i * stride));
    nvml_leave(&sight);
}
#define NVML_LIST(device, list, count) nvml_list(device, list, sizeof *(list), count)

static void nvml_details(nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    if (list && list->version == nvmlProcessDetailList_v1)
        NVML_LIST(device, list->procArray, &list->numProcArrayEntries);
}

/* ---- The hooks ---- */

#define MASK(name, mask, ...) \
    nvmlReturn_t name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        nvmlReturn_t rc = nvml_real.name(PAIRS_PASS(__VA_ARGS__)); \
        int error = errno; \
        if (rc == NVML_SUCCESS) \
            mask; \
        errno = error; \
        return rc; \
    }
#include "nvml.def"
