/*
 * What clients ask for through their call slot: contexts, streams, memory, names. A request is
 * copied before it is looked at; an answer never waits for anything. Main thread only.
 */
#include <cuda.h>
#include <string.h>

#include "device.h"

struct request {
    struct client *client;
    uint64_t in[8];
    uint64_t out[4];
    char text[SIM_NAME];
};

static struct context *call_context(const struct request *r, unsigned index)
{
    uint64_t slot = r->in[index];

    if (slot >= SIM_CONTEXTS || !r->client->contexts[slot].alive)
        return NULL;
    return &r->client->contexts[slot];
}

static uint32_t call_context_create(struct request *r)
{
    return r->in[0] < SIM_CONTEXTS && r->in[1] < settings.devices
               ? context_open(r->client, (unsigned)r->in[0], (unsigned)r->in[1])
               : CUDA_ERROR_INVALID_VALUE;
}

static uint32_t call_context_destroy(struct request *r)
{
    struct context *context = call_context(r, 0);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    pool_forget(r->client, (int)context->slot);
    context_close(context, device_refresh());
    return CUDA_SUCCESS;
}

static uint32_t call_stream_open(struct request *r)
{
    if (r->in[0] >= SIM_STREAMS || r->in[1] >= SIM_CONTEXTS)
        return CUDA_ERROR_INVALID_VALUE;
    return stream_open(r->client, (unsigned)r->in[0], (unsigned)r->in[1], (int)r->in[2]);
}

static uint32_t call_stream_close(struct request *r)
{
    struct stream *stream = r->in[0] < SIM_STREAMS ? r->client->streams[r->in[0]] : NULL;

    if (!stream || !stream->open || stream->head)
        return CUDA_ERROR_INVALID_VALUE;
    stream_close(stream);
    return CUDA_SUCCESS;
}

static uint32_t call_kernel(struct request *r)
{
    int number = kernel_number(r->text);

    if (number < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r->out[0] = (uint64_t)number;
    return CUDA_SUCCESS;
}

static uint32_t call_alloc(struct request *r)
{
    if ((!call_context(r, 0) && r->in[0] != SIM_CONTEXTS) || r->in[1] >= settings.devices)
        return CUDA_ERROR_INVALID_VALUE;
    return pool_take(&devices[r->in[1]], r->client, (unsigned)r->in[0], r->in[2], r->in[3],
                     (enum alloc_kind)r->in[4], &r->out[0]);
}

static uint32_t call_free(struct request *r)
{
    return pool_put(r->client, r->in[0], &r->out[0]);
}

static uint32_t call_share(struct request *r)
{
    if (!r->in[2] && !call_context(r, 3) && r->in[3] != SIM_CONTEXTS)
        return CUDA_ERROR_INVALID_VALUE;
    return pool_share(r->client, (unsigned)r->in[3], r->in[0], r->in[1], r->in[2] != 0, r->out);
}

static uint32_t call_export(struct request *r)
{
    return export_open(r->client, r->in[0], r->in[1]);
}

static uint32_t call_adjust(struct request *r)
{
    struct context *context = call_context(r, 0);

    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    return pool_adjust(&devices[context->device], r->client, context, (int64_t)r->in[2], "adjust");
}

static uint32_t call_handed_out(struct request *r)
{
    uint64_t device = r->in[0];

    if (device >= settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    export_look();
    if (r->in[1]) {
        r->out[0] = r->client->managed[device];
        r->out[1] = r->client->resident[device];
        return CUDA_SUCCESS;
    }
    r->out[0] = r->client->bytes[device] - r->client->overhead[device];
    r->out[1] = r->client->overhead[device];
    r->out[2] = devices[device].used;
    r->out[3] = devices[device].orphaned;
    return CUDA_SUCCESS;
}

/* Events between processes: a slot is its maker's until all who opened it have closed it. */
static struct {
    unsigned holders;
} shared_event[SIM_IPC_EVENTS];
static uint64_t event_held[SIM_CLIENTS][SIM_IPC_EVENTS / 64];

static void call_event_hold(const struct client *client, unsigned slot)
{
    event_held[client->slot][slot / 64] |= UINT64_C(1) << slot % 64;
    shared_event[slot].holders++;
}

static bool call_event_drop(const struct client *client, unsigned slot)
{
    uint64_t bit = UINT64_C(1) << slot % 64;

    if (!(event_held[client->slot][slot / 64] & bit))
        return false;
    event_held[client->slot][slot / 64] &= ~bit;
    shared_event[slot].holders--;
    return true;
}

static uint32_t call_event_open(struct request *r)
{
    unsigned slot = (unsigned)r->in[0];

    if (r->in[1]) { /* somebody else's, by slot */
        if (r->in[0] >= SIM_IPC_EVENTS || !shared_event[slot].holders)
            return CUDA_ERROR_INVALID_HANDLE;
        if (event_held[r->client->slot][slot / 64] >> slot % 64 & 1)
            return CUDA_ERROR_INVALID_CONTEXT;
        call_event_hold(r->client, slot);
        return CUDA_SUCCESS;
    }
    for (slot = 0; slot < SIM_IPC_EVENTS; slot++)
        if (!shared_event[slot].holders) {
            call_event_hold(r->client, slot);
            r->out[0] = slot;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint32_t call_event_close(struct request *r)
{
    return r->in[0] < SIM_IPC_EVENTS && call_event_drop(r->client, (unsigned)r->in[0])
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_HANDLE;
}

void call_forget(const struct client *client)
{
    for (unsigned slot = 0; slot < SIM_IPC_EVENTS; slot++)
        call_event_drop(client, slot);
}

static uint32_t call_map(struct request *r)
{
    bool done = r->in[2] ? reach_map(r->client, r->in[0], r->in[1], r->in[2])
                         : reach_unmap(r->client, r->in[0]);

    return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static uint32_t call_register(struct request *r)
{
    if (!r->in[1])
        return reach_unmap(r->client, r->in[0]) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return reach_map(r->client, r->in[0], r->in[1], 0) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static uint32_t call_leave(struct request *r)
{
    client_leave(r->client);
    return CUDA_SUCCESS;
}

static uint32_t (*const calls[])(struct request *) = {
    [CALL_CONTEXT_CREATE] = call_context_create,
    [CALL_CONTEXT_DESTROY] = call_context_destroy,
    [CALL_STREAM_OPEN] = call_stream_open,
    [CALL_STREAM_CLOSE] = call_stream_close,
    [CALL_KERNEL] = call_kernel,
    [CALL_ALLOC] = call_alloc,
    [CALL_FREE] = call_free,
    [CALL_ADJUST] = call_adjust,
    [CALL_EVENT_OPEN] = call_event_open,
    [CALL_EVENT_CLOSE] = call_event_close,
    [CALL_MAP] = call_map,
    [CALL_REGISTER] = call_register,
    [CALL_SHARE] = call_share,
    [CALL_EXPORT] = call_export,
    [CALL_HANDED_OUT] = call_handed_out,
    [CALL_LEAVE] = call_leave,
};

void call_serve(struct client *client)
{
    struct call_slot *slot = &client->arena->call;
    struct request request = {.client = client};
    uint32_t op, result = CUDA_ERROR_NOT_SUPPORTED;

    if (client->dead_at || atomic_load(&slot->state) != CALL_ASKED)
        return;
    op = slot->op;
    memcpy(request.in, slot->in, sizeof(request.in));
    memcpy(request.text, slot->text, sizeof(request.text));
    request.text[SIM_NAME - 1] = 0;
    if (op < sizeof(calls) / sizeof(calls[0]) && calls[op])
        result = calls[op](&request);
    memcpy(slot->out, request.out, sizeof(request.out));
    slot->result = (int32_t)result;
    atomic_store(&slot->state, CALL_ANSWERED);
    if (atomic_load(&slot->waiting))
        util_futex_wake(&slot->state, 1);
}
