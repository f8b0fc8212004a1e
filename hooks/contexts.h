/*
 * contexts: the contexts that submitted work, and the keeper's right to touch them. The keeper
 * makes driver calls on a context only under guest.driver_lock and only while its record is open;
 * hooked destroy and reset calls close the record first.
 */
#ifndef CUSLICE_HOOKS_CONTEXTS_H
#define CUSLICE_HOOKS_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "meter.h"

struct gate;

#define CONTEXTS_MAX 64u

struct context {
    CUcontext _Atomic handle; /* NULL = free place; comes after the rest */
    struct gate *gate;
    uint32_t whose; /* allocs_whose of what goes with it */
    CUdevice device;
    bool primary;
    bool _Atomic noted; /* a thread has had it current: what it costs was looked at */
    unsigned closing;   /* hooked destroy, reset or release calls under way */
    uint64_t within;    /* charged for what it holds besides itself (footprint.c) */
    bool faulted;       /* its calls fail for good: counts as drained */
    bool draining;      /* drain_event has been recorded in this drain */
    bool plain_drain;   /* no cuCtxRecordEvent here: the collector stands for all streams */
    CUevent drain_event;
    CUstream collector; /* of ours, non-blocking: waits for what a plain drain must cover */
    CUevent marker[METER_MARKERS]; /* made when first used */
};

enum contexts_drain { CONTEXTS_DONE, CONTEXTS_BUSY, CONTEXTS_BLOCKED };

/* The calling thread's current context; the primary one for a green context's handle. */
CUresult contexts_current(CUcontext *handle);

/* The record of the calling thread's current context, made when new; NULL without a context. */
struct context *contexts_note(void);

/* What the calling thread is in: its context, noted before, or a green context in that. */
uintptr_t contexts_part(const struct context *context);

/* The context that a new stream of a green context belongs to, noted; NULL when it is not known. */
void contexts_note_owner(CUstream stream, CUcontext *owner);

/* The marker event with this number, made when first used, of `context`. */
CUevent contexts_marker(struct context *context, unsigned number);

/* Around hooked calls: a context became current (rc: how the call ended); one is about to be
 * destroyed, and was or was not. */
void context_enter(CUresult rc);
void context_close(CUcontext handle);
void context_closed(CUcontext handle, CUresult rc);
void context_close_primary(CUdevice device);
/* A green context holds its device's primary one: its end is a release of that. */
CUdevice context_close_green(CUgreenCtx green);
void context_closed_primary(CUdevice device, CUresult rc, bool reset);

/* The keeper's drain of one device. Begin forgets an earlier one. Poll records what must be
 * recorded and says whether all work of all contexts on it is done; BLOCKED while that cannot be
 * told. */
void contexts_drain_begin(struct gate *gate);
enum contexts_drain contexts_drain_poll(struct gate *gate);

/* Whether this device has at most one context of this process, and the calling thread is in it: to
 * synchronise a green context says nothing about the rest. */
bool contexts_alone(const struct gate *gate);

/* A call of the program ended with rc: true when it is a sticky error, and then the current context
 * counts as lost. */
bool contexts_check(CUresult rc);

/* A non-blocking stream is about to be destroyed; its work goes on. Under guest.driver_lock. */
void contexts_stream_dying(CUcontext handle, CUstream stream);

/* The number of the calling thread's context, to remember whose something is; ALLOCS_NOBODY. */
unsigned contexts_owner(void);

/* The context that the calling thread noted last. */
struct contexts_last {
    CUcontext handle;
    struct context *record; /* may have become another's since */
};
extern __thread struct contexts_last contexts_last;

/* The record of the calling thread's current context where it is the one noted last; else NULL. */
static inline const struct context *contexts_known(CUcontext handle)
{
    const struct context *last = contexts_last.record;
    return handle == contexts_last.handle && last && last->handle == handle ? last : NULL;
}

/* Calls `look` with some context of this device current, where there is one that will stay. Keeper
 * only. */
void contexts_within(struct gate *gate, void (*look)(struct gate *gate));

/* Starts afresh, for a process that attaches. */
void contexts_reset(void);

#endif
