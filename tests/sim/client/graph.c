/*
 * Graphs as structures: creating, copying and destroying them, their nodes and edges, and the user
 * objects they keep alive. What nodes mean is graph_node.c's, running them graph_exec.c's. A graph
 * is one thread's at a time, as the driver asks; user objects count atomically.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#include "graph.h"

/* A user object, referred to by the program and by graphs; the last one to let go calls destroy. */
struct user {
    struct object object;
    void *pointer;
    CUhostFn destroy;
    _Atomic uint64_t references;
};

struct graph_user_object {
    struct user *user;
    unsigned count;
    struct graph_user_object *next;
};

/* --- user objects
 * ----------------------------------------------------------------------------------- */

static void user_release(struct user *user, unsigned count)
{
    CUhostFn destroy = user->destroy;
    void *pointer = user->pointer;

    if (atomic_fetch_sub_explicit(&user->references, count, memory_order_acq_rel) != count)
        return;
    object_end(user);
    destroy(pointer);
}

static CUresult graph_keep_user(struct graph *graph, struct user *user, unsigned count, bool moved)
{
    struct graph_user_object *held = graph->users;

    while (held != NULL && held->user != user)
        held = held->next;
    if (held == NULL) {
        held = calloc(1, sizeof(*held));
        if (held == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        held->user = user;
        held->next = graph->users;
        graph->users = held;
    }
    held->count += count;
    if (!moved)
        atomic_fetch_add_explicit(&user->references, count, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static void graph_release_users(struct graph *graph)
{
    while (graph->users != NULL) {
        struct graph_user_object *held = graph->users;

        graph->users = held->next;
        if (held->count > 0)
            user_release(held->user, held->count);
        free(held);
    }
}

CUresult cuUserObjectCreate(CUuserObject *out, void *pointer, CUhostFn destroy,
                            unsigned int references, unsigned int flags)
{
    struct user *user;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || destroy == NULL || references == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    user = object_new(OBJECT_USER, sizeof(*user));
    if (user == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    user->pointer = pointer;
    user->destroy = destroy;
    atomic_store(&user->references, references);
    *out = (CUuserObject)user;
    return CUDA_SUCCESS;
}

static CUresult user_check(CUuserObject handle, unsigned count, struct user **user)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *user = object_check(handle, OBJECT_USER);
    return *user == NULL || count == 0 || count > INT32_MAX ? CUDA_ERROR_INVALID_VALUE
                                                            : CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
    struct user *user;
    CUresult result;

    ENTRY();
    result = user_check(handle, count, &user);
    if (result == CUDA_SUCCESS)
        atomic_fetch_add_explicit(&user->references, count, memory_order_relaxed);
    return result;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
    struct user *user;
    CUresult result;

    ENTRY();
    result = user_check(handle, count, &user);
    if (result == CUDA_SUCCESS && atomic_load(&user->references) < count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        user_release(user, count);
    return result;
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    struct graph *graph;
    struct user *user;
    CUresult result;

    ENTRY();
    result = user_check(object, count, &user);
    if (result != CUDA_SUCCESS)
        return result;
    graph = object_check(handle, OBJECT_GRAPH);
    if (graph == NULL || flags > CU_GRAPH_USER_OBJECT_MOVE)
        return CUDA_ERROR_INVALID_VALUE;
    return graph_keep_user(graph, user, count, flags == CU_GRAPH_USER_OBJECT_MOVE);
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned int count)
{
    struct graph_user_object *held;
    struct graph *graph;
    struct user *user;
    CUresult result;

    ENTRY();
    result = user_check(object, count, &user);
    if (result != CUDA_SUCCESS)
        return result;
    graph = object_check(handle, OBJECT_GRAPH);
    for (held = graph == NULL ? NULL : graph->users; held != NULL; held = held->next)
        if (held->user == user && held->count >= count) {
            held->count -= count;
            user_release(user, count);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* --- graphs
 * ------------------------------------------------------------------------------------------ */

struct graph *graph_new(void)
{
    return object_new(OBJECT_GRAPH, sizeof(struct graph));
}

void graph_free(struct graph *graph)
{
    if (graph == NULL)
        return;
    for (unsigned i = 0; i < graph->count; i++) {
        node_free(graph->nodes[i]);
        free(graph->nodes[i]->edges);
        object_end(graph->nodes[i]);
    }
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = 0;
    graph_release_users(graph);
    object_end(graph);
}

static struct node *graph_append(struct graph *graph)
{
    struct node **grown;
    struct node *node;

    if ((graph->count & (graph->count - 1)) == 0) {
        grown = realloc(graph->nodes,
                        (graph->count == 0 ? 1 : 2 * (size_t)graph->count) * sizeof(*grown));
        if (grown == NULL)
            return NULL;
        graph->nodes = grown;
    }
    node = object_new(OBJECT_NODE, sizeof(*node));
    if (node == NULL)
        return NULL;
    node->graph = graph;
    graph->nodes[graph->count++] = node;
    return node;
}

static void graph_drop_last(struct graph *graph)
{
    object_end(graph->nodes[--graph->count]);
}

CUresult graph_add(struct graph *graph, const CUgraphNodeParams *params, struct context *context,
                   struct node **out)
{
    struct node *node = graph_append(graph);
    CUresult result;

    if (node == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = node_set(node, params, context);
    if (result != CUDA_SUCCESS) {
        node_free(node);
        graph_drop_last(graph);
        return result;
    }
    *out = node;
    return CUDA_SUCCESS;
}

CUresult graph_connect(struct node *node, struct node *const *from, const CUgraphEdgeData *data,
                       size_t count)
{
    struct node_edge *grown;

    if (count == 0)
        return CUDA_SUCCESS;
    for (size_t i = 0; i < count; i++)
        if (object_check(from[i], OBJECT_NODE) == NULL || from[i]->graph != node->graph ||
            from[i] == node)
            return CUDA_ERROR_INVALID_VALUE;
    grown = realloc(node->edges, (node->edge_count + count) * sizeof(*grown));
    if (grown == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->edges = grown;
    for (size_t i = 0; i < count; i++) {
        struct node_edge *edge = &grown[node->edge_count++];

        memset(edge, 0, sizeof(*edge));
        edge->from = from[i];
        if (data != NULL)
            edge->data = data[i];
    }
    return CUDA_SUCCESS;
}

static unsigned graph_position(const struct graph *graph, const struct node *node)
{
    unsigned i = 0;

    while (i < graph->count && graph->nodes[i] != node)
        i++;
    return i;
}

/* Repeats the edges of one graph between the nodes at the same places of another. */
static CUresult graph_copy_edges(const struct graph *from, struct graph *to)
{
    for (unsigned i = 0; i < from->count; i++)
        from->nodes[i]->mark = i;
    for (unsigned i = 0; i < from->count; i++)
        for (unsigned j = 0; j < from->nodes[i]->edge_count; j++) {
            const struct node_edge *edge = &from->nodes[i]->edges[j];
            CUresult result =
                graph_connect(to->nodes[i], &to->nodes[edge->from->mark], &edge->data, 1);

            if (result != CUDA_SUCCESS)
                return result;
        }
    return CUDA_SUCCESS;
}

static CUresult graph_copy_into(const struct graph *from, struct graph *to)
{
    for (unsigned i = 0; i < from->count; i++) {
        struct node *node = graph_append(to);
        CUresult result;

        if (node == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        result = node_copy(node, from->nodes[i]);
        if (result != CUDA_SUCCESS)
            return result;
        node->origin = from->nodes[i]->object.id;
    }
    for (struct graph_user_object *held = from->users; held != NULL; held = held->next) {
        CUresult result =
            held->count == 0 ? CUDA_SUCCESS : graph_keep_user(to, held->user, held->count, false);

        if (result != CUDA_SUCCESS)
            return result;
    }
    return graph_copy_edges(from, to);
}

CUresult graph_copy(const struct graph *from, struct graph **out)
{
    struct graph *to = graph_new();
    CUresult result;

    if (to == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    to->origin = from->object.id;
    result = graph_copy_into(from, to);
    if (result == CUDA_SUCCESS)
        *out = to;
    else
        graph_free(to);
    return result;
}

/* Repeatedly takes nodes whose sources are all taken; one pass suffices when the order of creation
 * respects the edges, as it nearly always does. mark: 1 = taken. */
CUresult graph_sort(const struct graph *graph, struct node ***out)
{
    struct node **sorted = calloc(graph->count + 1, sizeof(*sorted));
    unsigned count = 0;
    unsigned before;

    if (sorted == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = 0;
    do {
        before = count;
        for (unsigned i = 0; i < graph->count; i++) {
            struct node *node = graph->nodes[i];
            bool ready = node->mark == 0;

            for (unsigned j = 0; ready && j < node->edge_count; j++)
                ready = node->edges[j].from->mark != 0;
            if (!ready)
                continue;
            node->mark = 1;
            sorted[count++] = node;
        }
    } while (count > before && count < graph->count);
    if (count < graph->count) {
        free(sorted);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = sorted;
    return CUDA_SUCCESS;
}

struct node *graph_find_copy(const struct graph *graph, uint64_t id)
{
    for (unsigned i = 0; i < graph->count; i++) {
        struct node *inner;

        if (graph->nodes[i]->origin == id)
            return graph->nodes[i];
        inner = graph->nodes[i]->child == NULL ? NULL : graph_find_copy(graph->nodes[i]->child, id);
        for (unsigned j = 0; inner == NULL && j < node_body_count(graph->nodes[i]); j++)
            inner = graph_find_copy(node_body(graph->nodes[i], j), id);
        if (inner != NULL)
            return inner;
    }
    return NULL;
}

bool graph_conditional(const struct graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++)
        if (graph->nodes[i]->bodies != NULL ||
            (graph->nodes[i]->child != NULL && graph_conditional(graph->nodes[i]->child)))
            return true;
    return false;
}

/* --- entry points
 * ------------------------------------------------------------------------------------ */

CUresult graph_check(CUgraph handle, struct graph **graph)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *graph = object_check(handle, OBJECT_GRAPH);
    return *graph == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult graph_check_node(CUgraphNode handle, struct node **node)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *node = object_check(handle, OBJECT_NODE);
    return *node == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    struct graph *graph;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    graph = graph_new();
    if (graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUgraph)graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle)
{
    struct graph *graph;
    CUresult result;

    ENTRY();
    result = graph_check(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    if (graph->owner != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *out, CUgraph handle)
{
    struct graph *graph;
    struct graph *copy;
    CUresult result;

    ENTRY();
    result = graph_check(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_conditional(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = graph_copy(graph, &copy);
    if (result == CUDA_SUCCESS)
        *out = (CUgraph)copy;
    return result;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
    struct graph *graph;
    struct node *found;
    struct node *node;
    CUresult result;

    ENTRY();
    result = graph_check(clone, &graph);
    if (result == CUDA_SUCCESS)
        result = graph_check_node(original, &node);
    if (result != CUDA_SUCCESS)
        return result;
    found = out == NULL ? NULL : graph_find_copy(graph, node->object.id);
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgraphNode)found;
    return CUDA_SUCCESS;
}

static void graph_drop_edge(struct node *node, unsigned index)
{
    node->edge_count--;
    memmove(&node->edges[index], &node->edges[index + 1],
            (node->edge_count - index) * sizeof(*node->edges));
}

CUresult cuGraphDestroyNode(CUgraphNode handle)
{
    struct graph *graph;
    struct node *node;
    unsigned position;
    CUresult result;

    ENTRY();
    result = graph_check_node(handle, &node);
    if (result != CUDA_SUCCESS)
        return result;
    graph = node->graph;
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned j = graph->nodes[i]->edge_count; j > 0; j--)
            if (graph->nodes[i]->edges[j - 1].from == node)
                graph_drop_edge(graph->nodes[i], j - 1);
    position = graph_position(graph, node);
    memmove(&graph->nodes[position], &graph->nodes[position + 1],
            (graph->count - position - 1) * sizeof(*graph->nodes));
    graph->count--;
    node_free(node);
    free(node->edges);
    object_end(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    struct node *node;
    CUresult result;

    ENTRY();
    result = graph_check_node(handle, &node);
    if (result != CUDA_SUCCESS)
        return result;
    if (type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->params.type;
    return CUDA_SUCCESS;
}

/* What all list queries do: with no array the count is told, else as many as fit are written, the
 * rest of the array is cleared and the count is what was written. */
struct graph_list {
    CUgraphNode *first;
    CUgraphNode *second;
    CUgraphEdgeData *data;
    size_t room;
    size_t count;
    bool lossy; /* an edge had data that the caller did not ask for */
};

static void list_put(struct graph_list *list, struct node *first, struct node *second,
                     const CUgraphEdgeData *data)
{
    static const CUgraphEdgeData plain;

    list->lossy = list->lossy ||
                  (data != NULL && list->data == NULL && memcmp(data, &plain, sizeof(plain)) != 0);
    if (list->first != NULL && list->count < list->room) {
        list->first[list->count] = (CUgraphNode)first;
        if (list->second != NULL)
            list->second[list->count] = (CUgraphNode)second;
        if (list->data != NULL)
            list->data[list->count] = *data;
    }
    list->count++;
}

static CUresult list_finish(struct graph_list *list, size_t *count)
{
    if (list->first != NULL) {
        for (size_t i = list->count; i < list->room; i++) {
            list->first[i] = NULL;
            if (list->second != NULL)
                list->second[i] = NULL;
        }
        if (list->count > list->room)
            list->count = list->room;
    }
    *count = list->count;
    return list->lossy && list->first != NULL ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    struct graph_list list = {.first = nodes};
    struct graph *graph;
    CUresult result;

    ENTRY();
    result = graph_check(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list.room = *count;
    for (unsigned i = 0; i < graph->count; i++)
        list_put(&list, graph->nodes[i], NULL, NULL);
    return list_finish(&list, count);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    struct graph_list list = {.first = nodes};
    struct graph *graph;
    CUresult result;

    ENTRY();
    result = graph_check(handle, &graph);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list.room = *count;
    for (unsigned i = 0; i < graph->count; i++)
        if (graph->nodes[i]->edge_count == 0)
            list_put(&list, graph->nodes[i], NULL, NULL);
    return list_finish(&list, count);
}

static CUresult graph_list_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                                 CUgraphEdgeData *data, size_t *count)
{
    struct graph_list list = {.first = from, .second = to, .data = data};
    struct graph *graph;
    CUresult result = graph_check(handle, &graph);

    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL || (from == NULL) != (to == NULL) || (from == NULL && data != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    list.room = *count;
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned j = 0; j < graph->nodes[i]->edge_count; j++)
            list_put(&list, graph->nodes[i]->edges[j].from, graph->nodes[i],
                     &graph->nodes[i]->edges[j].data);
    return list_finish(&list, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    ENTRY();
    return graph_list_edges(graph, from, to, NULL, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *data, size_t *count)
{
    ENTRY();
    return graph_list_edges(graph, from, to, data, count);
}

static CUresult graph_list_sources(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data,
                                   size_t *count)
{
    struct graph_list list = {.first = nodes, .data = data};
    struct node *node;
    CUresult result = graph_check_node(handle, &node);

    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL || (nodes == NULL && data != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    list.room = *count;
    for (unsigned i = 0; i < node->edge_count; i++)
        list_put(&list, node->edges[i].from, NULL, &node->edges[i].data);
    return list_finish(&list, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    ENTRY();
    return graph_list_sources(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *count)
{
    ENTRY();
    return graph_list_sources(node, nodes, data, count);
}

static CUresult graph_list_dependents(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data,
                                      size_t *count)
{
    struct graph_list list = {.first = nodes, .data = data};
    struct node *node;
    CUresult result = graph_check_node(handle, &node);

    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL || (nodes == NULL && data != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    list.room = *count;
    for (unsigned i = 0; i < node->graph->count; i++)
        for (unsigned j = 0; j < node->graph->nodes[i]->edge_count; j++)
            if (node->graph->nodes[i]->edges[j].from == node)
                list_put(&list, node->graph->nodes[i], NULL, &node->graph->nodes[i]->edges[j].data);
    return list_finish(&list, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    ENTRY();
    return graph_list_dependents(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                         CUgraphEdgeData *data, size_t *count)
{
    ENTRY();
    return graph_list_dependents(node, nodes, data, count);
}

static int graph_find_edge(const struct node *to, const struct node *from)
{
    for (unsigned i = 0; i < to->edge_count; i++)
        if (to->edges[i].from == from)
            return (int)i;
    return -1;
}

/* Both ends of a pair that is to be connected or parted. */
static CUresult graph_check_pair(const struct graph *graph, CUgraphNode from, CUgraphNode to,
                                 struct node **source, struct node **target)
{
    *source = object_check(from, OBJECT_NODE);
    *target = object_check(to, OBJECT_NODE);
    if (*source == NULL || *target == NULL || (*source)->graph != graph ||
        (*target)->graph != graph || *source == *target)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult graph_add_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                const CUgraphEdgeData *data, size_t count)
{
    struct graph *graph;
    CUresult result = graph_check(handle, &graph);

    if (result != CUDA_SUCCESS)
        return result;
    if (count > 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct node *source;
        struct node *target;

        result = graph_check_pair(graph, from[i], to[i], &source, &target);
        if (result == CUDA_SUCCESS && graph_find_edge(target, source) >= 0)
            result = CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS)
            result = graph_connect(target, &source, data == NULL ? NULL : &data[i], 1);
    }
    return result;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count)
{
    ENTRY();
    return graph_add_edges(graph, from, to, NULL, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    ENTRY();
    return graph_add_edges(graph, from, to, data, count);
}

static CUresult graph_remove_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    struct graph *graph;
    CUresult result = graph_check(handle, &graph);

    if (result != CUDA_SUCCESS)
        return result;
    if (count > 0 && (from == NULL || to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct node *source;
        struct node *target;
        int edge;

        result = graph_check_pair(graph, from[i], to[i], &source, &target);
        edge = result == CUDA_SUCCESS ? graph_find_edge(target, source) : -1;
        if (edge < 0)
            return CUDA_ERROR_INVALID_VALUE;
        graph_drop_edge(target, (unsigned)edge);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    ENTRY();
    return graph_remove_edges(graph, from, to, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    ENTRY();
    (void)data;
    return graph_remove_edges(graph, from, to, count);
}
