/*
 * onlooker: looks at a ring from outside (see onlooker.h). Any thread, any number at once; nothing
 * outlives onlooker_close. The file is checked as status.c does before a page of it is touched, and
 * nothing that it says is believed beyond its bounds.
 */
#include "onlooker.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mapfile.h"
#include "slot.h"
#include "status.h"

static bool onlooker_member(const struct ring *ring, unsigned slot)
{
    const struct cuslice_tenant *t = ring_tenant(ring);
    return (atomic_load(&t->members[slot / 64]) >> (slot % 64) & 1) &&
           atomic_load(&ring_shared(ring)->slot[slot].tenant) == ring->tenant;
}

/* The dead are cleared away by clients, when one looks; there may be none left. */
static void onlooker_strike_dead(struct onlooker *onlooker, int fd)
{
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        if (onlooker_member(&onlooker->ring, i) && mapfile_locked(fd, CUSLICE_LOCK_SLOT(i)) == 0)
            atomic_fetch_and(&onlooker_tenant(onlooker)->members[i / 64],
                             ~(UINT64_C(1) << (i % 64)));
}

/* Its own copy of what it writes to: nobody else sees that. */
static int onlooker_map(struct onlooker *onlooker, const struct status_file *file)
{
    struct segment *segment = &onlooker->ring.segment;
    struct stat st;
    if (fstat(file->fd, &st) < 0)
        return -errno;
    void *memory =
        mmap(NULL, sizeof *segment->shared, PROT_READ | PROT_WRITE, MAP_PRIVATE, file->fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    segment->shared = memory;
    segment->mapped = sizeof *segment->shared;
    segment->device = st.st_dev;
    segment->inode = st.st_ino;
    return 0;
}

static int onlooker_enter(struct onlooker *onlooker, const struct status_file *file,
                          const char *key)
{
    int rc = onlooker_map(onlooker, file);
    if (rc < 0)
        return rc;
    int tenant = key ? tenant_look(ring_shared(&onlooker->ring), key) : -ENOENT;
    onlooker->ring.tenant = tenant < 0 ? CUSLICE_TENANTS : (unsigned)tenant;
    if (tenant >= 0)
        onlooker_strike_dead(onlooker, file->fd);
    return 0;
}

int onlooker_open(struct onlooker *onlooker, const char *directory, const uint8_t uuid[16],
                  const char *key)
{
    struct status_file file;
    char reason[128];
    *onlooker = (struct onlooker){.ring = {.segment = {.fd = -1},
                                           .slot = CUSLICE_SLOTS,
                                           .tenant = CUSLICE_TENANTS,
                                           .process_limit = CUSLICE_NO_LIMIT}};
    segment_path(onlooker->ring.segment.path, sizeof onlooker->ring.segment.path, directory, uuid);
    int rc = status_open(onlooker->ring.segment.path, &file, reason, sizeof reason);
    if (rc < 0)
        return rc;
    rc = onlooker_enter(onlooker, &file, key);
    status_close(&file);
    return rc;
}

struct cuslice_tenant *onlooker_tenant(const struct onlooker *onlooker)
{
    return onlooker->ring.tenant < CUSLICE_TENANTS ? ring_tenant(&onlooker->ring) : NULL;
}

void onlooker_close(struct onlooker *onlooker)
{
    segment_close(&onlooker->ring.segment);
}

/* An onlooker's members are alive already. */
unsigned onlooker_find(const struct ring *ring, uint32_t host_pid)
{
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        const struct cuslice_slot *s = &ring_shared(ring)->slot[i];
        if (host_pid && (uint32_t)atomic_load(&s->host_pid) == host_pid &&
            onlooker_member(ring, i) &&
            (i == ring->slot || ring->slot == CUSLICE_SLOTS || slot_dead(&ring->segment, i) == 0))
            return i;
    }
    return CUSLICE_SLOTS;
}
