/*
 * charge: between the hooks and the ledger (see charge.h). Runs on the program's threads. While the
 * keeper moves this process to another ring, nobody may be half-way through the books: a mark says
 * who is, as at the gate.
 */
#include "charge.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "allocs.h"
#include "clock.h"
#include "contexts.h"
#include "gate.h"
#include "ledger.h"
#include "log.h"
#include "real.h"
#include "slot.h"

#define CHARGE_SAY_NS (5 * CLOCK_S)
#define CHARGE_RETRY_NS (20 * CLOCK_MS)
/* A guess, put right by charge_adjust: what current devices report as their texture pitch alignment
 * is 32, and the pitch chosen for them a multiple of 512. */
#define CHARGE_PITCH 512u

static void charge_sleep(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* The ring whose books may be used until charge_put. */
static struct ring *charge_get(struct gate *gate, struct gate_mark **mark)
{
    *mark = gate_mark_get();
    for (; *mark; charge_sleep(CLOCK_MS)) {
        uint64_t books = atomic_load_explicit(&(*mark)->books, memory_order_relaxed);
        atomic_store_explicit(&(*mark)->books, books + 1, memory_order_relaxed);
        if (guest.full_fence)
            atomic_thread_fence(memory_order_seq_cst);
        atomic_signal_fence(memory_order_seq_cst);
        if (!atomic_load_explicit(&guest.moving, memory_order_acquire))
            break;
        atomic_store_explicit(&(*mark)->books, books, memory_order_release);
    }
    return gate->ring;
}

static void charge_put(struct gate_mark *mark)
{
    if (mark)
        atomic_store_explicit(&mark->books,
                              atomic_load_explicit(&mark->books, memory_order_relaxed) + 1,
                              memory_order_release);
}

static void charge_say(struct ring *ring, uint64_t bytes, enum ledger_cap which)
{
    static struct log_rate rate;
    char holders[512];
    unsigned more = 0;
    if (!log_every(&rate, CHARGE_SAY_NS, &more))
        return;
    bool tenant = which == LEDGER_TENANT;
    ledger_holders(ring, holders, sizeof holders);
    log_warn("mem-refused",
             "out of memory: asked %.1f MiB, %s uses %.1f MiB of its cap of %.1f MiB"
             " (%s)%s",
             (double)bytes / (1 << 20), tenant ? "the tenant" : "this process",
             (double)(tenant ? ledger_tenant(ring) : ledger_process(ring)) / (1 << 20),
             (double)(tenant ? ledger_limit(ring) : ring->process_limit) / (1 << 20), holders,
             more ? "; more like this were not shown" : "");
}

static void charge_refused(struct ring *ring, uint64_t bytes, enum ledger_cap which)
{
    struct cuslice_slot *me = ring_me(ring);
    struct cuslice_tenant *tenant = tenant_of(ring_shared(ring), ring->slot);
    slot_count(ring_shared(ring), ring->slot, refusals, 1);
    slot_count(ring_shared(ring), ring->slot, refused_bytes, bytes);
    atomic_store(&me->books.last_refusal_ns, clock_now());
    atomic_store(&me->books.last_refusal_asked, bytes);
    if (tenant) {
        atomic_store(&tenant->books.last_refusal_ns, clock_now());
        atomic_store(&tenant->books.last_refusal_asked, bytes);
    }
    charge_say(ring, bytes, which);
}

static bool charge_count(struct ring *ring, uint64_t bytes)
{
    enum ledger_cap which;
    if (guest.mode != CONFIG_OBSERVE) {
        if (ledger_reserve(ring, bytes, &which) == 0)
            return true;
        charge_refused(ring, bytes, which);
        return false;
    }
    if (ledger_force(ring, bytes, &which) < 0)
        slot_count(ring_shared(ring), ring->slot, would_refuse, 1);
    return true;
}

/* With several contexts it matters whose an allocation is: it goes when its context goes. */
static unsigned charge_owner(bool owned)
{
    struct context *context = owned ? contexts_note() : NULL;
    return context ? contexts_number(context) : ALLOCS_NOBODY;
}

bool charge_reserve(struct charge *charge, uint64_t bytes, bool owned)
{
    int error = errno;
    struct gate_mark *mark;
    *charge = (struct charge){.bytes = bytes};
    if (guest.state == GUEST_REFUSED)
        return false;
    struct gate *gate = guest_attached() ? gate_current() : NULL;
    if (!gate || bytes == 0)
        return true;
    charge->owner = charge_owner(owned);
    bool granted = charge_count(charge_get(gate, &mark), bytes);
    charge_put(mark);
    if (granted)
        charge->gate = gate;
    errno = error;
    return granted;
}

static void charge_give_back(struct gate *gate, uint64_t bytes)
{
    struct gate_mark *mark;
    ledger_release(charge_get(gate, &mark), bytes);
    charge_put(mark);
}

/* Whether a client that held memory died so lately that it may still be on its way back. */
static bool charge_death(struct charge *charge, uint64_t now)
{
    struct ring *ring = charge->gate->ring;
    uint64_t wait = guest_config.reap_wait;
    slot_reap_set(&ring->segment, ring_shared(ring)->attached, ring->slot);
    uint64_t death = atomic_load(&ring_shared(ring)->last_death_ns);
    return death && now < death + wait;
}

bool charge_again(struct charge *charge, CUresult rc)
{
    int error = errno;
    uint64_t now = clock_now();
    if (rc != CUDA_ERROR_OUT_OF_MEMORY || !charge->gate || !guest_attached())
        return false;
    if (charge->retry_until_ns == 0) {
        if (!charge_death(charge, now))
            return false;
        charge->retry_until_ns = now + guest_config.reap_wait;
        log_warn("reap-wait",
                 "the driver is out of memory and a client died lately: waiting up to "
                 "%.1f s for its memory to come back",
                 (double)guest_config.reap_wait / 1e9);
    }
    if (now >= charge->retry_until_ns)
        return false;
    charge_sleep(CHARGE_RETRY_NS);
    errno = error;
    return true;
}

static void charge_enter(struct charge *charge, uint64_t pointer)
{
    struct allocs_item before, item = {.bytes = charge->bytes,
                                       .gate = (unsigned)(charge->gate - guest.gate),
                                       .owner = charge->owner};
    if (!allocs_put(pointer, item, &before))
        log_error("allocs-full", "no memory to remember an allocation: it stays counted until the "
                                 "process ends");
    if (before.bytes && before.gate < guest.gates)
        charge_give_back(&guest.gate[before.gate], before.bytes);
}

CUresult charge_settle(struct charge *charge, CUresult rc, uint64_t pointer)
{
    int error = errno;
    if (!charge->gate)
        return rc;
    if (rc != CUDA_SUCCESS)
        charge_give_back(charge->gate, charge->bytes);
    else
        charge_enter(charge, pointer);
    errno = error;
    return rc;
}

/* Out of the table before the driver is asked, since the address may be another thread's as soon as
 * the driver has freed it. */
void charge_take(struct charge *charge, uint64_t pointer)
{
    struct allocs_item item;
    *charge = (struct charge){0};
    if (!guest_attached() || !allocs_take(pointer, &item) || item.gate >= guest.gates)
        return;
    *charge =
        (struct charge){.gate = &guest.gate[item.gate], .bytes = item.bytes, .owner = item.owner};
}

CUresult charge_return(struct charge *charge, CUresult rc, uint64_t pointer)
{
    int error = errno;
    if (!charge->gate)
        return rc;
    if (rc == CUDA_SUCCESS)
        charge_give_back(charge->gate, charge->bytes);
    else
        charge_enter(charge, pointer);
    errno = error;
    return rc;
}

void charge_context_gone(struct gate *gate, unsigned owner)
{
    uint64_t bytes = gate ? allocs_take_owner(owner) : 0;
    if (bytes)
        charge_give_back(gate, bytes);
}

static uint64_t charge_pitch_bytes(uint64_t width, uint64_t height)
{
    uint64_t bytes, pitch = (width + CHARGE_PITCH - 1) / CHARGE_PITCH * CHARGE_PITCH;
    return __builtin_mul_overflow(pitch, height, &bytes) || pitch < width ? UINT64_MAX / 2 : bytes;
}

/* The reservation becomes what the driver really took. */
static bool charge_adjust(struct charge *charge, uint64_t bytes)
{
    struct charge more = {0};
    if (!charge->gate)
        return true;
    if (bytes > charge->bytes && !charge_reserve(&more, bytes - charge->bytes, OWNED))
        return false;
    if (bytes < charge->bytes)
        charge_give_back(charge->gate, charge->bytes - bytes);
    charge->bytes = bytes;
    return true;
}

CUresult charge_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                      unsigned int element)
{
    struct charge charge;
    CUdeviceptr got = 0;
    CUresult rc;
    if (!pointer || !pitch)
        return real.cuMemAllocPitch_v2(pointer, pitch, width, height, element);
    if (!charge_reserve(&charge, charge_pitch_bytes(width, height), OWNED))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t got_pitch = 0;
    do
        rc = real.cuMemAllocPitch_v2(&got, &got_pitch, width, height, element);
    while (charge_again(&charge, rc));
    if (rc == CUDA_SUCCESS && !charge_adjust(&charge, (uint64_t)got_pitch * height)) {
        real.cuMemFree_v2(got);
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (rc == CUDA_SUCCESS) {
        *pointer = got;
        *pitch = got_pitch;
    }
    return charge_settle(&charge, rc, got);
}

CUresult charge_pitch_v1(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element)
{
    struct charge charge;
    if (!charge_reserve(&charge, charge_pitch_bytes(width, height), OWNED))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real.cuMemAllocPitch(pointer, pitch, width, height, element);
    return charge_settle(&charge, rc, rc == CUDA_SUCCESS ? *pointer : 0);
}
