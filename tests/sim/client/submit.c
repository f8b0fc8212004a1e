/*
 * From a command to the stream's ring. Under the context's lock a command gets its sequence number,
 * the dependencies that the legacy stream's barrier asks for, and its place in the ring. The lock
 * is not held while the launch queue is full. No system call unless the device sleeps.
 */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "core.h"

struct layout {
    uint32_t offset, bytes;
};

struct record {
    struct wire_command c;
    const struct dependency *deps;
    const struct layout *layout; /* kernels: what precedes the parameters */
    const void *params;
    uint32_t param_bytes;
};

static uint32_t submit_layout_bytes(const struct record *record)
{
    return record->c.kind == COMMAND_KERNEL
               ? record->c.launch.param_count * (uint32_t)sizeof(struct layout)
               : 0;
}

/* Writes a record that has its room; returns its size. */
static uint32_t submit_write(unsigned char *to, struct record *record)
{
    uint32_t deps = record->c.deps * (uint32_t)sizeof(struct dependency);
    uint32_t layout = submit_layout_bytes(record);

    memcpy(to, &record->c, sizeof(record->c));
    to += sizeof(record->c);
    if (deps)
        memcpy(to, record->deps, deps);
    if (layout)
        memcpy(to + deps, record->layout, layout);
    if (record->param_bytes)
        memcpy(to + deps + layout, record->params, record->param_bytes);
    return record->c.bytes;
}

static void submit_measure(struct record *record)
{
    record->c.payload = submit_layout_bytes(record) + record->param_bytes;
    record->c.bytes = (uint32_t)SIM_ALIGN(
        sizeof(record->c) + record->c.deps * sizeof(struct dependency) + record->c.payload, 16);
}

/* --- commands to records --- */

static CUresult submit_encode_kernel(const struct command *command, struct record *record)
{
    struct function *function = command->function;

    record->c.launch = command->launch;
    record->c.launch.param_count = function->param_count;
    record->layout = (const struct layout *)function->params;
    record->params = command->params;
    record->param_bytes = function->param_bytes;
    return function_number(function, &record->c.launch.kernel);
}

static CUresult submit_encode(const struct command *command, struct record *record)
{
    memset(record, 0, sizeof(*record));
    record->c.kind = (uint16_t)command->kind;
    record->c.flags = command->flags & COMMAND_PROGRAMMATIC;
    switch (command->kind) {
    case COMMAND_KERNEL:
        return submit_encode_kernel(command, record);
    case COMMAND_MEMSET:
        record->c.memset = command->memset;
        break;
    case COMMAND_COPY:
        record->c.copy = command->copy;
        break;
    case COMMAND_HOST:
        hostcall_need();
        record->c.host = command->host;
        break;
    case COMMAND_VALUE_WRITE:
    case COMMAND_VALUE_WAIT:
        record->c.value = command->value;
        break;
    case COMMAND_NOTHING:
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* --- the ring --- */

static bool submit_has_room(const struct stream *stream, uint32_t bytes, uint32_t *skip)
{
    uint64_t tail = atomic_load_explicit(&stream->shared->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&stream->shared->head, memory_order_acquire);
    uint32_t to_end = (uint32_t)(SIM_RING - tail % SIM_RING);

    *skip = to_end < bytes ? to_end : 0;
    return tail - head + *skip + bytes <= SIM_RING;
}

static bool submit_queue_full(const struct stream *stream)
{
    return stream->submitted -
               atomic_load_explicit(&stream->shared->completed, memory_order_acquire) >=
           sim.board->queue;
}

static void submit_ring_bell(struct stream *stream)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&stream->shared->listening, memory_order_relaxed) &&
        atomic_exchange(&stream->shared->listening, 0))
        bell_ring(SIM_BELL_STREAM(stream->slot));
}

/* Waits, without the lock, until the queue and the ring have a place. */
static CUresult submit_wait_room(struct stream *stream, uint32_t bytes)
{
    struct context *context = stream->context;
    uint32_t skip;

    while (submit_queue_full(stream) || !submit_has_room(stream, bytes, &skip)) {
        uint64_t submitted = stream->submitted;
        bool full = submit_queue_full(stream);
        bool lives = true;

        pthread_mutex_unlock(&context->lock);
        if (full) {
            lives = wait_stream(stream, submitted - sim.board->queue + 1);
        } else {
            bell_ring(SIM_BELL_STREAM(stream->slot));
            util_futex_wait((const _Atomic uint32_t *)(const void *)&stream->shared->head,
                            (uint32_t)atomic_load(&stream->shared->head), 100000);
            lives = start_device_lives();
        }
        pthread_mutex_lock(&context->lock);
        if (!lives)
            return START_DEVICE_GONE;
        if (!atomic_load(&context->alive) || stream->retired)
            return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return CUDA_SUCCESS;
}

/* One record into the ring, with the next sequence number. Under the lock, which it may let go. */
static CUresult submit_put(struct stream *stream, struct record *record)
{
    uint64_t tail;
    uint32_t skip;
    CUresult result;

    submit_measure(record);
    if (record->c.bytes > SIM_RING / 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_expect(
            submit_queue_full(stream) || !submit_has_room(stream, record->c.bytes, &skip), 0)) {
        result = submit_wait_room(stream, record->c.bytes);
        if (result)
            return result;
        submit_has_room(stream, record->c.bytes, &skip);
    }
    tail = atomic_load_explicit(&stream->shared->tail, memory_order_relaxed);
    if (skip) {
        struct wire_command filler = {.bytes = skip, .kind = COMMAND_NOTHING};

        memcpy(stream->ring + tail % SIM_RING, &filler, 16);
        tail += skip;
    }
    record->c.seq = ++stream->submitted;
    if (record->c.kind != COMMAND_RECORD || record->c.deps)
        atomic_store_explicit(&stream->work, record->c.seq, memory_order_release);
    record->c.stamp = util_now();
    tail += submit_write(stream->ring + tail % SIM_RING, record);
    atomic_store_explicit(&stream->shared->submitted, stream->submitted, memory_order_relaxed);
    atomic_store_explicit(&stream->shared->tail, tail, memory_order_release);
    submit_ring_bell(stream);
    return CUDA_SUCCESS;
}

/* --- the legacy stream's barrier --- */

static bool submit_blocks(const struct stream *stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

static bool submit_outstanding(const struct stream *stream)
{
    return atomic_load_explicit(&stream->shared->completed, memory_order_acquire) <
           stream->submitted;
}

/* An action in the legacy stream waits for every blocking stream. More of them than one command can
 * name go into places of their own before it. */
static CUresult submit_barrier(struct stream *legacy, struct dependency *deps, uint32_t *count)
{
    CUresult result = CUDA_SUCCESS;

    for (struct stream *s = legacy->context->streams; s && !result; s = s->next) {
        if (s == legacy || s->green != legacy->green || !submit_blocks(s) ||
            s->barrier_seen == s->submitted)
            continue;
        s->barrier_seen = s->submitted;
        if (!submit_outstanding(s))
            continue;
        if (*count == SIM_DEPS) {
            struct record place = {.deps = deps, .c = {.deps = *count}};

            result = submit_put(legacy, &place);
            *count = 0;
        }
        deps[(*count)++] =
            (struct dependency){.kind = DEPENDENCY_STREAM, .slot = s->slot, .seq = s->submitted};
    }
    return result;
}

static CUresult submit_order(struct stream *stream, struct dependency *deps, uint32_t *count)
{
    const struct stream *legacy = stream->green ? stream->green->legacy : stream->context->legacy;

    if (stream->legacy)
        return submit_barrier(stream, deps, count);
    if (submit_blocks(stream) && stream->legacy_seen != legacy->submitted) {
        stream->legacy_seen = legacy->submitted;
        if (submit_outstanding(legacy))
            deps[(*count)++] = (struct dependency){
                .kind = DEPENDENCY_STREAM, .slot = legacy->slot, .seq = legacy->submitted};
    }
    return CUDA_SUCCESS;
}

static void submit_note_order(struct stream *stream, const struct dependency *deps, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (deps[i].kind == DEPENDENCY_STREAM)
            stream->behind[stream->behind_count++ % 16] = deps[i];
}

bool submit_is_behind(struct stream *stream, unsigned slot, uint64_t seq)
{
    bool behind = false;

    pthread_mutex_lock(&stream->context->lock);
    for (unsigned i = 0; i < 16 && i < stream->behind_count; i++)
        behind |= stream->behind[i].slot == slot && stream->behind[i].seq >= seq;
    pthread_mutex_unlock(&stream->context->lock);
    return behind;
}

/* The whole way of one record. *seq is its number. */
static CUresult submit_send(struct stream *stream, struct record *record,
                            const struct dependency *own, uint32_t own_count, uint64_t *seq)
{
    struct context *context = stream->context;
    struct dependency deps[SIM_DEPS];
    uint32_t count = own_count;
    CUresult result;

    if (own_count)
        memcpy(deps, own, own_count * sizeof(*own));
    pthread_mutex_lock(&context->lock);
    result = atomic_load_explicit(&context->alive, memory_order_relaxed)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!result)
        result = submit_order(stream, deps, &count);
    if (!result) {
        record->deps = deps;
        record->c.deps = count;
        result = submit_put(stream, record);
        if (seq)
            *seq = stream->submitted;
        if (own_count && !result)
            submit_note_order(stream, own, own_count);
    }
    pthread_mutex_unlock(&context->lock);
    return result;
}

/* --- graphs --- */

/* Calls `visit` for every command of a graph that is none itself, in order. */
static CUresult submit_each(const struct command *graph, void *arg,
                            CUresult (*visit)(const struct command *, void *))
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < graph->graph.count && !result; i++) {
        const struct command *node = graph->graph.nodes[i];

        result = node->kind == COMMAND_GRAPH ? submit_each(node, arg, visit) : visit(node, arg);
    }
    return result;
}

struct blob {
    unsigned char *at;
    uint64_t bytes;
};

static CUresult submit_event_node(const struct command *node, struct record *record,
                                  struct dependency *dep)
{
    struct event *event = node->record.event;

    memset(record, 0, sizeof(*record));
    pthread_mutex_lock(&event->lock);
    if (!node->wait) {
        record->c.kind = COMMAND_RECORD;
        record->c.record.slot = event->slot;
        record->c.record.shared = event->shared;
        atomic_store(&event->behind, 0);
        record->c.record.generation =
            event->shared ? atomic_fetch_add(&sim.board->event[event->slot].recorded, 1) + 1
                          : atomic_fetch_add(&event->generation, 1) + 1;
    } else if (event->shared) {
        *dep = (struct dependency){.kind = DEPENDENCY_EVENT,
                                   .slot = event->slot,
                                   .seq = atomic_load(&sim.board->event[event->slot].recorded)};
        record->c.deps = 1;
    } else if (atomic_load(&event->generation) != event->base) {
        *dep = (struct dependency){
            .kind = DEPENDENCY_STREAM, .slot = event->stream, .seq = event->seq};
        record->c.deps = 1;
    }
    pthread_mutex_unlock(&event->lock);
    record->deps = dep;
    return CUDA_SUCCESS;
}

static CUresult submit_measure_node(const struct command *node, void *arg)
{
    struct blob *blob = arg;
    struct record record;
    CUresult result = CUDA_SUCCESS;

    if (node->kind == COMMAND_RECORD)
        memset(&record, 0, sizeof(record));
    else
        result = submit_encode(node, &record);
    record.c.deps = node->kind == COMMAND_RECORD;
    submit_measure(&record);
    blob->bytes += record.c.bytes;
    return result;
}

static CUresult submit_write_node(const struct command *node, void *arg)
{
    struct blob *blob = arg;
    struct record record;
    struct dependency dep = {0};
    CUresult result = node->kind == COMMAND_RECORD ? submit_event_node(node, &record, &dep)
                                                   : submit_encode(node, &record);

    submit_measure(&record);
    blob->bytes += submit_write(blob->at + blob->bytes, &record);
    return result;
}

/* Events recorded inside a graph are done with its launch as a whole. */
static CUresult submit_note_events(const struct command *node, void *arg)
{
    const struct dependency *place = arg;

    if (node->kind == COMMAND_RECORD && !node->wait) {
        struct event *event = node->record.event;

        pthread_mutex_lock(&event->lock);
        event->stream = place->slot;
        event->seq = place->seq;
        pthread_mutex_unlock(&event->lock);
    }
    return CUDA_SUCCESS;
}

static CUresult submit_graph(struct stream *stream, const struct command *command, uint64_t *seq)
{
    struct record record = {.c = {.kind = COMMAND_NOTHING, .flags = COMMAND_INDIRECT}};
    struct blob blob = {0};
    struct dependency place = {.slot = stream->slot};
    CUresult result = submit_each(command, &blob, submit_measure_node);

    if (result)
        return result;
    blob.at = shared_take(blob.bytes ? blob.bytes : 16);
    if (!blob.at)
        return CUDA_ERROR_OUT_OF_MEMORY;
    blob.bytes = 0;
    result = submit_each(command, &blob, submit_write_node);
    record.c.indirect.address = (uint64_t)(uintptr_t)blob.at;
    record.c.indirect.bytes = blob.bytes;
    if (!result)
        result = submit_send(stream, &record, NULL, 0, &place.seq);
    if (result) {
        shared_put(blob.at);
        return result;
    }
    submit_each(command, &place, submit_note_events);
    shared_put_later(blob.at, stream, place.seq);
    if (seq)
        *seq = place.seq;
    return CUDA_SUCCESS;
}

/* --- what others call --- */

CUresult stream_submit_raw(struct stream *stream, const struct command *command, uint64_t *seq)
{
    struct record record;
    CUresult result;

    if (command->kind == COMMAND_GRAPH)
        return submit_graph(stream, command, seq);
    result = submit_encode(command, &record);
    return result ? result : submit_send(stream, &record, NULL, 0, seq);
}

CUresult stream_submit(struct stream *stream, const struct command *command, uint64_t *seq)
{
    if (__builtin_expect(capture_active(), 0)) {
        bool taken = false;
        CUresult result = capture_take_command(stream, command, &taken);

        if (seq)
            *seq = 0;
        if (result || taken)
            return result;
    }
    return stream_submit_raw(stream, command, seq);
}

CUresult submit_dependencies(struct stream *stream, const struct dependency *deps, unsigned count)
{
    struct record record = {.c = {.kind = COMMAND_NOTHING}};

    return submit_send(stream, &record, deps, count, NULL);
}

CUresult submit_record(struct stream *stream, const struct command_record *what, uint64_t *seq)
{
    struct record record = {.c = {.kind = COMMAND_RECORD, .record = *what}};

    return submit_send(stream, &record, NULL, 0, seq);
}

bool submit_legacy_done(const struct stream *legacy)
{
    struct context *context = legacy->context;
    uint64_t when;
    bool done = true;

    pthread_mutex_lock(&context->lock);
    for (const struct stream *s = context->streams; s && done; s = s->next)
        done = s->green != legacy->green || !submit_blocks(s) || !submit_outstanding(s) ||
               stream_ended(stream_place(s), &when);
    pthread_mutex_unlock(&context->lock);
    return done;
}
