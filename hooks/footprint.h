/*
 * footprint: what the contexts of this process cost on the device besides what calls ask for: their
 * own memory, modules and functions loaded, heaps and buffers raised. An estimate, counted in the
 * ledger apart from what was granted. footprint.c says how it is come by. Any thread; a fork child
 * never gets here.
 */
#ifndef CUSLICE_HOOKS_FOOTPRINT_H
#define CUSLICE_HOOKS_FOOTPRINT_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

struct context;
struct gate;
struct ring;

/* One reading of the device beside the books of its ring. */
struct footprint_look {
    uint64_t used;      /* on the device; as the driver says */
    uint64_t explained; /* by the books of all clients */
    uint64_t print;     /* of these books; equal prints, equal books */
    uint64_t others;    /* the same without this client's */
};

enum footprint_change { FOOTPRINT_EITHER, FOOTPRINT_GROWS, FOOTPRINT_SHRINKS };

/* A call that may change what the current context costs. */
struct footprint_call {
    enum footprint_change change;
    uint64_t most;           /* more cannot have come of it: it was somebody else's */
    struct context *context; /* NULL: nothing is measured */
    CUcontext handle;
    struct gate *gate;
    uint64_t key; /* of a function that it may load; 0 */
    bool measured;
    struct footprint_look before;
};

/* Around a call that loads or unloads code, or sets a limit. Asks the driver twice how much memory
 * is free, where a context is current and nothing is being captured. */
void footprint_before(struct footprint_call *call, enum footprint_change change);
void footprint_after(struct footprint_call *call, CUresult rc);

void footprint_before_limit(struct footprint_call *call, CUlimit limit, size_t value);

/* The same for a call that loads a function unless that was loaded before: one that is known costs
 * no question to the driver. `name` may be NULL. */
void footprint_before_function(struct footprint_call *call, const void *owner, const char *name);

/* After a call that unloads code: functions may be loaded anew. */
void footprint_forget_functions(void);

/* A context has a record now; it has none any more. Under guest.driver_lock; no call to the driver.
 */
void footprint_opened(struct context *context);
void footprint_closed(struct context *context);

/* A context that is current has been noted for the first time: measures what it may have cost. */
void footprint_noted(struct context *context);

/* Between these something is under way that changes how much memory is in use, though the books do
 * not tell when: other clients take no difference meanwhile. Any order, any thread. */
void footprint_begin(struct gate *gate);
void footprint_end(struct gate *gate);

/* Allocations of so many bytes are worth telling of. */
#define FOOTPRINT_LARGE (UINT64_C(1) << 20)

/* Managed memory comes and goes between host and device unseen: from now on nobody takes a
 * difference while this client is there. Answers `bytes`. */
size_t footprint_managed(size_t bytes);

/* The driver has just told the program how much is free; `before`: the books as they were then. */
void footprint_books(struct ring *ring, struct footprint_look *look);
void footprint_told(struct gate *gate, const struct footprint_look *before, uint64_t used);

/* Once a second, from the keeper: takes over what others have learnt, and measures when the books
 * have changed and are quiet again. */
void footprint_tend(struct gate *gate);

/* Starts afresh, for a process that attaches. */
void footprint_reset(void);

#endif
