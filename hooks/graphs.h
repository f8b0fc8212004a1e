/*
 * graphs: executable graphs that allocate device memory. Program threads.
 */
#ifndef CUSLICE_HOOKS_GRAPHS_H
#define CUSLICE_HOOKS_GRAPHS_H

#include <stdbool.h>

#include "driver.h"
#include "pool.h"

/* Graphs that allocate: one was instantiated, one is gone, the memory they share was trimmed, or
 * may have become less by the end of a graph or of a node. */
void graphs_node(CUresult rc);
void graphs_made(CUresult rc, const CUgraphExec *exec, CUgraph graph);
void graphs_gone(CUresult rc, CUgraphExec exec);
void graphs_trimmed(CUresult rc);
void graphs_end(CUresult rc);

/* Around a graph's launch or upload; nothing where no graph allocates. */
bool graphs_reserve(struct pool_take *take, CUgraphExec exec);
CUresult graphs_settle(struct pool_take *take, CUgraphExec exec, CUresult rc);

/* cuGraphUpload: memory is taken as at the launch. */
CUresult graphs_upload(CUgraphExec exec, CUstream stream);
CUresult graphs_upload_ptsz(CUgraphExec exec, CUstream stream);

/* Some pointer that nobody knows was freed, or a context is gone: it may have been a graph's. */
void graphs_freed(void);

/* Forgets everything: for a process that attaches. */
void graphs_reset(void);

#endif
