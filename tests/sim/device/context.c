/*
 * Contexts: their beginning, their end, and their faults. A fault ends what is under way in its own
 * context and stays with it; the loss of a device is a fault of every context on it. Main thread
 * only.
 */
#include <cuda.h>
#include <string.h>

#include "device.h"

uint32_t context_open(struct client *client, unsigned slot, unsigned device)
{
    struct context *context;
    struct context **at;
    uint32_t lost, result;

    if (slot >= SIM_CONTEXTS || device >= settings.devices || client->contexts[slot].alive)
        return CUDA_ERROR_INVALID_VALUE;
    lost = atomic_load(&devices[device].shared->lost);
    if (lost)
        return lost;
    context = &client->contexts[slot];
    memset(context, 0, sizeof(*context));
    context->client = client;
    context->slot = slot;
    context->device = device;
    context->engine = &devices[device].engine;
    result =
        pool_adjust(&devices[device], client, context, (int64_t)settings.context_bytes, "context");
    if (result)
        return result;
    context->alive = true;
    atomic_store(&client->arena->error[slot], 0);
    for (at = &context->engine->contexts; *at; at = &(*at)->next)
        ;
    *at = context;
    return CUDA_SUCCESS;
}

static void context_unlink(struct context *context)
{
    struct context **at = &context->engine->contexts;

    while (*at && *at != context)
        at = &(*at)->next;
    if (*at)
        *at = context->next;
}

void context_close(struct context *context, uint64_t t)
{
    context->alive = false;
    context->error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    engine_drop_context(context, t);
    copier_drop_context(context, t);
    for (struct stream *s = context->streams, *next; s; s = next) {
        next = s->next;
        stream_drain(s);
        s->open = false;
    }
    context->streams = NULL;
    context_unlink(context);
    if (context->bytes)
        pool_adjust(&devices[context->device], context->client, context, -(int64_t)context->bytes,
                    "context-end");
}

void context_fail(struct context *context, uint32_t error, const char *name, uint64_t t)
{
    if (context->error)
        return;
    context->error = error;
    trace_fault(context->client, context->device, name, error, t);
    atomic_store(&context->client->arena->error[context->slot], error);
    engine_drop_context(context, t);
    copier_drop_context(context, t);
    for (struct stream *s = context->streams; s; s = s->next)
        stream_drain(s);
}

void context_lose_device(struct device *device, const char *name, uint64_t t)
{
    struct context *next;

    atomic_store(&device->shared->lost, CUDA_ERROR_DEVICE_UNAVAILABLE);
    for (struct context *c = device->engine.contexts; c; c = next) {
        next = c->next;
        context_fail(c, CUDA_ERROR_LAUNCH_FAILED, name, t);
    }
}
