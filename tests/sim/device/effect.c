/*
 * What commands take and do: durations, and what they leave in memory. Everything that a command
 * names comes from a client and is checked; an address that cannot be reached is a fault of its
 * context. Main thread only; blocks above LARGE go to the worker while their time passes.
 */
#include <cuda.h>
#include <string.h>

#include "device.h"

#define LARGE UINT64_C(65536)
#define ROWS_MOST (UINT64_C(1) << 22)

static bool effect_param(const struct item *item, unsigned index, void *to, uint32_t bytes)
{
    const struct {
        uint32_t offset, bytes;
    } *layout = (const void *)(item->data + item->c.deps * sizeof(struct dependency));
    uint64_t table = (uint64_t)item->c.launch.param_count * sizeof(*layout);

    if (index >= item->c.launch.param_count || table > item->c.payload ||
        layout[index].bytes != bytes || layout[index].offset > item->c.payload - table ||
        item->c.payload - table - layout[index].offset < bytes)
        return false;
    memcpy(to, (const unsigned char *)layout + table + layout[index].offset, bytes);
    return true;
}

static uint64_t effect_transfer(uint64_t bytes, uint64_t rate)
{
    return settings.copy_latency + (uint64_t)((double)bytes * 1e9 / (double)rate);
}

static uint64_t effect_kernel_duration(const struct item *item)
{
    uint64_t ns;

    if (item->kernel->timed)
        return item->kernel->duration;
    if (item->kernel->effect == EFFECT_SPIN)
        return effect_param(item, 0, &ns, sizeof(ns)) ? ns : 0;
    if (item->kernel->effect == EFFECT_WAIT)
        return UTIL_NEVER;
    return item->kernel->duration;
}

/* What is there already does not move. */
static uint64_t effect_prefetch_time(const struct item *item)
{
    const struct client *client = item->stream->client;
    unsigned device = item->stream->context->device;
    uint64_t there = client->resident[device], moving = item->c.copy.width;

    if (item->c.copy.direction == COPY_HTOD)
        there = client->managed[device] - there;
    return paging_time(moving < there ? moving : there);
}

static void effect_prefetch(const struct item *item)
{
    struct context *context = item->stream->context;

    if (item->c.copy.direction == COPY_HTOD)
        paging_bring(&devices[context->device], context->client, item->c.copy.width, device_now());
    else
        paging_send_away(&devices[context->device], context->client, item->c.copy.width);
}

uint64_t effect_duration(const struct item *item)
{
    const struct command_copy *copy = &item->c.copy;

    switch (item->c.kind) {
    case COMMAND_KERNEL:
        return effect_kernel_duration(item);
    case COMMAND_MEMSET:
        return effect_transfer(item->c.memset.width * item->c.memset.element *
                                   item->c.memset.height,
                               settings.memory_rate);
    case COMMAND_COPY:
        if (copy->prefetch)
            return effect_prefetch_time(item);
        return effect_transfer(copy->width * copy->height * copy->depth,
                               copy->direction == COPY_DTOD ? settings.memory_rate / 2 + 1
                                                            : settings.copy_rate);
    default:
        return 0;
    }
}

static bool effect_linear(const struct command_copy *copy)
{
    return copy->height == 1 && copy->depth == 1;
}

void effect_begin(struct item *item)
{
    const struct client *client = item->stream->client;
    const struct command_copy *copy = &item->c.copy;
    const struct command_memset *set = &item->c.memset;

    if (item->c.kind == COMMAND_COPY && effect_linear(copy) && copy->width > LARGE && copy->to &&
        copy->from) {
        void *to = reach_direct(client, copy->to, copy->width);
        void *from = reach_direct(client, copy->from, copy->width);

        if (to && from)
            item->job = worker_copy(to, from, copy->width);
    } else if (item->c.kind == COMMAND_MEMSET && set->height == 1 && set->width > LARGE &&
               set->width < (UINT64_C(1) << 46)) {
        void *to = reach_direct(client, set->to, set->width * set->element);

        if (to)
            item->job = worker_fill(to, set->width, set->value, set->element);
    }
}

bool effect_over(const struct item *item)
{
    return !item->job || worker_done(item->job);
}

static uint32_t effect_copy(const struct item *item)
{
    const struct command_copy *copy = &item->c.copy;
    const struct client *client = item->stream->client;

    if (!copy->to || !copy->from)
        return CUDA_SUCCESS;
    if (copy->height > ROWS_MOST || copy->depth > ROWS_MOST ||
        copy->height * copy->depth > ROWS_MOST)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++)
            if (!reach_copy(client, copy->to + z * copy->to_slice + y * copy->to_pitch,
                            copy->from + z * copy->from_slice + y * copy->from_pitch, copy->width))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
}

static void effect_fill(void *to, uint64_t count, uint32_t value, uint32_t element)
{
    if (element == 1)
        memset(to, (int)value, count);
    else if (element == 2)
        for (uint64_t i = 0; i < count; i++)
            memcpy((char *)to + i * 2, &(uint16_t){(uint16_t)value}, 2);
    else
        for (uint64_t i = 0; i < count; i++)
            memcpy((char *)to + i * 4, &value, 4);
}

/* A range may go over several mappings. */
static uint32_t effect_fill_range(const struct client *client, uint64_t address, uint64_t count,
                                  uint32_t value, uint32_t element)
{
    uint64_t bytes = count * element;

    while (bytes) {
        void *to;
        uint64_t n = reach_piece(client, address, bytes, &to);

        if (!n || !to || n % element)
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        effect_fill(to, n / element, value, element);
        address += n;
        bytes -= n;
    }
    return CUDA_SUCCESS;
}

static uint32_t effect_memset(const struct item *item)
{
    const struct command_memset *set = &item->c.memset;

    if (set->height > ROWS_MOST || set->width >= (UINT64_C(1) << 46))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t y = 0; y < set->height; y++) {
        uint32_t error = effect_fill_range(item->stream->client, set->to + y * set->pitch,
                                           set->width, set->value, set->element);

        if (error)
            return error;
    }
    return CUDA_SUCCESS;
}

static uint32_t effect_kernel_fill(const struct item *item, uint64_t address, uint32_t value)
{
    uint64_t count;

    if (!effect_param(item, 2, &count, sizeof(count)) || count >= (UINT64_C(1) << 46))
        return CUDA_ERROR_LAUNCH_FAILED;
    return effect_fill_range(item->stream->client, address, count, value, 4);
}

static uint32_t effect_kernel(const struct item *item)
{
    const struct client *client = item->stream->client;
    uint64_t address;
    uint32_t value, old;

    if (item->kernel->effect < EFFECT_SET)
        return CUDA_SUCCESS;
    if (!effect_param(item, 0, &address, sizeof(address)) ||
        !effect_param(item, 1, &value, sizeof(value)))
        return CUDA_ERROR_LAUNCH_FAILED;
    if (item->kernel->effect == EFFECT_FILL)
        return effect_kernel_fill(item, address, value);
    if (address & 3)
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    if (item->kernel->effect == EFFECT_ADD) {
        if (!reach_read(client, address, &old, sizeof(old)))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        value += old;
    }
    return reach_write(client, address, &value, sizeof(value)) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_ILLEGAL_ADDRESS;
}

uint32_t effect_finish(struct item *item)
{
    if (item->job)
        return CUDA_SUCCESS;
    switch (item->c.kind) {
    case COMMAND_KERNEL:
        return effect_kernel(item);
    case COMMAND_MEMSET:
        return effect_memset(item);
    case COMMAND_COPY:
        if (item->c.copy.prefetch)
            effect_prefetch(item);
        return effect_copy(item);
    default:
        return CUDA_SUCCESS;
    }
}

bool effect_flag(struct item *item, uint32_t *error)
{
    uint64_t address;
    uint32_t value, seen;

    *error = CUDA_SUCCESS;
    if (!effect_param(item, 0, &address, sizeof(address)) ||
        !effect_param(item, 1, &value, sizeof(value)))
        *error = CUDA_ERROR_LAUNCH_FAILED;
    else if (!reach_read(item->stream->client, address, &seen, sizeof(seen)))
        *error = CUDA_ERROR_ILLEGAL_ADDRESS;
    else
        return seen >= value;
    return true;
}

bool effect_value(const struct item *item, uint32_t *error)
{
    const struct command_value *wait = &item->c.value;
    uint64_t seen = 0, mask = wait->bytes == 8 ? UINT64_MAX : UINT32_MAX;

    *error = CUDA_SUCCESS;
    if ((wait->bytes != 4 && wait->bytes != 8) ||
        !reach_read(item->stream->client, wait->address, &seen, wait->bytes)) {
        *error = CUDA_ERROR_ILLEGAL_ADDRESS;
        return true;
    }
    switch (wait->operation) {
    case VALUE_EQ:
        return seen == (wait->value & mask);
    case VALUE_AND:
        return (seen & wait->value & mask) != 0;
    case VALUE_NOR:
        return (~(seen | wait->value) & mask) != 0;
    default:
        return wait->bytes == 8 ? (int64_t)(seen - wait->value) >= 0
                                : (int32_t)((uint32_t)seen - (uint32_t)wait->value) >= 0;
    }
}

uint32_t effect_write(const struct item *item)
{
    const struct command_value *value = &item->c.value;
    void *to = value->bytes == 4 || value->bytes == 8
                   ? reach_direct(item->stream->client, value->address, value->bytes)
                   : NULL;

    if (to && !(value->address % value->bytes)) {
        if (value->bytes == 4)
            __atomic_store_n((uint32_t *)to, (uint32_t)value->value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint64_t *)to, value->value, __ATOMIC_RELEASE);
        return CUDA_SUCCESS;
    }
    if ((value->bytes == 4 || value->bytes == 8) &&
        reach_write(item->stream->client, value->address, &value->value, value->bytes))
        return CUDA_SUCCESS;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}
