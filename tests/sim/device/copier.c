/*
 * A copy engine: one block of bytes after another, in the order in which they became ready, for all
 * contexts of the device alike and beside its compute engine. Main thread only.
 */
#include <cuda.h>

#include "device.h"

static struct copier *copier_of(const struct item *item)
{
    struct device *device = &devices[item->stream->context->device];

    return &device->copier[item->c.copy.direction == COPY_HTOD ? 0 : 1];
}

void copier_queue(struct item *item)
{
    struct copier *copier = copier_of(item);
    struct item **at = &copier->queued;

    while (*at && (*at)->ready <= item->ready)
        at = &(*at)->queue_next;
    item->queue_next = *at;
    *at = item;
}

uint64_t copier_next(const struct copier *copier)
{
    uint64_t start;

    if (copier->current)
        return copier->end;
    if (!copier->queued)
        return UTIL_NEVER;
    start = copier->queued->ready;
    return start > copier->free_at ? start : copier->free_at;
}

static void copier_start(struct copier *copier, uint64_t t)
{
    struct item *item = copier->queued;

    copier->queued = item->queue_next;
    copier->current = item;
    item->begun = item->since = t;
    copier->end = t + item->remaining;
    effect_begin(item);
}

static void copier_finish(struct copier *copier, uint64_t t)
{
    struct item *item = copier->current;
    uint32_t error;

    if (!effect_over(item)) {
        copier->end = t + 10000;
        return;
    }
    copier->current = NULL;
    copier->free_at = t;
    trace_stretch(item, item->since, t, true);
    error = effect_finish(item);
    if (error)
        context_fail(item->stream->context, error, "copy", t);
    else
        stream_complete(item->stream, t);
}

void copier_step(struct copier *copier, uint64_t t)
{
    if (copier->current && copier->end <= t)
        copier_finish(copier, t);
    if (!copier->current && copier->queued && copier->queued->ready <= t)
        copier_start(copier, t);
}

void copier_drop_context(const struct context *context, uint64_t t)
{
    for (unsigned i = 0; i < 2; i++) {
        struct copier *copier = &devices[context->device].copier[i];

        for (struct item **at = &copier->queued; *at;)
            if ((*at)->stream->context == context)
                *at = (*at)->queue_next;
            else
                at = &(*at)->queue_next;
        if (copier->current && copier->current->stream->context == context) {
            struct item *item = copier->current;

            trace_stretch(item, item->since, t > item->since ? t : item->since, true);
            copier->current = NULL;
            copier->free_at = t;
        }
    }
}
