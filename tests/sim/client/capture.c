/*
 * Stream capture: which streams record into which graph, what each thread may do meanwhile, and
 * what breaks a capture. The rules are those of the programming guide's chapter on graphs and of
 * cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode and the CUDA_ERROR_STREAM_CAPTURE_*
 * errors. Any thread; one lock over all captures, inside a context's lock: nothing here waits for
 * anything.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "sim.h"

#include "graph.h"

/* A set of nodes: what the next node of a stream depends on. */
struct capture_front {
    struct node **nodes;
    unsigned count;
};

struct capture_member {
    struct stream *stream;
    struct capture_front front;
    CUgraphEdgeData *edges; /* zeroed, as many as front has nodes: handed out by queries */
};

struct capture {
    uint64_t id;
    struct context *context;
    struct stream *origin; /* NULL once destroyed */
    pthread_t thread;
    CUstreamCaptureMode mode;
    bool invalid;
    bool borrowed; /* the graph is the program's own (BeginCaptureToGraph) */
    struct graph *graph;
    struct capture_member *members;
    unsigned member_count;
    struct capture *next;
};

/* What an event that was recorded in a capture stands for. */
struct capture_mark {
    uint64_t capture; /* id */
    struct capture_front front;
};

_Atomic unsigned capture_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static uint64_t capture_last_id;
static _Thread_local CUstreamCaptureMode thread_mode; /* zero: GLOBAL, the default */

/* --- sets of nodes -----------------------------------------------------------------------------
 */

static bool front_add(struct capture_front *front, struct node *node)
{
    struct node **grown;

    for (unsigned i = 0; i < front->count; i++)
        if (front->nodes[i] == node)
            return true;
    grown = realloc(front->nodes, (front->count + 1) * sizeof(*grown));
    if (grown == NULL)
        return false;
    front->nodes = grown;
    grown[front->count++] = node;
    return true;
}

static bool front_join(struct capture_front *front, const struct capture_front *more)
{
    for (unsigned i = 0; i < more->count; i++)
        if (object_check(more->nodes[i], OBJECT_NODE) != NULL && !front_add(front, more->nodes[i]))
            return false;
    return true;
}

static void front_clear(struct capture_front *front)
{
    free(front->nodes);
    front->nodes = NULL;
    front->count = 0;
}

/* --- captures and their members; under the lock --------------------------------------------------
 */

static struct capture *capture_of(struct stream *stream)
{
    return atomic_load_explicit(&stream->capture, memory_order_acquire);
}

static struct capture *capture_find(uint64_t id)
{
    struct capture *capture = captures;

    while (capture != NULL && capture->id != id)
        capture = capture->next;
    return capture;
}

static struct capture_member *capture_member(struct capture *capture, struct stream *stream)
{
    for (unsigned i = 0; i < capture->member_count; i++)
        if (capture->members[i].stream == stream)
            return &capture->members[i];
    return NULL;
}

static struct capture_member *capture_join(struct capture *capture, struct stream *stream)
{
    struct capture_member *grown;

    grown = realloc(capture->members, (capture->member_count + 1) * sizeof(*grown));
    if (grown == NULL)
        return NULL;
    capture->members = grown;
    grown += capture->member_count++;
    memset(grown, 0, sizeof(*grown));
    grown->stream = stream;
    atomic_store_explicit(&stream->capture, capture, memory_order_release);
    return grown;
}

static void capture_drop_member(struct capture *capture, struct capture_member *member)
{
    atomic_store_explicit(&member->stream->capture, NULL, memory_order_release);
    front_clear(&member->front);
    free(member->edges);
    *member = capture->members[--capture->member_count];
}

/* Ends a capture; its graph is the caller's, or nobody's. */
static void capture_free(struct capture *capture)
{
    struct capture **link = &captures;

    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    while (capture->member_count > 0)
        capture_drop_member(capture, capture->members);
    free(capture->members);
    free(capture);
    atomic_fetch_sub_explicit(&capture_count, 1, memory_order_release);
}

static CUresult capture_break(struct capture *capture, CUresult error)
{
    capture->invalid = true;
    return error;
}

/* Whether the legacy stream of a context would order against a capture. */
static bool capture_blocks(const struct capture *capture, const struct context *context)
{
    for (unsigned i = 0; i < capture->member_count; i++)
        if (capture->members[i].stream->context == context &&
            (capture->members[i].stream->flags & CU_STREAM_NON_BLOCKING) == 0)
            return true;
    return false;
}

static bool capture_touches(const struct capture *capture, const struct context *context)
{
    for (unsigned i = 0; i < capture->member_count; i++)
        if (capture->members[i].stream->context == context)
            return true;
    return false;
}

/* The legacy stream's turn: breaks what it would order against. */
static CUresult capture_break_legacy(const struct context *context)
{
    CUresult result = CUDA_SUCCESS;

    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        if (!capture->invalid && capture_blocks(capture, context))
            result = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return result;
}

/* --- questions -----------------------------------------------------------------------------------
 */

/* Whether a capture forbids this thread its potentially unsafe calls. */
static bool capture_forbids(const struct capture *capture)
{
    bool own = pthread_equal(capture->thread, pthread_self()) != 0;

    if (capture->invalid)
        return false;
    if (own)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;

    /* A relaxed thread must not even lock: graph memory comes here with its own lock held. */
    if (!capture_active() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        if (capture_forbids(capture))
            result = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_check_context(struct context *context)
{
    CUresult result = CUDA_SUCCESS;

    if (!capture_active())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
        if (!capture->invalid && capture_touches(capture, context))
            result = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_check_stream(struct stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    struct capture *capture;

    if (!capture_active())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    capture = capture_of(stream);
    if (capture != NULL)
        result = capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    else if (stream->legacy)
        result = capture_break_legacy(stream->context);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_check_legacy(struct context *context)
{
    CUresult result;

    if (!capture_active())
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    result = capture_break_legacy(context);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Asking a captured event breaks the capture it belongs to, if that is still under way. */
CUresult capture_check_event(struct event *event)
{
    struct capture_mark *mark;
    struct capture *capture;

    if (atomic_load_explicit(&event->captured, memory_order_acquire) == NULL)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    mark = atomic_load_explicit(&event->captured, memory_order_relaxed);
    capture = mark == NULL ? NULL : capture_find(mark->capture);
    if (capture != NULL)
        capture->invalid = true;
    pthread_mutex_unlock(&lock);
    return mark == NULL ? CUDA_SUCCESS : CUDA_ERROR_CAPTURED_EVENT;
}

/* --- commands become nodes
 * ------------------------------------------------------------------------ */

/* Adds a node behind everything its stream recorded so far; command: what it was, or NULL. */
static CUresult capture_add(struct capture *capture, struct stream *stream,
                            const CUgraphNodeParams *params, const struct command *command)
{
    struct capture_member *member = capture_member(capture, stream);
    struct node *node;
    CUresult result;

    result = graph_add(capture->graph, params, stream->context, &node);
    if (result != CUDA_SUCCESS)
        return capture_break(capture, result);
    if (command != NULL && command->kind == COMMAND_KERNEL) {
        node->cooperative = command->launch.cooperative != 0;
        node->programmatic = (command->flags & COMMAND_PROGRAMMATIC) != 0;
    }
    result = graph_connect(node, member->front.nodes, NULL, member->front.count);
    front_clear(&member->front);
    if (result != CUDA_SUCCESS || !front_add(&member->front, node))
        return capture_break(capture, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

/* How every taking begins, the lock held on return: the stream's capture, NULL if it has none. */
static CUresult capture_begin_taking(struct stream *stream, struct capture **capture)
{
    pthread_mutex_lock(&lock);
    *capture = capture_of(stream);
    if (*capture != NULL)
        return (*capture)->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    return stream->legacy ? capture_break_legacy(stream->context) : CUDA_SUCCESS;
}

static CUresult capture_add_command(struct capture *capture, struct stream *stream,
                                    const struct command *command)
{
    CUgraphNodeParams params;
    struct node_loan loan;
    CUresult result;

    if (command->kind == COMMAND_NOTHING)
        return CUDA_SUCCESS;
    result = node_params_of(command, &params, &loan);
    return result == CUDA_SUCCESS ? capture_add(capture, stream, &params, command)
                                  : capture_break(capture, result);
}

CUresult capture_take_command(struct stream *stream, const struct command *command, bool *taken)
{
    struct capture *capture;
    CUresult result;

    *taken = false;
    if (!capture_active())
        return CUDA_SUCCESS;
    result = capture_begin_taking(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        result = capture_add_command(capture, stream, command);
        *taken = true;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult capture_take_graph(struct stream *stream, struct graph *graph, bool *taken)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    struct capture *capture;
    CUresult result;

    *taken = false;
    if (!capture_active())
        return CUDA_SUCCESS;
    params.graph.graph = (CUgraph)graph;
    result = capture_begin_taking(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        result = capture_add(capture, stream, &params, NULL);
        *taken = true;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- events
 * --------------------------------------------------------------------------------------- */

/* The event's captured state, replaced; the old one is freed. */
static void capture_set_mark(struct event *event, struct capture_mark *mark)
{
    struct capture_mark *old;

    old = atomic_exchange_explicit(&event->captured, mark, memory_order_acq_rel);
    if (old == NULL)
        return;
    front_clear(&old->front);
    free(old);
}

static CUresult capture_mark_event(struct capture *capture, struct stream *stream,
                                   struct event *event)
{
    struct capture_mark *mark = calloc(1, sizeof(*mark));

    if (mark == NULL)
        return capture_break(capture, CUDA_ERROR_OUT_OF_MEMORY);
    mark->capture = capture->id;
    if (!front_join(&mark->front, &capture_member(capture, stream)->front)) {
        front_clear(&mark->front);
        free(mark);
        return capture_break(capture, CUDA_ERROR_OUT_OF_MEMORY);
    }
    capture_set_mark(event, mark);
    return CUDA_SUCCESS;
}

CUresult capture_take_record(struct stream *stream, struct event *event, unsigned flags,
                             bool *taken)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    struct capture *capture;
    CUresult result;

    *taken = false;
    if (!capture_active() && atomic_load_explicit(&event->captured, memory_order_acquire) == NULL)
        return CUDA_SUCCESS;
    result = capture_begin_taking(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        params.eventRecord.event = (CUevent)event;
        result = (flags & CU_EVENT_RECORD_EXTERNAL) != 0
                     ? capture_add(capture, stream, &params, NULL)
                     : capture_mark_event(capture, stream, event);
        *taken = true;
    } else if (result == CUDA_SUCCESS) {
        capture_set_mark(event, NULL);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* A stream outside meets an event of a capture: it joins the capture, if that is under way. */
static CUresult capture_join_by_event(struct stream *stream, const struct capture_mark *mark)
{
    struct capture *capture = capture_find(mark->capture);
    struct capture_member *member;

    if (capture == NULL)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->legacy)
        return capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    member = capture_join(capture, stream);
    if (member == NULL || !front_join(&member->front, &mark->front))
        return capture_break(capture, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

/* A capturing stream meets an event: only one of the same capture may be waited for. */
static CUresult capture_wait_inside(struct capture *capture, struct stream *stream,
                                    const struct capture_mark *mark)
{
    struct capture *other;

    if (mark == NULL)
        return capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    if (mark->capture != capture->id) {
        other = capture_find(mark->capture);
        if (other != NULL)
            other->invalid = true;
        return capture_break(capture, other != NULL ? CUDA_ERROR_STREAM_CAPTURE_MERGE
                                                    : CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (!front_join(&capture_member(capture, stream)->front, &mark->front))
        return capture_break(capture, CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

CUresult capture_take_wait(struct stream *stream, struct event *event, unsigned flags, bool *taken)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    struct capture_mark *mark;
    struct capture *capture;
    CUresult result;

    *taken = false;
    if (!capture_active() && atomic_load_explicit(&event->captured, memory_order_acquire) == NULL)
        return CUDA_SUCCESS;
    result = capture_begin_taking(stream, &capture);
    mark = atomic_load_explicit(&event->captured, memory_order_relaxed);
    if (result == CUDA_SUCCESS && capture != NULL) {
        params.eventWait.event = (CUevent)event;
        result = (flags & CU_EVENT_WAIT_EXTERNAL) != 0 ? capture_add(capture, stream, &params, NULL)
                                                       : capture_wait_inside(capture, stream, mark);
        *taken = true;
    } else if (result == CUDA_SUCCESS && mark != NULL) {
        result = capture_join_by_event(stream, mark);
        *taken = true;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void capture_forget_event(struct event *event)
{
    if (atomic_load_explicit(&event->captured, memory_order_acquire) == NULL)
        return;
    pthread_mutex_lock(&lock);
    capture_set_mark(event, NULL);
    pthread_mutex_unlock(&lock);
}

/* A capture whose origin is gone cannot be ended: nothing of it stays. */
void capture_forget_stream(struct stream *stream)
{
    struct graph *graph = NULL;
    struct capture *capture;

    if (!capture_active())
        return;
    pthread_mutex_lock(&lock);
    capture = capture_of(stream);
    if (capture != NULL && capture->origin == stream) {
        graph = capture->borrowed ? NULL : capture->graph;
        capture_free(capture);
    } else if (capture != NULL) {
        capture->invalid = true;
        capture_drop_member(capture, capture_member(capture, stream));
    }
    pthread_mutex_unlock(&lock);
    graph_free(graph);
}

/* --- stream-ordered memory
 * ------------------------------------------------------------------------- */

CUresult capture_take_alloc(struct stream *stream, CUmemoryPool pool, CUdeviceptr *pointer,
                            size_t bytes, bool *taken)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    struct capture *capture;
    CUresult result;

    (void)pool;
    *taken = false;
    if (!capture_active())
        return CUDA_SUCCESS;
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.alloc.poolProps.location.id = (int)stream->context->device;
    params.alloc.bytesize = bytes;
    if (capture_of(stream) != NULL) {
        result = graph_memory_reserve(stream->context, bytes, &params.alloc.dptr);
        if (result != CUDA_SUCCESS)
            return result;
    }
    result = capture_begin_taking(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        result = capture_add(capture, stream, &params, NULL);
        *taken = true;
    }
    pthread_mutex_unlock(&lock);
    if (result == CUDA_SUCCESS && *taken)
        *pointer = params.alloc.dptr;
    if (params.alloc.dptr != 0)
        graph_memory_release(params.alloc.dptr);
    return result;
}

CUresult capture_take_free(struct stream *stream, CUdeviceptr pointer, bool *taken)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
    struct capture *capture;
    CUresult result;

    *taken = false;
    if (!capture_active())
        return CUDA_SUCCESS;
    params.free.dptr = pointer;
    result = capture_begin_taking(stream, &capture);
    if (result == CUDA_SUCCESS && capture != NULL) {
        result = capture_add(capture, stream, &params, NULL);
        *taken = true;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- begin and end
 * --------------------------------------------------------------------------------- */

/* Under the lock. graph NULL: a new one. */
static CUresult capture_open(struct stream *stream, CUstreamCaptureMode mode, struct graph *graph,
                             const struct capture_front *front)
{
    struct capture_member *member;
    struct capture *capture;

    if (capture_of(stream) != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture = calloc(1, sizeof(*capture));
    if (capture == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->id = ++capture_last_id;
    capture->context = stream->context;
    capture->origin = stream;
    capture->thread = pthread_self();
    capture->mode = mode;
    capture->borrowed = graph != NULL;
    capture->graph = graph != NULL ? graph : graph_new();
    capture->next = captures;
    captures = capture;
    atomic_fetch_add_explicit(&capture_count, 1, memory_order_release);
    member = capture->graph == NULL ? NULL : capture_join(capture, stream);
    if (member != NULL && (front == NULL || front_join(&member->front, front)))
        return CUDA_SUCCESS;
    if (!capture->borrowed)
        graph_free(capture->graph);
    capture_free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult capture_begin(CUstream handle, CUstreamCaptureMode mode, struct graph *graph,
                              const struct capture_front *front)
{
    struct context *context;
    struct stream *stream;
    CUresult result = sim_enter(&context);

    if (result == CUDA_SUCCESS)
        result = stream_find(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    result = capture_open(stream, mode, graph, front);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    ENTRY();
    return capture_begin(handle, mode, NULL, NULL);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream handle, CUstreamCaptureMode mode)
{
    ENTRY();
    return capture_begin(PER_THREAD(handle), mode, NULL, NULL);
}

/* The form of CUDA 10.0 had no mode: it is GLOBAL. */
CUresult cuStreamBeginCapture(CUstream handle)
{
    ENTRY();
    return capture_begin(handle, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

CUresult cuStreamBeginCapture_ptsz(CUstream handle)
{
    ENTRY();
    return capture_begin(PER_THREAD(handle), CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL);
}

static CUresult capture_begin_to(CUstream handle, CUgraph graph_handle, const CUgraphNode *nodes,
                                 size_t count, CUstreamCaptureMode mode)
{
    struct graph *graph = object_check(graph_handle, OBJECT_GRAPH);
    struct capture_front front = {NULL, 0};
    CUresult result = CUDA_SUCCESS;

    if (graph == NULL || (count > 0 && nodes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct node *node = object_check(nodes[i], OBJECT_NODE);

        if (node == NULL || node->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!front_add(&front, node))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        result = capture_begin(handle, mode, graph, &front);
    front_clear(&front);
    return result;
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode *nodes,
                                     const CUgraphEdgeData *data, size_t count,
                                     CUstreamCaptureMode mode)
{
    ENTRY();
    (void)data;
    return capture_begin_to(handle, graph, nodes, count, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream handle, CUgraph graph, const CUgraphNode *nodes,
                                          const CUgraphEdgeData *data, size_t count,
                                          CUstreamCaptureMode mode)
{
    ENTRY();
    (void)data;
    return capture_begin_to(PER_THREAD(handle), graph, nodes, count, mode);
}

/* Marks all that a node depends on; the stack holds each node at most once. */
static void capture_mark_reachable(struct node **stack, unsigned depth)
{
    while (depth > 0) {
        struct node *node = stack[--depth];

        for (unsigned i = 0; i < node->edge_count; i++)
            if (node->edges[i].from->mark == 0) {
                node->edges[i].from->mark = 1;
                stack[depth++] = node->edges[i].from;
            }
    }
}

/* Whether all that forked streams recorded leads back to the origin. */
static CUresult capture_check_joined(struct capture *capture)
{
    struct capture_front *front = &capture_member(capture, capture->origin)->front;
    struct node **stack = calloc(capture->graph->count + 1, sizeof(*stack));
    CUresult result = CUDA_SUCCESS;
    unsigned depth = 0;

    if (stack == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < capture->graph->count; i++)
        capture->graph->nodes[i]->mark = 0;
    for (; depth < front->count; depth++) {
        front->nodes[depth]->mark = 1;
        stack[depth] = front->nodes[depth];
    }
    capture_mark_reachable(stack, depth);
    for (unsigned i = 0; i < capture->member_count; i++)
        for (unsigned j = 0; j < capture->members[i].front.count; j++)
            if (capture->members[i].front.nodes[j]->mark == 0)
                result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    free(stack);
    return result;
}

/* Under the lock: ends the stream's capture. *graph is set on success, *garbage is to be freed. */
static CUresult capture_close(struct stream *stream, struct graph **graph, struct graph **garbage)
{
    struct capture *capture = capture_of(stream);
    CUresult result;

    if (capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return capture_break(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        pthread_equal(capture->thread, pthread_self()) == 0)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    result =
        capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : capture_check_joined(capture);
    if (result == CUDA_SUCCESS)
        *graph = capture->graph;
    else if (!capture->borrowed)
        *garbage = capture->graph;
    capture_free(capture);
    return result;
}

static CUresult capture_end(CUstream handle, CUgraph *out)
{
    struct graph *garbage = NULL;
    struct graph *graph = NULL;
    struct context *context;
    struct stream *stream;
    CUresult result = sim_enter(&context);

    if (result == CUDA_SUCCESS)
        result = stream_find(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    result = capture_close(stream, &graph, &garbage);
    pthread_mutex_unlock(&lock);
    graph_free(garbage);
    *out = (CUgraph)graph;
    return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    ENTRY();
    return capture_end(handle, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream handle, CUgraph *graph)
{
    ENTRY();
    return capture_end(PER_THREAD(handle), graph);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode old = thread_mode;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (mode == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* --- queries
 * --------------------------------------------------------------------------------------- */

struct capture_info {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    struct graph *graph;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    size_t count;
};

/* Under the lock. The answer's arrays stay the stream's until its next captured action. */
static CUresult capture_fill_info(struct capture *capture, struct stream *stream,
                                  struct capture_info *info)
{
    struct capture_member *member = capture_member(capture, stream);

    if (capture->invalid) {
        info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        return CUDA_SUCCESS;
    }
    free(member->edges);
    member->edges = calloc(member->front.count + 1, sizeof(*member->edges));
    if (member->edges == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    info->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    info->id = capture->id;
    info->graph = capture->graph;
    info->nodes = (const CUgraphNode *)member->front.nodes;
    info->edges = member->edges;
    info->count = member->front.count;
    return CUDA_SUCCESS;
}

/* Asking does not break anything; the legacy stream has no answer while a blocking one captures. */
static CUresult capture_ask(CUstream handle, struct capture_info *info)
{
    struct capture *capture;
    struct context *context;
    struct stream *stream;
    CUresult result = sim_enter(&context);

    memset(info, 0, sizeof(*info));
    if (result == CUDA_SUCCESS)
        result = stream_find(handle, &stream);
    if (result != CUDA_SUCCESS || !capture_active())
        return result;
    pthread_mutex_lock(&lock);
    capture = capture_of(stream);
    if (capture != NULL)
        result = capture_fill_info(capture, stream, info);
    for (capture = captures; stream->legacy && capture != NULL; capture = capture->next)
        if (!capture->invalid && capture_blocks(capture, stream->context))
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult capture_is(CUstream handle, CUstreamCaptureStatus *status)
{
    struct capture_info info;
    CUresult result;

    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_ask(handle, &info);
    if (result == CUDA_SUCCESS)
        *status = info.status;
    return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    ENTRY();
    return capture_is(handle, status);
}

CUresult cuStreamIsCapturing_ptsz(CUstream handle, CUstreamCaptureStatus *status)
{
    ENTRY();
    return capture_is(PER_THREAD(handle), status);
}

static CUresult capture_info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                             CUgraph *graph, const CUgraphNode **nodes,
                             const CUgraphEdgeData **edges, size_t *count)
{
    struct capture_info info;
    CUresult result;

    if (status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = capture_ask(handle, &info);
    if (result != CUDA_SUCCESS)
        return result;
    *status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id != NULL)
        *id = info.id;
    if (graph != NULL)
        *graph = (CUgraph)info.graph;
    if (nodes != NULL)
        *nodes = info.nodes;
    if (edges != NULL)
        *edges = info.edges;
    if (count != NULL)
        *count = info.count;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    ENTRY();
    return capture_info(handle, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    ENTRY();
    return capture_info(PER_THREAD(handle), status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    ENTRY();
    return capture_info(handle, status, id, graph, nodes, NULL, count);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream handle, CUstreamCaptureStatus *status,
                                        cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                        size_t *count)
{
    ENTRY();
    return capture_info(PER_THREAD(handle), status, id, graph, nodes, NULL, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    ENTRY();
    return capture_info(handle, status, id, graph, nodes, edges, count);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream handle, CUstreamCaptureStatus *status,
                                        cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                        const CUgraphEdgeData **edges, size_t *count)
{
    ENTRY();
    return capture_info(PER_THREAD(handle), status, id, graph, nodes, edges, count);
}

/* --- changing what comes next depends on
 * ------------------------------------------------------------ */

/* Under the lock: adds to a stream's front, or replaces it. */
static CUresult capture_change_front(struct capture *capture, struct stream *stream,
                                     const CUgraphNode *nodes, size_t count, unsigned flags)
{
    struct capture_member *member = capture_member(capture, stream);
    struct capture_front front = {NULL, 0};

    for (size_t i = 0; i < count; i++) {
        struct node *node = object_check(nodes[i], OBJECT_NODE);

        if (node == NULL || node->graph != capture->graph || !front_add(&front, node)) {
            front_clear(&front);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && !front_join(&front, &member->front)) {
        front_clear(&front);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    front_clear(&member->front);
    member->front = front;
    return CUDA_SUCCESS;
}

static CUresult capture_update(CUstream handle, const CUgraphNode *nodes, size_t count,
                               unsigned flags)
{
    struct capture *capture;
    struct context *context;
    struct stream *stream;
    CUresult result = sim_enter(&context);

    if (result == CUDA_SUCCESS)
        result = stream_find(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count > 0 && nodes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    capture = capture_of(stream);
    if (capture == NULL)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else
        result = capture_change_front(capture, stream, nodes, count, flags);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *nodes, size_t count,
                                           unsigned int flags)
{
    ENTRY();
    return capture_update(handle, nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream handle, CUgraphNode *nodes, size_t count,
                                                unsigned int flags)
{
    ENTRY();
    return capture_update(PER_THREAD(handle), nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *nodes,
                                              const CUgraphEdgeData *data, size_t count,
                                              unsigned int flags)
{
    ENTRY();
    (void)data;
    return capture_update(handle, nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream handle, CUgraphNode *nodes,
                                                   const CUgraphEdgeData *data, size_t count,
                                                   unsigned int flags)
{
    ENTRY();
    (void)data;
    return capture_update(PER_THREAD(handle), nodes, count, flags);
}
