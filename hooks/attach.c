/*
 * attach: settings, rings, gates, keeper, exit; in this order, once per process (see attach.h).
 * Runs inside the program's cuInit, under attach_mutex, which a fork waits for, so that no child is
 * born in the middle of it.
 */
#include "attach.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allocs.h"
#include "clock.h"
#include "contexts.h"
#include "footprint.h"
#include "gang.h"
#include "gate.h"
#include "graphs.h"
#include "handles.h"
#include "identity.h"
#include "keeper.h"
#include "ledger.h"
#include "log.h"
#include "outside.h"
#include "oversubscribe.h"
#include "pools.h"
#include "real.h"
#include "slot.h"
#include "streams.h"
#include "tenant.h"

static pthread_mutex_t attach_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool attach_handlers;
static bool attach_told; /* a line says already what is wrong */
static struct tenant_spec attach_tenant;
static struct ring attach_rings[GATE_DEVICES];

/* ---- The devices ---- */

static CUresult attach_device(struct gate *gate, int ordinal, char *name, size_t size)
{
    CUuuid uuid;
    size_t total = 0;
    CUresult rc = real.cuDeviceGet(&gate->device, ordinal);
    if (rc == CUDA_SUCCESS)
        rc = REAL_HAS(cuDeviceGetUuid_v2) ? real.cuDeviceGetUuid_v2(&uuid, gate->device)
                                          : real.cuDeviceGetUuid(&uuid, gate->device);
    if (rc == CUDA_SUCCESS)
        rc = real.cuDeviceTotalMem_v2(&total, gate->device);
    if (rc == CUDA_SUCCESS)
        rc = real.cuDeviceGetName(name, (int)size, gate->device);
    if (rc != CUDA_SUCCESS)
        return rc;
    memcpy(gate->uuid, uuid.bytes, sizeof gate->uuid);
    gate->total_bytes = total;
    gate->oversubscribed = oversubscribe_device(gate->device, (unsigned)ordinal);
    return CUDA_SUCCESS;
}

static void attach_limits(const struct gate *gate, unsigned index, struct tenant_spec *tenant,
                          uint64_t *process_limit)
{
    tenant->mem_limit = cap_resolve(&guest_config.mem_limit, index, gate->uuid, gate->total_bytes,
                                    guest_config.replicas);
    if (gate->oversubscribed)
        tenant->mem_limit = oversubscribe_limit(tenant->mem_limit, gate->total_bytes);
    *process_limit = cap_resolve(&guest_config.process_mem_limit, index, gate->uuid,
                                 gate->total_bytes, guest_config.replicas);
    tenant->process_limit = *process_limit;
}

/* Ceilings that only bite now that the device's size is known; config has told of the others. */
static void attach_warn_cap(const struct gate *gate, unsigned index, const struct caps *caps,
                            const char *name)
{
    if (!cap_exceeds(caps, guest_config.replicas) &&
        cap_lowered(caps, index, gate->uuid, gate->total_bytes, guest_config.replicas))
        log_warn("config-lowered", "GPU %u: %s is lowered to the node's ceiling", index, name);
}

static void attach_warn(const struct gate *gate, unsigned index)
{
    attach_warn_cap(gate, index, &guest_config.mem_limit, "CUSLICE_MEM_LIMIT");
    attach_warn_cap(gate, index, &guest_config.process_mem_limit, "CUSLICE_PROCESS_MEM_LIMIT");
}

static struct segment_spec attach_segment(const struct gate *gate, const char *name)
{
    struct segment_spec spec = {.device_name = name,
                                .device_bytes = gate->total_bytes,
                                .quantum_ns = guest_config.quantum,
                                .allowance_ns = guest_config.allowance};
    memcpy(spec.uuid, gate->uuid, sizeof spec.uuid);
    return spec;
}

/* Joins the device's ring; a private one when it is unusable and the program goes on all the same.
 */
static int attach_ring(struct gate *gate, unsigned index, const char *name)
{
    struct ring *ring = &attach_rings[index];
    struct tenant_spec tenant = attach_tenant;
    struct segment_spec spec = attach_segment(gate, name);
    uint64_t limit;
    attach_limits(gate, index, &tenant, &limit);
    attach_warn(gate, index);
    int rc = ring_join(ring, guest_config.dir, &spec, &tenant);
    attach_told |= rc < 0;
    if (rc < 0 && guest_config.on_error == CONFIG_CLOSED)
        return rc;
    if (rc < 0) {
        log_info("alone",
                 "GPU %u: turns are not taken; the memory cap holds for this process alone", index);
        rc = ring_join_private(ring, &spec, &tenant);
    }
    if (rc < 0)
        return rc;
    ring->process_limit = limit;
    ring->pages = gate->oversubscribed;
    atomic_store(&ring_me(ring)->process_limit, limit);
    gate->token = &ring_shared(ring)->token;
    gate->ring = ring;
    gate->ganged =
        guest_config.gang[0] && !ring->segment.private_copy && guest_config.mode == CONFIG_ENFORCE;
    return 0;
}

static int attach_devices(void)
{
    char name[CUSLICE_TEXT] = "";
    int count = 0;
    if (real.cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1)
        return 0;
    if (count > (int)GATE_DEVICES) {
        log_warn("devices", "only the first %u of %d devices are shared", GATE_DEVICES, count);
        count = GATE_DEVICES;
    }
    for (int i = 0; i < count; i++) {
        if (attach_device(&guest.gate[i], i, name, sizeof name) != CUDA_SUCCESS)
            return -ENODEV;
        int rc = attach_ring(&guest.gate[i], (unsigned)i, name);
        if (rc < 0)
            return rc;
        guest.gates = (unsigned)i + 1;
    }
    return 0;
}

/* ---- Start and end ---- */

static void attach_before_fork(void)
{
    pthread_mutex_lock(&attach_mutex);
}

static void attach_after_fork(void)
{
    pthread_mutex_unlock(&attach_mutex);
}

/* The child never attached, also where the kernel did not wipe its pages. */
static void attach_in_child(void)
{
    memset((void *)&guest, 0, sizeof guest);
    gate_mark_mine = &gate_nobody;
    keeper_forget();
    pthread_mutex_unlock(&attach_mutex);
}

static void attach_exit(void)
{
    int attached = GUEST_ATTACHED;
    if (atomic_compare_exchange_strong(&guest.state, &attached, GUEST_GONE))
        keeper_stop();
}

/* After the driver's own cuInit, so that ours runs before the driver's at exit. */
static int attach_register(void)
{
    if (attach_handlers)
        return 0;
    if (pthread_atfork(attach_before_fork, attach_after_fork, attach_in_child) != 0 ||
        atexit(attach_exit) != 0)
        return -ENOMEM;
    attach_handlers = true;
    return 0;
}

static int attach_start(void)
{
    clock_init();
    if (madvise(&guest, sizeof guest, MADV_WIPEONFORK) != 0)
        log_info("no-wipe", "MADV_WIPEONFORK is refused here: children made by a raw clone must "
                            "not use CUDA");
    allocs_reset();
    handles_reset();
    pools_reset();
    graphs_reset();
    contexts_reset();
    footprint_reset();
    streams_reset();
    outside_reset();
    identity_describe(&attach_tenant, &guest_config);
    guest.mode = guest_config.mode;
    int rc = attach_register();
    if (rc == 0)
        rc = gate_start();
    return rc == 0 ? attach_devices() : rc;
}

/* Without a thread of ours nobody would end our turns: the caps hold, turns are not taken. */
static void attach_turns(void)
{
    int rc = keeper_start();
    guest.turns = rc == 0;
    if (rc < 0)
        log_error("no-thread", "no thread can be made (%s): turns are not taken", strerror(-rc));
}

/* What could not be set up must not mean that no cap holds. A ring has said itself why it is not
 * used.
 */
static CUresult attach_refuse(int rc)
{
    guest.state = GUEST_REFUSED;
    for (unsigned i = 0; i < guest.gates; i++)
        ring_leave(&attach_rings[i]);
    guest.gates = 0;
    log_at(attach_told ? LOG_INFO : LOG_ERROR, "closed", "cuInit fails: %s", strerror(-rc));
    return CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult attach_once(void)
{
    if (guest.state != GUEST_NEW)
        return guest.state == GUEST_REFUSED ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
    int rc = attach_start();
    if (rc < 0)
        return attach_refuse(rc);
    if (guest.gates)
        attach_turns();
    guest.state = guest.gates ? GUEST_ATTACHED : GUEST_OFF;
    return CUDA_SUCCESS;
}

/* The settings come first: with a bad cap the driver is not initialised at all. */
static CUresult attach_init_locked(unsigned int flags)
{
    if (guest.state == GUEST_NEW && config_load(&guest_config) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (guest_config.mode == CONFIG_OFF)
        guest.state = GUEST_OFF;
    CUresult rc = real.cuInit(flags);
    return rc == CUDA_SUCCESS ? attach_once() : rc;
}

CUresult attach_init(unsigned int flags)
{
    if (guest.state == GUEST_ATTACHED || guest.state == GUEST_GONE)
        return real.cuInit(flags);
    pthread_mutex_lock(&attach_mutex);
    CUresult rc = attach_init_locked(flags);
    pthread_mutex_unlock(&attach_mutex);
    return rc;
}

/* ---- Gangs ---- */

/* The membership that this device left, unless its file has lost its name since; or a new one. */
static int attach_gang_member(struct gate *gate, struct gang **member)
{
    struct gang *gang = gate->gang_left;
    gate->gang_left = NULL;
    if (gang && gang_current(gang)) {
        gang_return(gang);
        *member = gang;
        return 0;
    }
    gang = malloc(sizeof *gang);
    if (!gang)
        return -ENOMEM;
    int rc = gang_join(gang, guest_config.dir, attach_tenant.key, guest_config.gang, gate->uuid);
    if (rc < 0)
        free(gang);
    else
        *member = gang;
    return rc;
}

static int attach_gang_locked(struct gate *gate)
{
    struct gang *gang;
    const struct gang *other = NULL;
    int rc = attach_gang_member(gate, &gang);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < guest.gates && !other; i++)
        other = guest.gate[i].gang;
    if (other)
        gang_sleep_with(gang, other);
    gate->gang = gang;
    return 0;
}

static void attach_gang_or_alone(struct gate *gate)
{
    gate->used = true;
    int rc = gate->ganged && !gate->gang ? attach_gang_locked(gate) : 0;
    if (rc == 0)
        return;
    log_error("gang-unusable", "cannot join the gang %s: %s; GPU %u takes its turns alone",
              guest_config.gang, strerror(-rc), (unsigned)(gate - guest.gate));
    gate->ganged = false;
}

void attach_gang(struct gate *gate)
{
    sigset_t all, before;
    int error = errno, cancel;
    sigfillset(&all); /* with the mutex held no handler may jump away or fork */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&attach_mutex); /* no fork may inherit the file's descriptor */
    attach_gang_or_alone(gate);
    pthread_mutex_unlock(&attach_mutex);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancel, NULL);
    errno = error;
    ring_poke(ring_shared(gate->ring), gate->ring->slot);
}

void attach_used(struct gate *gate)
{
    if (guest.turns && gate->ganged && !gate->used)
        attach_gang(gate);
}

void attach_unused(struct gate *gate)
{
    if (!gate->ganged)
        return;
    gate->used = false;
    ring_poke(ring_shared(gate->ring), gate->ring->slot);
}

/* The mapping stays: a thread may be at the words, and the place is kept for the next context. */
void attach_ungang(struct gate *gate)
{
    pthread_mutex_lock(&attach_mutex);
    if (gate->gang && !gate->used) {
        gate->gang_left = gate->gang;
        gate->gang = NULL;
        gang_leave(gate->gang_left);
    }
    pthread_mutex_unlock(&attach_mutex);
}

/* ---- A ring that lost its name ---- */

/* The old mapping stays: threads may still be looking at it, and they will look again. */
static void attach_swap(struct gate *gate, struct ring *old, struct ring *new)
{
    struct cuslice_slot *from = ring_me(old);
    uint64_t bytes = atomic_load(&from->bytes);
    enum ledger_cap which;
    new->process_limit = old->process_limit;
    new->pages = old->pages;
    if (bytes && ledger_force(new, bytes, &which) < 0)
        log_warn("ring-moved", "more memory is in use than the new ring's caps allow");
    ledger_context(new, atomic_load(&from->context_bytes));
    ledger_exported(new, (int64_t)atomic_load(&from->exported), false);
    ledger_imported(new, (int64_t)atomic_load(&from->imported));
    ledger_paged(new, (int64_t)atomic_load(&from->paged));
    atomic_store(&ring_me(new)->changes, atomic_load(&from->changes));
    ring_me(new)->process_limit = new->process_limit;
    gate->ring = new;
    gate->token = &ring_shared(new)->token;
    slot_leave(&old->segment, old->slot);
    ring_poke(ring_shared(old), old->slot);
}

/* Nobody is half-way through the books, and nothing new is submitted, while the ring changes. */
static int attach_move_to(struct gate *gate, struct ring *old, struct ring *new)
{
    int rc = 0;
    guest.moving = true;
    gate_close(gate, CUSLICE_TOKEN((UINT64_C(1) << 48) - 1, 0));
    if (gate_books_quiet())
        attach_swap(gate, old, new);
    else
        rc = -EAGAIN;
    atomic_store(&gate->lease, 0);
    guest.moving = false;
    return rc;
}

static int attach_join_again(struct gate *gate, struct ring *old, struct ring *new)
{
    struct tenant_spec tenant = attach_tenant;
    struct segment_spec spec = attach_segment(gate, ring_shared(old)->device_name);
    uint64_t limit;
    attach_limits(gate, (unsigned)(gate - guest.gate), &tenant, &limit);
    spec.quantum_ns = segment_quantum(ring_shared(old));
    spec.allowance_ns = segment_allowance(ring_shared(old));
    pthread_mutex_lock(&attach_mutex); /* no fork may inherit the new file's descriptor */
    int rc = ring_join(new, guest_config.dir, &spec, &tenant);
    pthread_mutex_unlock(&attach_mutex);
    return rc;
}

int attach_move(struct gate *gate)
{
    struct ring *old = gate->ring, *new = calloc(1, sizeof *new);
    if (!new)
        return -ENOMEM;
    int rc = attach_join_again(gate, old, new);
    if (rc == 0) {
        log_warn("ring-moved", "%s is not the file it was: moving to the new one",
                 old->segment.path);
        rc = attach_move_to(gate, old, new);
        if (rc < 0)
            ring_leave(new);
    }
    if (rc < 0)
        free(new);
    return rc;
}
