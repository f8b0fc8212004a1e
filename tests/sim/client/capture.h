/*
 * Stream capture as the other client files see it: questions to ask before doing something, and one
 * call that turns a command into a graph node. Every CUresult other than CUDA_SUCCESS is what the
 * entry point must return unchanged (captures that break have been invalidated by then).
 * Callers hold no lock of their own that capture.c could need; all of these may run on any thread
 * and none of them blocks or talks to the device.
 */
#ifndef SIM_CLIENT_CAPTURE_H
#define SIM_CLIENT_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <cuda.h>

struct context;
struct stream;
struct event;
struct command;
struct graph;

/* Captures under way in this process; 0 makes every question below a single load. */
extern _Atomic unsigned capture_count;

static inline bool capture_active(void)
{
    return atomic_load_explicit(&capture_count, memory_order_acquire) != 0;
}

/* Answers for a "potentially unsafe" call: allocation and free of every kind, event query, host
 * registration, module load and the like: 900 when this thread's mode forbids it. */
CUresult capture_check_unsafe(void);

/* Answers for cuCtxSynchronize, cuCtxRecordEvent, cuCtxWaitEvent and context reset/destroy: breaks
 * every capture of the context, whatever its mode. */
CUresult capture_check_context(struct context *context);

/* Answers for cuStreamQuery / cuStreamSynchronize and whatever else waits for a stream; for the
 * legacy stream a capturing blocking stream of its context is the conflict. */
CUresult capture_check_stream(struct stream *stream);

/* Answers for work that orders against the legacy stream without being a command (blocking copies
 * and memsets of the legacy flavour): 906 when a blocking stream of the context captures. */
CUresult capture_check_legacy(struct context *context);

/* Answers for cuEventQuery / cuEventSynchronize / cuEventElapsedTime: an event last recorded in a
 * capture cannot be asked (907). Needed even while no capture is under way. */
CUresult capture_check_event(struct event *event);

/* Called with every command before it is submitted (kernels, copies, memsets, host functions,
 * value writes and waits, graph launches). *taken = true: it became a node, do not submit it.
 * A command in the legacy stream that conflicts gets its error here. */
CUresult capture_take_command(struct stream *stream, const struct command *command, bool *taken);

/* The same for a graph launch: it becomes a node that holds a copy of the graph. */
CUresult capture_take_graph(struct stream *stream, struct graph *graph, bool *taken);

/* The same for cuEventRecord and cuStreamWaitEvent. *taken = false: do the real thing. A real
 * record ends the event's captured state. */
CUresult capture_take_record(struct stream *stream, struct event *event, unsigned flags,
                             bool *taken);
CUresult capture_take_wait(struct stream *stream, struct event *event, unsigned flags, bool *taken);

/* A stream or an event is about to be destroyed. */
void capture_forget_stream(struct stream *stream);
void capture_forget_event(struct event *event);

/* cuMemAllocAsync / cuMemFreeAsync into a capturing stream become nodes. *taken = false: the stream
 * does not capture. */
CUresult capture_take_alloc(struct stream *stream, CUmemoryPool pool, CUdeviceptr *pointer,
                            size_t bytes, bool *taken);
CUresult capture_take_free(struct stream *stream, CUdeviceptr pointer, bool *taken);

#endif
