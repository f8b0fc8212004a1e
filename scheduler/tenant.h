/*
 * tenant: finding or claiming the record of a quota in a ring, and its settings. Called while
 * attaching, under a lock that only clients of the same key take; two clients that bring the same
 * key end up in one record.
 */
#ifndef CUSLICE_SCHEDULER_TENANT_H
#define CUSLICE_SCHEDULER_TENANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

/* Who a client is and what it asks for. Texts are NUL-terminated, shorter than CUSLICE_TEXT. */
struct tenant_spec {
    char key[CUSLICE_TEXT];
    char display[CUSLICE_TEXT];
    char pod[CUSLICE_TEXT];
    char pod_namespace[CUSLICE_TEXT];
    char container[CUSLICE_TEXT];
    uint32_t weight;
    uint32_t mode;
    uint32_t limit_ppm; /* 0: none */
    uint32_t priority;  /* enum cuslice_priority */
    uint64_t mem_limit;
    uint64_t process_limit; /* compared only: each process keeps its own, unless one is pinned */
};

/* Bits of struct cuslice_tenant.settings_by_admin: what a first client does not change. Bit n's
 * environment value is asked[n], so n stays below CUSLICE_ASKED. */
enum tenant_setting {
    TENANT_WEIGHT = 1,
    TENANT_MEM_LIMIT = 2,
    TENANT_MODE = 4,
    TENANT_LIMIT = 8,
    TENANT_PRIORITY = 16,
    TENANT_PROCESS_LIMIT = 32
};

/* FNV-1a of a text, begun with TENANT_HASH or gone on with from another. */
#define TENANT_HASH UINT64_C(14695981039346656037)
#define TENANT_HASH_PRIME UINT64_C(1099511628211)
uint64_t tenant_hash(uint64_t hash, const char *text);

/* Shuts out others that join under the same key, from before tenant_claim until after tenant_enter:
 * 0, or -EBUSY when one of them has not moved for seconds. Blocking. The kernel gives the lock back
 * when its holder dies; a private segment needs none. */
int tenant_lock(struct segment *segment, const struct tenant_spec *spec);
void tenant_unlock(struct segment *segment, const struct tenant_spec *spec);

/* The record's index, or -ENOSPC when all records belong to tenants with live clients. Under
 * tenant_lock. */
int tenant_claim(struct segment *segment, const struct tenant_spec *spec, uint64_t now);

/* Enters `slot` among the members. The first member's settings become the tenant's, but for those
 * the administrator has set; who asks for something else is warned. Under tenant_lock. */
void tenant_enter(struct cuslice_segment *shared, unsigned tenant, unsigned slot,
                  const struct tenant_spec *spec);

/* Strikes `slot` from the members; its record lives on for its figures. */
void tenant_leave(struct cuslice_segment *shared, unsigned tenant, unsigned slot, uint64_t now);

/* The index of the record that a key has already, -ENOENT without one; changes nothing. */
int tenant_look(struct cuslice_segment *shared, const char *key);

/* Whether a tenant has no member, alive or dead. */
bool tenant_empty(struct cuslice_tenant *tenant);

/* The inode of this process's PID namespace; 0 when it cannot be told. */
uint64_t tenant_pid_namespace(void);

/* Whether that inode is the one that Linux gives the first PID namespace, the host's. */
static inline bool tenant_on_host(uint64_t pid_namespace)
{
    return pid_namespace == UINT64_C(0xeffffffc);
}

/* The cap on a process of `tenant` whose own settings say `own`: what the administrator has set
 * goes before. Bytes; CUSLICE_NO_LIMIT. Read at every reservation. */
static inline uint64_t tenant_process_limit(const struct cuslice_tenant *tenant, uint64_t own)
{
    uint32_t pinned = atomic_load_explicit(&tenant->settings_by_admin, memory_order_relaxed);
    return pinned & TENANT_PROCESS_LIMIT
               ? atomic_load_explicit(&tenant->process_limit, memory_order_relaxed)
               : own;
}

/* The tenant of a slot, bounded: CUSLICE_TENANTS or NULL when the slot names none. */
static inline unsigned tenant_index(struct cuslice_segment *shared, unsigned slot)
{
    unsigned tenant = atomic_load_explicit(&shared->slot[slot].tenant, memory_order_acquire);
    return tenant < CUSLICE_TENANTS ? tenant : CUSLICE_TENANTS;
}

static inline struct cuslice_tenant *tenant_of(struct cuslice_segment *shared, unsigned slot)
{
    unsigned tenant = tenant_index(shared, slot);
    return tenant < CUSLICE_TENANTS ? &shared->tenant[tenant] : NULL;
}

#endif
