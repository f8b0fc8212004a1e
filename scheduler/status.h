/* Rings as others see them: what the tool, the demo and the memory figures of a bystander read.
 *
 * Owns nothing shared: files are opened and mapped for reading only, nothing is joined, locked,
 * created or mended. A snapshot is plain numbers, taken once and free of the mapping; every text in
 * it is NUL-terminated and printable. Any thread; never the way of a launch.
 */
#ifndef CUSLICE_STATUS_H
#define CUSLICE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuslice/segment.h"

#define STATUS_FILES 64
#define STATUS_NAME 256
#define STATUS_REASON 192
#define STATUS_NONE (-1)

/* A ring's file, mapped for reading. */
struct status_file {
    int fd;
    const struct cuslice_segment *segment;
};

/* The names of the files in a directory that ought to be rings, sorted. */
struct status_names {
    unsigned count;
    unsigned left_out; /* more than STATUS_FILES */
    char name[STATUS_FILES][STATUS_NAME];
};

/* A copy of struct cuslice_books; fields as there. */
struct status_books {
    uint64_t granted_ns;
    uint64_t charged_ns;
    uint64_t waited_ns;
    uint64_t overrun_ns;
    uint64_t slices;
    uint64_t revocations;
    uint64_t faults;
    uint64_t launches;
    uint64_t refusals;
    uint64_t refused_bytes;
    uint64_t would_refuse;
    uint64_t overruns;
    uint64_t last_launch_ns;
    uint64_t last_refusal_ns;
    uint64_t last_refusal_asked;
    uint64_t let_through;
};

/* Quantiles of one histogram, in nanoseconds. */
struct status_times {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t p50_ns;
    uint64_t p99_ns;
};

struct status_tenant {
    unsigned index; /* in the ring */
    char key[CUSLICE_TEXT];
    char display[CUSLICE_TEXT];
    char pod[CUSLICE_TEXT];
    char pod_namespace[CUSLICE_TEXT];
    char container[CUSLICE_TEXT];
    uint32_t weight;
    uint32_t limit_ppm;
    uint32_t priority;      /* enum cuslice_priority, or what the file holds instead */
    uint32_t mode;          /* enum cuslice_mode, likewise */
    uint64_t mem_limit;     /* CUSLICE_NO_LIMIT: none */
    uint64_t mem_used;      /* sum over live clients */
    uint64_t process_limit; /* cap on each process that the administrator set; CUSLICE_NO_LIMIT */
    uint32_t pinned;        /* enum tenant_setting: what the administrator set */
    uint64_t mem_peak;
    uint64_t orphaned;      /* of dead exporters, still imported; counts against no cap */
    uint64_t context_bytes; /* estimate, apart from mem_used; sum over live clients */
    uint64_t exported;      /* sums over live clients */
    uint64_t imported;
    uint64_t paged;
    uint64_t refusal_used; /* at the last refusal, when books.last_refusal_ns is not 0 */
    uint64_t refusal_cap;
    unsigned clients; /* live ones */
    unsigned waiting; /* of them at the closed gate */
    bool holds;       /* one of them has the token */
    uint64_t left_ns; /* when the last client left; 0 while there is one or not known */
    struct status_books books;
    struct status_times wait;
    struct status_times burst;
    struct status_times burst_wait;
};

struct status_client {
    unsigned slot;
    int tenant; /* place in status_ring.tenant, or STATUS_NONE */
    int32_t pid;
    int32_t host_pid; /* 0: not known */
    char command[32];
    uint32_t mode;
    uint64_t bytes;
    uint64_t peak;
    uint64_t process_limit; /* in force: the administrator's, else its own */
    uint64_t context_bytes;
    uint64_t exported;
    uint64_t imported;
    uint64_t paged;
    uint64_t joined_ns;
    uint64_t waiting_ns; /* how long it has waited; 0: does not wait */
    uint64_t holding_ns; /* how long it has held the token; 0: does not, or just now */
    bool holds;
    bool draining; /* gate closed, work not yet done */
    bool idle;     /* holds the token without work */
    struct status_books books;
};

struct status_ring {
    uint64_t taken_ns; /* when this snapshot was taken */
    char uuid[48];     /* "GPU-" and the UUID */
    char name[CUSLICE_TEXT];
    uint64_t device_bytes;
    uint64_t created_ns;
    uint64_t quantum_ns;
    uint64_t allowance_ns;
    uint64_t pinned; /* enum segment_setting: what the administrator set */
    uint64_t epoch;
    int holder; /* place in client, or STATUS_NONE */
    unsigned waiting;
    unsigned dead; /* slots whose client is gone and that nobody has reaped yet */
    uint64_t mem_used;
    uint64_t busy_ns;
    uint64_t idle_wanted_ns;
    uint64_t handovers;
    uint64_t handover_ns;
    uint64_t drain_ns;
    uint64_t reaped;
    struct status_times handover;
    unsigned tenants;
    unsigned clients;
    struct status_tenant tenant[CUSLICE_TENANTS]; /* in ring order, those in use */
    struct status_client client[CUSLICE_SLOTS];   /* in slot order, live ones */
};

/* Lists a ring directory: what is called `*.ring` and is not hidden, whatever it is. 0 or -errno; a
 * directory that does not exist is -ENOENT. *names is set on success only. */
int status_list(const char *directory, struct status_names *names);

/* Opens and maps the ring at path; 0, or -errno with one line for people in reason: -EINVAL when
 * the file is no ring, or a damaged one, -EPROTO when it has another layout or is the ring of
 * another GPU than its name says. Never blocks, creates or follows a link. */
int status_open(const char *path, struct status_file *file, char *reason, size_t size);

/* Unmaps and closes what status_open opened. */
void status_close(struct status_file *file);

/* Takes a snapshot. The ring moves meanwhile, so figures of one instant may differ by a turn; a
 * client counts as live only while the kernel holds its lock. Bounded, whatever the file holds. */
void status_read(const struct status_file *file, struct status_ring *ring);

/* Copies a text of a ring that somebody else may be writing or may have filled with anything: cut
 * to size, NUL-terminated, '?' for what cannot be printed. */
void status_text(char *to, const char *from, size_t size);

/* Bytes that count against a tenant's cap, and against a process's: what was granted, and the
 * estimate of contexts' own cost. */
uint64_t status_counted(const struct status_tenant *tenant);
uint64_t status_counted_client(const struct status_client *client);

/* Returns the place of the tenant with that key, or STATUS_NONE. */
int status_find_tenant(const struct status_ring *ring, const char *key);

#endif
