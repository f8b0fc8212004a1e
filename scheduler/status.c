/* Rings as others see them: see status.h.
 *
 * Reads what clients and reapers write at the same time, by single relaxed loads: a snapshot shows
 * each figure as it was at some instant during the reading, which is enough for eyes and graphs and
 * must never be used to decide a turn or a reservation. Indices are bounded before use, texts are
 * cut and cleaned, and the kernel's locks alone say who lives.
 */
#include "status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cap.h"
#include "clock.h"
#include "histogram.h"
#include "mapfile.h"
#include "tenant.h"

#define STATUS_LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)

static int status_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool status_candidate(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return entry->d_name[0] != '.' && length > 5 && length < STATUS_NAME &&
           strcmp(entry->d_name + length - 5, ".ring") == 0;
}

int status_list(const char *directory, struct status_names *names)
{
    DIR *dir = opendir(directory);
    if (!dir)
        return -errno;

    struct dirent *entry;
    names->count = names->left_out = 0;
    while ((entry = readdir(dir))) {
        if (!status_candidate(entry))
            continue;
        if (names->count == STATUS_FILES)
            names->left_out++;
        else
            strcpy(names->name[names->count++], entry->d_name);
    }
    closedir(dir);
    qsort(names->name, names->count, sizeof(names->name[0]), status_compare);
    return 0;
}

__attribute__((format(printf, 4, 5))) static int status_refuse(int error, char *reason, size_t size,
                                                               const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, size, format, arguments);
    va_end(arguments);
    return error;
}

/* What is mapped is the whole layout, so the file must be that long; the head is read, not mapped,
 * because touching a mapping past a short file's end would kill the reader. */
static int status_check(int fd, char *reason, size_t size)
{
    struct {
        uint64_t magic;
        uint32_t version;
        uint32_t fingerprint;
        uint64_t size;
    } head;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return status_refuse(-errno, reason, size, "cannot be examined: %m");
    if (!S_ISREG(st.st_mode))
        return status_refuse(-EINVAL, reason, size, "is not a regular file");
    ssize_t got = pread(fd, &head, sizeof(head), 0);
    if (got < 0)
        return status_refuse(-errno, reason, size, "cannot be read: %m");
    if ((size_t)got < sizeof(head) || head.magic != CUSLICE_MAGIC)
        return status_refuse(-EINVAL, reason, size, "is not a cuslice ring");
    if (head.version != CUSLICE_LAYOUT_VERSION)
        return status_refuse(-EPROTO, reason, size,
                             "has layout version %" PRIu32 ", this cuslice reads version %u",
                             head.version, CUSLICE_LAYOUT_VERSION);
    if (head.fingerprint != CUSLICE_FINGERPRINT)
        return status_refuse(-EPROTO, reason, size,
                             "has layout fingerprint %08" PRIx32 ", this cuslice reads %08" PRIx32,
                             head.fingerprint, CUSLICE_FINGERPRINT);
    if (head.size != sizeof(struct cuslice_segment) || (uint64_t)st.st_size < head.size)
        return status_refuse(-EINVAL, reason, size,
                             "is damaged: %jd bytes long, says %" PRIu64 ", should be %zu",
                             (intmax_t)st.st_size, head.size, sizeof(struct cuslice_segment));
    return 0;
}

/* Others find the file by its name: whoever uses that GPU refuses this one. */
static int status_check_name(const char *path, const struct cuslice_segment *segment, char *reason,
                             size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char uuid[CAP_UUID_TEXT];

    cap_format_uuid(uuid, segment->uuid);
    if (strncmp(name, uuid, strlen(uuid)) == 0 && strcmp(name + strlen(uuid), ".ring") == 0)
        return 0;
    return status_refuse(-EPROTO, reason, size, "is not what its name says: the ring of %s", uuid);
}

int status_open(const char *path, struct status_file *file, char *reason, size_t size)
{
    /* O_NONBLOCK: a FIFO in the directory must not hold us up. */
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return status_refuse(-errno, reason, size,
                             errno == ELOOP ? "is a symbolic link" : "cannot be opened: %m");

    int error = status_check(fd, reason, size);
    if (error)
        goto fail;
    void *memory = mmap(NULL, sizeof(struct cuslice_segment), PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        error = status_refuse(-errno, reason, size, "cannot be mapped: %m");
        goto fail;
    }
    error = status_check_name(path, memory, reason, size);
    if (error) {
        munmap(memory, sizeof(struct cuslice_segment));
        goto fail;
    }
    file->fd = fd;
    file->segment = memory;
    return 0;

fail:
    close(fd);
    return error;
}

void status_close(struct status_file *file)
{
    munmap((void *)file->segment, sizeof(struct cuslice_segment));
    close(file->fd);
    file->segment = NULL;
    file->fd = -1;
}

void status_text(char *to, const char *from, size_t size)
{
    size_t length = 0;

    for (; length < size - 1 && from[length]; length++) {
        char c = from[length];
        to[length] = c >= ' ' && c <= '~' ? c : '?';
    }
    to[length] = 0;
}

static void status_copy_books(struct status_books *to, const struct cuslice_books *from)
{
    to->granted_ns = STATUS_LOAD(from->granted_ns);
    to->charged_ns = STATUS_LOAD(from->charged_ns);
    to->waited_ns = STATUS_LOAD(from->waited_ns);
    to->overrun_ns = STATUS_LOAD(from->overrun_ns);
    to->slices = STATUS_LOAD(from->slices);
    to->revocations = STATUS_LOAD(from->revocations);
    to->faults = STATUS_LOAD(from->faults);
    to->launches = STATUS_LOAD(from->launches);
    to->refusals = STATUS_LOAD(from->refusals);
    to->refused_bytes = STATUS_LOAD(from->refused_bytes);
    to->would_refuse = STATUS_LOAD(from->would_refuse);
    to->overruns = STATUS_LOAD(from->overruns);
    to->last_launch_ns = STATUS_LOAD(from->last_launch_ns);
    to->last_refusal_ns = STATUS_LOAD(from->last_refusal_ns);
    to->last_refusal_asked = STATUS_LOAD(from->last_refusal_asked);
    to->let_through = STATUS_LOAD(from->let_through);
}

static void status_copy_times(struct status_times *to, const struct cuslice_histogram *from)
{
    to->count = STATUS_LOAD(from->count);
    to->sum_ns = STATUS_LOAD(from->sum_ns);
    to->p50_ns = histogram_quantile(from, 0.50);
    to->p99_ns = histogram_quantile(from, 0.99);
}

static void status_read_ring(const struct cuslice_segment *segment, struct status_ring *ring)
{
    ring->taken_ns = clock_now();
    cap_format_uuid(ring->uuid, segment->uuid);
    status_text(ring->name, segment->device_name, sizeof(ring->name));
    ring->device_bytes = segment->device_bytes;
    ring->created_ns = segment->created_ns;
    ring->quantum_ns = STATUS_LOAD(segment->quantum_ns);
    ring->allowance_ns = STATUS_LOAD(segment->allowance_ns);
    ring->pinned = STATUS_LOAD(segment->settings_by_admin);
    ring->busy_ns = STATUS_LOAD(segment->busy_ns);
    ring->idle_wanted_ns = STATUS_LOAD(segment->idle_wanted_ns);
    ring->handovers = STATUS_LOAD(segment->handovers);
    ring->handover_ns = STATUS_LOAD(segment->handover_ns);
    ring->drain_ns = STATUS_LOAD(segment->drain_ns);
    ring->reaped = STATUS_LOAD(segment->reaped);
    status_copy_times(&ring->handover, &segment->handover);
    ring->holder = STATUS_NONE;
    ring->waiting = ring->dead = ring->tenants = ring->clients = 0;
    ring->mem_used = 0;
}

static void status_read_tenant(const struct cuslice_tenant *from, unsigned index,
                               struct status_tenant *to)
{
    memset(to, 0, sizeof(*to));
    to->index = index;
    status_text(to->key, from->key, sizeof(to->key));
    status_text(to->display, from->display, sizeof(to->display));
    status_text(to->pod, from->pod, sizeof(to->pod));
    status_text(to->pod_namespace, from->pod_namespace, sizeof(to->pod_namespace));
    status_text(to->container, from->container, sizeof(to->container));
    to->weight = STATUS_LOAD(from->weight);
    to->limit_ppm = STATUS_LOAD(from->limit_ppm);
    to->priority = STATUS_LOAD(from->priority);
    to->mode = STATUS_LOAD(from->mode);
    to->mem_limit = STATUS_LOAD(from->mem_limit);
    to->pinned = STATUS_LOAD(from->settings_by_admin);
    to->process_limit = tenant_process_limit(from, CUSLICE_NO_LIMIT);
    to->mem_peak = STATUS_LOAD(from->mem_peak);
    to->refusal_used = STATUS_LOAD(from->refusal_used);
    to->refusal_cap = STATUS_LOAD(from->refusal_cap);
    to->orphaned = STATUS_LOAD(from->orphaned);
    to->left_ns = STATUS_LOAD(from->left_ns);
    status_copy_books(&to->books, &from->books);
    status_copy_times(&to->wait, &from->wait);
    status_copy_times(&to->burst, &from->burst);
    status_copy_times(&to->burst_wait, &from->burst_wait);
}

/* Fills place[] with where each tenant of the file went. */
static void status_read_tenants(const struct cuslice_segment *segment, struct status_ring *ring,
                                int place[CUSLICE_TENANTS])
{
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++) {
        place[i] = STATUS_NONE;
        if (STATUS_LOAD(segment->tenant[i].id) == 0)
            continue;
        place[i] = (int)ring->tenants;
        status_read_tenant(&segment->tenant[i], i, &ring->tenant[ring->tenants++]);
    }
}

static uint64_t status_since(uint64_t now, uint64_t then)
{
    return then && then < now ? now - then : 0;
}

static void status_read_client(const struct cuslice_slot *from, unsigned slot, uint64_t now,
                               struct status_client *to)
{
    memset(to, 0, sizeof(*to));
    to->slot = slot;
    to->tenant = STATUS_NONE;
    to->pid = STATUS_LOAD(from->pid);
    to->host_pid = STATUS_LOAD(from->host_pid);
    status_text(to->command, from->command, sizeof(to->command));
    to->mode = STATUS_LOAD(from->mode);
    to->bytes = CUSLICE_BYTES_GRANTED(STATUS_LOAD(from->bytes));
    to->peak = STATUS_LOAD(from->peak);
    to->process_limit = STATUS_LOAD(from->process_limit);
    to->context_bytes = STATUS_LOAD(from->context_bytes);
    to->exported = STATUS_LOAD(from->exported);
    to->imported = STATUS_LOAD(from->imported);
    to->paged = STATUS_LOAD(from->paged);
    to->joined_ns = STATUS_LOAD(from->joined_ns);
    to->waiting_ns = status_since(now, STATUS_LOAD(from->waiting_since_ns));
    to->draining = STATUS_LOAD(from->closing_ns) != 0;
    status_copy_books(&to->books, &from->books);
}

/* The slot's own word of the token: the epoch must fit, or the grant is another one's. */
static void status_mark_holder(const struct cuslice_slot *from, uint64_t epoch, uint64_t now,
                               struct status_client *client)
{
    client->holds = true;
    client->idle = STATUS_LOAD(from->idle_since_ns) != 0;
    if (STATUS_LOAD(from->grant_epoch) == epoch)
        client->holding_ns = status_since(now, STATUS_LOAD(from->grant_ns));
}

static void status_count_client(struct status_ring *ring, const struct status_client *client)
{
    ring->waiting += client->waiting_ns != 0;
    ring->mem_used += client->bytes;
    if (client->tenant == STATUS_NONE)
        return;
    struct status_tenant *tenant = &ring->tenant[client->tenant];
    tenant->clients++;
    tenant->waiting += client->waiting_ns != 0;
    tenant->holds |= client->holds;
    tenant->mem_used += client->bytes;
    tenant->context_bytes += client->context_bytes;
    tenant->exported += client->exported;
    tenant->imported += client->imported;
    tenant->paged += client->paged;
}

/* The file's figure is put right when somebody dies or lets go; an importer that died unnoticed no
 * longer has anything open. */
static void status_settle_orphans(struct status_ring *ring)
{
    for (unsigned i = 0; i < ring->tenants; i++)
        if (ring->tenant[i].orphaned > ring->tenant[i].imported)
            ring->tenant[i].orphaned = ring->tenant[i].imported;
}

/* Nobody has come by yet to take it out of the books: what it had exported is left behind now. */
static void status_read_dead(const struct cuslice_slot *from, const int *place,
                             struct status_ring *ring)
{
    uint32_t tenant = STATUS_LOAD(from->tenant);
    ring->dead++;
    if (tenant < CUSLICE_TENANTS && place[tenant] >= 0)
        ring->tenant[place[tenant]].orphaned += STATUS_LOAD(from->exported);
}

void status_read(const struct status_file *file, struct status_ring *ring)
{
    const struct cuslice_segment *segment = file->segment;
    int place[CUSLICE_TENANTS];

    status_read_ring(segment, ring);
    status_read_tenants(segment, ring, place);
    uint64_t token = STATUS_LOAD(segment->token);
    ring->epoch = CUSLICE_TOKEN_EPOCH(token);
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        const struct cuslice_slot *slot = &segment->slot[i];
        if (STATUS_LOAD(slot->joined_ns) == 0)
            continue;
        if (mapfile_locked(file->fd, CUSLICE_LOCK_SLOT(i)) <= 0) {
            status_read_dead(slot, place, ring);
            continue;
        }
        struct status_client *client = &ring->client[ring->clients];
        status_read_client(slot, i, ring->taken_ns, client);
        uint32_t tenant = STATUS_LOAD(slot->tenant);
        if (tenant < CUSLICE_TENANTS) {
            client->tenant = place[tenant];
            client->process_limit =
                tenant_process_limit(&segment->tenant[tenant], client->process_limit);
        }
        if (CUSLICE_TOKEN_HOLDER(token) == i) {
            status_mark_holder(slot, ring->epoch, ring->taken_ns, client);
            ring->holder = (int)ring->clients;
        }
        status_count_client(ring, client);
        ring->clients++;
    }
    status_settle_orphans(ring);
}

uint64_t status_counted(const struct status_tenant *tenant)
{
    return tenant->mem_used + tenant->context_bytes;
}

uint64_t status_counted_client(const struct status_client *client)
{
    return client->bytes + client->context_bytes;
}

int status_find_tenant(const struct status_ring *ring, const char *key)
{
    for (unsigned i = 0; i < ring->tenants; i++)
        if (strcmp(ring->tenant[i].key, key) == 0)
            return (int)i;
    return STATUS_NONE;
}
