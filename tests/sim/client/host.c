/*
 * Host memory that the device reaches: pinned memory and the driver's own blocks come from the
 * shared part of the arena (first fit, page grain, freed pages go back to the system); registered
 * memory stays where it is and the device reads and writes it through this process. One lock.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "capture.h"
#include "core.h"

enum { PAGE = 4096 };

/* A used or free stretch of the pinned part, in order of address. */
struct span {
    struct span *next;
    uint64_t offset, bytes;
    bool used;
};

struct later {
    struct later *next;
    void *address;
    const struct stream_shared *shared;
    uint64_t seq;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct span *spans;
static struct later *laters;

/* --- the shared heap --- */

static bool host_split(struct span *span, uint64_t bytes)
{
    struct span *rest;

    if (span->bytes == bytes)
        return true;
    rest = calloc(1, sizeof(*rest));
    if (!rest)
        return false;
    rest->offset = span->offset + bytes;
    rest->bytes = span->bytes - bytes;
    rest->next = span->next;
    span->next = rest;
    span->bytes = bytes;
    return true;
}

static bool host_open(void)
{
    if (!spans) {
        spans = calloc(1, sizeof(*spans));
        if (spans)
            spans->bytes = SIM_PINNED;
    }
    return spans != NULL;
}

static void host_put_done(void);

void *shared_take(uint64_t bytes)
{
    void *address = NULL;

    if (!bytes || bytes > SIM_PINNED)
        return NULL;
    bytes = SIM_ALIGN(bytes, PAGE);
    pthread_mutex_lock(&lock);
    host_put_done();
    for (struct span *s = host_open() ? spans : NULL; s && !address; s = s->next)
        if (!s->used && s->bytes >= bytes && host_split(s, bytes)) {
            s->used = true;
            address = sim.arena_base + ARENA_PINNED + s->offset;
        }
    pthread_mutex_unlock(&lock);
    return address;
}

static void host_join(struct span *span)
{
    struct span *next = span->next;

    if (!next || span->used || next->used)
        return;
    span->bytes += next->bytes;
    span->next = next->next;
    free(next);
}

/* Under the lock. Contents are gone: pages come back as zeros. */
static void host_free(void *address)
{
    uint64_t offset = (uint64_t)((unsigned char *)address - sim.arena_base) - ARENA_PINNED;
    struct span *before = NULL;

    for (struct span *s = spans; s; before = s, s = s->next) {
        if (s->offset != offset || !s->used)
            continue;
        madvise(address, s->bytes, MADV_REMOVE);
        s->used = false;
        host_join(s);
        if (before)
            host_join(before);
        return;
    }
}

static void host_put_done(void)
{
    for (struct later **at = &laters; *at;) {
        struct later *l = *at;

        if (atomic_load(&l->shared->completed) >= l->seq) {
            *at = l->next;
            host_free(l->address);
            free(l);
        } else {
            at = &l->next;
        }
    }
}

void shared_put(void *address)
{
    pthread_mutex_lock(&lock);
    host_free(address);
    pthread_mutex_unlock(&lock);
}

void shared_put_later(void *address, struct stream *stream, uint64_t seq)
{
    struct later *later = malloc(sizeof(*later));

    if (!later) {
        wait_stream(stream, seq);
        shared_put(address);
        return;
    }
    later->address = address;
    later->shared = stream->shared;
    later->seq = seq;
    pthread_mutex_lock(&lock);
    later->next = laters;
    laters = later;
    pthread_mutex_unlock(&lock);
}

/* --- staging blocks --- */

static struct {
    bool taken;
    const struct stream_shared *shared;
    uint64_t seq;
} stages[SIM_STAGES];
static pthread_mutex_t stage_lock = PTHREAD_MUTEX_INITIALIZER;

unsigned char *stage_take(void)
{
    unsigned char *stage = NULL;

    pthread_mutex_lock(&stage_lock);
    for (unsigned i = 0; i < SIM_STAGES && !stage; i++) {
        if (stages[i].taken &&
            (!stages[i].shared || atomic_load(&stages[i].shared->completed) < stages[i].seq))
            continue;
        stages[i].taken = true;
        stages[i].shared = NULL;
        stage = sim.arena_base + ARENA_STAGES + (uint64_t)i * SIM_STAGE;
    }
    pthread_mutex_unlock(&stage_lock);
    return stage;
}

void stage_give(unsigned char *stage, struct stream *stream, uint64_t seq)
{
    uint64_t i = (uint64_t)(stage - sim.arena_base - ARENA_STAGES) / SIM_STAGE;

    pthread_mutex_lock(&stage_lock);
    stages[i].shared = stream ? stream->shared : NULL;
    stages[i].seq = seq;
    stages[i].taken = stream != NULL;
    pthread_mutex_unlock(&stage_lock);
}

/* --- pinned memory --- */

#define HOST_FLAGS \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)

static CUresult host_enter(struct context **context)
{
    CUresult result = sim_enter(context);

    if (!result && capture_active())
        result = capture_check_unsafe();
    return result;
}

static CUresult host_alloc(void **out, size_t bytes, unsigned flags)
{
    struct region region = {.bytes = bytes, .kind = REGION_PINNED, .flags = flags};
    CUresult result = host_enter(&region.context);
    void *address;

    if (!result && (!out || !bytes || (flags & ~(unsigned)HOST_FLAGS)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    address = shared_take(bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    region.address = (uint64_t)(uintptr_t)address;
    region.device = region.context->device;
    result = region_add(&region);
    if (result)
        shared_put(address);
    else
        *out = address;
    return result;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned Flags)
{
    ENTRY();
    return host_alloc(pp, bytesize, Flags);
}

CUresult cuMemAllocHost(void **pp, unsigned bytesize)
{
    ENTRY();
    return host_alloc(pp, bytesize, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    ENTRY();
    return host_alloc(pp, bytesize, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void *p)
{
    struct context *context;
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (result || !p)
        return result;
    if (!region_find((uint64_t)(uintptr_t)p, &region) || region.kind != REGION_PINNED ||
        region.address != (uint64_t)(uintptr_t)p)
        return CUDA_ERROR_INVALID_VALUE;
    context = region.context;
    if (atomic_load(&context->alive) && context_wait(context) == START_DEVICE_GONE)
        return START_DEVICE_GONE;
    region_remove(region.address, NULL);
    shared_put(p);
    return CUDA_SUCCESS;
}

/* --- registered memory --- */

static CUresult host_register(void *p, size_t bytes, unsigned flags)
{
    struct region region = {.bytes = bytes, .kind = REGION_REGISTERED, .flags = flags}, known;
    uint64_t in[] = {(uint64_t)(uintptr_t)p, bytes};
    CUresult result = host_enter(&region.context);

    if (!result && (!p || !bytes || (flags & ~15u)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (region_find(in[0], &known) || region_find(in[0] + bytes - 1, &known)))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!result)
        result = call_device(CALL_REGISTER, in, 2, NULL, NULL);
    if (result)
        return result;
    region.address = in[0];
    region.device = region.context->device;
    result = region_add(&region);
    if (result) {
        in[1] = 0;
        call_device(CALL_REGISTER, in, 2, NULL, NULL);
    }
    return result;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned Flags)
{
    ENTRY();
    return host_register(p, bytesize, Flags);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned Flags)
{
    ENTRY();
    return host_register(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
    uint64_t in[] = {(uint64_t)(uintptr_t)p, 0};
    struct region region;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (result)
        return result;
    if (!region_find(in[0], &region) || region.kind != REGION_REGISTERED || region.address != in[0])
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (atomic_load(&region.context->alive))
        context_wait(region.context);
    region_remove(in[0], NULL);
    return call_device(CALL_REGISTER, in, 2, NULL, NULL);
}

static CUresult host_region(const void *p, struct region *region)
{
    CUresult result = sim_check();

    if (!result && (!region_find((uint64_t)(uintptr_t)p, region) ||
                    (region->kind != REGION_PINNED && region->kind != REGION_REGISTERED)))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned Flags)
{
    struct region region;
    CUresult result;

    ENTRY();
    result = host_region(p, &region);
    if (!result && (!pdptr || Flags))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *pdptr = (CUdeviceptr)(uintptr_t)p;
    return result;
}

CUresult cuMemHostGetFlags(unsigned *pFlags, void *p)
{
    struct region region;
    CUresult result;

    ENTRY();
    result = host_region(p, &region);
    if (!result && (!pFlags || region.kind != REGION_PINNED))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *pFlags = region.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return result;
}
