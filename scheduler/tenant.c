/*
 * tenant: records of quotas (see tenant.h). Runs while a client joins or is cleared away. Who
 * claims or enters a record holds the lock of its key, and who gives a record to another key holds
 * the old key's lock too, so that nobody enters a record while it changes hands. A claimer that
 * dies leaves a record without members whose text is not its key; the next one of that key writes
 * it anew. Must never believe what a record says beyond its bounds.
 */
#include "tenant.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "clock.h"
#include "limit.h"
#include "log.h"
#include "mapfile.h"

#define TENANT_PATIENCE_NS (2 * CLOCK_S)
#define TENANT_PAUSE_NS (CLOCK_MS / 2)

uint64_t tenant_hash(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * TENANT_HASH_PRIME;
    return hash;
}

/* Never 0, which is a free record. */
static uint64_t tenant_id(const char *key)
{
    uint64_t hash = tenant_hash(TENANT_HASH, key);
    return hash ? hash : 1;
}

static void tenant_pause(void)
{
    struct timespec left = {.tv_nsec = TENANT_PAUSE_NS};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

int tenant_lock(struct segment *segment, const struct tenant_spec *spec)
{
    uint64_t byte = SEGMENT_LOCK_KEY(tenant_id(spec->key));
    unsigned left = TENANT_PATIENCE_NS / TENANT_PAUSE_NS;
    if (segment->private_copy)
        return 0;
    int rc = mapfile_lock(segment->fd, byte);
    for (; rc == -EAGAIN && left > 0; left--) {
        tenant_pause();
        rc = mapfile_lock(segment->fd, byte);
    }
    if (rc == -EAGAIN)
        log_warn("tenant-busy", "another client of tenant %s has been joining for seconds",
                 spec->display);
    return rc == -EAGAIN ? -EBUSY : rc;
}

void tenant_unlock(struct segment *segment, const struct tenant_spec *spec)
{
    if (!segment->private_copy)
        mapfile_unlock(segment->fd, SEGMENT_LOCK_KEY(tenant_id(spec->key)));
}

bool tenant_empty(struct cuslice_tenant *t)
{
    uint64_t any = 0;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        any |= atomic_load(&t->members[w]);
    return any == 0;
}

static int tenant_find(struct cuslice_segment *shared, uint64_t id)
{
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++)
        if (atomic_load(&shared->tenant[i].id) == id)
            return (int)i;
    return -ENOENT;
}

int tenant_look(struct cuslice_segment *shared, const char *key)
{
    int place = tenant_find(shared, tenant_id(key));
    bool its = place >= 0 && strncmp(shared->tenant[place].key, key, CUSLICE_TEXT) == 0;
    return its ? place : -ENOENT;
}

static void tenant_clear(struct cuslice_tenant *t)
{
    size_t from = offsetof(struct cuslice_tenant, left_ns);
    memset((char *)t + from, 0, sizeof *t - from);
}

/* The key comes last: a record that shows it is whole. */
static void tenant_describe(struct cuslice_tenant *t, const struct tenant_spec *spec, uint64_t now)
{
    tenant_clear(t);
    memcpy(t->display, spec->display, sizeof t->display);
    memcpy(t->pod, spec->pod, sizeof t->pod);
    memcpy(t->pod_namespace, spec->pod_namespace, sizeof t->pod_namespace);
    memcpy(t->container, spec->container, sizeof t->container);
    atomic_exchange(&t->left_ns, now); /* what follows does not move up */
    memcpy(t->key, spec->key, sizeof t->key);
}

static int tenant_take_free(struct cuslice_segment *shared, uint64_t id)
{
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++) {
        uint64_t nobody = 0;
        if (atomic_compare_exchange_strong(&shared->tenant[i].id, &nobody, id))
            return (int)i;
    }
    return -ENOSPC;
}

/* Takes the record from a key that has no client and whose lock nobody holds. */
static bool tenant_evict(struct segment *segment, struct cuslice_tenant *t, uint64_t id)
{
    uint64_t old = atomic_load(&t->id);
    uint64_t byte = SEGMENT_LOCK_KEY(old);
    bool taken = false;
    if (byte == SEGMENT_LOCK_KEY(id) ||
        (!segment->private_copy && mapfile_lock(segment->fd, byte) < 0))
        return false;
    if (tenant_empty(t))
        taken = atomic_compare_exchange_strong(&t->id, &old, id);
    if (!segment->private_copy)
        mapfile_unlock(segment->fd, byte);
    return taken;
}

/* The record without members whose last client left longest ago, after (left, index) in that
 * order. */
static int tenant_oldest(struct cuslice_segment *shared, uint64_t *left, int after)
{
    uint64_t bound = *left;
    int best = -ENOSPC;
    for (int i = 0; i < (int)CUSLICE_TENANTS; i++) {
        uint64_t mine = atomic_load(&shared->tenant[i].left_ns);
        bool later = mine > bound || (mine == bound && i > after);
        if (later && (best < 0 || mine < *left) && tenant_empty(&shared->tenant[i])) {
            best = i;
            *left = mine;
        }
    }
    return best;
}

static int tenant_take_left(struct segment *segment, uint64_t id)
{
    uint64_t left = 0;
    int place = -1;
    for (unsigned tries = 0; tries < CUSLICE_TENANTS; tries++) {
        place = tenant_oldest(segment->shared, &left, place);
        if (place < 0 || tenant_evict(segment, &segment->shared->tenant[place], id))
            return place;
    }
    return -ENOSPC;
}

int tenant_claim(struct segment *segment, const struct tenant_spec *spec, uint64_t now)
{
    struct cuslice_segment *shared = segment->shared;
    uint64_t id = tenant_id(spec->key);
    int place = tenant_find(shared, id);
    bool found = place >= 0;
    if (!found)
        place = tenant_take_free(shared, id);
    if (place < 0)
        place = tenant_take_left(segment, id);
    if (place < 0)
        return place;
    struct cuslice_tenant *t = &shared->tenant[place];
    if (!found || (tenant_empty(t) && strncmp(t->key, spec->key, sizeof t->key) != 0))
        tenant_describe(t, spec, now);
    return place;
}

/* Notes what the environment asks; whether it is in force: not where the administrator's tool has
 * set something else. */
static bool tenant_ask(struct cuslice_tenant *t, enum tenant_setting setting, uint64_t value)
{
    atomic_store(&t->asked[__builtin_ctz(setting)], value);
    return !(atomic_load(&t->settings_by_admin) & setting);
}

static uint32_t tenant_limit(const struct tenant_spec *spec)
{
    return spec->limit_ppm ? spec->limit_ppm : LIMIT_NONE;
}

static void tenant_settle(struct cuslice_tenant *t, const struct tenant_spec *spec)
{
    if (tenant_ask(t, TENANT_WEIGHT, spec->weight))
        atomic_store(&t->weight, spec->weight);
    if (tenant_ask(t, TENANT_MODE, spec->mode))
        atomic_store(&t->mode, spec->mode);
    if (tenant_ask(t, TENANT_LIMIT, tenant_limit(spec)))
        atomic_store(&t->limit_ppm, tenant_limit(spec));
    uint32_t never = 0; /* in force from the start, so that all use counts */
    if (limit_of(t))
        atomic_compare_exchange_strong(&t->limit_rate, &never, limit_of(t));
    if (tenant_ask(t, TENANT_PRIORITY, spec->priority))
        atomic_store(&t->priority, spec->priority);
    if (tenant_ask(t, TENANT_MEM_LIMIT, spec->mem_limit))
        atomic_store(&t->mem_limit, spec->mem_limit);
    if (tenant_ask(t, TENANT_PROCESS_LIMIT, CUSLICE_NO_LIMIT)) /* each process has its own */
        atomic_store(&t->process_limit, CUSLICE_NO_LIMIT);
}

/* A cap as a message says it. */
static const char *tenant_bytes(char text[32], uint64_t bytes)
{
    if (bytes == CUSLICE_NO_LIMIT)
        return "none";
    snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
    return text;
}

static void tenant_compare_cap(const char *what, uint64_t has, uint64_t asked,
                               const struct tenant_spec *spec)
{
    char a[32], b[32];
    if (has != asked)
        log_warn("tenant-differs", "tenant %s already has a %s of %s; %s asked here is not used",
                 spec->display, what, tenant_bytes(a, has), tenant_bytes(b, asked));
}

static void tenant_compare(struct cuslice_tenant *t, const struct tenant_spec *spec)
{
    if (atomic_load(&t->weight) != spec->weight)
        log_warn("tenant-differs", "tenant %s already has weight %u; %u asked here is not used",
                 spec->display, atomic_load(&t->weight), spec->weight);
    tenant_compare_cap("memory cap", atomic_load(&t->mem_limit), spec->mem_limit, spec);
    tenant_compare_cap("cap on each process", tenant_process_limit(t, spec->process_limit),
                       spec->process_limit, spec);
    if (atomic_load(&t->mode) != spec->mode)
        log_warn("tenant-differs", "tenant %s already runs in another mode", spec->display);
    if (atomic_load(&t->limit_ppm) != tenant_limit(spec))
        log_warn("tenant-differs",
                 "tenant %s already has a limit of %g %%; %g %% asked here is not used",
                 spec->display, atomic_load(&t->limit_ppm) / 1e4, tenant_limit(spec) / 1e4);
    if (atomic_load(&t->priority) != spec->priority)
        log_warn("tenant-differs", "tenant %s already has another priority", spec->display);
}

void tenant_enter(struct cuslice_segment *shared, unsigned tenant, unsigned slot,
                  const struct tenant_spec *spec)
{
    struct cuslice_tenant *t = &shared->tenant[tenant];
    if (tenant_empty(t) || atomic_load(&t->weight) == 0)
        tenant_settle(t, spec);
    tenant_compare(t, spec);
    atomic_fetch_or(&t->members[slot / 64], UINT64_C(1) << (slot % 64));
    atomic_store(&t->left_ns, 0);
}

void tenant_leave(struct cuslice_segment *shared, unsigned tenant, unsigned slot, uint64_t now)
{
    if (tenant >= CUSLICE_TENANTS)
        return;
    struct cuslice_tenant *t = &shared->tenant[tenant];
    atomic_fetch_and(&t->members[slot / 64], ~(UINT64_C(1) << (slot % 64)));
    if (!tenant_empty(t))
        return;
    atomic_store(&t->left_ns, now);
    if (!tenant_empty(t)) /* one has entered meanwhile */
        atomic_store(&t->left_ns, 0);
}

uint64_t tenant_pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}
