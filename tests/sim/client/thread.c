/*
 * What belongs to a thread: its stack of current contexts and its own stream in each context.
 * Each thread touches only its own; the streams end with the thread.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>

#include "core.h"

enum { DEPTH = 64 };

struct thread_stream {
    struct thread_stream *next;
    struct stream *stream;
    uint64_t id;         /* of that object: its place may be another stream's by now */
    uint64_t generation; /* of its context */
};

struct thread {
    struct context *stack[DEPTH];
    uint64_t ids[DEPTH]; /* of those objects: a handle's place may be another context's by now */
    struct green *greens[DEPTH]; /* where a green context's handle was pushed */
    uint64_t green_ids[DEPTH];
    unsigned depth;
    struct thread_stream *streams;
};

static __thread struct thread *self;
static pthread_key_t key;
static struct context gone; /* stands for a context whose object is no more */

static bool thread_has(const struct thread_stream *own)
{
    return object_check(own->stream, OBJECT_STREAM) && own->stream->object.id == own->id;
}

static void thread_exit(void *arg)
{
    struct thread *thread = arg;

    while (thread->streams) {
        struct thread_stream *own = thread->streams;
        struct context *context = own->stream->context;

        thread->streams = own->next;
        if (!sim_check() && thread_has(own) && atomic_load(&context->alive) &&
            atomic_load(&context->generation) == own->generation)
            stream_retire(own->stream);
        free(own);
    }
    free(thread);
    self = NULL;
}

void thread_open(void)
{
    pthread_key_create(&key, thread_exit);
}

static struct thread *thread_self(void)
{
    if (__builtin_expect(!self, 0)) {
        self = calloc(1, sizeof(*self));
        if (self)
            pthread_setspecific(key, self);
    }
    return self;
}

struct context *context_current(void)
{
    const struct thread *thread = self;
    struct context *context;

    if (!thread || !thread->depth)
        return NULL;
    context = thread->stack[thread->depth - 1];
    if (context && context->object.id != thread->ids[thread->depth - 1])
        return &gone;
    if (thread->greens[thread->depth - 1] && !green_current())
        return &gone;
    return context;
}

struct green *green_current(void)
{
    const struct thread *thread = self;
    struct green *green = thread && thread->depth ? thread->greens[thread->depth - 1] : NULL;

    return green && object_check(green, OBJECT_GREEN) &&
                   green->object.id == thread->green_ids[thread->depth - 1] &&
                   green->generation == atomic_load(&green->context->generation)
               ? green
               : NULL;
}

CUcontext thread_handle(void)
{
    struct green *green = green_current();

    return green ? (CUcontext)green->view : (CUcontext)context_current();
}

static void thread_put(struct thread *thread, unsigned at, struct context *context,
                       struct green *green)
{
    thread->greens[at] = green;
    thread->green_ids[at] = green ? green->object.id : 0;
    thread->stack[at] = context;
    thread->ids[at] = context ? context->object.id : 0;
}

CUresult thread_push(struct context *context, struct green *green)
{
    struct thread *thread = thread_self();

    if (!thread || thread->depth == DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    thread_put(thread, thread->depth++, context, green);
    return CUDA_SUCCESS;
}

CUresult thread_pop(CUcontext *handle)
{
    CUcontext current = thread_handle();

    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    self->depth--;
    *handle = current;
    return CUDA_SUCCESS;
}

void thread_set(struct context *context, struct green *green)
{
    struct thread *thread = thread_self();

    if (!thread)
        return;
    if (!context) {
        if (thread->depth)
            thread->depth--;
        return;
    }
    if (!thread->depth)
        thread->depth = 1;
    thread_put(thread, thread->depth - 1, context, green);
}

struct context *context_swap(struct context *context)
{
    struct context *old = context_current();

    thread_set(context, NULL);
    return old;
}

CUresult context_error(const struct context *context)
{
    return (CUresult)atomic_load_explicit(&sim.arena->error[context->slot], memory_order_acquire);
}

CUresult thread_check(const struct context *context)
{
    if (__builtin_expect(!atomic_load_explicit(&context->alive, memory_order_acquire), 0))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context_error(context);
}

CUresult sim_enter(struct context **out)
{
    CUresult result = sim_check();
    struct context *context;

    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        return result;
    context = context_current();
    if (__builtin_expect(!context, 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = context;
    return thread_check(context);
}

CUresult thread_stream(struct context *context, struct stream **stream)
{
    struct thread *thread = thread_self();
    uint64_t generation = atomic_load(&context->generation);
    struct thread_stream *own;
    CUresult result;

    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (own = thread->streams; own; own = own->next)
        if (own->stream->context == context && own->generation == generation &&
            own->stream->green == green_current() && !own->stream->orphan && thread_has(own)) {
            *stream = own->stream;
            return CUDA_SUCCESS;
        }
    own = calloc(1, sizeof(*own));
    if (!own)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = stream_make(context, green_current(), 0, 0, &own->stream);
    if (result) {
        free(own);
        return result;
    }
    own->stream->per_thread = true;
    own->id = own->stream->object.id;
    own->generation = generation;
    own->next = thread->streams;
    thread->streams = own;
    *stream = own->stream;
    return CUDA_SUCCESS;
}
