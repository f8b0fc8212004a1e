/*
 * The client core's table of contents: what a driver object looks like inside this library, how an
 * entry point begins, and how a command reaches the device.
 *
 * Objects live in slabs that are never given back to libc, so that a stale handle is seen by its
 * magic word instead of crashing. Locks, outermost first: sim.lock (tables of this process),
 * context->lock (submission), call lock (in call.c). No lock is held while waiting for the device's
 * work.
 */
#ifndef SIM_CLIENT_SIM_H
#define SIM_CLIENT_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "layout.h"

struct capture;
struct capture_mark;
struct module;
struct graph;
struct green;

/* --- objects --- */

enum object_kind {
    OBJECT_CONTEXT = 0x43545831, /* distinct odd words: a stale or foreign pointer matches none */
    OBJECT_STREAM = 0x5354524d,
    OBJECT_EVENT = 0x45564e55,
    OBJECT_FUNCTION = 0x46554e43,
    OBJECT_MODULE = 0x4d4f4455,
    OBJECT_LIBRARY = 0x4c494253,
    OBJECT_GRAPH = 0x47524151,
    OBJECT_NODE = 0x4e4f4445,
    OBJECT_EXEC = 0x47455845,
    OBJECT_POOL = 0x504f4f4d,
    OBJECT_ARRAY = 0x41525259,
    OBJECT_MIPMAP = 0x4d495051,
    OBJECT_PHYSICAL = 0x50485953,
    OBJECT_LINK = 0x4c494e4b,
    OBJECT_USER = 0x55534552,
    OBJECT_GREEN = 0x4752454f,
    OBJECT_VIEW = 0x56494557,
    OBJECT_DESCRIPTOR = 0x44455343,
    OBJECT_CONDITION = 0x434f4e45,
    OBJECT_EXTERNAL = 0x45585445,
};

/* First member of everything a handle points to. */
struct object {
    _Atomic uint32_t kind; /* an object_kind while alive, 0 afterwards */
    uint32_t bytes;
    uint64_t id; /* unique in the process */
    struct object *next_free;
};

/* A zeroed object of so many bytes (the same for all of one kind); NULL when out of memory. */
void *object_new(enum object_kind kind, size_t bytes);
/* Ends it: from now on object_check refuses the handle. The memory is reused late, never unmapped.
 */
void object_end(void *object);
/* The object behind a handle if it is one of that kind and alive, else NULL. Any thread, no lock.
 */
void *object_check(const void *handle, enum object_kind kind);

struct stream;

struct context {
    struct object object;
    _Atomic bool alive;          /* a primary context keeps its handle while it is not */
    _Atomic uint64_t generation; /* of its life; events and memory remember it */
    unsigned slot;               /* in the arena and the device */
    unsigned device;             /* ordinal */
    unsigned flags;
    unsigned api_version;
    bool primary;
    unsigned uses; /* of the primary context: retains */
    size_t limits[16];
    uint64_t limit_cost;               /* device memory for limits above their defaults */
    _Atomic bool heap_used, fifo_used; /* kernels that may use them were launched */
    CUfunc_cache cache;
    CUsharedconfig shared;
    pthread_mutex_t lock;   /* submission; streams, legacy_seen */
    struct stream *streams; /* every stream of the context, the legacy one included */
    struct stream *legacy;
    struct module *modules; /* module.c's list */
    pthread_mutex_t side_lock;
    struct stream *side; /* carries events that stand for all streams; made on first use */
};

struct stream {
    struct object object;
    struct context *context;
    struct green *green; /* the green context it belongs to; its context is the primary one */
    unsigned slot;
    unsigned flags; /* CU_STREAM_NON_BLOCKING or 0 */
    int priority;
    bool legacy;
    bool per_thread;
    struct stream *next; /* of its context */
    struct stream_shared *shared;
    unsigned char *ring;
    uint64_t submitted;           /* own copies of shared words, under context->lock */
    uint64_t legacy_seen;         /* blocking stream: legacy sequence it already waits for */
    uint64_t barrier_seen;        /* its sequence the legacy stream already waits for */
    bool retired;                 /* destroyed, its work still under way */
    bool orphan;                  /* its green context is gone: no call may name it any more */
    struct dependency behind[16]; /* places of other streams it was last told to wait for */
    unsigned behind_count;
    _Atomic uint64_t work; /* last place of something that an event behind it has to wait for */
    _Atomic(struct capture *) capture; /* capture.c's */
};

struct event {
    struct object object;
    struct context *context;
    uint64_t generation_of_context;
    unsigned slot;
    unsigned flags;
    bool shared; /* between processes: slot is one of the board's */
    bool imported;
    pthread_mutex_t lock;        /* record against wait: the three below belong together */
    uint64_t base;               /* generations up to here were another event's */
    _Atomic uint64_t generation; /* of the last record; base: never recorded */
    unsigned stream;             /* slot and sequence number of the last record */
    uint64_t seq;
    _Atomic uint64_t behind; /* what it was recorded behind (stream_place); 0: not known */
    _Atomic(struct capture_mark *) captured; /* capture.c's */
};

/* One parameter of a kernel. */
struct parameter {
    uint32_t offset, bytes;
};

/* A kernel in a module (and behind a CUkernel). module.c makes and ends these. */
struct function {
    struct object object;
    struct context *context; /* NULL for a CUkernel that is in no context yet */
    struct module *module;
    const char *name;
    _Atomic uint32_t kernel; /* the device's number + 1, see function_number; 0: not asked yet */
    unsigned param_count;
    struct parameter *params;
    uint32_t param_bytes;
    int attributes[CU_FUNC_ATTRIBUTE_MAX]; /* as cuFuncGetAttribute answers */
    struct {
        unsigned x, y, z, shared; /* legacy cuFuncSetBlockShape and friends */
        unsigned char *params;
        unsigned bytes;
    } legacy;
    void *extra; /* module.c's: what a CUkernel needs besides */
};

/* --- commands --- */

/* A command before it is submitted; graph code keeps these as nodes. Pointers belong to whoever
 * made the command and are read during stream_submit only (capture_take_command must copy). */
struct command {
    enum command_kind kind;
    unsigned flags; /* COMMAND_PROGRAMMATIC */
    union {
        struct command_launch launch; /* .kernel and .param_count are filled by stream_submit */
        struct command_copy copy;
        struct command_memset memset;
        struct command_host host;
        struct command_value value;
        struct {
            const struct command *const *nodes; /* in an order that respects their edges */
            unsigned count;
        } graph;
        struct {
            struct event *event;
            unsigned flags;
        } record; /* inside graphs: event record and event wait nodes */
    };
    struct function *function; /* kernels */
    const void *params; /* kernels: function->param_bytes bytes, laid out as the kernel wants */
    bool wait;          /* COMMAND_RECORD inside a graph: an event wait node */
};

/* Gives a command to its stream, or to the capture that the stream takes part in. Blocks while the
 * stream's launch queue is full. *seq (may be NULL) is set when it was submitted; 0 when captured.
 */
CUresult stream_submit(struct stream *stream, const struct command *command, uint64_t *seq);
/* The same without asking capture.c: what cuGraphLaunch uses for its own work when told to. */
CUresult stream_submit_raw(struct stream *stream, const struct command *command, uint64_t *seq);
/* Event record and wait in stream order, past the capture check. */
CUresult event_record(struct event *event, struct stream *stream);
CUresult event_wait(struct stream *stream, struct event *event);
bool event_done(const struct event *event);

/* Waits until the stream has done everything up to seq; 0, or the context's sticky error, or the
 * device's loss. */
CUresult stream_wait(struct stream *stream, uint64_t seq);
bool stream_done(const struct stream *stream, uint64_t seq);
/* The stream's last work, as one word; and whether that is known to have ended, and when. */
uint64_t stream_place(const struct stream *stream);
bool stream_ended(uint64_t place, uint64_t *when);
uint64_t stream_last(struct stream *stream);
/* Waits for all streams of the context. */
CUresult context_wait(struct context *context);

/* Finds the stream a handle names in the current context: 0 and CU_STREAM_LEGACY the legacy stream,
 * CU_STREAM_PER_THREAD the thread's own (made on first use), else the handle itself. */
CUresult stream_find(CUstream handle, struct stream **stream);
/* What the _ptsz and _ptds flavours make of a handle. */
#define PER_THREAD(handle) ((handle) ? (handle) : CU_STREAM_PER_THREAD)

/* --- memory --- */

/* Device memory of the context's device, really there at *address in this process too. */
CUresult memory_take(struct context *context, uint64_t bytes, uint64_t alignment,
                     enum alloc_kind kind, CUdeviceptr *address);
/* The same for memory that outlives contexts. */
CUresult memory_take_free(unsigned device, uint64_t bytes, enum alloc_kind kind,
                          CUdeviceptr *address);
CUresult memory_put(CUdeviceptr address);
/* Bytes that only count (a context's cost, loaded code): + takes, - gives back. */
CUresult memory_adjust(struct context *context, int64_t bytes);
/* Whether a range is device memory (or pinned, or registered host memory) the device can reach. */
bool memory_is_device(CUdeviceptr address);
bool memory_is_reachable(const void *address, uint64_t bytes);

/* --- what tests may ask of this library and no driver offers; found by dlsym --- */

#define SIM_TESTS __attribute__((visibility("default")))
/* What the device has handed out to this process: memory that calls asked for, and what its
 * contexts cost besides (their own memory, code, modules' variables, heaps). NULLs are left out.
 * Ordered behind everything that the calling thread has done; never waits for the device's work. */
SIM_TESTS CUresult simcudaHandedOut(int device, unsigned long long *memory,
                                    unsigned long long *context);
/* The same of the whole device: bytes in use, and those of them whose maker has let go while
 * importers still hold them. */
SIM_TESTS CUresult simcudaDeviceHandedOut(int device, unsigned long long *used,
                                          unsigned long long *orphaned);

/* This process's managed memory, where it is paged, and what of it is on the device (and part of
 * the memory that simcudaHandedOut tells). */
SIM_TESTS CUresult simcudaManaged(int device, unsigned long long *allocated,
                                  unsigned long long *resident);

/* --- entry points --- */

struct sim {
    _Atomic bool ready; /* cuInit succeeded in this process */
    bool failing;       /* SIMCUDA_FAIL is set */
    bool null_launch;
    bool log;
    bool fabric, multicast; /* what the devices say they can do */
    unsigned client;
    unsigned devices;
    struct board *board;
    struct arena *arena;
    unsigned char *arena_base;
    const _Atomic uint32_t *alive; /* 1 here, 0 in a forked child (MADV_WIPEONFORK) */
    uint64_t launch_cost, record_cost, query_cost, write_cost;
    bool code;       /* code takes device memory */
    unsigned rounds; /* of a WHILE node's body: nothing on the device ends its loop */
    pthread_mutex_t lock;
};
extern struct sim sim;

/* SIMCUDA_FAIL and slow calls by exported name. */
CUresult fail_check(const char *symbol);
#define ENTRY() \
    do { \
        if (__builtin_expect(sim.failing, 0)) { \
            CUresult entry_result = fail_check(__func__); \
            if (entry_result) \
                return entry_result; \
        } \
    } while (0)

/* How entry points begin after ENTRY(): CUDA_ERROR_NOT_INITIALIZED before cuInit and in forked
 * children, CUDA_ERROR_DEINITIALIZED during exit. */
CUresult sim_check(void);
/* And, for those that need a current context: CUDA_ERROR_INVALID_CONTEXT, CONTEXT_IS_DESTROYED, or
 * the sticky error of the context. */
CUresult sim_enter(struct context **context);
/* The current context whatever its state (NULL if none): for calls that sticky errors do not stop.
 */
struct context *context_current(void);
CUresult context_error(const struct context *context);
/* Makes a context current for a scope within a call (graph nodes' contexts), returning the old. */
struct context *context_swap(struct context *context);

/* The device's number of a kernel's name; asks once. */
CUresult function_number(struct function *function, uint32_t *number);

/* One call to the device; in and out may be NULL. Serialised, never waits for work. */
CUresult call_device(enum call_op op, const uint64_t *in, unsigned in_count, uint64_t *out,
                     const char *text);

void sim_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t sim_now(void);
/* Lets host time pass as a real driver's call would. */
void sim_spend(uint64_t ns);

int device_multiprocessors(void);
/* The compute capability (10 * major + minor) that a device reports. */
unsigned device_arch(unsigned device);

#endif
