/*
 * Executable graphs: a private copy of a graph, turned into the commands that a launch submits as
 * one action of its stream. Copies from and to pageable memory go through memory that the device
 * reaches, moved by host functions in stream order. An executable graph is one thread's at a time;
 * its launches follow one another also on different streams.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "core.h"

#include "graph.h"

/* A pageable copy's detour, at the beginning of the shared memory that it goes through. */
struct stage {
    struct command_copy copy; /* as the program wants it */
    unsigned char *buffer;    /* rows without gaps; NULL: host to host, no detour */
    struct stage *next;
};

enum { STAGE_HEAD = 256 };
_Static_assert(sizeof(struct stage) <= STAGE_HEAD, "the bytes follow the head");

struct exec {
    struct object object;
    struct graph *graph;
    uint64_t flags;
    bool stale;               /* commands are older than the nodes */
    struct command *commands; /* in the order of the sorted graph */
    const struct command **list;
    unsigned count, room;
    struct stage *stages;
    unsigned last_slot; /* stream and number of the last launch */
    uint64_t last_seq;
    struct stream *last_stream;
};

/* --- copies of pageable memory
 * ---------------------------------------------------------------------- */

static uint64_t stage_row(const struct command_copy *copy, uint64_t y, uint64_t z, bool from)
{
    return from ? copy->from + z * copy->from_slice + y * copy->from_pitch
                : copy->to + z * copy->to_slice + y * copy->to_pitch;
}

/* Runs on the driver's thread: program's memory to the detour. */
static void CUDA_CB stage_gather(void *argument)
{
    struct stage *stage = argument;
    const struct command_copy *copy = &stage->copy;
    unsigned char *to = stage->buffer;

    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++, to += copy->width)
            memcpy(to, (const void *)(uintptr_t)stage_row(copy, y, z, true), copy->width);
}

/* And from the detour to the program's memory. */
static void CUDA_CB stage_scatter(void *argument)
{
    struct stage *stage = argument;
    const struct command_copy *copy = &stage->copy;
    const unsigned char *from = stage->buffer;

    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++, from += copy->width)
            memcpy((void *)(uintptr_t)stage_row(copy, y, z, false), from, copy->width);
}

static void CUDA_CB stage_move(void *argument)
{
    struct stage *stage = argument;
    const struct command_copy *copy = &stage->copy;

    for (uint64_t z = 0; z < copy->depth; z++)
        for (uint64_t y = 0; y < copy->height; y++)
            memcpy((void *)(uintptr_t)stage_row(copy, y, z, false),
                   (const void *)(uintptr_t)stage_row(copy, y, z, true), copy->width);
}

static struct stage *stage_new(struct exec *exec, const struct command_copy *copy)
{
    uint64_t bytes = copy->direction == COPY_HTOH ? 0 : copy->width * copy->height * copy->depth;
    struct stage *stage = shared_take(STAGE_HEAD + bytes);

    if (stage == NULL)
        return NULL;
    memset(stage, 0, sizeof(*stage));
    stage->copy = *copy;
    stage->buffer = bytes == 0 ? NULL : (unsigned char *)stage + STAGE_HEAD;
    stage->next = exec->stages;
    exec->stages = stage;
    return stage;
}

/* Launches that are still queued may use them: they go when the last one is done. */
static void exec_drop_stages(struct exec *exec)
{
    while (exec->stages != NULL) {
        struct stage *stage = exec->stages;

        exec->stages = stage->next;
        if (exec->last_stream != NULL &&
            object_check(exec->last_stream, OBJECT_STREAM) == exec->last_stream)
            shared_put_later(stage, exec->last_stream, exec->last_seq);
        else
            shared_put(stage);
    }
}

/* --- nodes to commands
 * -------------------------------------------------------------------------------- */

static CUresult exec_emit(struct exec *exec, const struct command *command)
{
    struct command *grown;

    if (exec->count == exec->room) {
        exec->room = exec->room == 0 ? 16 : 2 * exec->room;
        grown = realloc(exec->commands, exec->room * sizeof(*grown));
        if (grown == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        exec->commands = grown;
    }
    exec->commands[exec->count++] = *command;
    return CUDA_SUCCESS;
}

static CUresult exec_emit_host(struct exec *exec, CUhostFn function, void *argument)
{
    struct command command = {.kind = COMMAND_HOST};

    command.host.function = (uint64_t)(uintptr_t)function;
    command.host.argument = (uint64_t)(uintptr_t)argument;
    return exec_emit(exec, &command);
}

static CUresult exec_emit_kernel(struct exec *exec, const struct node *node)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    struct command command = {.kind = COMMAND_KERNEL};

    if (object_check(node->function, OBJECT_FUNCTION) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    command.flags = node->programmatic ? COMMAND_PROGRAMMATIC : 0;
    command.function = node->function;
    command.params = node->bytes;
    command.launch = (struct command_launch){
        .shared = kernel->sharedMemBytes,
        .grid = {kernel->gridDimX, kernel->gridDimY, kernel->gridDimZ},
        .block = {kernel->blockDimX, kernel->blockDimY, kernel->blockDimZ},
        .cooperative = node->cooperative,
    };
    return exec_emit(exec, &command);
}

static bool exec_reaches(const struct command_copy *copy, bool from)
{
    uint64_t start = stage_row(copy, 0, 0, from);
    uint64_t end = stage_row(copy, copy->height - 1, copy->depth - 1, from) + copy->width;

    return memory_is_reachable((const void *)(uintptr_t)start, end - start);
}

/* A copy with one side in pageable memory: in through the detour before, or out after. */
static CUresult exec_emit_staged(struct exec *exec, struct command *command)
{
    struct command_copy *copy = &command->copy;
    struct stage *stage = stage_new(exec, copy);
    CUresult result = CUDA_SUCCESS;

    if (stage == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (copy->direction == COPY_HTOH)
        return exec_emit_host(exec, stage_move, stage);
    if (copy->direction == COPY_HTOD) {
        copy->from = (uint64_t)(uintptr_t)stage->buffer;
        copy->from_pitch = copy->width;
        copy->from_slice = copy->width * copy->height;
        result = exec_emit_host(exec, stage_gather, stage);
        return result == CUDA_SUCCESS ? exec_emit(exec, command) : result;
    }
    copy->to = (uint64_t)(uintptr_t)stage->buffer;
    copy->to_pitch = copy->width;
    copy->to_slice = copy->width * copy->height;
    result = exec_emit(exec, command);
    return result == CUDA_SUCCESS ? exec_emit_host(exec, stage_scatter, stage) : result;
}

static CUresult exec_emit_copy(struct exec *exec, const struct node *node)
{
    struct command command = {.kind = COMMAND_COPY};
    bool direct;
    CUresult result = node_copy_command(&node->params.memcpy.copyParams, &command.copy);

    if (result != CUDA_SUCCESS)
        return result;
    direct = (command.copy.direction != COPY_HTOD && command.copy.direction != COPY_HTOH) ||
             exec_reaches(&command.copy, true);
    if (command.copy.direction == COPY_DTOH || command.copy.direction == COPY_HTOH)
        direct = direct && exec_reaches(&command.copy, false);
    return direct ? exec_emit(exec, &command) : exec_emit_staged(exec, &command);
}

static CUresult exec_emit_memset(struct exec *exec, const struct node *node)
{
    const CUDA_MEMSET_NODE_PARAMS_v2 *params = &node->params.memset;
    struct command command = {.kind = COMMAND_MEMSET};

    command.memset = (struct command_memset){
        .to = params->dst,
        .pitch = params->height > 1 ? params->pitch : params->width * params->elementSize,
        .width = params->width,
        .height = params->height,
        .value = params->value,
        .element = params->elementSize,
    };
    return exec_emit(exec, &command);
}

static CUresult exec_emit_event(struct exec *exec, CUevent handle, bool wait)
{
    struct command command = {.kind = COMMAND_RECORD, .wait = wait};

    command.record.event = object_check(handle, OBJECT_EVENT);
    if (command.record.event == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return exec_emit(exec, &command);
}

static CUresult exec_emit_operation(struct exec *exec, const CUstreamBatchMemOpParams *operation)
{
    bool wide = operation->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                operation->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    struct command command = {.kind = COMMAND_NOTHING};

    switch (operation->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        command.kind = COMMAND_VALUE_WAIT;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        command.kind = COMMAND_VALUE_WRITE;
        break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    command.value = (struct command_value){
        .address = operation->waitValue.address,
        .value = wide ? operation->waitValue.value64 : operation->waitValue.value,
        .bytes = wide ? 8 : 4,
        .operation = command.kind == COMMAND_VALUE_WAIT ? operation->waitValue.flags & 3 : 0,
    };
    return exec_emit(exec, &command);
}

static CUresult exec_emit_operations(struct exec *exec, const struct node *node)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < node->params.memOp.count && result == CUDA_SUCCESS; i++)
        result = exec_emit_operation(exec, &node->operations[i]);
    return result;
}

static CUresult exec_emit_graph(struct exec *exec, const struct graph *graph);

/* What a body may hold, and what its child graphs may. */
static bool exec_body_fits(const struct graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++)
        switch (graph->nodes[i]->params.type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
        case CU_GRAPH_NODE_TYPE_EMPTY:
        case CU_GRAPH_NODE_TYPE_MEMSET:
        case CU_GRAPH_NODE_TYPE_MEMCPY:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            if (exec_body_fits(graph->nodes[i]->child))
                break;
            return false;
        default:
            return false;
        }
    return true;
}

/* The value is known beforehand, and with it which body runs, and how often. */
static CUresult exec_emit_conditional(struct exec *exec, const struct node *node)
{
    const CUDA_CONDITIONAL_NODE_PARAMS *conditional = &node->params.conditional;
    unsigned body = conditional->type == CU_GRAPH_COND_TYPE_SWITCH ? node->value : node->value == 0;
    unsigned rounds = conditional->type == CU_GRAPH_COND_TYPE_WHILE ? sim.rounds : 1;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < conditional->size; i++)
        if (!exec_body_fits(node_body(node, i)))
            return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < rounds && body < conditional->size && result == CUDA_SUCCESS; i++)
        result = exec_emit_graph(exec, node_body(node, body));
    return result;
}

static CUresult exec_emit_node(struct exec *exec, const struct node *node)
{
    if (node->disabled)
        return CUDA_SUCCESS;
    switch (node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return exec_emit_kernel(exec, node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return exec_emit_copy(exec, node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return exec_emit_memset(exec, node);
    case CU_GRAPH_NODE_TYPE_HOST:
        return exec_emit_host(exec, node->params.host.fn, node->params.host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return exec_emit_graph(exec, node->child);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return exec_emit_event(exec, node->params.eventWait.event, true);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return exec_emit_event(exec, node->params.eventRecord.event, false);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return exec_emit_operations(exec, node);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return exec_emit_conditional(exec, node);
    default:
        return CUDA_SUCCESS; /* empty nodes, and memory nodes, which are the launch's */
    }
}

static CUresult exec_emit_graph(struct exec *exec, const struct graph *graph)
{
    struct node **sorted;
    CUresult result = graph_sort(graph, &sorted);

    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < graph->count && result == CUDA_SUCCESS; i++)
        result = exec_emit_node(exec, sorted[i]);
    free(sorted);
    return result;
}

/* Makes the commands anew. */
static CUresult exec_build(struct exec *exec)
{
    CUresult result;

    exec_drop_stages(exec);
    exec->count = 0;
    result = exec_emit_graph(exec, exec->graph);
    free(exec->list);
    exec->list = calloc(exec->count + 1, sizeof(*exec->list));
    if (exec->list == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < exec->count; i++)
        exec->list[i] = &exec->commands[i];
    exec->stale = result != CUDA_SUCCESS;
    return result;
}

/* --- instantiation
 * -------------------------------------------------------------------------------------- */

static void exec_free(struct exec *exec)
{
    exec_drop_stages(exec);
    graph_free(exec->graph);
    free(exec->commands);
    free(exec->list);
    object_end(exec);
}

static CUresult exec_check_flags(uint64_t flags)
{
    uint64_t known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    uint64_t apart =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;

    return (flags & ~known) != 0 || (flags & apart) == apart ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_SUCCESS;
}

static bool exec_lives(const struct graph *graph)
{
    const struct exec *exec =
        graph->instance == NULL ? NULL : object_check(graph->instance, OBJECT_EXEC);

    return exec != NULL && exec->object.id == graph->instance_id;
}

static CUresult exec_new(CUgraphExec *out, CUgraph handle, uint64_t flags)
{
    struct graph *graph;
    struct exec *exec;
    CUresult result = graph_check(handle, &graph);

    if (result == CUDA_SUCCESS)
        result = exec_check_flags(flags);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || (graph_conditional(graph) && exec_lives(graph)))
        return CUDA_ERROR_INVALID_VALUE;
    exec = object_new(OBJECT_EXEC, sizeof(*exec));
    if (exec == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    result = graph_copy(graph, &exec->graph);
    if (result == CUDA_SUCCESS)
        result = exec_build(exec);
    if (result != CUDA_SUCCESS) {
        exec_free(exec);
        return result;
    }
    graph->instance = exec;
    graph->instance_id = exec->object.id;
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

static CUresult exec_new_with_log(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
                                  size_t size)
{
    if (node != NULL)
        *node = NULL;
    if (log != NULL && size > 0)
        log[0] = '\0';
    return exec_new(out, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
                            size_t size)
{
    ENTRY();
    return exec_new_with_log(out, graph, node, log, size);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *node, char *log,
                               size_t size)
{
    ENTRY();
    return exec_new_with_log(out, graph, node, log, size);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    ENTRY();
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return exec_new(out, graph, flags);
}

static CUresult exec_new_with_params(CUgraphExec *out, CUgraph graph,
                                     CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result;

    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = exec_new(out, graph, params->flags);
    params->hErrNode_out = NULL;
    params->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    ENTRY();
    return exec_new_with_params(out, graph, params);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    ENTRY();
    return exec_new_with_params(out, graph, params);
}

static CUresult exec_check(CUgraphExec handle, struct exec **exec)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *exec = object_check(handle, OBJECT_EXEC);
    return *exec == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    struct exec *exec;
    CUresult result;

    ENTRY();
    result = exec_check(handle, &exec);
    if (result == CUDA_SUCCESS)
        exec_free(exec);
    return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    struct exec *exec;
    CUresult result;

    ENTRY();
    result = exec_check(handle, &exec);
    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* --- launch
 * --------------------------------------------------------------------------------------------- */

/* Gives back what a launch that is not going to happen has allocated: the first nodes' memory. */
static void exec_unallocate(const struct graph *graph, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct node *node = graph->nodes[i];

        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            graph_memory_free(node->params.alloc.dptr);
        else if (node->child != NULL)
            exec_unallocate(node->child, node->child->count);
    }
}

/* Allocations first, so that a refusal comes before anything is freed. All of them or none. */
static CUresult exec_allocate(const struct graph *graph, bool reuse)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];

        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            result = graph_memory_use(node->params.alloc.dptr, reuse);
        else if (node->child != NULL)
            result = exec_allocate(node->child, reuse);
        if (result != CUDA_SUCCESS) {
            exec_unallocate(graph, i);
            break;
        }
    }
    return result;
}

static void exec_deallocate(const struct graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];

        if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            graph_memory_free(node->params.free.dptr);
        else if (node->child != NULL)
            exec_deallocate(node->child);
    }
}

/* Puts the stream behind this graph's last launch, if that was elsewhere and is not done. */
static CUresult exec_follow(struct exec *exec, struct stream *stream)
{
    struct dependency last = {
        .kind = DEPENDENCY_STREAM, .slot = exec->last_slot, .seq = exec->last_seq};

    if (exec->last_seq == 0 || exec->last_stream == stream)
        return CUDA_SUCCESS;
    return submit_dependencies(stream, &last, 1);
}

/* A module may have been unloaded since: its functions have ended. */
static bool exec_functions_live(const struct exec *exec)
{
    for (unsigned i = 0; i < exec->count; i++)
        if (exec->commands[i].kind == COMMAND_KERNEL &&
            object_check(exec->commands[i].function, OBJECT_FUNCTION) == NULL)
            return false;
    return true;
}

static CUresult exec_submit(struct exec *exec, struct stream *stream)
{
    struct command command = {.kind = exec->count == 0 ? COMMAND_NOTHING : COMMAND_GRAPH};
    uint64_t seq = 0;
    CUresult result;

    if (!exec_functions_live(exec))
        return CUDA_ERROR_INVALID_HANDLE;
    result = exec_follow(exec, stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (exec->count > 0) {
        command.graph.nodes = exec->list;
        command.graph.count = exec->count;
    }
    result = stream_submit_raw(stream, &command, &seq);
    if (result != CUDA_SUCCESS)
        return result;
    exec->last_stream = stream;
    exec->last_slot = stream->slot;
    exec->last_seq = seq;
    return CUDA_SUCCESS;
}

static CUresult exec_launch(CUgraphExec handle, CUstream stream_handle)
{
    struct context *context;
    struct stream *stream;
    struct exec *exec;
    bool taken;
    CUresult result = sim_enter(&context);

    if (result == CUDA_SUCCESS)
        result = stream_find(stream_handle, &stream);
    if (result == CUDA_SUCCESS)
        result = exec_check(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = capture_take_graph(stream, exec->graph, &taken);
    if (result != CUDA_SUCCESS || taken)
        return result;
    if (exec->stale)
        result = exec_build(exec);
    if (result == CUDA_SUCCESS)
        result = exec_allocate(
            exec->graph, (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = exec_submit(exec, stream);
    if (result == CUDA_SUCCESS)
        exec_deallocate(exec->graph);
    else
        exec_unallocate(exec->graph, exec->graph->count);
    return result;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    ENTRY();
    return exec_launch(exec, stream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    ENTRY();
    return exec_launch(exec, PER_THREAD(stream));
}

/* Nothing has to reach the device before a launch; what is checked is what could fail there. */
static CUresult exec_upload(CUgraphExec handle, CUstream stream_handle)
{
    struct context *context;
    struct stream *stream;
    struct exec *exec;
    CUresult result = sim_enter(&context);

    if (result == CUDA_SUCCESS)
        result = stream_find(stream_handle, &stream);
    if (result == CUDA_SUCCESS)
        result = exec_check(handle, &exec);
    if (result == CUDA_SUCCESS)
        result = capture_check_stream(stream);
    return result == CUDA_SUCCESS && exec->stale ? exec_build(exec) : result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    ENTRY();
    return exec_upload(exec, stream);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    ENTRY();
    return exec_upload(exec, PER_THREAD(stream));
}

/* --- changing executable graphs
 * ---------------------------------------------------------------------------- */

/* The executable graph's copy of a node of the graph it was made from. */
static CUresult exec_find(CUgraphExec handle, CUgraphNode node_handle, struct exec **exec,
                          struct node **copy)
{
    struct node *node;
    CUresult result = exec_check(handle, exec);

    if (result == CUDA_SUCCESS)
        result = graph_check_node(node_handle, &node);
    if (result != CUDA_SUCCESS)
        return result;
    *copy = graph_find_copy((*exec)->graph, node->object.id);
    return *copy == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* What may not change in an executable graph. */
static CUgraphExecUpdateResult exec_compare_node(const struct node *old, const struct node *new)
{
    const CUDA_MEMCPY3D *from = &old->params.memcpy.copyParams;
    const CUDA_MEMCPY3D *to = &new->params.memcpy.copyParams;

    if (old->params.type != new->params.type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch (old->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return old->context == new->context
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return from->srcMemoryType == to->srcMemoryType && from->dstMemoryType == to->dstMemoryType
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return old->params.alloc.dptr == new->params.alloc.dptr
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return old->params.free.dptr == new->params.free.dptr
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return old->params.conditional.type == new->params.conditional.type &&
                       old->params.conditional.size == new->params.conditional.size
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default:
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

static void exec_number(const struct graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = i;
}

static bool exec_same_edges(const struct node *old, const struct node *new)
{
    if (old->edge_count != new->edge_count)
        return false;
    for (unsigned i = 0; i < old->edge_count; i++)
        if (old->edges[i].from->mark != new->edges[i].from->mark)
            return false;
    return true;
}

/* Whether a graph may replace an executable one: the same nodes and edges in the same order. */
static CUgraphExecUpdateResult exec_compare(const struct graph *old, const struct graph *new,
                                            const struct node **where)
{
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

    *where = NULL;
    if (old->count != new->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    exec_number(old);
    exec_number(new);
    for (unsigned i = 0; i < old->count; i++) {
        *where = new->nodes[i];
        result = exec_compare_node(old->nodes[i], new->nodes[i]);
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return result;
        if (!exec_same_edges(old->nodes[i], new->nodes[i]))
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    for (unsigned i = 0; i < old->count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++) {
        for (unsigned j = 0; j < node_body_count(old->nodes[i]) && !result; j++)
            result = exec_compare(node_body(old->nodes[i], j), node_body(new->nodes[i], j), where);
        if (old->nodes[i]->child != NULL)
            result = exec_compare(old->nodes[i]->child, new->nodes[i]->child, where);
    }
    return result;
}

static CUresult exec_replace(struct graph *old, const struct graph *new)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < old->count && result == CUDA_SUCCESS; i++) {
        old->nodes[i]->value = new->nodes[i]->value;
        for (unsigned j = 0; j < node_body_count(old->nodes[i]) && result == CUDA_SUCCESS; j++)
            result = exec_replace(node_body(old->nodes[i], j), node_body(new->nodes[i], j));
        if (old->nodes[i]->bodies != NULL)
            continue;
        if (old->nodes[i]->child != NULL)
            result = exec_replace(old->nodes[i]->child, new->nodes[i]->child);
        else if (old->nodes[i]->params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            result = node_set(old->nodes[i], &new->nodes[i]->params, new->nodes[i]->context);
        old->nodes[i]->cooperative = new->nodes[i]->cooperative;
        old->nodes[i]->programmatic = new->nodes[i]->programmatic;
    }
    return result;
}

static CUresult exec_update(CUgraphExec handle, CUgraph graph_handle,
                            CUgraphExecUpdateResult *answer, CUgraphNode *node)
{
    const struct node *where = NULL;
    struct graph *graph;
    struct exec *exec;
    CUresult result = exec_check(handle, &exec);

    *answer = CU_GRAPH_EXEC_UPDATE_ERROR;
    *node = NULL;
    if (result == CUDA_SUCCESS)
        result = graph_check(graph_handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    *answer = exec_compare(exec->graph, graph, &where);
    if (*answer != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        *node = (CUgraphNode)where;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    result = exec_replace(exec->graph, graph);
    exec->stale = true;
    return result;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
                           CUgraphExecUpdateResult *answer)
{
    ENTRY();
    if (node == NULL || answer == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return exec_update(exec, graph, answer, node);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    ENTRY();
    if (info == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof(*info));
    return exec_update(exec, graph, &info->result, &info->errorNode);
}

/* One node's new parameters; a child graph's are replaced node by node, so that its nodes can still
 * be named. */
static CUresult exec_change(CUgraphExec handle, CUgraphNode node, const CUgraphNodeParams *params)
{
    const struct node *where;
    struct graph *child;
    struct exec *exec;
    struct node *copy;
    CUresult result = exec_find(handle, node, &exec, &copy);

    if (result != CUDA_SUCCESS)
        return result;
    if (copy->params.type != params->type)
        return CUDA_ERROR_INVALID_VALUE;
    exec->stale = true;
    if (params->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return node_set(copy, params, copy->context);
    result = graph_check(params->graph.graph, &child);
    if (result != CUDA_SUCCESS)
        return result;
    if (exec_compare(copy->child, child, &where) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return exec_replace(copy->child, child);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    ENTRY();
    if (params == NULL || params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_INVALID_VALUE;
    return exec_change(exec, node, params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.kernel, from, sizeof(*from));
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2 *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.kernel, from, sizeof(*from));
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *from, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params.memcpy.copyParams = *from;
    params.memcpy.copyCtx = context;
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&params.memset, from, sizeof(*from));
    params.memset.ctx = context;
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params.host.fn = from->fn;
    params.host.userData = from->userData;
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};

    ENTRY();
    params.graph.graph = child;
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};

    ENTRY();
    params.eventRecord.event = event;
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT};

    ENTRY();
    params.eventWait.event = event;
    return exec_change(exec, node, &params);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params.memOp.ctx = from->ctx;
    params.memOp.count = from->count;
    params.memOp.paramArray = from->paramArray;
    params.memOp.flags = from->flags;
    return exec_change(exec, node, &params);
}

static bool exec_can_disable(const struct node *node)
{
    return node->params.type == CU_GRAPH_NODE_TYPE_KERNEL ||
           node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node->params.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled)
{
    struct exec *exec;
    struct node *copy;
    CUresult result;

    ENTRY();
    result = exec_find(handle, node, &exec, &copy);
    if (result != CUDA_SUCCESS)
        return result;
    if (!exec_can_disable(copy))
        return CUDA_ERROR_INVALID_VALUE;
    copy->disabled = enabled == 0;
    exec->stale = true;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int *enabled)
{
    struct exec *exec;
    struct node *copy;
    CUresult result;

    ENTRY();
    result = exec_find(handle, node, &exec, &copy);
    if (result != CUDA_SUCCESS)
        return result;
    if (enabled == NULL || !exec_can_disable(copy))
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !copy->disabled;
    return CUDA_SUCCESS;
}

/* --- printing
 * -----------------------------------------------------------------------------------------------
 */

static const char *exec_name_type(CUgraphNodeType type)
{
    static const char *const names[] = {
        "kernel",
        "memcpy",
        "memset",
        "host",
        "graph",
        "empty",
        "event wait",
        "event record",
        "signal",
        "wait",
        "alloc",
        "free",
        "memory operations",
        "conditional",
    };

    return (unsigned)type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}

static void exec_print(FILE *file, const struct graph *graph)
{
    fprintf(file, "digraph graph_%llu {\n", (unsigned long long)graph->object.id);
    for (unsigned i = 0; i < graph->count; i++) {
        const struct node *node = graph->nodes[i];

        fprintf(file, "    n%llu [label=\"%s%s%s\"];\n", (unsigned long long)node->object.id,
                exec_name_type(node->params.type), node->function != NULL ? " " : "",
                node->function != NULL ? node->function->name : "");
        for (unsigned j = 0; j < node->edge_count; j++)
            fprintf(file, "    n%llu -> n%llu;\n",
                    (unsigned long long)node->edges[j].from->object.id,
                    (unsigned long long)node->object.id);
    }
    fprintf(file, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
    struct graph *graph;
    CUresult result;
    FILE *file;

    ENTRY();
    (void)flags;
    result = graph_check(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    file = path == NULL ? NULL : fopen(path, "we");
    if (file == NULL)
        return path == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OPERATING_SYSTEM;
    exec_print(file, graph);
    return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
