/*
 * Device memory: who has which block of it, and what counts without an address (contexts, loaded
 * code). First fit in blocks ordered by address, one list per device, a hash for look-ups by
 * address. A block may have several holders (memory shared between processes): it is free when the
 * last one is gone, but it counts for the client that made it only; when that one has let go and
 * others still hold it, it is orphaned: in use on the device, and nobody's. Main thread only.
 */
#include <cuda.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"

enum { BUCKETS = 65536, GRAIN = 512, DISCARD_LEAST = 65536, DISCARD_ASIDE = 16 << 20 };

struct holder {
    struct holder *next;
    struct client *client; /* NULL: a descriptor */
    unsigned context;
};

struct block {
    uint64_t address, bytes;
    bool taken;
    struct block *before, *after;          /* by address */
    struct block *free_next, *free_before; /* free ones, in no order */
    struct block *chain;                   /* hash of taken ones */
    struct client *owner;                  /* NULL: its maker is gone */
    uint64_t serial;                       /* no two allocations have the same */
    unsigned device;
    enum alloc_kind kind;
    unsigned ticket; /* of the worker that discards it */
    struct holder *holders;
};

static struct block *buckets[BUCKETS];
static uint64_t last_serial;

static struct block **pool_bucket(uint64_t address)
{
    return &buckets[(address / GRAIN * UINT64_C(0x9e3779b97f4a7c15)) >> 48];
}

static void pool_list_free(struct device *device, struct block *block)
{
    block->taken = false;
    block->free_before = NULL;
    block->free_next = device->free;
    if (device->free)
        device->free->free_before = block;
    device->free = block;
}

static void pool_unlist_free(struct device *device, struct block *block)
{
    if (block->free_before)
        block->free_before->free_next = block->free_next;
    else
        device->free = block->free_next;
    if (block->free_next)
        block->free_next->free_before = block->free_before;
}

int pool_open(struct device *device)
{
    struct block *block = calloc(1, sizeof(*block));

    if (!block)
        return -ENOMEM;
    block->address = board->memory_base + device->ordinal * board->memory_stride;
    block->bytes = board->memory_stride;
    block->device = device->ordinal;
    device->first = block;
    pool_list_free(device, block);
    return 0;
}

static void pool_charge(struct client *client, unsigned device, bool overhead, int64_t bytes)
{
    client->bytes[device] += (uint64_t)bytes;
    if (overhead)
        client->overhead[device] += (uint64_t)bytes;
}

static void pool_count(struct device *device, struct client *client, bool overhead, int64_t bytes)
{
    device->used += (uint64_t)bytes;
    if (client)
        pool_charge(client, device->ordinal, overhead, bytes);
    else
        device->orphaned += (uint64_t)bytes;
    atomic_store_explicit(&device->shared->used, device->used, memory_order_release);
}

void pool_page(struct device *device, struct client *client, int64_t bytes)
{
    if (!bytes)
        return;
    client->resident[device->ordinal] += (uint64_t)bytes;
    pool_count(device, client, false, bytes);
    trace_memory(client, device->ordinal, bytes > 0 ? "page-in" : "page-out",
                 (uint64_t)(bytes > 0 ? bytes : -bytes));
}

static bool pool_fits(struct device *device, uint64_t bytes)
{
    if (bytes > device->total)
        return false;
    if (device->used > device->total - bytes)
        export_look();
    if (device->used > device->total - bytes)
        paging_make_room(device, bytes);
    return device->used <= device->total - bytes;
}

static bool pool_is_paged(enum alloc_kind kind)
{
    return kind == ALLOC_MANAGED && settings.paging;
}

/* Modules' variables, where code is told to take no memory; nobody can hold them but their maker.
 */
static bool pool_is_free_of_charge(enum alloc_kind kind)
{
    return kind == ALLOC_MODULE && !settings.code;
}

/* Cuts `bytes` off the front of a free block that starts aligned; the rest stays free. */
static struct block *pool_cut(struct device *device, struct block *block, uint64_t bytes)
{
    struct block *rest;

    if (block->bytes == bytes)
        return block;
    rest = calloc(1, sizeof(*rest));
    if (!rest)
        return NULL;
    rest->address = block->address + bytes;
    rest->bytes = block->bytes - bytes;
    rest->device = block->device;
    rest->before = block;
    rest->after = block->after;
    if (rest->after)
        rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    pool_list_free(device, rest);
    return block;
}

/* Joins a block with the free one behind it. */
static void pool_join(struct device *device, struct block *block)
{
    struct block *after = block->after;

    pool_unlist_free(device, after);
    block->bytes += after->bytes;
    block->after = after->after;
    if (block->after)
        block->after->before = block;
    free(after);
}

static void pool_make_free(struct device *device, struct block *block)
{
    pool_list_free(device, block);
    if (block->after && !block->after->taken)
        pool_join(device, block);
    if (block->before && !block->before->taken)
        pool_join(device, block->before);
}

/* Blocks that the worker is through with can be taken again. */
static void pool_reap(struct device *device)
{
    for (struct block **at = &device->discarding; *at;) {
        struct block *block = *at;

        if (!worker_done(block->ticket)) {
            at = &block->free_next;
            continue;
        }
        *at = block->free_next;
        pool_make_free(device, block);
    }
}

static struct block *pool_find_free(struct device *device, uint64_t bytes, uint64_t alignment)
{
    for (struct block *b = device->free; b; b = b->free_next) {
        uint64_t skip = SIM_ALIGN(b->address, alignment) - b->address;

        if (b->bytes < bytes || b->bytes - bytes < skip)
            continue;
        if (!skip)
            return b;
        if (!pool_cut(device, b, skip))
            return NULL;
        return b->after;
    }
    return NULL;
}

/* What fits is found: if need be the worker's discarding is waited for. */
static struct block *pool_choose(struct device *device, uint64_t bytes, uint64_t alignment)
{
    struct block *block;

    pool_reap(device);
    block = pool_find_free(device, bytes, alignment);
    if (!block && device->discarding) {
        worker_settle();
        pool_reap(device);
        block = pool_find_free(device, bytes, alignment);
    }
    return block;
}

static bool pool_hold(struct block *block, struct client *client, unsigned context)
{
    struct holder *holder = calloc(1, sizeof(*holder));

    if (!holder)
        return false;
    holder->client = client;
    holder->context = context;
    holder->next = block->holders;
    block->holders = holder;
    if (client)
        client->holdings++;
    return true;
}

uint32_t pool_take(struct device *device, struct client *client, unsigned context, uint64_t bytes,
                   uint64_t alignment, enum alloc_kind kind, uint64_t *address)
{
    struct block *block;

    if (!bytes || bytes > (pool_is_paged(kind) ? board->memory_stride : device->total) ||
        alignment > (UINT64_C(1) << 30) || (alignment & (alignment - 1)))
        return bytes > device->total ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    bytes = SIM_ALIGN(bytes, GRAIN);
    if (!pool_is_paged(kind) && !pool_fits(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    block = pool_choose(device, bytes, alignment < GRAIN ? GRAIN : alignment);
    if (!block || !pool_cut(device, block, bytes) || !pool_hold(block, client, context))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool_unlist_free(device, block);
    block->taken = true;
    block->owner = client;
    block->kind = kind;
    block->serial = ++last_serial;
    block->chain = *pool_bucket(block->address);
    *pool_bucket(block->address) = block;
    if (pool_is_paged(kind))
        paging_add(client, device->ordinal, bytes);
    else if (!pool_is_free_of_charge(kind))
        pool_count(device, client, kind == ALLOC_MODULE, (int64_t)bytes);
    trace_memory(client, device->ordinal, "alloc", bytes);
    *address = block->address;
    return CUDA_SUCCESS;
}

/* Whether a range of device memory has real memory behind it at all. */
static bool pool_touched(uint64_t start, uint64_t end)
{
    off_t from = (off_t)(start - board->memory_base);
    off_t data = lseek(area_memory_fd(), from, SEEK_DATA);

    return data >= 0 && data < (off_t)(end - board->memory_base);
}

/* Gives a freed block's real memory back; what it held is gone. False: the worker is at it. */
static bool pool_discard(struct device *device, struct block *block)
{
    uint64_t start = SIM_ALIGN(block->address, 4096);
    uint64_t end = (block->address + block->bytes) & ~UINT64_C(4095);

    if (block->bytes < DISCARD_LEAST || !pool_touched(start, end))
        return true;
    block->ticket =
        block->bytes < DISCARD_ASIDE ? 0 : worker_discard((void *)(uintptr_t)start, end - start);
    if (!block->ticket) {
        madvise((void *)(uintptr_t)start, end - start, MADV_REMOVE);
        return true;
    }
    block->free_next = device->discarding;
    device->discarding = block;
    return false;
}

static void pool_release(struct block *block)
{
    struct device *device = &devices[block->device];
    struct block **at = pool_bucket(block->address);

    while (*at != block)
        at = &(*at)->chain;
    *at = block->chain;
    if (pool_is_paged(block->kind))
        paging_remove(block->owner, block->device, block->bytes);
    else if (!pool_is_free_of_charge(block->kind))
        pool_count(device, block->owner, block->kind == ALLOC_MODULE, -(int64_t)block->bytes);
    block->owner = NULL;
    if (pool_discard(device, block))
        pool_make_free(device, block);
}

static struct block *pool_find(uint64_t address)
{
    struct block *block = *pool_bucket(address);

    while (block && block->address != address)
        block = block->chain;
    return block;
}

static struct holder **pool_holder(struct block *block, const struct client *client, int context)
{
    struct holder **at = &block->holders;

    while (*at &&
           ((*at)->client != client || (context >= 0 && (*at)->context != (unsigned)context)))
        at = &(*at)->next;
    return *at ? at : NULL;
}

/* One holder less; the last one frees the block (true). What its maker has let go and others still
 * hold becomes an orphan. */
static bool pool_drop(struct block *block, struct client *client, int context)
{
    struct holder **at = pool_holder(block, client, context);
    struct holder *holder = *at;

    *at = holder->next;
    free(holder);
    client->holdings--;
    if (!block->holders) {
        pool_release(block);
        return true;
    }
    if (block->owner == client && !pool_holder(block, client, -1)) {
        pool_charge(client, block->device, block->kind == ALLOC_MODULE, -(int64_t)block->bytes);
        devices[block->device].orphaned += block->bytes;
        block->owner = NULL;
        trace_memory(client, block->device, "orphan", block->bytes);
    }
    return false;
}

uint32_t pool_put(struct client *client, uint64_t address, uint64_t *bytes)
{
    struct block *block = pool_find(address);
    unsigned device;
    uint64_t size;

    if (!block || !pool_holder(block, client, -1))
        return CUDA_ERROR_INVALID_VALUE;
    size = block->bytes;
    device = block->device;
    if (pool_drop(block, client, -1))
        trace_memory(client, device, "free", size);
    *bytes = size;
    return CUDA_SUCCESS;
}

uint32_t pool_share(struct client *client, unsigned context, uint64_t address, uint64_t serial,
                    bool ask, uint64_t out[2])
{
    struct block *block = pool_find(address);

    if (!block || (!ask && block->serial != serial))
        return CUDA_ERROR_INVALID_VALUE;
    if (!ask && !pool_hold(block, client, context))
        return CUDA_ERROR_OUT_OF_MEMORY;
    out[0] = block->bytes;
    out[1] = block->serial;
    return CUDA_SUCCESS;
}

uint32_t pool_adjust(struct device *device, struct client *client, struct context *context,
                     int64_t bytes, const char *what)
{
    if (bytes > 0 && !pool_fits(device, (uint64_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes < 0 && (uint64_t)-bytes > context->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    context->bytes += (uint64_t)bytes;
    pool_count(device, client, true, bytes);
    trace_memory(client, device->ordinal, what, (uint64_t)(bytes < 0 ? -bytes : bytes));
    return CUDA_SUCCESS;
}

bool pool_hold_alone(uint64_t address)
{
    struct block *block = pool_find(address);

    return block && pool_hold(block, NULL, 0);
}

void pool_drop_alone(uint64_t address)
{
    struct block *block = pool_find(address);
    struct holder **at = block ? pool_holder(block, NULL, -1) : NULL;
    struct holder *holder = at ? *at : NULL;
    uint64_t bytes;
    unsigned device;

    if (!holder)
        return;
    *at = holder->next;
    free(holder);
    if (block->holders)
        return;
    bytes = block->bytes;
    device = block->device;
    pool_release(block);
    trace_memory(NULL, device, "free", bytes);
}

static void pool_forget_block(struct block *block, struct client *client, int context)
{
    while (pool_holder(block, client, context))
        if (pool_drop(block, client, context))
            return;
}

void pool_forget(struct client *client, int context)
{
    for (unsigned i = 0; i < BUCKETS && client->holdings; i++)
        for (struct block *b = buckets[i], *next; b; b = next) {
            next = b->chain;
            pool_forget_block(b, client, context);
        }
}
