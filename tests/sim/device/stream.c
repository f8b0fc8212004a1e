/*
 * Streams on the device's side: taking commands from the ring, starting each when what came before
 * it is done, publishing what got done. A ring is written by a client that may be dead, stopped or
 * out of its mind: a record is copied first and believed never. Main thread only.
 *
 * A stream whose head waits for something outside itself (another stream, another process's event,
 * a word in memory, room among the host functions) is on the waiting list, which stream_settle goes
 * through until nothing moves.
 */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

#define POLL_LEAST UINT64_C(10000)
#define POLL_MOST UINT64_C(200000)
enum { PREFIX = 16 };

static struct stream *waiting;
static bool moved; /* something completed since the waiting list was last looked at */

static void stream_advance(struct stream *stream);

/* --- taking commands --- */

static void stream_append(struct stream *stream, struct item *item)
{
    if (stream->last)
        stream->last->next = item;
    else
        stream->head = item;
    stream->last = item;
}

/* Makes an item of a record whose `bytes` lie inside known memory. NULL: it makes no sense. */
static struct item *stream_item(struct stream *stream, const unsigned char *record, uint32_t bytes)
{
    struct wire_command c;
    struct item *item;
    uint64_t extra;

    if (bytes < sizeof(c))
        return NULL;
    memcpy(&c, record, sizeof(c));
    extra = (uint64_t)c.deps * sizeof(struct dependency) + c.payload;
    if (c.kind >= COMMAND_KINDS || c.deps > SIM_DEPS || extra > bytes - sizeof(c))
        return NULL;
    item = malloc(sizeof(*item) + extra);
    if (!item)
        return NULL;
    memset(item, 0, sizeof(*item));
    item->c = c;
    item->stream = stream;
    memcpy(item->data, record + sizeof(c), extra);
    if (c.stamp > device_now())
        item->c.stamp = device_now();
    if (c.kind == COMMAND_KERNEL) {
        item->kernel = kernel_get(c.launch.kernel);
        if (!item->kernel) {
            free(item);
            return NULL;
        }
    }
    return item;
}

/* A graph: the record points to its nodes, and its dependencies are the first one's. */
static bool stream_take_graph(struct stream *stream, struct item *outer)
{
    uint64_t bytes = outer->c.indirect.bytes, at = 0;
    const unsigned char *nodes = reach_direct(stream->client, outer->c.indirect.address, bytes);

    if (!nodes)
        return false;
    outer->c.kind = COMMAND_NOTHING;
    outer->c.flags = COMMAND_IN_GRAPH;
    stream_append(stream, outer);
    while (at < bytes) {
        struct item *item;
        uint32_t size;

        if (bytes - at < PREFIX)
            return false;
        memcpy(&size, nodes + at, sizeof(size));
        if (size > bytes - at || size < PREFIX)
            return false;
        item = stream_item(stream, nodes + at, size);
        if (!item)
            return false;
        item->c.seq = outer->c.seq;
        item->c.stamp = outer->c.stamp;
        item->c.flags = COMMAND_IN_GRAPH;
        stream_append(stream, item);
        at += size;
    }
    stream->last->c.flags |= COMMAND_GRAPH_LAST;
    return true;
}

static bool stream_take(struct stream *stream, const unsigned char *record, uint32_t bytes)
{
    struct item *item = stream_item(stream, record, bytes);

    if (!item)
        return false;
    if (item->c.flags & COMMAND_INDIRECT)
        return stream_take_graph(stream, item);
    item->c.flags &= COMMAND_PROGRAMMATIC;
    stream_append(stream, item);
    return true;
}

static bool stream_take_next(struct stream *stream, uint64_t tail)
{
    struct {
        uint32_t bytes;
        uint16_t kind, flags;
        uint64_t seq;
    } prefix;
    const unsigned char *record = stream->ring + stream->head_bytes % SIM_RING;
    uint64_t room = SIM_RING - stream->head_bytes % SIM_RING;

    memcpy(&prefix, record, sizeof(prefix));
    if (room > tail - stream->head_bytes)
        room = tail - stream->head_bytes;
    if (prefix.bytes < PREFIX || prefix.bytes % PREFIX || prefix.bytes > room)
        return false;
    if ((prefix.kind != COMMAND_NOTHING || prefix.seq) &&
        !stream_take(stream, record, prefix.bytes))
        return false;
    stream->head_bytes += prefix.bytes;
    return true;
}

static void stream_fetch(struct stream *stream)
{
    uint64_t tail = atomic_load_explicit(&stream->shared->tail, memory_order_acquire);
    bool sound = tail - stream->head_bytes <= SIM_RING && !(tail % PREFIX);

    if (tail == stream->head_bytes)
        return;
    device_refresh();
    while (sound && stream->head_bytes != tail)
        sound = stream_take_next(stream, tail);
    stream->head_bytes = tail;
    atomic_store_explicit(&stream->shared->head, tail, memory_order_release);
    if (!sound)
        context_fail(stream->context, CUDA_ERROR_LAUNCH_FAILED, "bad-command", device_now());
}

/* --- publishing --- */

static void stream_wake(const _Atomic uint64_t *word, _Atomic uint32_t *waiters)
{
    if (atomic_load(waiters))
        util_futex_wake((const _Atomic uint32_t *)(const void *)word, INT32_MAX);
}

static void stream_record(struct stream *stream, const struct command_record *record, uint64_t t)
{
    if (record->shared && record->slot < SIM_IPC_EVENTS) {
        struct board_event *event = &board->event[record->slot];

        if (atomic_load(&event->done) < record->generation) {
            atomic_store(&event->time, t);
            atomic_store(&event->done, record->generation);
        }
        stream_wake(&event->done, &event->waiters);
    } else if (!record->shared && record->slot < SIM_EVENTS) {
        struct event_shared *event = &stream->client->arena->event[record->slot];

        if (atomic_load(&event->done) < record->generation) {
            atomic_store(&event->time, t);
            atomic_store(&event->done, record->generation);
        }
        stream_wake(&event->done, &event->waiters);
    }
}

static void stream_publish(struct stream *stream, uint64_t seq, uint64_t t)
{
    if (seq <= stream->completed)
        return;
    for (uint64_t s = seq - stream->completed > 256 ? seq - 256 : stream->completed; s++ < seq;)
        stream->times[s % 256] = t;
    stream->completed = seq;
    stream->done_time = t;
    atomic_store_explicit(&stream->shared->done_time, t, memory_order_relaxed);
    atomic_store(&stream->shared->completed, seq);
    stream_wake(&stream->shared->completed, &stream->shared->waiters);
}

/* Takes the head off, done at t. */
static void stream_pop(struct stream *stream, uint64_t t)
{
    struct item *item = stream->head;
    bool graph = item->c.flags & COMMAND_IN_GRAPH;

    stream->head = item->next;
    if (!stream->head)
        stream->last = NULL;
    stream->state = STREAM_IDLE;
    stream->after_kernel = item->c.kind == COMMAND_KERNEL && !graph;
    if (item->c.kind == COMMAND_RECORD)
        stream_record(stream, &item->c.record, t);
    if (item->c.flags & COMMAND_GRAPH_LAST)
        trace_graph_end(stream, item, t);
    if (stream->done_time < t)
        stream->done_time = t;
    if (!graph || (item->c.flags & COMMAND_GRAPH_LAST) || stream->context->error)
        stream_publish(stream, item->c.seq, t);
    free(item);
    moved = true;
}

/* --- starting the head --- */

static bool stream_dependency_done(struct stream *stream, const struct dependency *d, uint64_t *t)
{
    *t = 0;
    if (d->kind == DEPENDENCY_EVENT) {
        if (d->slot >= SIM_IPC_EVENTS)
            return true;
        *t = atomic_load(&board->event[d->slot].time);
        return atomic_load(&board->event[d->slot].done) >= d->seq;
    }
    if (d->slot < SIM_STREAMS && stream->client->streams[d->slot]) {
        const struct stream *other = stream->client->streams[d->slot];

        if (other->completed - d->seq < 256)
            *t = other->times[d->seq % 256];
        return other->completed >= d->seq;
    }
    return true;
}

static bool stream_dependencies_done(struct stream *stream, struct item *item)
{
    const struct dependency *deps = (const void *)item->data;
    uint64_t t;

    for (uint32_t i = 0; i < item->c.deps; i++) {
        if (!stream_dependency_done(stream, &deps[i], &t))
            return false;
        if (t > item->ready && t <= device_now())
            item->ready = t;
    }
    return true;
}

static void stream_list(struct stream *stream, enum stream_state state)
{
    if (stream->state != state)
        stream->poll_since = device_now();
    stream->state = state;
    if (!stream->listed) {
        stream->listed = true;
        stream->waiting_next = waiting;
        waiting = stream;
    }
}

static bool stream_host_call(struct stream *stream, struct item *item)
{
    struct client *client = stream->client;
    struct arena *arena = client->arena;
    uint32_t head = atomic_load_explicit(&arena->host_head, memory_order_acquire);

    if (client->host_tail - head >= SIM_HOST_CALLS)
        return false;
    arena->host[client->host_tail % SIM_HOST_CALLS] = (struct host_call){
        .function = item->c.host.function,
        .argument = item->c.host.argument,
        .ticket = ++client->host_ticket,
        .stream = stream->slot,
        .callback = item->c.host.callback,
        .handle = item->c.host.handle,
    };
    item->ticket = client->host_ticket;
    atomic_store(&arena->host_tail, ++client->host_tail);
    util_futex_wake(&arena->host_tail, 1);
    return true;
}

/* Hands work to its engine. A programmatic launch saves what its start would have overlapped with
 * the end of the kernel right before it. */
static void stream_dispatch(struct stream *stream, struct item *item)
{
    bool compute = item->c.kind != COMMAND_COPY || item->c.copy.direction == COPY_DTOD;
    uint64_t arrival = item->c.stamp + settings.start_delay;

    item->remaining = effect_duration(item);
    if ((item->c.flags & COMMAND_PROGRAMMATIC) && stream->after_kernel &&
        stream->done_time > arrival && item->remaining != UTIL_NEVER) {
        uint64_t saved = stream->done_time - arrival;

        saved = saved < settings.overlap ? saved : settings.overlap;
        item->remaining -= saved < item->remaining ? saved : item->remaining;
    }
    if (compute && arrival > item->ready)
        item->ready = arrival;
    stream->state = STREAM_QUEUED;
    if (compute)
        engine_queue(item);
    else
        copier_queue(item);
}

static void stream_fail(struct stream *stream, uint32_t error, const char *what)
{
    context_fail(stream->context, error, what, device_now());
}

/* Commands that take no time: true when the head is off (or the context failed). */
static bool stream_instant(struct stream *stream, struct item *item)
{
    uint32_t error = CUDA_SUCCESS;

    if (item->c.kind == COMMAND_VALUE_WRITE) {
        error = effect_write(item);
    } else if (item->c.kind == COMMAND_VALUE_WAIT) {
        if (!effect_value(item, &error)) {
            stream_list(stream, STREAM_POLLING);
            return false;
        }
        if (stream->state == STREAM_POLLING)
            item->ready = device_now();
    }
    if (error)
        stream_fail(stream, error, "value");
    else
        stream_pop(stream, item->ready);
    return true;
}

/* Begins the head: true when it was over at once. */
static bool stream_begin(struct stream *stream, struct item *item)
{
    switch (item->c.kind) {
    case COMMAND_KERNEL:
    case COMMAND_MEMSET:
    case COMMAND_COPY:
        stream_dispatch(stream, item);
        return false;
    case COMMAND_HOST:
        if (!stream_host_call(stream, item)) {
            stream_list(stream, STREAM_POLLING);
            return false;
        }
        item->begun = item->ready;
        stream->state = STREAM_HOST;
        return false;
    default:
        return stream_instant(stream, item);
    }
}

/* Says that the client must ring, unless something came in meanwhile. True: nothing did. */
static bool stream_listen(struct stream *stream)
{
    atomic_store(&stream->shared->listening, 1);
    if (atomic_load(&stream->shared->tail) == stream->head_bytes)
        return true;
    atomic_store(&stream->shared->listening, 0);
    return false;
}

static void stream_advance(struct stream *stream)
{
    for (;;) {
        struct item *item;

        if (!stream->head)
            stream_fetch(stream);
        item = stream->head;
        if (!item) {
            stream->state = STREAM_IDLE;
            if (stream_listen(stream))
                return;
            continue;
        }
        if (stream->context->error) {
            stream_pop(stream, device_now());
            continue;
        }
        if (!stream_dependencies_done(stream, item)) {
            stream_list(stream, STREAM_BLOCKED);
            return;
        }
        if (item->ready < item->c.stamp)
            item->ready = item->c.stamp;
        if (item->ready < stream->done_time)
            item->ready = stream->done_time;
        if (!stream_begin(stream, item))
            return;
    }
}

/* --- what others call --- */

void stream_complete(struct stream *stream, uint64_t t)
{
    stream_pop(stream, t);
    stream_advance(stream);
}

void stream_tell(struct stream *stream, uint64_t end)
{
    atomic_store(&stream->shared->sure, 0);
    atomic_store(&stream->shared->sure_end, end);
    atomic_store(&stream->shared->sure, stream->head->c.seq);
}

bool stream_last(struct stream *stream)
{
    stream_fetch(stream);
    for (const struct item *item = stream->head->next; item; item = item->next)
        if (item->c.kind != COMMAND_RECORD || item->c.record.shared)
            return false;
    return true;
}

void stream_drain(struct stream *stream)
{
    stream->graph.open = false;
    while (stream->head)
        stream_pop(stream, device_now());
    stream_advance(stream);
}

static void stream_host_done(struct stream *stream)
{
    struct item *item = stream->head;
    uint64_t t = atomic_load(&stream->shared->host_time);

    if (atomic_load(&stream->shared->host_done) < item->ticket)
        return;
    if (t > device_refresh())
        t = device_now();
    if (t < item->begun)
        t = item->begun;
    trace_stretch(item, item->begun, t, true);
    stream_complete(stream, t);
}

void stream_look(struct stream *stream)
{
    if (!stream->open)
        return;
    if (stream->state == STREAM_HOST)
        stream_host_done(stream);
    else if (stream->state == STREAM_IDLE)
        stream_advance(stream);
    else
        stream_fetch(stream);
}

uint32_t stream_open(struct client *client, unsigned slot, unsigned context, int priority)
{
    struct stream *stream;

    if (slot >= SIM_STREAMS || context >= SIM_CONTEXTS || !client->contexts[context].alive)
        return CUDA_ERROR_INVALID_VALUE;
    if (!client->streams[slot])
        client->streams[slot] = calloc(1, sizeof(*stream));
    stream = client->streams[slot];
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (stream->open)
        stream_close(stream);
    stream->client = client;
    stream->context = &client->contexts[context];
    stream->slot = slot;
    stream->priority = priority;
    stream->shared = &client->arena->stream[slot];
    stream->ring = client->base + ARENA_RINGS + (uint64_t)slot * SIM_RING;
    atomic_store(&stream->shared->sure, 0);
    stream->open = true;
    stream->after_kernel = false;
    stream->next = stream->context->streams;
    stream->context->streams = stream;
    if (client->stream_count <= slot)
        client->stream_count = slot + 1;
    stream_advance(stream);
    return CUDA_SUCCESS;
}

/* The client has seen everything of it done; what a mad client left is dropped. */
void stream_close(struct stream *stream)
{
    struct stream **at = &stream->context->streams;

    while (*at && *at != stream)
        at = &(*at)->next;
    if (*at)
        *at = stream->next;
    stream->open = false;
}

static uint64_t last_settled;

uint64_t stream_next_poll(void)
{
    uint64_t next = UTIL_NEVER;

    for (const struct stream *s = waiting; s; s = s->waiting_next)
        if (s->open && s->state == STREAM_POLLING) {
            uint64_t pause = (last_settled - s->poll_since) / 16;

            pause = pause < POLL_LEAST ? POLL_LEAST : pause > POLL_MOST ? POLL_MOST : pause;
            if (last_settled + pause < next)
                next = last_settled + pause;
        }
    return next;
}

static void stream_settle_once(void)
{
    struct stream *list = waiting;

    waiting = NULL;
    while (list) {
        struct stream *stream = list;

        list = stream->waiting_next;
        stream->listed = false;
        if (stream->open && (stream->state == STREAM_BLOCKED || stream->state == STREAM_POLLING))
            stream_advance(stream);
    }
}

void stream_settle(void)
{
    if (!moved && device_now() < stream_next_poll())
        return;
    do {
        moved = false;
        stream_settle_once();
    } while (moved);
    last_settled = device_now();
}

void stream_forget(struct client *client)
{
    struct stream **at = &waiting;

    while (*at)
        if ((*at)->client == client)
            *at = (*at)->waiting_next;
        else
            at = &(*at)->waiting_next;
    for (unsigned i = 0; i < client->stream_count; i++) {
        struct stream *stream = client->streams[i];

        while (stream && stream->head) {
            struct item *item = stream->head;

            stream->head = item->next;
            free(item);
        }
        free(stream);
        client->streams[i] = NULL;
    }
}
