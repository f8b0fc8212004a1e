/*
 * What the client core's files tell each other and nobody else: the ways between start.c, thread.c,
 * context.c, stream.c, memory.c and their neighbours. Locks: see sim.h.
 */
#ifndef SIM_CLIENT_CORE_H
#define SIM_CLIENT_CORE_H

#include "sim.h"
#include "util.h"

/* --- start.c --- */
/* Whether the device process is still there; a system call, for slow paths. */
bool start_device_lives(void);
/* What calls answer when it is not. */
#define START_DEVICE_GONE CUDA_ERROR_DEVICE_UNAVAILABLE

/* --- connect.c: the socket --- */
struct connection {
    int socket;
    struct welcome welcome;
    int board, memory; /* descriptors */
};
/* Reaches the device, starting it where there is none; 0 or -errno. */
int connect_device(int arena, const void *arena_address, struct connection *connection);

/* --- call.c --- */
void bell_ring(uint64_t bits);

/* --- thread.c --- */
void thread_open(void); /* once, in cuInit */
CUresult thread_push(struct context *context, struct green *green);
/* The handle of what was current. */
CUresult thread_pop(CUcontext *handle);
void thread_set(struct context *context, struct green *green);
CUcontext thread_handle(void);
/* The green context whose handle is the current one; NULL: an ordinary context's is. */
struct green *green_current(void);
CUresult thread_stream(struct context *context, struct stream **stream);
/* Checks a context's life and its sticky error. */
CUresult thread_check(const struct context *context);

/* --- context.c, primary.c --- */
CUresult context_begin(struct context *context);
CUresult context_finish(struct context *context);
/* The context behind a handle (NULL: the current one), and the green context if it stands for one.
 */
struct context *context_check(CUcontext handle, struct green **green);
/* The beginning of a call that names a context: sim_check and context_check. */
CUresult context_enter(CUcontext handle, struct context **context, struct green **green);
CUresult primary_retain(CUdevice device, struct context **context);
CUresult primary_release(CUdevice device, bool reset);
/* The non-blocking stream in which events of the whole context are recorded. */
CUresult context_side_stream(struct context *context, struct stream **stream);

/* --- green.c --- */
/* Part of a device, in the primary context: what it makes is that context's, its streams apart. The
 * view is what stands for it as a CUcontext. */
struct green {
    struct object object;
    struct context *context;
    uint64_t generation; /* of the context */
    struct view *view;
    struct stream *legacy; /* its own default stream */
    CUdevResource resource;
};
struct view {
    struct object object;
    struct green *green;
};
/* Waits for the streams of a green context; NULL: for all. */
CUresult green_wait(struct context *context, const struct green *green);
CUresult green_event_record(struct context *context, struct green *green, CUevent event);
CUresult green_event_wait(struct context *context, struct green *green, CUevent event);

/* --- stream.c --- */
CUresult stream_make(struct context *context, struct green *green, unsigned flags, int priority,
                     struct stream **stream);
int stream_clamp_priority(int priority);
/* A green context ends: its streams' work goes on, their handles lead nowhere. */
void stream_orphan_all(struct green *green);
void stream_retire(struct stream *stream); /* its work completes, its handle ends */
void stream_end_all(struct context *context);
struct stream *stream_check(CUstream handle);

/* --- wait.c --- */
/* Waits until *word >= value; `waiters` makes the device wake us. False: the device is gone. */
bool wait_word(const _Atomic uint64_t *word, uint64_t value, _Atomic uint32_t *waiters, bool spin);
/* Everything of the stream up to seq, without a look at errors. */
bool wait_stream(const struct stream *stream, uint64_t seq);

/* --- submit.c --- */
/* A place in the stream behind what `deps` names. */
CUresult submit_dependencies(struct stream *stream, const struct dependency *deps, unsigned count);
CUresult submit_record(struct stream *stream, const struct command_record *record, uint64_t *seq);
/* Whether the stream was told to wait for that place of another. */
bool submit_is_behind(struct stream *stream, unsigned slot, uint64_t seq);
/* Whether everything before a legacy action is done: blocking streams and the legacy one itself. */
bool submit_legacy_done(const struct stream *legacy);

/* --- hostcall.c --- */
void hostcall_need(void); /* starts the driver's thread on first use */

/* --- memory.c: what is known about addresses --- */
enum region_kind {
    REGION_DEVICE,
    REGION_MANAGED,
    REGION_POOL,
    REGION_PINNED,
    REGION_REGISTERED,
    REGION_VIRTUAL,
    REGION_IMPORTED,
    REGION_EXTERNAL,
};

/* An imported region that cuMemFree closes, as the pools' pointers; others have a close of their
 * own. */
enum { REGION_FREED_BY_FREE = 1, REGION_ON_HOST = 2 /* a pool's block */ };

struct region {
    uint64_t address, bytes;
    enum region_kind kind;
    struct context *context;
    unsigned device;
    unsigned flags;
    uint64_t id;
    void *owner;      /* a pool, a physical allocation */
    uint64_t backing; /* device memory behind a virtual range */
};

/* The region around an address, copied out; false: unknown. */
bool region_find(uint64_t address, struct region *out);
CUresult region_add(const struct region *region);
bool region_remove(uint64_t address, struct region *out);
/* Whether anything is known inside a range. */
bool region_any(uint64_t address, uint64_t bytes);
/* Whether a range lies in one region, or in mappings of virtual memory without a gap. */
bool region_covers(uint64_t address, uint64_t bytes);
void region_forget_context(struct context *context);
/* Where this process reads and writes device address `address`. */
void *region_host(uint64_t address);

/* --- array.c, format.c, sparse.c --- */
/* bytes: of an element (of one channel where `channels` is 0), or of a block. */
struct format_part {
    uint8_t bytes, shift_x, shift_y;
};
struct format {
    uint8_t id;
    uint8_t channels; /* how many there must be; 0: 1, 2 or 4 */
    uint8_t block;    /* side of a block in elements */
    uint8_t planes;
    struct format_part plane[3];
    uint8_t plane_format; /* of more than one */
};

/* An array is linear memory: rows of `pitch` bytes, slices of `pitch * rows`, then further planes.
 */
struct array {
    struct object object;
    struct context *context;
    CUdeviceptr address; /* 0: nothing behind it (yet) */
    CUDA_ARRAY3D_DESCRIPTOR_v2 form;
    const struct format *format;
    uint64_t element;             /* bytes of one element with all its channels, or of one block */
    uint64_t width, rows, slices; /* in elements, or in blocks */
    uint64_t pitch;
    uint64_t bytes;
    bool borrowed;          /* a level of a mipmapped array, or a plane */
    bool own;               /* its memory was taken for it */
    struct array *plane[3]; /* views, made when asked for */
    struct sparse *sparse;  /* what the program maps into it; NULL: it has its own memory */
};
enum { ARRAY_LEVELS = 18 };
struct mipmap {
    struct object object;
    struct context *context;
    CUdeviceptr address;
    uint64_t bytes;
    unsigned levels;
    bool own;
    struct sparse *sparse;
    struct array level[ARRAY_LEVELS];
};
struct array *array_check(CUarray handle);
/* A mipmapped array in memory that is there already. */
CUresult array_mipmap_at(struct context *context, CUdeviceptr address, uint64_t room,
                         const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, unsigned levels,
                         struct mipmap **out);
CUresult array_end_mipmap(struct mipmap *mipmap);
void array_place_levels(struct mipmap *mipmap);

/* NULL: no such format, or not with so many channels. */
const struct format *format_find(unsigned id, unsigned channels);
uint64_t format_unit(const struct format *format, unsigned plane, unsigned channels);
uint64_t format_bytes(const struct array *array);
/* Fills in what follows from the form. */
bool format_measure(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form);
bool format_plane(const struct array *whole, unsigned plane, struct array *out);

/* What is mapped into an array that has no memory of its own. */
struct sparse *sparse_new(struct context *context);
/* Lets go of all that is mapped. */
void sparse_end(struct sparse *sparse);
void sparse_end_context(const struct context *context);

/* --- host.c: memory shared with the device --- */
void *shared_take(uint64_t bytes); /* page aligned, from the pinned part of the arena */
void shared_put(void *address);
/* A staging block for one small copy, free again when (stream, seq) is done. */
unsigned char *stage_take(void);
void stage_give(unsigned char *stage, struct stream *stream, uint64_t seq);
/* Shared memory to be put back when (stream, seq) is done. */
void shared_put_later(void *address, struct stream *stream, uint64_t seq);

/* --- share.c, and what it asks vmm.c and pool.c --- */
struct shared_memory {
    uint32_t device;
    uint64_t address, bytes; /* of the device's allocation */
    uint64_t serial;         /* which tells it from a later one at the same place */
};
/* One more holder of an allocation, whoever made it, until the context's end (NULL: the process's);
 * memory_put is the way back. */
CUresult share_hold(const struct context *context, const struct shared_memory *shared);
/* The physical memory that an exported descriptor means. */
CUresult share_of_descriptor(int fd, struct shared_memory *shared);
CUresult share_identify(struct shared_memory *shared);
CUresult share_close(CUdeviceptr address);
bool physical_describe(CUmemGenericAllocationHandle handle, unsigned type,
                       struct shared_memory *shared);
/* What a generic allocation handle stands for. */
struct physical {
    struct object object;
    CUmemAllocationProp prop;
    CUdeviceptr address;
    uint64_t bytes;
    unsigned handles, mappings;
    bool host;
    struct multicast *multicast; /* an object of this kind, without memory */
};
/* One with a handle and nothing else. */
struct physical *physical_new(uint64_t bytes);
struct physical *physical_check(CUmemGenericAllocationHandle handle);
/* One more, one fewer, holder of device memory besides handles: a mapping, a binding. */
struct physical *physical_hold(CUmemGenericAllocationHandle handle, uint64_t offset,
                               uint64_t bytes);
/* The same for a tile pool of the device. */
struct physical *physical_map(CUmemGenericAllocationHandle handle, unsigned device, uint64_t offset,
                              uint64_t bytes, CUdeviceptr *address);
CUresult physical_unmap(struct physical *physical);
CUresult physical_unmap_locked(struct physical *physical); /* under vmm.c's lock */

/* --- multicast.c --- */
/* Waits until all devices of its team have been added. */
void multicast_await(struct multicast *multicast);
/* Neither handle nor mapping is left: lets go of what is bound. Under vmm.c's lock. */
void multicast_end(struct multicast *multicast);

CUresult physical_import(CUmemGenericAllocationHandle *handle, unsigned type,
                         const struct shared_memory *shared);
bool pool_exportable(CUmemoryPool pool, unsigned type, uint32_t *device);
bool pool_imported(CUmemoryPool pool);
CUresult pool_import(CUmemoryPool *pool, unsigned device);
/* The device's allocation around a pool's block. */
bool pool_chunk(CUdeviceptr address, struct shared_memory *shared);
bool pool_describe(CUdeviceptr address, struct shared_memory *shared, uint64_t *bytes);

/* --- external.c --- */
CUresult external_free(uint64_t address); /* cuMemFree of a mapped buffer */
void external_end_context(const struct context *context);

/* --- pool.c --- */
void pool_end_context(struct context *context);
/* A synchronisation: pools give back what is above their thresholds. */
void pool_trim_all(void);
/* cuMemFree of a pool's block; false: not one. */
CUresult pool_free_now(uint64_t address, void *owner);

/* --- visible.c: CUDA_VISIBLE_DEVICES --- */
void visible_open(void);
unsigned visible_count(void);
/* The device with this ordinal, -1 when there is none. */
int visible_device(int ordinal);

#endif
