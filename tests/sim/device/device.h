/*
 * The device process's table of contents. One thread (main) owns everything declared here; two
 * side threads exist: `watch` turns socket events into a wake-up, `worker` moves large blocks of
 * bytes.
 *
 * Time is simulated against CLOCK_MONOTONIC: every start and end is computed from stamps and
 * earlier ends, and an event is carried out when the real clock has passed its computed time.
 * Whatever arrives late is placed no earlier than the last thing that its engine already did.
 */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "util.h"

struct client;
struct context;
struct stream;
struct engine;
struct device;
struct watch_event;

/* --- settings, taken from the environment once --- */

struct settings {
    char directory[4096];
    char trace[4096];
    unsigned devices;
    uint64_t memory;
    uint64_t teardown, slice, switch_cost, start_delay, linger, spin;
    unsigned capacity, queue;
    uint64_t kernel_default;
    uint64_t context_bytes;
    uint64_t copy_latency;
    uint64_t copy_rate;   /* bytes per second between host and device */
    uint64_t memory_rate; /* bytes per second inside the device */
    bool paging;          /* concurrent managed access */
    bool code;            /* code and modules' variables take memory */
    uint64_t page_rate;   /* bytes per second to and from the device */
    uint64_t overlap;     /* what a programmatic launch saves behind a kernel */
};
extern struct settings settings;
void settings_load(void);

/* --- kernels by name --- */

enum effect { EFFECT_NONE, EFFECT_SPIN, EFFECT_WAIT, EFFECT_SET, EFFECT_ADD, EFFECT_FILL };
enum outcome { OUTCOME_OK, OUTCOME_FAULT, OUTCOME_LOST };

struct kernel {
    char name[SIM_NAME];
    uint64_t duration;
    bool timed; /* SIMCUDA_KERNELS gives its duration */
    enum effect effect;
    enum outcome outcome;
};

/* The number of a name, made on first use; -1 when the table is full. */
int kernel_number(const char *name);
const struct kernel *kernel_get(uint32_t number); /* NULL: no such number */

/* --- commands and streams --- */

struct item {
    struct item *next;       /* in its stream, in order */
    struct item *queue_next; /* in an engine's list */
    struct stream *stream;
    const struct kernel *kernel;
    uint64_t ready;     /* earliest start */
    uint64_t remaining; /* execution time still to go; UTIL_NEVER: until something else ends it */
    uint64_t begun;     /* first start; 0: not yet */
    uint64_t since;     /* start of the present stretch; 0: not executing */
    uint64_t last_poll;
    bool released; /* the flag it waited for has been seen: ends at since + remaining */
    unsigned piece;
    unsigned weight;
    unsigned job;      /* worker's ticket; 0: none */
    uint64_t ticket;   /* of a host function under way */
    bool programmatic; /* behind a kernel it may overlap */
    bool told;         /* the client has been told when it ends */
    struct wire_command c;
    unsigned char data[]; /* dependencies, then payload */
};

enum stream_state {
    STREAM_IDLE,
    STREAM_BLOCKED, /* head waits for dependencies */
    STREAM_POLLING, /* head waits for a word in memory, or for room among the host functions */
    STREAM_QUEUED,  /* head is an engine's */
    STREAM_HOST,    /* head is a host function under way */
};

struct stream {
    struct client *client;
    struct context *context;
    unsigned slot;
    int priority;
    bool open;
    enum stream_state state;
    struct stream *next;         /* of its context */
    struct stream *waiting_next; /* of all streams whose head waits for something outside */
    bool listed;
    struct stream_shared *shared;
    const unsigned char *ring;
    struct item *head, *last;
    uint64_t head_bytes;
    uint64_t completed;
    uint64_t done_time;
    uint64_t poll_since;
    uint64_t times[256]; /* completion times of the last sequence numbers */
    bool after_kernel;   /* what completed last was a kernel and nothing came since */
    struct {
        bool open;
        uint64_t start, end, submit;
        unsigned piece;
    } graph;
};

struct context {
    struct client *client;
    struct engine *engine;
    unsigned slot, device;
    bool alive;
    uint32_t error;
    uint64_t bytes; /* of its own, without address */
    struct stream *streams;
    struct item *queued;  /* may start once ready; by priority, then arrival */
    struct item *running; /* on the engine, or taken off it in the middle */
    unsigned running_weight;
    struct context *next; /* the engine's ring of contexts, in order of creation */
};

/* The compute engine of one device. */
struct engine {
    struct device *device;
    struct context *contexts;
    struct context *loaded;
    bool switching;
    uint64_t switch_end;
    uint64_t slice_start;
    uint64_t page_start, page_bytes; /* the switch ends with paging, from then on; 0: it does not */
    const struct item *paged_for;    /* starts next: its pages have been brought */
    uint64_t time;                   /* of the last thing it did */
};

struct copier {
    struct item *queued, *queued_last;
    struct item *current;
    uint64_t end;
    uint64_t free_at;
};

struct block;

struct device {
    unsigned ordinal;
    struct board_device *shared;
    struct engine engine;
    struct copier copier[2]; /* to the device, from it */
    uint64_t total, used;
    uint64_t orphaned;   /* of used: held by importers alone, its maker has let go */
    struct block *first; /* blocks by address */
    struct block *free;
    struct block *discarding; /* freed, their contents still being given back */
    uint64_t busy[16];        /* execution time per tenth of a second, a ring */
    uint64_t busy_tenth[16];
    uint64_t busy_sum;
};

struct mapping {
    struct mapping *next;
    uint64_t address, bytes;
    uint64_t memory; /* what is behind it, as mapped here: device memory or pinned memory of the
                        arena; 0: the client's own memory, reached through its pid */
};

struct client {
    bool used;
    bool leaving;
    uint64_t dead_at; /* 0: alive */
    unsigned slot;
    int socket, pidfd, arena_fd;
    int pid, host_pid;
    char tag[SIM_TAG];
    unsigned char *base; /* the arena, here */
    struct arena *arena;
    uint64_t arena_address; /* and there */
    uint64_t bytes[SIM_DEVICES];
    uint64_t overhead[SIM_DEVICES]; /* of bytes: contexts' cost, which no call asked for */
    uint64_t managed[SIM_DEVICES];  /* paged memory, wherever it is */
    uint64_t resident[SIM_DEVICES]; /* of bytes, and of managed: on the device now */
    uint64_t paged_at[SIM_DEVICES]; /* when a kernel last wanted it */
    uint64_t holdings;              /* blocks of memory it holds */
    struct context contexts[SIM_CONTEXTS];
    struct stream *streams[SIM_STREAMS];
    unsigned stream_count; /* highest slot ever opened, plus 1 */
    uint32_t host_tail;
    uint64_t host_ticket;
    struct mapping *mappings;
    uint64_t lock_check; /* hung up without dying: when to look at its lock again; 0: never */
};

extern struct client *clients[SIM_CLIENTS];
extern unsigned client_most; /* highest slot in use, plus 1 */
extern struct device devices[SIM_DEVICES];
extern struct board *board;
extern unsigned char *memory; /* all device memory, at board->memory_base */

/* --- main.c --- */
uint64_t device_now(void);     /* the loop's present instant */
uint64_t device_refresh(void); /* moves it to the clock's */
void main_wake(void);          /* from the side threads */

/* --- area.c: memfds and the board --- */
int area_create(void);
int area_board_fd(void);
int area_memory_fd(void);

/* --- client.c: who is there; door.c: how they come in --- */
int client_join(int socket, const struct hello *hello, int arena_fd);
void client_hung_up(unsigned slot);
void client_died(unsigned slot);
void client_leave(struct client *client);
uint64_t client_next(void);
void client_step(uint64_t now);
unsigned client_count(void);
int door_open(void);
void door_event(const struct watch_event *event);
/* Closes the door if nobody stands at it; true: the device may end. */
bool door_close(void);
void door_answer_status(int socket);

/* --- watch.c: what happens on descriptors, told to the main thread --- */
enum watch_kind { WATCH_LISTEN, WATCH_GUEST, WATCH_SOCKET, WATCH_PROCESS };

struct watch_event {
    enum watch_kind kind;
    unsigned index; /* a guest's descriptor, or a client's slot */
};

int watch_start(void);
int watch_add(int fd, enum watch_kind kind, unsigned index);
void watch_remove(int fd);
/* Takes what happened since; the watcher looks again after watch_done. */
unsigned watch_take(struct watch_event *events, unsigned most);
void watch_done(void);
bool watch_pending(void);

/* --- call.c: what clients ask for --- */
void call_serve(struct client *client);
void call_forget(const struct client *client);

/* --- context.c --- */
uint32_t context_open(struct client *client, unsigned slot, unsigned device);
void context_close(struct context *context, uint64_t now);
/* A fault at time t: what is under way in the context ends, the error stays. */
void context_fail(struct context *context, uint32_t error, const char *name, uint64_t t);
void context_lose_device(struct device *device, const char *name, uint64_t t);

/* --- stream.c --- */
uint32_t stream_open(struct client *client, unsigned slot, unsigned context, int priority);
void stream_close(struct stream *stream);
void stream_look(struct stream *stream); /* the bell rang, or something of it ended */
/* The head is done at t; the stream goes on to what follows. */
void stream_complete(struct stream *stream, uint64_t t);
/* The head, a kernel, ends then whatever comes. */
void stream_tell(struct stream *stream, uint64_t end);
/* Whether nothing but records is behind the head. */
bool stream_last(struct stream *stream);
/* The context has failed or is being closed: everything of the stream ends unexecuted. */
void stream_drain(struct stream *stream);
uint64_t stream_next_poll(void);
/* Looks at streams that wait for others or for memory, until nothing moves any more. */
void stream_settle(void);
void stream_forget(struct client *client);

/* --- engine.c, copier.c --- */
void engine_queue(struct item *item);
void engine_drop_context(struct context *context, uint64_t t);
uint64_t engine_next(struct engine *engine);
/* Whether the next thing is an end that its client knows of, and that nothing depends on. */
bool engine_quiet(const struct engine *engine, uint64_t now);
void engine_step(struct engine *engine, uint64_t t);
void copier_queue(struct item *item);
void copier_drop_context(const struct context *context, uint64_t t);
uint64_t copier_next(const struct copier *copier);
void copier_step(struct copier *copier, uint64_t t);

/* --- effect.c: what commands do to memory --- */
uint64_t effect_duration(const struct item *item);
void effect_begin(struct item *item);      /* large ones start on the worker */
bool effect_over(const struct item *item); /* false: the worker is not through yet */
uint32_t effect_finish(struct item *item); /* 0 or the context's error */
/* What wait_flag and value waits wait for: true when it is there, or cannot be reached (*error). */
bool effect_flag(struct item *item, uint32_t *error);
bool effect_value(const struct item *item, uint32_t *error);
uint32_t effect_write(const struct item *item);

/* --- reach.c: addresses as clients name them --- */
void *reach_direct(const struct client *client, uint64_t address, uint64_t bytes);
/* How far a range goes in one piece, and where it is: *direct, or NULL for the client's memory; 0:
 * nowhere. */
uint64_t reach_piece(const struct client *client, uint64_t address, uint64_t bytes, void **direct);
bool reach_read(const struct client *client, uint64_t address, void *to, uint64_t bytes);
bool reach_write(const struct client *client, uint64_t address, const void *from, uint64_t bytes);
bool reach_copy(const struct client *client, uint64_t to, uint64_t from, uint64_t bytes);
bool reach_map(struct client *client, uint64_t address, uint64_t bytes, uint64_t backing);
bool reach_unmap(struct client *client, uint64_t address);
void reach_forget(struct client *client);

/* --- worker.c --- */
int worker_start(void);
unsigned worker_copy(void *to, const void *from, uint64_t bytes);
unsigned worker_fill(void *to, uint64_t elements, uint32_t value, uint32_t element);
unsigned worker_discard(void *start, uint64_t bytes);
bool worker_done(unsigned ticket);
void worker_settle(void); /* waits until it is idle */

/* --- pool.c: device memory --- */
int pool_open(struct device *device);
uint32_t pool_take(struct device *device, struct client *client, unsigned context, uint64_t bytes,
                   uint64_t alignment, enum alloc_kind kind, uint64_t *address);
/* Paged memory comes to the device (+) or leaves it (-). */
void pool_page(struct device *device, struct client *client, int64_t bytes);
uint32_t pool_put(struct client *client, uint64_t address, uint64_t *bytes);
/* One more holder of a block, if it is still the one of that serial; `ask`: its figures only. */
uint32_t pool_share(struct client *client, unsigned context, uint64_t address, uint64_t serial,
                    bool ask, uint64_t out[2]);
uint32_t pool_adjust(struct device *device, struct client *client, struct context *context,
                     int64_t bytes, const char *what);
/* A holder that is no client; false: there is no such block. */
bool pool_hold_alone(uint64_t address);
void pool_drop_alone(uint64_t address);
void pool_forget(struct client *client, int context); /* context -1: all of the client's */

/* --- export.c: descriptors that hold memory --- */
uint32_t export_open(const struct client *client, uint64_t address, uint64_t descriptor);
uint64_t export_next(void); /* when to look at them again */
void export_step(uint64_t now);
void export_look(void); /* at once */

/* --- paging.c: managed memory that may exceed the device's --- */
void paging_add(struct client *client, unsigned device, uint64_t bytes);
void paging_remove(struct client *client, unsigned device, uint64_t bytes);
/* Brings a client's managed memory to the device at t; the bytes that moved, either way. */
uint64_t paging_bring(struct device *device, struct client *client, uint64_t most, uint64_t t);
uint64_t paging_send_away(struct device *device, struct client *client, uint64_t most);
/* Makes room for memory that must be there. */
void paging_make_room(struct device *device, uint64_t bytes);
uint64_t paging_time(uint64_t bytes);

/* --- trace.c --- */
int trace_open(void);
void trace_stretch(struct item *item, uint64_t start, uint64_t end, bool last);
void trace_graph_end(struct stream *stream, const struct item *item, uint64_t t);
void trace_memory(const struct client *client, unsigned device, const char *what, uint64_t bytes);
void trace_page(const struct context *context, uint64_t start, uint64_t end, uint64_t bytes);
void trace_client(const struct client *client, const char *what, uint64_t t);
void trace_fault(const struct client *client, unsigned device, const char *name, uint32_t error,
                 uint64_t t);
uint64_t trace_due(void);
void trace_flush(void);

#endif
