/*
 * The worker thread: moves, fills and discards large blocks while the main thread keeps the time.
 * One queue under one mutex; tickets are done in order. It touches only addresses that the main
 * thread resolved, and the main thread waits for it (worker_settle) before it unmaps anything.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"

struct job {
    struct job *next;
    void *to;
    const void *from; /* NULL: fill; element 0: give the memory back */
    uint64_t count;
    uint32_t value, element;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;
static unsigned given;
static _Atomic unsigned finished;

/* Zeros are what memory holds that was given back: a hole costs nothing. */
static bool worker_zero(void *to, uint64_t bytes)
{
    uintptr_t start = SIM_ALIGN((uintptr_t)to, 4096);
    uintptr_t end = ((uintptr_t)to + bytes) & ~(uintptr_t)4095;

    if (end <= start || madvise((void *)start, end - start, MADV_REMOVE))
        return false;
    memset(to, 0, start - (uintptr_t)to);
    memset((void *)end, 0, (uintptr_t)to + bytes - end);
    return true;
}

static void worker_fill_bytes(const struct job *job)
{
    if (!job->value && worker_zero(job->to, job->count * job->element))
        return;
    if (job->element == 1)
        memset(job->to, (int)job->value, job->count);
    else if (job->element == 2)
        for (uint64_t i = 0; i < job->count; i++)
            ((uint16_t *)job->to)[i] = (uint16_t)job->value;
    else
        for (uint64_t i = 0; i < job->count; i++)
            ((uint32_t *)job->to)[i] = job->value;
}

static void *worker_run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct job *job = first;

        if (!job) {
            pthread_cond_broadcast(&idle);
            pthread_cond_wait(&more, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        if (job->from)
            memmove(job->to, job->from, job->count);
        else if (!job->element)
            madvise(job->to, job->count, MADV_REMOVE);
        else
            worker_fill_bytes(job);
        pthread_mutex_lock(&lock);
        first = job->next;
        if (!first)
            last = &first;
        free(job);
        atomic_fetch_add(&finished, 1);
        main_wake();
    }
    return NULL;
}

int worker_start(void)
{
    pthread_t thread;

    return -pthread_create(&thread, NULL, worker_run, NULL);
}

static unsigned worker_post(const struct job *model)
{
    struct job *job = malloc(sizeof(*job));
    unsigned ticket;

    if (!job)
        return 0;
    *job = *model;
    job->next = NULL;
    pthread_mutex_lock(&lock);
    *last = job;
    last = &job->next;
    ticket = ++given;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
    return ticket;
}

unsigned worker_copy(void *to, const void *from, uint64_t bytes)
{
    return worker_post(&(struct job){.to = to, .from = from, .count = bytes});
}

unsigned worker_fill(void *to, uint64_t elements, uint32_t value, uint32_t element)
{
    return worker_post(
        &(struct job){.to = to, .count = elements, .value = value, .element = element});
}

unsigned worker_discard(void *start, uint64_t bytes)
{
    return worker_post(&(struct job){.to = start, .count = bytes});
}

bool worker_done(unsigned ticket)
{
    return (int)(atomic_load(&finished) - ticket) >= 0;
}

void worker_settle(void)
{
    pthread_mutex_lock(&lock);
    while (first)
        pthread_cond_wait(&idle, &lock);
    pthread_mutex_unlock(&lock);
}
