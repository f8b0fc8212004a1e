/*
 * graphs: memory that executable graphs allocate (see graphs.h). The driver takes it at a launch,
 * keeps it for all graphs of a device together, and gives it back when it is trimmed or the graphs
 * end; so each device has one pool for it. A launch reserves all that its graph allocates, unless
 * that has been seen to be there. Program threads; costs nothing where no graph allocates.
 */
#include "graphs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "handles.h"
#include "real.h"

/* An executable graph that allocates. */
struct graphs_exec {
    uint64_t bytes[GATE_DEVICES];
    unsigned trims; /* of graphs_trims, when its memory was last seen to be there */
};

static struct pool graphs_pool[GATE_DEVICES];
static _Atomic bool graphs_any;       /* this program makes graphs that allocate */
static _Atomic unsigned graphs_trims; /* how often their memory was trimmed */

static void graphs_changed(void)
{
    int error = errno;
    for (unsigned i = 0; i < guest.gates; i++)
        if (graphs_pool[i].charged)
            pool_settle(&graphs_pool[i], 0);
    errno = error;
}

void graphs_node(CUresult rc)
{
    if (rc == CUDA_SUCCESS)
        atomic_store(&graphs_any, true);
}

static void graphs_count(CUgraph graph, struct graphs_exec *found);

static void graphs_look(CUgraphNode node, struct graphs_exec *found)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraphNodeType type;
    CUgraph child;
    if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        graphs_count(child, found);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        real.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
        return;
    struct gate *gate = params.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                            ? gate_of_device(params.poolProps.location.id)
                            : NULL;
    if (gate)
        found->bytes[gate - guest.gate] += params.bytesize;
}

/* What a graph's allocations come to, those of its children included. */
static void graphs_count(CUgraph graph, struct graphs_exec *found)
{
    size_t count = 0;
    if (real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes && real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            graphs_look(nodes[i], found);
    free(nodes);
}

static bool graphs_allocates(const struct graphs_exec *graph)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < GATE_DEVICES; i++)
        sum |= graph->bytes[i];
    return sum != 0;
}

void graphs_made(CUresult rc, const CUgraphExec *exec, CUgraph graph)
{
    int error = errno;
    struct graphs_exec found = {.trims = graphs_trims - 1}, *kept;
    struct handles_item before, item = {.owner = ALLOCS_NOBODY};
    if (rc != CUDA_SUCCESS || !graphs_any || !guest_attached())
        return;
    graphs_count(graph, &found);
    kept = graphs_allocates(&found) ? malloc(sizeof *kept) : NULL;
    if (kept) {
        *kept = found;
        item.object = kept;
        if (!handles_put(HANDLES_GRAPH, (uintptr_t)*exec, item, &before))
            free(kept);
        free(before.object);
    }
    errno = error;
}

void graphs_gone(CUresult rc, CUgraphExec exec)
{
    int error = errno;
    struct handles_item item;
    if (rc != CUDA_SUCCESS)
        return;
    if (graphs_any && handles_take(HANDLES_GRAPH, (uintptr_t)exec, &item))
        free(item.object);
    if (graphs_any && guest_attached())
        graphs_changed();
    errno = error;
}

void graphs_end(CUresult rc)
{
    if (rc == CUDA_SUCCESS && graphs_any && guest_attached())
        graphs_changed();
}

void graphs_trimmed(CUresult rc)
{
    int error = errno;
    if (rc != CUDA_SUCCESS)
        return;
    atomic_fetch_add(&graphs_trims, 1);
    if (guest_attached())
        graphs_changed();
    errno = error;
}

static struct pool *graphs_pool_of(unsigned gate)
{
    struct pool *pool = &graphs_pool[gate];
    if (!pool->gate) {
        pool->step = POOL_STEP_LEAST;
        pool->gate = &guest.gate[gate];
    }
    return pool;
}

/* A graph's memory stays when it was launched, until graphs' memory is trimmed. What a graph takes
 * on a second device is counted when it has been launched. */
bool graphs_reserve(struct pool_take *take, CUgraphExec exec)
{
    int error = errno;
    struct handles_item item;
    *take = (struct pool_take){0};
    if (!graphs_any || !guest_attached() || !handles_peek(HANDLES_GRAPH, (uintptr_t)exec, &item))
        return true;
    struct graphs_exec *graph = item.object;
    unsigned gate = 0;
    while (gate < GATE_DEVICES - 1 && !graph->bytes[gate])
        gate++;
    bool there = graph->trims == graphs_trims;
    bool granted = there || pool_reserve(take, graphs_pool_of(gate), graph->bytes[gate]);
    errno = error;
    return granted;
}

/* It ran, or its memory was seen to come: it is there from now on. */
static void graphs_there(struct pool_take *take, CUgraphExec exec)
{
    struct handles_item item;
    if (!handles_peek(HANDLES_GRAPH, (uintptr_t)exec, &item))
        return;
    struct graphs_exec *graph = item.object;
    for (unsigned i = 0; i < guest.gates; i++)
        if (graph->bytes[i] && graphs_pool_of(i) != take->pool)
            pool_settle(graphs_pool_of(i), 0);
    graph->trims = graphs_trims;
}

CUresult graphs_settle(struct pool_take *take, CUgraphExec exec, CUresult rc)
{
    int error = errno;
    if (!take->pool)
        return rc;
    pool_done(take);
    if (rc == CUDA_SUCCESS)
        graphs_there(take, exec);
    errno = error;
    return rc;
}

/* A driver may leave it to the launch to take the memory. */
static CUresult graphs_uploaded(struct pool_take *take, CUgraphExec exec, CUresult rc)
{
    int error = errno;
    if (!take->pool)
        return rc;
    uint64_t before = take->pool->charged;
    pool_done(take);
    if (rc == CUDA_SUCCESS && take->pool->charged > before)
        graphs_there(take, exec);
    errno = error;
    return rc;
}

CUresult graphs_upload(CUgraphExec exec, CUstream stream)
{
    struct pool_take take;
    if (!graphs_reserve(&take, exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc;
    do
        rc = real.cuGraphUpload(exec, stream);
    while (rc != CUDA_SUCCESS && charge_again(&take.charge, rc));
    return graphs_uploaded(&take, exec, rc);
}

CUresult graphs_upload_ptsz(CUgraphExec exec, CUstream stream)
{
    struct pool_take take;
    if (!graphs_reserve(&take, exec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc;
    do
        rc = real.cuGraphUpload_ptsz(exec, stream);
    while (rc != CUDA_SUCCESS && charge_again(&take.charge, rc));
    return graphs_uploaded(&take, exec, rc);
}

void graphs_freed(void)
{
    if (graphs_any)
        graphs_changed();
}

void graphs_reset(void)
{
    memset(graphs_pool, 0, sizeof graphs_pool);
    graphs_any = false;
}
