/* What the administrator's tool changes in a ring: settings of tenants and of the ring, and the
 * places of the dead.
 *
 * The only writer that joins nothing: it maps a ring that exists, for reading and writing, and
 * creates none. A setting is one word; its bit in settings_by_admin says that no client may change
 * it. Who reads the word meanwhile sees the old value or the new one. The tool's thread; a change
 * of a tenant shuts out those that join under its key for the moment that it takes.
 */
#ifndef CUSLICE_SCHEDULER_ADMIN_H
#define CUSLICE_SCHEDULER_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segment.h"
#include "status.h"
#include "tenant.h"

/* A word that holds a setting: ADMIN_TENANT(weight, TENANT_WEIGHT), ADMIN_RING(quantum_ns,
 * SEGMENT_QUANTUM). */
struct admin_word {
    bool ring;     /* of the ring; else of a tenant */
    uint32_t bit;  /* in settings_by_admin */
    size_t offset; /* in struct cuslice_segment, or in struct cuslice_tenant */
    size_t size;   /* 4 or 8 */
};
#define ADMIN_WORD(type, field) offsetof(type, field), sizeof(((type *)0)->field)
#define ADMIN_TENANT(field, bit) \
    { \
        false, (bit), ADMIN_WORD(struct cuslice_tenant, field) \
    }
#define ADMIN_RING(field, bit) \
    { \
        true, (bit), ADMIN_WORD(struct cuslice_segment, field) \
    }

struct admin_change {
    struct admin_word word;
    bool release; /* back to what the clients' environment asks; else `value` */
    uint64_t value;
    uint64_t before; /* out: what was in force */
    uint64_t after;  /* out: what is */
};

/* A client that admin_reap cleared away. */
struct admin_dead {
    unsigned slot;
    int32_t pid;
    char command[32];
    char tenant[CUSLICE_TEXT]; /* its display name; "" when it had none */
    uint64_t bytes;
};

/* Maps the ring at `path` in *segment; 0, or -errno with one line for people in reason: as
 * status_open, and -EACCES or -EPERM where this user may not write. segment_close ends it. */
int admin_open(struct segment *segment, const char *path, char *reason, size_t size);

/* Makes all changes of a tenant's words, given its key, or (key NULL) of the ring's. 0; -ENOENT: no
 * such tenant (any more); -EBUSY: one of its clients has been joining for seconds (said in a line);
 * -errno. Nothing is changed unless all are. Blocking, for a join at the most. */
int admin_change(struct segment *segment, const char *key, struct admin_change *changes,
                 unsigned count);

/* Clears the slots of dead clients; how many, the first CUSLICE_SLOTS of them in dead. */
unsigned admin_reap(struct segment *segment, struct admin_dead dead[CUSLICE_SLOTS]);

#endif
