/*
 * meter: bounds how much work of this process is queued on a device while others share it, and
 * knows whether all of it is done. Markers (events) go right behind launches, from the submitting
 * thread; how long a launch takes is learnt from them. Used only on the gate's slow way.
 */
#ifndef CUSLICE_HOOKS_METER_H
#define CUSLICE_HOOKS_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "closely.h"
#include "driver.h"
#include "futex.h"

#define METER_MARKERS 32u
#define METER_STREAMS 32u

struct gate;
struct context;
struct gate_mark;
struct gate_pass;

struct meter_marker {
    CUevent event;
    struct context *context;
    uintptr_t stream;
    uint64_t kind;   /* of all its launches; 0 = they are not alike */
    uint64_t number; /* counts markers; tells a reused place from its predecessor */
    uint64_t recorded_ns;
    uint64_t work_ns;  /* what its launches take, as estimated */
    unsigned launches; /* since the marker before */
    unsigned unknown;  /* of those, of kinds that were not known */
    bool ready;        /* recorded: may be queried */
    bool chained;      /* the marker before it was not done then: the GPU went on without a pause */
};

/* What is known of one stream. */
struct meter_stream {
    uintptr_t key; /* 0 = free */
    bool overlaps; /* some launch asked to overlap with the one before it: no marker goes behind
                         a launch, since the next may be such a one */
    uint64_t used; /* meter.total at the last launch: the one longest unused is given up first */
};

/* Zero-initialised. The lock covers everything below and no driver call. */
struct meter {
    struct lock lock;
    struct closely closely; /* what naps of submitting threads overshoot by */
    struct meter_marker marker[METER_MARKERS];
    struct meter_stream stream[METER_STREAMS];
    unsigned first, count;
    CUevent popped; /* of the marker taken off last */
    uint64_t number;
    _Atomic uint64_t total; /* launches counted so far */
    uint64_t resets;   /* how often all was found done at once: tells a look that began before */
    unsigned out;      /* launches not known to be done */
    unsigned unmarked; /* of those, behind the last marker */
    unsigned unknown, tail_unknown; /* of both, of kinds that were not known */
    uint64_t out_ns;                /* what those that are out take, as estimated */
    uint64_t tail_ns;               /* what the unmarked of them take */
    uint64_t begun_ns;              /* when the oldest that is out has begun, as far as known */
    uint64_t undone_ns;             /* the last look that found the oldest marker not done */
    uint64_t unit_ns;   /* what a launch takes in any stream, as learnt; 0 = not known */
    uint64_t done_ns;   /* when a marker was last seen done */
    uintptr_t only;     /* the one stream used since all was done */
    uintptr_t last;     /* the stream of the last launch */
    unsigned streak;    /* launches in a row to it */
    uint64_t tail_kind; /* of the unmarked ones; 0 = they are not alike */
    unsigned doubt; /* so many launches more are marked each: one of known length lasted longer */
    bool mixed;     /* more than one was */
    unsigned steps; /* launches in a row that the program waited for before the next one */
    uint64_t given_up; /* the last marker when a launch last waited in vain */
    uint64_t given_up_ns;
    unsigned proofs;      /* in a row, that kernels of this program wait for its threads */
    _Atomic bool blind;   /* work may be on the GPU that no marker tells of */
    bool relenting;       /* a drain waits for threads at the gate: they wait less here */
    _Atomic bool relaxed; /* no bound until something is seen done; read without the lock */
    /* The launch that waits for room first, since when, and when it was last there. */
    const struct gate_pass *line;
    uint64_t line_ns, line_seen_ns;
};

/* Before a launch: waits until the bound, and what is left of the slice, have room for it. Bounded
 * itself. */
void meter_before(struct gate *gate, const struct gate_pass *pass);

/* One name for each stream, whatever it is called. */
uintptr_t meter_key_of(const struct gate_pass *pass);

/* Puts a marker behind what the stream was given so far, if it is a stream that cannot be marked
 * behind each launch, or one that is about to wait (`waits`). */
void meter_mark(struct gate *gate, const struct gate_pass *pass, bool waits);

/* Behind a launch, in the same passage of the gate. */
void meter_after(struct gate *gate, const struct gate_pass *pass);

/* A synchronising call returned: on one stream, on all of a context, or on something else. True
 * when no work is left that the meter knows of. `before`: meter.total when the call began; what was
 * submitted since may not be done. The per-thread stream is the caller's own, the legacy stream its
 * context's. */
bool meter_synced(struct gate *gate, uint64_t before, CUstream done, const struct gate_mark *mark,
                  const struct context *context);

/* Looks at the markers without waiting; true when all work it knows of is done. */
bool meter_poll(struct gate *gate);

/* Whether what markers say, once no launch is unmarked, is all there is to know. */
bool meter_sure(struct gate *gate);

/* Launches not known to be done. */
unsigned meter_out(struct gate *gate);

/* Launches whose completion no marker will tell. */
unsigned meter_unmarked(struct gate *gate);

/* All work is known to be done, from elsewhere; the gate is closed. */
void meter_clear(struct gate *gate);

/* The same while the gate is open, of the work of the first `launches` submissions: true when there
 * were no others and none is under way. */
bool meter_clear_quiet(struct gate *gate, uint64_t launches);

/* What is out may be waiting for the next launches: they wait less. */
void meter_relent(struct gate *gate);

/* The gate was open by the fast way, or a drain was given up: the meter does not know of all work,
 * or does again. */
void meter_blind(struct gate *gate, bool blind);

/* How much longer than expected a drain lasts before threads at the gate are thought to be its
 * reason, after so many times in vain. A program that was right about it needs it each time. */
uint64_t meter_stuck(struct gate *gate, unsigned relents);

/* The estimated time at which all work will be done; past when it should be and is not. */
uint64_t meter_busy_until(struct gate *gate);

/* The same by what has been seen to be done: it moves on only when something is. */
uint64_t meter_should_end(struct gate *gate);

/* Forgets the markers of a context that goes away. */
void meter_forget(struct gate *gate, const struct context *context);

#endif
