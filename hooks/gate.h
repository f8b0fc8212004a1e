/*
 * gate: what every submission of work passes. Owns the lease and the marks. The way in is inline
 * and short: a mark, and the lease compared with the ring's token word; everything else is behind
 * gate_enter_slow. hooks/README.md has the picture.
 *
 * The lease word. 0: none. Equal to the token: open. The token with GATE_SLOW: open, but every
 * passage takes the slow way (other clients, a limit, a capture that is active, several devices).
 * An epoch with GATE_CLOSED: this process has closed the gate in that epoch; it stays closed until
 * the token comes back in a later one, or the keeper relents. Opening is a compare-exchange from an
 * earlier epoch, closing an exchange, so a late opener cannot undo a closing.
 */
#ifndef CUSLICE_HOOKS_GATE_H
#define CUSLICE_HOOKS_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "driver.h"
#include "meter.h"
#include "ring.h"

#define GATE_DEVICES 16u
/* How many pauses are remembered to tell how long the next will be. */
#define GATE_PAUSES 16u
#define GATE_SLOW UINT64_C(0x8000)
#define GATE_CLOSED UINT64_C(0x4000)

/* What a synchronising call has waited for, besides a single stream. */
#define GATE_ALL ((CUstream)-1)
#define GATE_SOME ((CUstream)-2)

/* A thread's record: a cache line of its own. Written by its thread alone, read by the keeper;
 * outlives the thread and is then taken over by a new one. */
struct gate_mark {
    /* The mark: where on the stack the submission under way was entered, 0 = none is. A call from
     * below that address is made inside of it, by something that the driver called; one from there
     * or above shows that it was left without returning (longjmp), and is no longer under way. */
    _Atomic uintptr_t inside;
    _Atomic uint64_t submissions; /* counted before the mark comes down */
    _Atomic uint64_t books;       /* odd = inside the ledger */
    struct gate *_Atomic gate;    /* which one it is inside of, NULL = of more than one; matters
                                     with several devices */
    /* The closed gate that it waits at, and when it was last there. A thread may end in the wait,
     * or leave it by a jump. */
    struct gate *_Atomic waits;
    _Atomic uint64_t waits_ns;
    unsigned nested; /* submissions made inside of the one that the mark is of */
    _Atomic bool taken;
    bool looks; /* closely, for the token */
    struct gate_mark *next;
};

/* The gate of one device. Lives in memory that forked children find wiped. */
struct gate {
    _Atomic uint64_t lease;
    _Atomic(uint64_t) *_Atomic token; /* the ring's word */
    struct ring *_Atomic ring;
    _Atomic bool looking;           /* one of them looks closely for the token */
    _Atomic bool unsaid;            /* it found it: the others do not know yet */
    _Atomic uint64_t passed;        /* submissions, where there are several devices */
    _Atomic uint64_t synced_ns;     /* when all work was last known to be done; 0 = something was
                                       submitted since */
    _Atomic uint64_t burst_ns;      /* when the burst of work under way began; 0 = none */
    _Atomic uint64_t burst_wait_ns; /* what of it was spent at the closed gate */
    _Atomic bool queued_alone;      /* what is on the GPU may have been queued before anybody else
                                       was there */
    _Atomic uint64_t patience_ns; /* how long to hold a GPU without work, as learnt; 0 = not yet */
    _Atomic unsigned pauses;      /* from there to the next submission: so many were noted */
    _Atomic uint32_t pause_us[GATE_PAUSES]; /* the last of them */
    _Atomic uint64_t keeper_look_ns;        /* when the keeper will look next */
    CUdevice device;
    unsigned char uuid[16];
    uint64_t total_bytes;
    _Atomic bool ganged;       /* CUSLICE_GANG is set: it opens with the gang's others */
    _Atomic bool gang_open;    /* they all have their rings */
    _Atomic bool used;         /* by a gang's process: it has a context here, or a thread waited */
    _Atomic unsigned counted;  /* submissions that may still pass, plus one; 0: any number */
    struct gang *_Atomic gang; /* NULL while this device is not used */
    struct gang *gang_left;    /* what it was then a member of; under the lock of attach.c */
    bool oversubscribed;       /* plain allocations may become managed ones (oversubscribe.c) */
    struct meter meter;
};

/* What a look at the token led to. */
enum gate_look { GATE_WAIT, GATE_AGAIN, GATE_OPEN };

/* One passage by the slow way. */
struct gate_pass {
    uintptr_t here;  /* set by the hook: its place on the stack, above what the driver will use */
    uint64_t kind;   /* set by the hook: tells submissions that last alike (kind.h) */
    uintptr_t outer; /* the mark of the submission that this one is made inside of */
    struct gate_mark *mark;
    struct gate *gate; /* NULL: passes freely */
    uint64_t lease;    /* under which it went in */
    CUstream stream;
    struct context *context;
    bool overlaps; /* it asked to overlap with the one before it: nothing may be put between */
    bool outside;  /* what is launched stands behind a wait for something outside */
};

/* The calling thread's record; gate_nobody, which is always inside, until it has one. */
extern __thread struct gate_mark *gate_mark_mine;
extern struct gate_mark gate_nobody;
extern __thread bool gate_overlaps_mine; /* the launch on its way asks to overlap */

/* Everything that cuslice keeps in a program's process, in one place, on pages that forked children
 * find zeroed: a child, even one made by a raw clone, starts as a process that never attached, with
 * its gate closed. */
enum guest_state {
    GUEST_NEW = 0,  /* not attached: hooks pass everything through */
    GUEST_ATTACHED, /* gates and ledger in force */
    GUEST_OFF,      /* CUSLICE_MODE=off: everything passes through */
    GUEST_REFUSED,  /* cuInit failed on purpose: no memory is granted */
    GUEST_GONE      /* the program is exiting: everything passes through */
};

/* The largest page size of kernels for this processor. */
#ifdef __aarch64__
#define GUEST_PAGE 65536
#else
#define GUEST_PAGE 4096
#endif

struct guest {
    _Alignas(GUEST_PAGE) struct gate gate[GATE_DEVICES];
    _Atomic unsigned gates; /* devices that this process sees; gate[0 .. gates) are in use */
    _Atomic int state;      /* enum guest_state */
    _Atomic int mode;       /* enum config_mode */
    _Atomic bool turns;     /* there is a keeper: turns are taken */
    struct gate_mark *_Atomic marks; /* all threads' records */
    _Atomic unsigned captures;       /* streams in capture, as far as hooked calls tell */
    _Atomic bool moving;             /* the keeper changes rings: stay out of the ledger */
    _Atomic bool full_fence;         /* membarrier is refused here */
    struct lock driver_lock;         /* our own driver calls against contexts that die and captures
                                        that begin; submitting threads only try to take it, since
                                        the keeper may be blocked in the driver with it */
};

extern struct guest guest;

/* The settings; read-only once attached. */
extern struct config guest_config;

static inline bool guest_attached(void)
{
    return atomic_load_explicit(&guest.state, memory_order_acquire) == GUEST_ATTACHED;
}

/* Where the fast way looks. With several devices this gate is GATE_SLOW and the slow way chooses.
 */
#define gate_first (&guest.gate[0])

/* The fast way: a mark, and the lease compared with the token. The thread's record, with its mark
 * up, when the gate is open; NULL for the slow way. `here`: the hook's place on the stack. fast.h
 * has the same in assembly. */
static inline struct gate_mark *gate_enter(uintptr_t here)
{
    struct gate_mark *mark = gate_mark_mine;
    if (__builtin_expect(atomic_load_explicit(&mark->inside, memory_order_relaxed) > here, 0))
        return NULL;
    atomic_store_explicit(&mark->inside, here, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t lease = atomic_load_explicit(&gate_first->lease, memory_order_acquire);
    if (__builtin_expect(lease != 0, 1) &&
        __builtin_expect(lease == atomic_load_explicit(gate_first->token, memory_order_acquire), 1))
        return mark;
    atomic_store_explicit(&mark->inside, 0, memory_order_release);
    return NULL;
}

/* The submission is over: counts it and takes the mark down, or back to the outer one's. */
static inline void gate_leave(struct gate_mark *mark, uintptr_t outer)
{
    uint64_t before = atomic_load_explicit(&mark->submissions, memory_order_relaxed);
    atomic_store_explicit(&mark->submissions, before + 1, memory_order_relaxed);
    atomic_store_explicit(&mark->inside, outer, memory_order_release);
}

/* The slow way: waits for the token, for room under the bound on run-ahead, sorts out captures and
 * devices. Afterwards work may be submitted, until gate_leave_slow. Of `pass` only here and kind
 * are set before. Blocking while another client holds the GPU. */
void gate_enter_slow(struct gate_pass *pass, CUstream stream, bool per_thread);
void gate_leave_slow(struct gate_pass *pass, CUresult rc);

/* The stream of an extended launch; takes note of attributes that forbid markers. */
static inline CUstream gate_config_stream(const CUlaunchConfig *config)
{
    if (!config)
        return NULL;
    for (unsigned i = 0; config->attrs && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            config->attrs[i].value.programmaticStreamSerializationAllowed)
            gate_overlaps_mine = true;
    return config->hStream;
}

/* Around a synchronising call: what it says about outstanding work, of which it covers what was
 * submitted before it began. */
uint64_t gate_sync_begin(void);
void gate_synced(CUresult rc, uint64_t before, CUstream done);

/* The device that the current context of this thread is on; NULL when there is none. */
struct gate *gate_current(void);

/* The device that a stream (by its key) is on; NULL. */
struct gate *gate_of_stream(CUstream stream);

/* The gate of a driver's device ordinal; NULL. */
struct gate *gate_of_device(CUdevice device);

/* Makes every submission take the slow way, or lets them take the fast one. */
void gate_set_slow(struct gate *gate, bool slow);

/* Whether submissions have to take the slow way now. */
bool gate_must_be_slow(const struct gate *gate);

/* How long this client may pause before the GPU goes to who waits. */
uint64_t gate_patience(const struct gate *gate);

/* Whether the gate may open when the token is held: a gang's only when all have theirs. */
static inline bool gate_may_open(const struct gate *gate)
{
    return !gate->ganged || atomic_load(&gate->gang_open);
}

/* The thread of this record waits for the gate's turn; it has been there at `now`. */
static inline void gate_wait_begin(struct gate_mark *mark, struct gate *gate, uint64_t now)
{
    atomic_store(&mark->waits_ns, now);
    atomic_store(&mark->waits, gate);
}

/* The keeper's side. Close: no new submission begins after it returns. Inside: whether some thread
 * is still in one. Count: submissions so far. */
void gate_close(struct gate *gate, uint64_t token);
bool gate_inside(const struct gate *gate);
/* Whether a thread of this process waits at the closed gate, as far as threads have been there
 * lately: one that left by a jump out of a signal handler says so no more after two seconds. */
bool gate_waited(const struct gate *gate);
uint64_t gate_count(const struct gate *gate);

/* Opens the gate under `token` from an earlier epoch; true when it is open under it now. */
bool gate_open(struct gate *gate, uint64_t token);

/* Opens it again in the turn in which it was closed; the keeper alone may. */
bool gate_relent(struct gate *gate, uint64_t token);

/* From now on so many submissions pass and no more; or, again, any number. */
void gate_count_off(struct gate *gate, unsigned submissions);
void gate_count_none(struct gate *gate);

static inline bool gate_counts(const struct gate *gate)
{
    return atomic_load_explicit(&gate->counted, memory_order_relaxed) != 0;
}

/* The personality of hooks that submit: an exception, a cancellation or the end of the thread goes
 * through such a frame, so its submission is over. Called by the program's unwinder. */
int gate_unwind(int version, int actions, uint64_t class, void *exception, void *context);

/* This thread's record, made when it lacks one; NULL when there is no memory. */
struct gate_mark *gate_mark_get(void);

/* Waits until no thread is inside the ledger (after guest.moving was set). False after 50 ms. */
bool gate_books_quiet(void);

/* Sets up the process-wide part; 0 or -errno. Once per process. */
int gate_start(void);

#endif
