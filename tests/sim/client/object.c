/*
 * Objects behind handles, in slabs that stay for ever: a stale handle meets an ended object or a
 * newer one of the same kind, never foreign memory. Ended ones wait in a queue before they are used
 * again, so that use after destruction is noticed for a long while. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { QUEUES = 32, REST = 256 };

struct queue {
    size_t bytes;
    struct object *first, **last;
    unsigned count;
};

static struct queue queues[QUEUES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_id = 1;

/* One queue per object size: what has the same size may follow one another. */
static struct queue *object_queue(size_t bytes)
{
    for (unsigned i = 0; i < QUEUES; i++) {
        if (!queues[i].bytes) {
            queues[i].bytes = bytes;
            queues[i].last = &queues[i].first;
        }
        if (queues[i].bytes == bytes)
            return &queues[i];
    }
    return NULL;
}

void *object_new(enum object_kind kind, size_t bytes)
{
    struct object *object = NULL;
    struct queue *queue;
    uint64_t id;

    pthread_mutex_lock(&lock);
    queue = object_queue(bytes);
    if (queue && queue->count > REST) {
        object = queue->first;
        queue->first = object->next_free;
        queue->count--;
    }
    id = next_id++;
    pthread_mutex_unlock(&lock);
    if (object)
        memset(object, 0, bytes);
    else
        object = calloc(1, bytes);
    if (!object)
        return NULL;
    object->bytes = (uint32_t)bytes;
    object->id = id;
    atomic_store_explicit(&object->kind, (uint32_t)kind, memory_order_release);
    return object;
}

void object_end(void *handle)
{
    struct object *object = handle;
    struct queue *queue;

    pthread_mutex_lock(&lock);
    atomic_store_explicit(&object->kind, 0, memory_order_release);
    queue = object_queue(object->bytes);
    object->next_free = NULL;
    if (queue) {
        *queue->last = object;
        queue->last = &object->next_free;
        queue->count++;
    }
    pthread_mutex_unlock(&lock);
}

void *object_check(const void *handle, enum object_kind kind)
{
    struct object *object = (void *)(uintptr_t)handle;

    if ((uintptr_t)handle < 4096 || (uintptr_t)handle % 8 ||
        atomic_load_explicit(&object->kind, memory_order_acquire) != (uint32_t)kind)
        return NULL;
    return object;
}
