/*
 * Graphs inside this library: nodes with their parameters and edges, executable graphs, and the
 * memory that graphs allocate. As the driver says, a graph is one thread's at a time; what several
 * threads share (the list of dying executable graphs, graph memory) has its own lock.
 */
#ifndef SIM_CLIENT_GRAPH_H
#define SIM_CLIENT_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

struct command;
struct command_copy;
struct context;
struct event;
struct function;
struct graph;
struct stream;

struct node_edge {
    struct node *from;
    CUgraphEdgeData data;
};

/* A node. params is what the program gave, its pointers led to copies that the node owns. */
struct node {
    struct object object;
    struct graph *graph;
    struct context *context; /* kernels, copies, memsets, memory operations */
    struct node_edge *edges; /* what it depends on */
    unsigned edge_count;
    CUgraphNodeParams params;
    struct function *function; /* kernels: params.kernel.func in its context */
    unsigned char *bytes;      /* kernels: packed parameters */
    void **pointers;           /* kernels: params.kernel.kernelParams */
    CUstreamBatchMemOpParams *operations;
    CUlaunchAttributeValue *attributes; /* kernels: by attribute, NULL until one is set */
    struct graph *child;
    CUgraph *bodies; /* conditional nodes: params.conditional.phGraph_out, .size of them */
    unsigned value;  /* conditional nodes: of the handle, at each launch */
    uint64_t origin; /* id of the node it was copied from, 0 if none */
    bool disabled;   /* in executable graphs */
    bool cooperative;
    bool programmatic; /* captured with the attribute that lets it overlap its predecessor */
    unsigned mark;     /* scratch of whoever walks the graph */
};

struct graph_user_object;

struct graph {
    struct object object;
    struct node **nodes; /* in the order of their creation */
    unsigned count;
    struct node *owner;              /* the node whose child it is, or NULL */
    uint64_t origin;                 /* id of the graph it was copied from, 0 if none */
    struct graph_user_object *users; /* user objects it keeps alive */
    bool executable;                 /* inside a struct exec: no handle of it is out */
    void *instance;                  /* the executable graph that was made of it last */
    uint64_t instance_id;
};

/* --- graph.c: structure ----------------------------------------------------------------------- */

struct graph *graph_new(void);
void graph_free(struct graph *graph);
/* A deep copy; the copies' origin tells what they were copied from. */
CUresult graph_copy(const struct graph *from, struct graph **to);
/* A node without edges at the end of a graph; params as for node_set. */
CUresult graph_add(struct graph *graph, const CUgraphNodeParams *params, struct context *context,
                   struct node **node);
/* Adds edges to a node; every source must be of the node's graph. data may be NULL. */
CUresult graph_connect(struct node *node, struct node *const *from, const CUgraphEdgeData *data,
                       size_t count);
/* The nodes so that each comes after what it depends on, ties in order of creation; the caller
 * frees the array. INVALID_VALUE for a cycle. */
CUresult graph_sort(const struct graph *graph, struct node ***sorted);
/* The node copied from the one with this id, also within child graphs. */
struct node *graph_find_copy(const struct graph *graph, uint64_t id);

/* --- graph_node.c: parameters ------------------------------------------------------------------
 */

/* Checks and copies parameters into a node, replacing what it had. context: where the node runs
 * unless the parameters name one; may be NULL for nodes that run in none. */
CUresult node_set(struct node *node, const CUgraphNodeParams *params, struct context *context);
CUresult node_copy(struct node *to, const struct node *from);
/* The bodies of a conditional node; other nodes have none. */
unsigned node_body_count(const struct node *node);
struct graph *node_body(const struct node *node, unsigned i);
void node_free(struct node *node);
/* Makes the parameters of a node out of a captured command; they borrow from both. */
struct node_loan {
    CUstreamBatchMemOpParams operation;
    void *extra[5];
    size_t bytes;
};
CUresult node_params_of(const struct command *command, CUgraphNodeParams *params,
                        struct node_loan *loan);
/* What a copy node's parameters mean to the device. */
CUresult node_copy_command(const CUDA_MEMCPY3D *copy, struct command_copy *command);

/* Whether a graph has conditional nodes, also in child graphs: it can be neither cloned nor used as
 * a child, and be instantiated once at a time. */
bool graph_conditional(const struct graph *graph);

/* Both look a handle up: INVALID_VALUE, or what sim_check says. */
CUresult graph_check(CUgraph handle, struct graph **graph);
CUresult graph_check_node(CUgraphNode handle, struct node **node);

/* --- graph_memory.c: what memory nodes allocate -------------------------------------------------
 */

/* Address space for an allocation node; physical memory comes with the first launch. */
CUresult graph_memory_reserve(struct context *context, size_t bytes, CUdeviceptr *address);
/* Copies of an allocation node share it: the last one to go gives the address space back. */
void graph_memory_retain(CUdeviceptr address);
void graph_memory_release(CUdeviceptr address);
/* A launch is about to allocate: gets physical memory unless there is some left. In use already:
 * INVALID_VALUE, or nothing when reuse is allowed. */
CUresult graph_memory_use(CUdeviceptr address, bool reuse);
/* Freed: the physical memory stays for the next launch, or until a trim. False: no such allocation
 * in use. What cuMemFree and cuMemFreeAsync ask first about an address they do not know. */
bool graph_memory_free(CUdeviceptr address);
/* Whether an address lies in a graph's allocation, be it backed or only reserved: captured work may
 * name memory that its graph allocates later. */
bool graph_memory_owns(CUdeviceptr address);

#endif
