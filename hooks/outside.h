/*
 * outside: streams whose work waits for something that is not the GPU's: a value in memory that the
 * host or another process writes, another process's event, an external semaphore, a host function.
 * Such work holds up neither the end of a turn nor an early release: what it waits for may need
 * another client's turn, or a thread of this process that stands at the gate.
 */
#ifndef CUSLICE_HOOKS_OUTSIDE_H
#define CUSLICE_HOOKS_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

struct gate;
struct context;
struct gate_pass;

/* Around a call that makes a stream wait for something outside; `waits`: whether this one does. */
void outside_before(bool waits, CUstream stream, bool per_thread);
void outside_after(CUresult rc, bool waits, CUstream stream, bool per_thread);

/* Whether a batch of memory operations has a wait in it. */
bool outside_batch(unsigned count, const CUstreamBatchMemOpParams *ops);

/* Whether to wait for this event is to wait for something outside: it is another process's, or may
 * come behind such a wait itself. */
bool outside_event(CUevent event);

/* An event of another process was opened; an event goes away. */
void outside_imported(CUresult rc, const CUevent *event);
void outside_event_gone(CUevent event);

/* Whether any stream waits, or has work behind a wait, as last asked. */
bool outside_any(void);

/* Whether a launch into this stream waits there, as far as is known: asks the driver. */
bool outside_holds(uintptr_t key);

/* A launch that waits there was made: what tells of its end goes right behind it. */
void outside_launched(const struct gate_pass *pass, uintptr_t key);

/* What the streams of a device do that waited or wait. RUNNING: a wait is over, and work that stood
 * behind it is on the GPU. Asks the driver, under guest.driver_lock. */
enum outside_state { OUTSIDE_NONE, OUTSIDE_WAITING, OUTSIDE_RUNNING };
enum outside_state outside_poll(const struct gate *gate);

/* The stream, or the context, is gone. */
void outside_stream_gone(uintptr_t key);
void outside_context_gone(const struct context *context);

/* Starts afresh, for a process that attaches. */
void outside_reset(void);

#endif
