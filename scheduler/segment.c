/*
 * segment: opening, creating and checking a ring's file (see segment.h). A new file is complete
 * before it has a name; one that exists is believed only as far as segment_check goes, and its
 * contents not at all. The mapping is MADV_DONTFORK: a forked child must not keep its parent's
 * locks alive.
 */
#include "segment.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cap.h"
#include "clock.h"
#include "log.h"
#include "mapfile.h"

/* SEGMENT_MIN_quantum, SEGMENT_MAX_quantum, ...: the ranges that the settings' one table gives. */
enum segment_range {
#define OPTION(field, name, type, text, min, max, help) \
    SEGMENT_MIN_##field = (min), SEGMENT_MAX_##field = (max),
#include "options.def"
};

void segment_path(char *path, size_t size, const char *directory, const uint8_t uuid[16])
{
    char name[CAP_UUID_TEXT];
    cap_format_uuid(name, uuid);
    snprintf(path, size, "%s/%s.ring", directory, name);
}

static int segment_fill(void *memory, size_t size, void *arg)
{
    struct cuslice_segment *shared = memory;
    const struct segment_spec *spec = arg;
    shared->size = size;
    shared->version = CUSLICE_LAYOUT_VERSION;
    shared->fingerprint = CUSLICE_FINGERPRINT;
    shared->device_bytes = spec->device_bytes;
    memcpy(shared->uuid, spec->uuid, sizeof shared->uuid);
    snprintf(shared->device_name, sizeof shared->device_name, "%s", spec->device_name);
    shared->created_ns = clock_now();
    shared->quantum_ns = shared->asked[0] = spec->quantum_ns;
    shared->allowance_ns = shared->asked[1] = spec->allowance_ns;
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        shared->slot[i].tenant = CUSLICE_TENANTS;
    shared->token = CUSLICE_TOKEN(1, CUSLICE_NOBODY);
    shared->magic = CUSLICE_MAGIC;
    return 0;
}

int segment_check(const struct cuslice_segment *shared, uint64_t size, const uint8_t uuid[16],
                  const char **why)
{
    *why = NULL;
    if (size < sizeof shared->magic + sizeof shared->version || shared->magic != CUSLICE_MAGIC)
        *why = "it is not a cuslice ring";
    else if (shared->version != CUSLICE_LAYOUT_VERSION)
        *why = "its layout has another version";
    else if (size != sizeof *shared || shared->size != size)
        *why = "its size is wrong";
    else if (shared->fingerprint != CUSLICE_FINGERPRINT)
        *why = "its layout differs";
    else if (memcmp(shared->uuid, uuid, sizeof shared->uuid) != 0)
        *why = "it is another GPU's";
    return *why ? -EPROTO : 0;
}

size_t segment_span(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct cuslice_segment) + page - 1) / page * page;
}

static int segment_map(struct segment *s, const uint8_t uuid[16])
{
    struct stat st;
    const char *why;
    int error = 0;
    if (fstat(s->fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != sizeof *s->shared) {
        log_error("ring-foreign",
                  "%s is not a ring of this version: its size is %lld bytes, not "
                  "%zu",
                  s->path, (long long)st.st_size, sizeof *s->shared);
        return -EPROTO;
    }
    s->shared = mapfile_map_twin(s->fd, sizeof *s->shared, segment_span(), &error);
    if (!s->shared)
        return error;
    s->mapped = 2 * segment_span();
    if (madvise(s->shared, s->mapped, MADV_DONTFORK) < 0)
        return -errno;
    s->device = st.st_dev;
    s->inode = st.st_ino;
    if (segment_check(s->shared, (uint64_t)st.st_size, uuid, &why) < 0) {
        log_error("ring-foreign", "%s is not used: %s", s->path, why);
        return -EPROTO;
    }
    return 0;
}

int segment_open(struct segment *s, const char *directory, const struct segment_spec *spec)
{
    struct segment_spec copy = *spec;
    int rc = mapfile_directory(directory);
    *s = (struct segment){.fd = -1};
    segment_path(s->path, sizeof s->path, directory, spec->uuid);
    if (rc == 0)
        rc = mapfile_find(s->path, sizeof *s->shared, 0666, segment_fill, &copy);
    if (rc < 0) {
        log_error("ring-unusable", "cannot use the ring %s: %s", s->path, strerror(-rc));
        return rc;
    }
    s->fd = rc;
    rc = segment_map(s, spec->uuid);
    if (rc < 0)
        segment_close(s);
    return rc;
}

int segment_open_private(struct segment *s, const struct segment_spec *spec)
{
    struct segment_spec copy = *spec;
    *s = (struct segment){.fd = -1, .private_copy = true};
    void *memory =
        mmap(NULL, sizeof *s->shared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    madvise(memory, sizeof *s->shared, MADV_WIPEONFORK);
    s->shared = memory;
    s->mapped = sizeof *s->shared;
    return segment_fill(memory, sizeof *s->shared, &copy);
}

void segment_close(struct segment *s)
{
    if (s->shared)
        munmap(s->shared, s->mapped);
    if (s->fd >= 0)
        close(s->fd);
    s->shared = NULL;
    s->fd = -1;
}

bool segment_current(const struct segment *s)
{
    return s->private_copy || mapfile_named(s->path, s->device, s->inode);
}

int segment_reopen(const struct segment *s)
{
    return mapfile_reopen(s->path, s->device, s->inode);
}

static uint64_t segment_within(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

uint64_t segment_quantum(const struct cuslice_segment *shared)
{
    uint64_t ns = atomic_load_explicit(&shared->quantum_ns, memory_order_relaxed);
    return segment_within(ns, SEGMENT_MIN_quantum, SEGMENT_MAX_quantum);
}

uint64_t segment_allowance(const struct cuslice_segment *shared)
{
    uint64_t ns = atomic_load_explicit(&shared->allowance_ns, memory_order_relaxed);
    return segment_within(ns, SEGMENT_MIN_allowance, SEGMENT_MAX_allowance);
}

unsigned segment_first(const uint64_t set[CUSLICE_SLOT_WORDS])
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        if (set[w])
            return w * 64 + (unsigned)__builtin_ctzll(set[w]);
    return CUSLICE_SLOTS;
}
