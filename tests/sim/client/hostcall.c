/*
 * Host functions and stream callbacks: the device asks for them in stream order through a ring, one
 * driver thread per process calls them, one after the other. Started on first use, all signals
 * blocked. A user's function runs without any lock of ours.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "core.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void hostcall_one(const struct host_call *call)
{
    struct stream_shared *shared;

    if (call->stream >= SIM_STREAMS)
        return;
    if (call->callback)
        ((CUstreamCallback)(uintptr_t)call->function)(
            (CUstream)(uintptr_t)call->handle, CUDA_SUCCESS, (void *)(uintptr_t)call->argument);
    else
        ((CUhostFn)(uintptr_t)call->function)((void *)(uintptr_t)call->argument);
    shared = &sim.arena->stream[call->stream];
    atomic_store(&shared->host_time, util_now());
    atomic_store(&shared->host_done, call->ticket);
    bell_ring(SIM_BELL_STREAM(call->stream));
}

static void *hostcall_run(void *unused)
{
    struct arena *arena = sim.arena;
    uint32_t head = atomic_load(&arena->host_head);

    (void)unused;
    prctl(PR_SET_NAME, "simcuda-host");
    for (;;) {
        uint32_t tail = atomic_load_explicit(&arena->host_tail, memory_order_acquire);
        struct host_call call;

        if (tail == head) {
            util_futex_wait(&arena->host_tail, tail, UTIL_NEVER);
            continue;
        }
        call = arena->host[head % SIM_HOST_CALLS];
        atomic_store(&arena->host_head, ++head);
        hostcall_one(&call);
    }
    return NULL;
}

static void hostcall_start(void)
{
    sigset_t all, old;
    pthread_attr_t attributes;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, hostcall_run, NULL))
        sim_log("no thread for host functions");
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void hostcall_need(void)
{
    pthread_once(&once, hostcall_start);
}
