/*
 * What the simulated driver (in each client) and the device process share.
 *
 * The board (one memfd made by the device, mapped by all): doorbells and the device's figures.
 * An arena (one memfd per client, made and locked by it, mapped by both): streams with their rings,
 * events, one call slot, host function requests, staging blocks and all pinned host memory. Device
 * memory (one memfd) is mapped at one address everywhere, so that a device pointer means the same
 * to everybody.
 *
 * Each word has one writer, named below, except where "both" is said. A client may die or stop at
 * any instruction: the device copies a command before it believes it and bounds every index; a
 * client never waits without a time limit. Sequence numbers never go back, also when a stream's
 * slot is used again, so that stale waits end by themselves.
 */
#ifndef SIM_COMMON_LAYOUT_H
#define SIM_COMMON_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define SIM_MAGIC 0x53494d43u /* "SIMC" */
#define SIM_VERSION 3u

enum {
    SIM_CLIENTS = 512,
    SIM_DEVICES = 16,
    SIM_CONTEXTS = 64, /* per client */
    SIM_STREAMS = 1024,
    SIM_EVENTS = 65536,
    SIM_IPC_EVENTS = 4096, /* on the board, shared by all clients */
    SIM_RING = 256 * 1024, /* bytes of commands per stream */
    SIM_HOST_CALLS = 1024, /* host functions under way per client */
    SIM_STAGES = 128,
    SIM_STAGE = 64 * 1024,
    SIM_NAME = 256,
    SIM_TAG = 64,
    SIM_DEPS = 64,
};
#define SIM_PINNED (UINT64_C(1) << 36) /* pinned host memory per client, sparse */

/* Bits of a client's doorbell: streams share 63 bits, the last one is the call slot's. */
#define SIM_BELL_STREAM(slot) (UINT64_C(1) << ((slot) % 63))
#define SIM_BELL_CALL (UINT64_C(1) << 63)

struct board_device {
    _Atomic uint64_t total;   /* device: bytes, set once */
    _Atomic uint64_t used;    /* device: bytes, contexts' own included */
    _Atomic uint64_t busy_ns; /* device: time in which the compute engine ran something, ended
                                 stretches only */
    _Atomic uint32_t lost;    /* device: error code once the device has fallen off the bus */
};

/* One event shared between processes. recorded: any client adds 1 per record; done and time:
 * device, when that record completes; owner: device, slot is free at 0. */
struct board_event {
    _Atomic uint64_t recorded;
    _Atomic uint64_t done;
    _Atomic uint64_t time;
    _Atomic uint32_t waiters; /* both; not zero: the device wakes `done` */
    uint32_t spare;
};

struct board {
    uint32_t magic;
    uint32_t version;
    uint32_t devices;
    uint32_t queue;  /* launches a stream holds before the next one blocks */
    uint32_t paging; /* 1: managed memory comes to the device when kernels run */
    uint32_t spare0;
    uint64_t memory_base;
    uint64_t memory_stride;    /* address distance of two devices' memory */
    _Atomic uint32_t sleeping; /* device sets 1, or 2: not to be punctual for anybody;
                                  whoever sets it back to 0 wakes it */
    _Atomic uint32_t spare;
    _Atomic uint64_t bell[SIM_CLIENTS]; /* clients set bits, the device takes them */
    struct board_device device[SIM_DEVICES];
    struct board_event event[SIM_IPC_EVENTS];
};

/* One stream. head, completed, done and listening: device (a client clears listening as it rings);
 * the rest: client. */
struct stream_shared {
    _Atomic uint64_t tail;      /* client: bytes written to the ring, ever */
    _Atomic uint64_t submitted; /* client: last sequence number given out */
    _Atomic uint32_t listening; /* 1: the device will not look again unless rung */
    _Atomic uint32_t waiters;   /* client: not zero: the device wakes `completed` */
    uint64_t spare0[5];
    _Atomic uint64_t completed; /* device: last sequence number done (low half is the futex) */
    _Atomic uint64_t done_time; /* device: when that was, computed */
    _Atomic uint64_t head;      /* device: bytes taken from the ring, ever */
    _Atomic uint64_t host_done; /* client: ticket of the last host function that returned */
    _Atomic uint64_t host_time; /* client: when that was */
    /* device: the kernel at this place ends at that time, whatever comes; 0: none. So who asks sees
     * its end by the clock, and the device need not be awake for it. */
    _Atomic uint64_t sure;
    _Atomic uint64_t sure_end;
    uint64_t spare1;
};
_Static_assert(sizeof(struct stream_shared) == 128, "two cache lines");

struct event_shared {
    _Atomic uint64_t done;    /* device: generation of the last record that completed */
    _Atomic uint64_t time;    /* device: when */
    _Atomic uint32_t waiters; /* client */
    uint32_t spare;
    uint64_t spare1;
};
_Static_assert(sizeof(struct event_shared) == 32, "two in a cache line");

/* Rare things go by one call at a time; the client's own lock serialises its threads. */
enum call_state { CALL_IDLE, CALL_ASKED, CALL_ANSWERED };

struct call_slot {
    _Atomic uint32_t state;   /* both: enum call_state, the futex of both */
    _Atomic uint32_t waiting; /* client: it sleeps on state */
    uint32_t op;
    int32_t result; /* a CUresult */
    uint64_t in[8];
    uint64_t out[4];
    char text[SIM_NAME];
};

/* A host function the device wants called: SPSC ring, device writes, the driver's thread reads. */
struct host_call {
    uint64_t function;
    uint64_t argument;
    uint64_t ticket;
    uint64_t handle; /* the CUstream, for stream callbacks */
    uint32_t stream;
    uint32_t callback; /* 1: CUstreamCallback, 0: CUhostFn */
};

struct arena {
    uint32_t magic;
    uint32_t version;
    uint64_t bytes;
    _Atomic uint32_t error[SIM_CONTEXTS]; /* device: sticky error of a context, a CUresult */
    struct call_slot call;
    _Atomic uint32_t host_tail; /* device; the futex of the driver's thread */
    _Atomic uint32_t host_head; /* client */
    _Atomic uint32_t sleepers;  /* client: its threads that wait for a word of the device's */
    uint32_t spare;
    struct host_call host[SIM_HOST_CALLS];
    struct stream_shared stream[SIM_STREAMS];
    struct event_shared event[SIM_EVENTS];
};

#define SIM_ALIGN(n, to) (((uint64_t)(n) + (to)-1) / (to) * (to))
#define ARENA_RINGS SIM_ALIGN(sizeof(struct arena), 2 << 20)
#define ARENA_STAGES (ARENA_RINGS + (uint64_t)SIM_STREAMS * SIM_RING)
#define ARENA_PINNED SIM_ALIGN(ARENA_STAGES + (uint64_t)SIM_STAGES * SIM_STAGE, 2 << 20)
#define ARENA_BYTES (ARENA_PINNED + SIM_PINNED)

/* --- commands --- */

enum command_kind {
    COMMAND_NOTHING, /* a place for dependencies */
    COMMAND_KERNEL,
    COMMAND_GRAPH, /* client side only: on the wire a graph is its nodes between two marks */
    COMMAND_MEMSET,
    COMMAND_COPY,
    COMMAND_HOST,
    COMMAND_RECORD,
    COMMAND_VALUE_WRITE,
    COMMAND_VALUE_WAIT,
    COMMAND_KINDS
};

enum copy_direction { COPY_DTOD, COPY_HTOD, COPY_DTOH, COPY_HTOH };

enum command_flags {
    COMMAND_PROGRAMMATIC = 1, /* kernel: may overlap the kernel right before it */
    COMMAND_IN_GRAPH = 2,     /* part of a graph's launch */
    COMMAND_GRAPH_LAST = 4,   /* and its last one */
    COMMAND_INDIRECT = 16,    /* the record is a pointer to more records, in pinned memory */
};

struct command_launch {
    uint32_t kernel; /* the device's number for its name */
    uint32_t shared;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t param_count; /* entries of the layout that precedes the parameters' bytes */
    uint32_t cooperative;
};

/* Linear copies have height = depth = 1. Pitches are in bytes, slices are pitch * rows. An address
 * 0 on one side: the client moves the bytes itself, only the time passes here. */
struct command_copy {
    uint64_t to, from;
    uint64_t width, height, depth;
    uint64_t to_pitch, from_pitch;
    uint64_t to_slice, from_slice;
    uint32_t direction; /* enum copy_direction */
    uint32_t prefetch;  /* 1: managed memory moves here or away (width bytes), nothing is copied */
};

struct command_memset {
    uint64_t to;
    uint64_t pitch;
    uint64_t width, height; /* in elements, rows */
    uint32_t value;
    uint32_t element; /* 1, 2 or 4 bytes */
};

struct command_host {
    uint64_t function;
    uint64_t argument;
    uint64_t handle;
    uint32_t callback;
    uint32_t spare;
};

struct command_record {
    uint64_t generation;
    uint32_t slot;
    uint32_t shared; /* 1: slot is one of the board's */
};

enum value_operation { VALUE_GEQ, VALUE_EQ, VALUE_AND, VALUE_NOR };

struct command_value {
    uint64_t address;
    uint64_t value;
    uint32_t bytes;     /* 4 or 8 */
    uint32_t operation; /* waits: enum value_operation */
};

/* What must be done before a command starts: sequence `seq` of another stream of this client, or
 * generation `seq` of an event on the board. */
enum dependency_kind { DEPENDENCY_STREAM, DEPENDENCY_EVENT };

struct dependency {
    uint32_t kind;
    uint32_t slot;
    uint64_t seq;
};

/* A record of a ring: this, then `deps` dependencies, then `payload` bytes: param_count pairs
 * {u32 offset, u32 size} and the parameters' bytes. Records are 16-aligned and never wrap: a record
 * of kind COMMAND_NOTHING without sequence number fills the ring's end. */
struct wire_command {
    uint32_t bytes;
    uint16_t kind;
    uint16_t flags;
    uint64_t seq; /* 0: filler, completes nothing */
    uint64_t stamp;
    uint32_t deps;
    uint32_t payload;
    union {
        struct command_launch launch;
        struct command_copy copy;
        struct command_memset memset;
        struct command_host host;
        struct command_record record;
        struct command_value value;
        struct {
            uint64_t address, bytes;
        } indirect;
    };
};

/* --- calls --- */

enum call_op {
    CALL_NONE,
    CALL_CONTEXT_CREATE,  /* in: context slot, device */
    CALL_CONTEXT_DESTROY, /* in: context slot */
    CALL_STREAM_OPEN,     /* in: stream slot, context slot, priority (int) */
    CALL_STREAM_CLOSE,    /* in: stream slot, all of it done */
    CALL_KERNEL,          /* text: name; out: number */
    CALL_ALLOC,           /* in: context slot (SIM_CONTEXTS: of none), device, bytes, alignment,
                             kind; out: address */
    CALL_FREE,            /* in: address; out: bytes */
    CALL_ADJUST,          /* in: context slot, device, signed bytes without an address */
    CALL_EVENT_OPEN,      /* in: board event slot, 1 to open that; 0, 0: a new one. out: slot */
    CALL_EVENT_CLOSE,     /* in: board event slot */
    CALL_MAP,             /* in: client address, bytes, memory address (0: unmap) */
    CALL_REGISTER,        /* in: client address, bytes (0: unregister); foreign host memory */
    /* in: address, serial, 1 to ask only, context slot. out: bytes, serial. Adds a holder to an
     * allocation of anybody, if it is still the one of that serial. */
    CALL_SHARE,
    /* in: address, the client's descriptor, which holds the allocation until its lock is gone:
     * until nobody has it open any more. */
    CALL_EXPORT,
    /* in: device, 0; out: this client's memory, its contexts' cost; the device's bytes in use,
     * those of them that are nobody's. in: device, 1; out: this client's managed memory, what of it
     * is on the device. */
    CALL_HANDED_OUT,
    CALL_LEAVE,
};

/* What memory is for: all but a module's is memory that a call asked for. */
enum alloc_kind {
    ALLOC_PLAIN,
    ALLOC_POOL,
    ALLOC_ARRAY,
    ALLOC_PHYSICAL,
    ALLOC_MODULE,
    ALLOC_MANAGED, /* pages, where the device can do that */
};

/* --- the socket --- */

enum hello_kind { HELLO_JOIN, HELLO_STATUS };

/* Client to device; with HELLO_JOIN the arena's descriptor comes along. */
struct hello {
    uint32_t magic;
    uint32_t version;
    uint32_t kind;
    int32_t pid;    /* as the client sees itself */
    uint64_t arena; /* address of its arena */
    char tag[SIM_TAG];
};

/* Device to client, with the board's and the memory's descriptors. */
struct welcome {
    uint32_t magic;
    uint32_t version;
    uint32_t client; /* slot */
    int32_t result;  /* 0 or -errno */
    int32_t device_pid;
    int32_t capacity;
    uint64_t memory_bytes; /* of the whole mapping */
};

struct status_client {
    int32_t pid;      /* as it sees itself */
    int32_t host_pid; /* as the device sees it */
    uint32_t device;
    uint32_t spare;
    uint64_t bytes;
};

/* The answer to HELLO_STATUS: this, then `clients` of struct status_client, in one packet. */
struct status {
    uint32_t magic;
    uint32_t version;
    uint32_t devices;
    uint32_t clients;
    struct {
        uint64_t total, used, busy_ns;
        uint32_t lost, busy_permille; /* of the last second */
    } device[SIM_DEVICES];
};

#endif
