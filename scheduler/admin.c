/* What the administrator's tool changes in a ring: see admin.h.
 *
 * A1 bits of settings given back go, A2 words change, A3 bits of settings made come. A setting's
 * bit stands only while its word is the administrator's: where the bit decides which of two words
 * counts (a process's cap), no reader finds a bit without its value. A joiner that settles the
 * words whose bits it does not see is shut out meanwhile. A tool that dies half-way has set a word
 * that is not pinned; doing it again mends that. Readers take one word at a time and do as it says
 * from then on.
 */
#include "admin.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "mapfile.h"
#include "ring.h"
#include "slot.h"

static int admin_refuse(int error, const char *what, char *reason, size_t size)
{
    snprintf(reason, size, "%s: %s", what, strerror(-error));
    return error;
}

/* The file that status_open has found good, and no other. */
static int admin_map(struct segment *segment, const struct status_file *file, char *reason,
                     size_t size)
{
    struct stat seen, st;
    int error = 0;

    segment->fd = mapfile_open(segment->path, &st);
    if (segment->fd < 0)
        return admin_refuse(segment->fd, "cannot be opened for writing", reason, size);
    if (fstat(file->fd, &seen) < 0 || seen.st_dev != st.st_dev || seen.st_ino != st.st_ino)
        return admin_refuse(-ESTALE, "has just been replaced", reason, size);
    segment->shared = mapfile_map(segment->fd, sizeof(*segment->shared), &error);
    segment->mapped = sizeof(*segment->shared);
    if (!segment->shared)
        return admin_refuse(error, "cannot be mapped for writing", reason, size);
    segment->device = st.st_dev;
    segment->inode = st.st_ino;
    return 0;
}

int admin_open(struct segment *segment, const char *path, char *reason, size_t size)
{
    struct status_file file;
    int error = status_open(path, &file, reason, size);

    *segment = (struct segment){.fd = -1};
    if (error)
        return error;
    snprintf(segment->path, sizeof(segment->path), "%s", path);
    error = admin_map(segment, &file, reason, size);
    status_close(&file);
    if (error)
        segment_close(segment);
    return error;
}

static uint64_t admin_load(const struct admin_word *word, void *base)
{
    void *place = (char *)base + word->offset;

    return word->size == 4 ? atomic_load((_Atomic(uint32_t) *)place)
                           : atomic_load((_Atomic(uint64_t) *)place);
}

static void admin_store(const struct admin_word *word, void *base, uint64_t value)
{
    void *place = (char *)base + word->offset;

    if (word->size == 4)
        atomic_store((_Atomic(uint32_t) *)place, (uint32_t)value);
    else
        atomic_store((_Atomic(uint64_t) *)place, value);
}

static void admin_write(void *base, _Atomic(uint64_t) *asked, struct admin_change *change)
{
    const struct admin_word *word = &change->word;

    change->before = admin_load(word, base);
    admin_store(word, base,
                change->release ? atomic_load(&asked[__builtin_ctz(word->bit)]) : change->value);
    change->after = admin_load(word, base);
}

/* The bits of all settings that are made, or given back. */
static uint32_t admin_bits(const struct admin_change *changes, unsigned count, bool release)
{
    uint32_t bits = 0;

    for (unsigned i = 0; i < count; i++)
        if (changes[i].release == release)
            bits |= changes[i].word.bit;
    return bits;
}

static void admin_change_ring(struct cuslice_segment *shared, struct admin_change *changes,
                              unsigned count)
{
    atomic_fetch_and(&shared->settings_by_admin, ~(uint64_t)admin_bits(changes, count, true));
    for (unsigned i = 0; i < count; i++)
        admin_write(shared, shared->asked, &changes[i]);
    atomic_fetch_or(&shared->settings_by_admin, admin_bits(changes, count, false));
}

static struct cuslice_tenant *admin_find(struct cuslice_segment *shared, const char *key)
{
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++)
        if (atomic_load(&shared->tenant[i].id) &&
            strncmp(shared->tenant[i].key, key, CUSLICE_TEXT) == 0)
            return &shared->tenant[i];
    return NULL;
}

/* Under tenant_lock, so that the record neither changes hands nor is settled by a joiner. */
static int admin_change_tenant(struct cuslice_segment *shared, const char *key,
                               struct admin_change *changes, unsigned count)
{
    struct cuslice_tenant *tenant = admin_find(shared, key);

    if (!tenant)
        return -ENOENT;
    atomic_fetch_and(&tenant->settings_by_admin, ~admin_bits(changes, count, true)); /* A1 */
    for (unsigned i = 0; i < count; i++)
        admin_write(tenant, tenant->asked, &changes[i]);                            /* A2 */
    atomic_fetch_or(&tenant->settings_by_admin, admin_bits(changes, count, false)); /* A3 */
    return 0;
}

/* So that who sleeps until something happens looks at its settings now: every client, since a
 * change to one tenant is news for those who wait beside it. */
static void admin_wake(struct cuslice_segment *shared)
{
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        for (uint64_t left = atomic_load(&shared->attached[w]); left; left &= left - 1)
            ring_poke(shared, w * 64 + (unsigned)__builtin_ctzll(left));
}

int admin_change(struct segment *segment, const char *key, struct admin_change *changes,
                 unsigned count)
{
    struct tenant_spec spec = {0};

    if (!key) {
        admin_change_ring(segment->shared, changes, count);
        admin_wake(segment->shared);
        return 0;
    }
    snprintf(spec.key, sizeof(spec.key), "%s", key);
    snprintf(spec.display, sizeof(spec.display), "%s", key);
    int rc = tenant_lock(segment, &spec);
    if (rc < 0)
        return rc;
    rc = admin_change_tenant(segment->shared, key, changes, count);
    tenant_unlock(segment, &spec);
    if (rc == 0)
        admin_wake(segment->shared);
    return rc;
}

static void admin_describe(struct cuslice_segment *shared, unsigned slot, struct admin_dead *dead)
{
    const struct cuslice_slot *s = &shared->slot[slot];
    const struct cuslice_tenant *tenant = tenant_of(shared, slot);

    *dead = (struct admin_dead){.slot = slot, .pid = atomic_load(&s->pid)};
    status_text(dead->command, s->command, sizeof(dead->command));
    if (tenant)
        status_text(dead->tenant, tenant->display, sizeof(dead->tenant));
    dead->bytes = slot_bytes(s);
}

unsigned admin_reap(struct segment *segment, struct admin_dead dead[CUSLICE_SLOTS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        if (slot_dead(segment, i) != 1)
            continue;
        admin_describe(segment->shared, i, &dead[count]);
        if (slot_reap(segment, i) == 0)
            count++;
    }
    return count;
}
