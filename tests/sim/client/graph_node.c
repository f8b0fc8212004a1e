/*
 * What graph nodes do: their parameters, checked and copied, and the entry points that add nodes
 * and read or change them. Parameters of every kind are kept in the driver's own union; what a
 * captured command means is translated into it. A graph is one thread's at a time.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "core.h"

#include "graph.h"
#include "module.h"

enum { NODE_MOST_OPERATIONS = 256 };

/* --- contents
 * ---------------------------------------------------------------------------------------- */

unsigned node_body_count(const struct node *node)
{
    return node->bodies == NULL ? 0 : node->params.conditional.size;
}

struct graph *node_body(const struct node *node, unsigned i)
{
    return (struct graph *)node->bodies[i];
}

void node_free(struct node *node)
{
    free(node->bytes);
    free(node->pointers);
    free(node->operations);
    free(node->attributes);
    graph_free(node->child);
    for (unsigned i = 0; i < node_body_count(node); i++)
        graph_free(node_body(node, i));
    free(node->bodies);
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->params.alloc.dptr != 0)
        graph_memory_release(node->params.alloc.dptr);
    node->bytes = NULL;
    node->pointers = NULL;
    node->operations = NULL;
    node->attributes = NULL;
    node->child = NULL;
    node->bodies = NULL;
    memset(&node->params, 0, sizeof(node->params));
}

static CUresult node_find_context(CUcontext handle, struct context *fallback,
                                  struct context **context)
{
    struct green *green;

    *context = handle == NULL ? fallback : context_check(handle, &green);
    return *context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

/* A packed buffer and its size out of the list that a launch's `extra` is. */
static CUresult node_unpack_extra(void **extra, const void **buffer, size_t *bytes)
{
    *buffer = NULL;
    *bytes = 0;
    for (; extra != NULL && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != NULL)
            *bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return *buffer == NULL && *bytes > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Copies a kernel's parameters into node->bytes, with node->pointers leading there. */
static CUresult node_pack(struct node *node, void **values, void **extra)
{
    const struct function *function = node->function;
    const void *buffer;
    size_t bytes;
    CUresult result;

    if ((values != NULL && extra != NULL) ||
        (values == NULL && extra == NULL && function->param_count > 0))
        return CUDA_ERROR_INVALID_VALUE;
    node->bytes = calloc(1, function->param_bytes + 1);
    node->pointers = calloc(function->param_count + 1, sizeof(*node->pointers));
    if (node->bytes == NULL || node->pointers == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = node_unpack_extra(extra, &buffer, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (buffer != NULL)
        memcpy(node->bytes, buffer, bytes < function->param_bytes ? bytes : function->param_bytes);
    for (unsigned i = 0; i < function->param_count; i++) {
        node->pointers[i] = node->bytes + function->params[i].offset;
        if (values == NULL)
            continue;
        if (values[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(node->pointers[i], values[i], function->params[i].bytes);
    }
    return CUDA_SUCCESS;
}

static bool node_shape_fits(const CUDA_KERNEL_NODE_PARAMS_v3 *kernel, const struct function *f)
{
    uint64_t threads = (uint64_t)kernel->blockDimX * kernel->blockDimY * kernel->blockDimZ;

    return kernel->gridDimX != 0 && kernel->gridDimY != 0 && kernel->gridDimZ != 0 &&
           threads != 0 &&
           threads <= (uint64_t)f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
}

static CUresult node_set_kernel(struct node *node, struct context *fallback)
{
    CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &node->params.kernel;
    CUfunction handle = kernel->func != NULL ? kernel->func : (CUfunction)kernel->kern;
    CUresult result = node_find_context(kernel->ctx, fallback, &node->context);

    if (result == CUDA_SUCCESS)
        result = module_resolve_function(handle, node->context, &node->function);
    if (result != CUDA_SUCCESS)
        return result;
    if (!node_shape_fits(kernel, node->function))
        return CUDA_ERROR_INVALID_VALUE;
    result = node_pack(node, kernel->kernelParams, kernel->extra);
    kernel->ctx = (CUcontext)node->context;
    kernel->kernelParams = node->pointers;
    kernel->extra = NULL;
    return result;
}

/* One side of a copy: its first byte, the distances of rows and of layers, and where it lies. */
struct node_side {
    CUmemorytype type;
    CUdeviceptr base;
    size_t x, y, z, pitch, height;
};

static CUresult node_place_side(const struct node_side *side, size_t width, size_t height,
                                uint64_t *address, uint64_t *pitch, uint64_t *slice, bool *device)
{
    *pitch = side->pitch != 0 ? side->pitch : side->x + width;
    *slice = *pitch * (side->height != 0 ? side->height : side->y + height);
    *address = side->base + side->z * *slice + side->y * *pitch + side->x;
    *device = side->type == CU_MEMORYTYPE_DEVICE ||
              (side->type == CU_MEMORYTYPE_UNIFIED && memory_is_device(*address));
    if (side->type == CU_MEMORYTYPE_ARRAY) {
        sim_log("graph copies of arrays are not implemented");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return side->base == 0 || side->type < CU_MEMORYTYPE_HOST || side->type > CU_MEMORYTYPE_UNIFIED
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult node_copy_command(const CUDA_MEMCPY3D *copy, struct command_copy *command)
{
    struct node_side from = {
        .type = copy->srcMemoryType,
        .base = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)copy->srcHost
                                                          : copy->srcDevice,
        .x = copy->srcXInBytes,
        .y = copy->srcY,
        .z = copy->srcZ,
        .pitch = copy->srcPitch,
        .height = copy->srcHeight,
    };
    struct node_side to = {
        .type = copy->dstMemoryType,
        .base = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)copy->dstHost
                                                          : copy->dstDevice,
        .x = copy->dstXInBytes,
        .y = copy->dstY,
        .z = copy->dstZ,
        .pitch = copy->dstPitch,
        .height = copy->dstHeight,
    };
    bool from_device;
    bool to_device;
    CUresult result;

    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memset(command, 0, sizeof(*command));
    command->width = copy->WidthInBytes;
    command->height = copy->Height;
    command->depth = copy->Depth;
    result = node_place_side(&from, copy->WidthInBytes, copy->Height, &command->from,
                             &command->from_pitch, &command->from_slice, &from_device);
    if (result == CUDA_SUCCESS)
        result = node_place_side(&to, copy->WidthInBytes, copy->Height, &command->to,
                                 &command->to_pitch, &command->to_slice, &to_device);
    if (from_device)
        command->direction = to_device ? COPY_DTOD : COPY_DTOH;
    else
        command->direction = to_device ? COPY_HTOD : COPY_HTOH;
    return result;
}

static CUresult node_set_copy(struct node *node, struct context *fallback)
{
    struct command_copy unused;
    CUresult result = node_find_context(node->params.memcpy.copyCtx, fallback, &node->context);

    node->params.memcpy.copyCtx = (CUcontext)node->context;
    return result == CUDA_SUCCESS ? node_copy_command(&node->params.memcpy.copyParams, &unused)
                                  : result;
}

static CUresult node_set_memset(struct node *node, struct context *fallback)
{
    CUDA_MEMSET_NODE_PARAMS_v2 *params = &node->params.memset;
    CUresult result = node_find_context(params->ctx, fallback, &node->context);

    params->ctx = (CUcontext)node->context;
    if (result != CUDA_SUCCESS)
        return result;
    if ((params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4) ||
        params->width == 0 || params->height == 0 || params->dst == 0 ||
        params->dst % params->elementSize != 0 ||
        (params->height > 1 && params->pitch < params->width * params->elementSize))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The child is copied unless the parameters hand it over. */
static CUresult node_set_child(struct node *node)
{
    struct graph *graph = object_check(node->params.graph.graph, OBJECT_GRAPH);
    bool moved = false;
    CUresult result = CUDA_SUCCESS;

    if (graph == NULL || graph == node->graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_conditional(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
#if CUDA_VERSION >= 12090
    moved = node->params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    node->params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
#endif
    if (moved && graph->owner != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (moved)
        node->child = graph;
    else
        result = graph_copy(graph, &node->child);
    node->params.graph.graph = (CUgraph)node->child;
    return result;
}

static CUresult node_set_operations(struct node *node, struct context *fallback)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *batch = &node->params.memOp;
    CUresult result = node_find_context(batch->ctx, fallback, &node->context);

    batch->ctx = (CUcontext)node->context;
    if (result != CUDA_SUCCESS)
        return result;
    if (batch->count == 0 || batch->count > NODE_MOST_OPERATIONS || batch->paramArray == NULL ||
        batch->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    node->operations = calloc(batch->count, sizeof(*node->operations));
    if (node->operations == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(node->operations, batch->paramArray, batch->count * sizeof(*node->operations));
    batch->paramArray = node->operations;
    return CUDA_SUCCESS;
}

static CUresult node_set_alloc(struct node *node, struct context *fallback)
{
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 *alloc = &node->params.alloc;

    node->context = fallback;
    alloc->accessDescs = NULL;
    alloc->accessDescCount = 0;
    if (fallback == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (alloc->bytesize == 0 || alloc->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
        alloc->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        alloc->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (alloc->dptr != 0) {
        graph_memory_retain(alloc->dptr);
        return CUDA_SUCCESS;
    }
    return graph_memory_reserve(fallback, alloc->bytesize, &alloc->dptr);
}

static CUresult node_set_event(CUevent handle)
{
    return object_check(handle, OBJECT_EVENT) == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The variable that a conditional node obeys. Only its default ever sets it here. */
struct condition {
    struct object object;
    struct graph *graph;
    unsigned value;
};

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags)
{
    struct condition *condition;
    struct context *context;
    struct graph *graph;
    CUresult result;

    ENTRY();
    result = graph_check(hGraph, &graph);
    if (result == CUDA_SUCCESS)
        result = node_find_context(ctx, context_current(), &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (pHandle_out == NULL || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    condition = object_new(OBJECT_CONDITION, sizeof(*condition));
    if (condition == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    condition->graph = graph;
    condition->value = flags == CU_GRAPH_COND_ASSIGN_DEFAULT ? defaultLaunchValue : 0;
    *pHandle_out = (CUgraphConditionalHandle)(uintptr_t)condition;
    return CUDA_SUCCESS;
}

static bool node_condition_fits(const CUDA_CONDITIONAL_NODE_PARAMS *conditional)
{
    switch (conditional->type) {
    case CU_GRAPH_COND_TYPE_IF:
        return conditional->size == 1 || conditional->size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return conditional->size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return conditional->size > 0;
    default:
        return false;
    }
}

/* A new node, with empty bodies: what they hold is added to them. */
static CUresult node_set_conditional(struct node *node, struct context *fallback)
{
    CUDA_CONDITIONAL_NODE_PARAMS *conditional = &node->params.conditional;
    const struct condition *condition =
        object_check((const void *)(uintptr_t)conditional->handle, OBJECT_CONDITION);
    CUresult result = node_find_context(conditional->ctx, fallback, &node->context);

    conditional->ctx = (CUcontext)node->context;
    if (result != CUDA_SUCCESS)
        return result;
    if (condition == NULL || !node_condition_fits(conditional))
        return CUDA_ERROR_INVALID_VALUE;
    node->value = condition->value;
    node->bodies = calloc(conditional->size, sizeof(*node->bodies));
    if (node->bodies == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    conditional->phGraph_out = node->bodies;
    for (unsigned i = 0; i < conditional->size; i++) {
        node->bodies[i] = (CUgraph)graph_new();
        if (node->bodies[i] == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult node_copy_bodies(struct node *to, const struct node *from)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < node_body_count(from) && result == CUDA_SUCCESS; i++) {
        struct graph *copy;

        result = graph_copy(node_body(from, i), &copy);
        if (result != CUDA_SUCCESS)
            break;
        graph_free(node_body(to, i));
        to->bodies[i] = (CUgraph)copy;
        copy->owner = to;
    }
    return result;
}

static CUresult node_fill(struct node *node, struct context *context)
{
    switch (node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return node_set_kernel(node, context);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return node_set_copy(node, context);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return node_set_memset(node, context);
    case CU_GRAPH_NODE_TYPE_HOST:
        return node->params.host.fn == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return node_set_child(node);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return node_set_event(node->params.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return node_set_event(node->params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return node_set_alloc(node, context);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return graph_memory_owns(node->params.free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return node_set_operations(node, context);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return node_set_conditional(node, context);
    default:
        sim_log("graph nodes of type %d are not implemented", (int)node->params.type);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* Fills a second node aside, so that a refusal leaves the first as it was. */
CUresult node_set(struct node *node, const CUgraphNodeParams *params, struct context *context)
{
    struct node aside = {.graph = node->graph, .params = *params};
    CUresult result = node_fill(&aside, context);

    if (result != CUDA_SUCCESS) {
        /* An address or a child that the parameters named was not taken over yet. */
        if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            aside.params.alloc.dptr = 0;
        node_free(&aside);
        return result;
    }
    aside.attributes = node->attributes;
    node->attributes = NULL;
    node_free(node);
    node->context = aside.context;
    node->params = aside.params;
    node->function = aside.function;
    node->bytes = aside.bytes;
    node->pointers = aside.pointers;
    node->operations = aside.operations;
    node->attributes = aside.attributes;
    node->child = aside.child;
    node->bodies = aside.bodies;
    node->value = aside.value;
    if (node->child != NULL)
        node->child->owner = node;
    for (unsigned i = 0; i < node_body_count(node); i++)
        node_body(node, i)->owner = node;
    return CUDA_SUCCESS;
}

CUresult node_copy(struct node *to, const struct node *from)
{
    CUresult result = node_set(to, &from->params, from->context);

    if (result == CUDA_SUCCESS)
        result = node_copy_bodies(to, from);
    if (result != CUDA_SUCCESS)
        return result;
    to->disabled = from->disabled;
    to->cooperative = from->cooperative;
    to->programmatic = from->programmatic;
    if (from->attributes == NULL)
        return CUDA_SUCCESS;
    to->attributes = calloc(CU_LAUNCH_ATTRIBUTE_MAX, sizeof(*to->attributes));
    if (to->attributes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(to->attributes, from->attributes, CU_LAUNCH_ATTRIBUTE_MAX * sizeof(*to->attributes));
    return CUDA_SUCCESS;
}

/* --- captured commands
 * --------------------------------------------------------------------------------- */

static void params_of_kernel(const struct command *command, CUgraphNodeParams *params,
                             struct node_loan *loan)
{
    const struct command_launch *launch = &command->launch;
    CUDA_KERNEL_NODE_PARAMS_v3 *kernel = &params->kernel;

    params->type = CU_GRAPH_NODE_TYPE_KERNEL;
    kernel->func = (CUfunction)command->function;
    kernel->gridDimX = launch->grid[0];
    kernel->gridDimY = launch->grid[1];
    kernel->gridDimZ = launch->grid[2];
    kernel->blockDimX = launch->block[0];
    kernel->blockDimY = launch->block[1];
    kernel->blockDimZ = launch->block[2];
    kernel->sharedMemBytes = launch->shared;
    loan->bytes = command->function->param_bytes;
    loan->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    loan->extra[1] = (void *)command->params;
    loan->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    loan->extra[3] = &loan->bytes;
    loan->extra[4] = CU_LAUNCH_PARAM_END;
    kernel->extra = loan->bytes > 0 ? loan->extra : NULL;
}

static void params_of_copy(const struct command_copy *copy, CUgraphNodeParams *params)
{
    CUDA_MEMCPY3D *to = &params->memcpy.copyParams;
    bool from_host = copy->direction == COPY_HTOD || copy->direction == COPY_HTOH;
    bool to_host = copy->direction == COPY_DTOH || copy->direction == COPY_HTOH;

    params->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    to->srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    to->dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (from_host)
        to->srcHost = (const void *)(uintptr_t)copy->from;
    else
        to->srcDevice = copy->from;
    if (to_host)
        to->dstHost = (void *)(uintptr_t)copy->to;
    else
        to->dstDevice = copy->to;
    to->WidthInBytes = copy->width;
    to->Height = copy->height == 0 ? 1 : copy->height;
    to->Depth = copy->depth == 0 ? 1 : copy->depth;
    to->srcPitch = copy->from_pitch;
    to->dstPitch = copy->to_pitch;
    to->srcHeight = copy->from_pitch == 0 ? 0 : copy->from_slice / copy->from_pitch;
    to->dstHeight = copy->to_pitch == 0 ? 0 : copy->to_slice / copy->to_pitch;
}

static void params_of_value(const struct command *command, CUgraphNodeParams *params,
                            struct node_loan *loan)
{
    static const unsigned flags[] = {
        [VALUE_GEQ] = CU_STREAM_WAIT_VALUE_GEQ,
        [VALUE_EQ] = CU_STREAM_WAIT_VALUE_EQ,
        [VALUE_AND] = CU_STREAM_WAIT_VALUE_AND,
        [VALUE_NOR] = CU_STREAM_WAIT_VALUE_NOR,
    };
    const struct command_value *value = &command->value;
    bool wide = value->bytes == 8;

    memset(&loan->operation, 0, sizeof(loan->operation));
    if (command->kind == COMMAND_VALUE_WAIT) {
        loan->operation.operation =
            wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
        loan->operation.waitValue.address = value->address;
        loan->operation.waitValue.value64 = value->value;
        loan->operation.waitValue.flags = flags[value->operation & 3];
    } else {
        loan->operation.operation =
            wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
        loan->operation.writeValue.address = value->address;
        loan->operation.writeValue.value64 = value->value;
    }
    params->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    params->memOp.count = 1;
    params->memOp.paramArray = &loan->operation;
}

CUresult node_params_of(const struct command *command, CUgraphNodeParams *params,
                        struct node_loan *loan)
{
    memset(params, 0, sizeof(*params));
    switch (command->kind) {
    case COMMAND_KERNEL:
        params_of_kernel(command, params, loan);
        return CUDA_SUCCESS;
    case COMMAND_COPY:
        params_of_copy(&command->copy, params);
        return CUDA_SUCCESS;
    case COMMAND_MEMSET:
        params->type = CU_GRAPH_NODE_TYPE_MEMSET;
        params->memset.dst = command->memset.to;
        params->memset.pitch = command->memset.pitch;
        params->memset.value = command->memset.value;
        params->memset.elementSize = command->memset.element;
        params->memset.width = command->memset.width;
        params->memset.height = command->memset.height == 0 ? 1 : command->memset.height;
        return CUDA_SUCCESS;
    case COMMAND_HOST:
        params->type = CU_GRAPH_NODE_TYPE_HOST;
        params->host.fn = (CUhostFn)(uintptr_t)command->host.function;
        params->host.userData = (void *)(uintptr_t)command->host.argument;
        return command->host.callback != 0 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
    case COMMAND_VALUE_WRITE:
    case COMMAND_VALUE_WAIT:
        params_of_value(command, params, loan);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
}

/* --- adding nodes
 * --------------------------------------------------------------------------------------- */

/* The sources a new node names: all of its graph, each once. */
static CUresult node_check_sources(const struct graph *graph, const CUgraphNode *sources,
                                   size_t count)
{
    if (count > 0 && sources == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct node *source = object_check(sources[i], OBJECT_NODE);

        if (source == NULL || source->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (sources[j] == sources[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult node_add(CUgraphNode *out, CUgraph handle, const CUgraphNode *sources,
                         const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
    struct graph *graph;
    struct node *node;
    CUresult result = graph_check(handle, &graph);

    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = node_check_sources(graph, sources, count);
    if (result == CUDA_SUCCESS)
        result = graph_add(graph, params, context_current(), &node);
    if (result != CUDA_SUCCESS)
        return result;
    result = graph_connect(node, (struct node *const *)sources, data, count);
    if (result != CUDA_SUCCESS) {
        cuGraphDestroyNode((CUgraphNode)node);
        return result;
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        params->alloc.dptr = node->params.alloc.dptr;
    else if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        params->graph.graph = node->params.graph.graph;
    else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        params->conditional.phGraph_out = node->bodies;
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources, size_t count,
                        CUgraphNodeParams *params)
{
    ENTRY();
    return params == NULL ? CUDA_ERROR_INVALID_VALUE
                          : node_add(out, graph, sources, NULL, count, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params)
{
    ENTRY();
    return params == NULL ? CUDA_ERROR_INVALID_VALUE
                          : node_add(out, graph, sources, data, count, params);
}

/* The older structures are beginnings of the newer one. */
static void params_from_v1(CUgraphNodeParams *to, const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    _Static_assert(offsetof(CUDA_KERNEL_NODE_PARAMS_v3, kern) == sizeof(*from), "one layout");
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_KERNEL;
    memcpy(&to->kernel, from, sizeof(*from));
}

static void params_from_v2(CUgraphNodeParams *to, const CUDA_KERNEL_NODE_PARAMS_v2 *from)
{
    _Static_assert(sizeof(CUDA_KERNEL_NODE_PARAMS_v3) == sizeof(*from), "one layout");
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_KERNEL;
    memcpy(&to->kernel, from, sizeof(*from));
}

static void params_from_copy(CUgraphNodeParams *to, const CUDA_MEMCPY3D *from, CUcontext context)
{
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    to->memcpy.copyParams = *from;
    to->memcpy.copyCtx = context;
}

static void params_from_memset(CUgraphNodeParams *to, const CUDA_MEMSET_NODE_PARAMS_v1 *from,
                               CUcontext context)
{
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_MEMSET;
    memcpy(&to->memset, from, sizeof(*from));
    to->memset.ctx = context;
}

static void params_from_host(CUgraphNodeParams *to, const CUDA_HOST_NODE_PARAMS_v1 *from)
{
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_HOST;
    to->host.fn = from->fn;
    to->host.userData = from->userData;
}

static void params_from_event(CUgraphNodeParams *to, CUgraphNodeType type, CUevent event)
{
    memset(to, 0, sizeof(*to));
    to->type = type;
    if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
        to->eventWait.event = event;
    else
        to->eventRecord.event = event;
}

static void params_from_operations(CUgraphNodeParams *to,
                                   const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *from)
{
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    to->memOp.ctx = from->ctx;
    to->memOp.count = from->count;
    to->memOp.paramArray = from->paramArray;
    to->memOp.flags = from->flags;
}

static void params_from_child(CUgraphNodeParams *to, CUgraph child)
{
    memset(to, 0, sizeof(*to));
    to->type = CU_GRAPH_NODE_TYPE_GRAPH;
    to->graph.graph = child;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_v1(&params, from);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2 *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_v2(&params, from);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                              size_t count, const CUDA_MEMCPY3D *from, CUcontext context)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_copy(&params, from, context);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_memset(&params, from, context);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                            size_t count, const CUDA_HOST_NODE_PARAMS *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_host(&params, from);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                                  size_t count, CUgraph child)
{
    CUgraphNodeParams params;

    ENTRY();
    params_from_child(&params, child);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                             size_t count)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};

    ENTRY();
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                                   size_t count, CUevent event)
{
    CUgraphNodeParams params;

    ENTRY();
    params_from_event(&params, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                                 size_t count, CUevent event)
{
    CUgraphNodeParams params;

    ENTRY();
    params_from_event(&params, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_operations(&params, from);
    return node_add(out, graph, sources, NULL, count, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *from)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult result;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params.alloc.poolProps = from->poolProps;
    params.alloc.bytesize = from->bytesize;
    result = node_add(out, graph, sources, NULL, count, &params);
    if (result == CUDA_SUCCESS)
        from->dptr = params.alloc.dptr;
    return result;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *sources,
                               size_t count, CUdeviceptr address)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};

    ENTRY();
    params.free.dptr = address;
    return node_add(out, graph, sources, NULL, count, &params);
}

/* --- reading and changing nodes
 * --------------------------------------------------------------------------- */

/* A node of the expected type whose parameters go to a place that is not NULL. */
static CUresult node_check(CUgraphNode handle, CUgraphNodeType type, const void *place,
                           struct node **node)
{
    CUresult result = graph_check_node(handle, node);

    if (result != CUDA_SUCCESS)
        return result;
    return place == NULL || (*node)->params.type != type ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult node_change(CUgraphNode handle, const CUgraphNodeParams *params)
{
    struct node *node;
    CUresult result = node_check(handle, params->type, params, &node);

    if (result != CUDA_SUCCESS)
        return result;
    return node_set(node, params, node->context != NULL ? node->context : context_current());
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *params)
{
    ENTRY();
    if (params == NULL || params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
        params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_INVALID_VALUE;
    return node_change(handle, params);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_KERNEL, to, &node);
    if (result == CUDA_SUCCESS)
        memcpy(to, &node->params.kernel, sizeof(*to));
    return result;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v2 *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_KERNEL, to, &node);
    if (result == CUDA_SUCCESS)
        memcpy(to, &node->params.kernel, sizeof(*to));
    return result;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_v1(&params, from);
    return node_change(handle, &params);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v2 *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_v2(&params, from);
    return node_change(handle, &params);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_MEMCPY, to, &node);
    if (result == CUDA_SUCCESS)
        *to = node->params.memcpy.copyParams;
    return result;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_copy(&params, from, NULL);
    return node_change(handle, &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_MEMSET, to, &node);
    if (result == CUDA_SUCCESS)
        memcpy(to, &node->params.memset, sizeof(*to));
    return result;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_memset(&params, from, NULL);
    return node_change(handle, &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_HOST, to, &node);
    if (result != CUDA_SUCCESS)
        return result;
    to->fn = node->params.host.fn;
    to->userData = node->params.host.userData;
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_host(&params, from);
    return node_change(handle, &params);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_GRAPH, to, &node);
    if (result == CUDA_SUCCESS)
        *to = (CUgraph)node->child;
    return result;
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, to, &node);
    if (result == CUDA_SUCCESS)
        *to = node->params.eventRecord.event;
    return result;
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode handle, CUevent event)
{
    CUgraphNodeParams params;

    ENTRY();
    params_from_event(&params, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return node_change(handle, &params);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode handle, CUevent *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, to, &node);
    if (result == CUDA_SUCCESS)
        *to = node->params.eventWait.event;
    return result;
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode handle, CUevent event)
{
    CUgraphNodeParams params;

    ENTRY();
    params_from_event(&params, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return node_change(handle, &params);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, to, &node);
    if (result != CUDA_SUCCESS)
        return result;
    to->ctx = node->params.memOp.ctx;
    to->count = node->params.memOp.count;
    to->paramArray = node->params.memOp.paramArray;
    to->flags = node->params.memOp.flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode handle,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *from)
{
    CUgraphNodeParams params;

    ENTRY();
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    params_from_operations(&params, from);
    return node_change(handle, &params);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, to, &node);
    if (result != CUDA_SUCCESS)
        return result;
    to->poolProps = node->params.alloc.poolProps;
    to->accessDescs = NULL;
    to->accessDescCount = 0;
    to->bytesize = node->params.alloc.bytesize;
    to->dptr = node->params.alloc.dptr;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *to)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, to, &node);
    if (result == CUDA_SUCCESS)
        *to = node->params.free.dptr;
    return result;
}

/* --- attributes of kernel nodes
 * --------------------------------------------------------------------------- */

static bool node_attribute_fits(CUlaunchAttributeID attribute)
{
    return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
           attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ||
           attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
           attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE ||
           attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY ||
           attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
           attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       CUkernelNodeAttrValue *value)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (!node_attribute_fits(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, sizeof(*value));
    if (node->attributes != NULL)
        *value = node->attributes[attribute];
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        value->cooperative = node->cooperative;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = node_check(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (!node_attribute_fits(attribute))
        return CUDA_ERROR_INVALID_VALUE;
    if (node->attributes == NULL)
        node->attributes = calloc(CU_LAUNCH_ATTRIBUTE_MAX, sizeof(*node->attributes));
    if (node->attributes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->attributes[attribute] = *value;
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
        node->cooperative = value->cooperative != 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle)
{
    struct node *from;
    struct node *to;
    CUresult result;

    ENTRY();
    result = node_check(to_handle, CU_GRAPH_NODE_TYPE_KERNEL, to_handle, &to);
    if (result == CUDA_SUCCESS)
        result = node_check(from_handle, CU_GRAPH_NODE_TYPE_KERNEL, from_handle, &from);
    if (result != CUDA_SUCCESS || to == from)
        return result;
    free(to->attributes);
    to->attributes = NULL;
    to->cooperative = from->cooperative;
    if (from->attributes == NULL)
        return CUDA_SUCCESS;
    to->attributes = calloc(CU_LAUNCH_ATTRIBUTE_MAX, sizeof(*to->attributes));
    if (to->attributes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(to->attributes, from->attributes, CU_LAUNCH_ATTRIBUTE_MAX * sizeof(*to->attributes));
    return CUDA_SUCCESS;
}
