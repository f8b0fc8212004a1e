/*
 * charge: between the hooks and the ledger (see charge.h). Runs on the program's threads. While the
 * keeper moves this process to another ring, nobody may be half-way through the books: a mark says
 * who is, as at the gate.
 */
#include "charge.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "clock.h"
#include "contexts.h"
#include "footprint.h"
#include "gate.h"
#include "graphs.h"
#include "handles.h"
#include "ledger.h"
#include "log.h"
#include "oversubscribe.h"
#include "physical.h"
#include "pools.h"
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

/* Says that this thread is inside the books; false while they are being moved. */
static inline bool charge_mark(struct gate_mark *mark)
{
    uint64_t books = atomic_load_explicit(&mark->books, memory_order_relaxed);
    atomic_store_explicit(&mark->books, books + 1, memory_order_relaxed);
    if (__builtin_expect(guest.full_fence, 0))
        atomic_thread_fence(memory_order_seq_cst);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(!atomic_load_explicit(&guest.moving, memory_order_acquire), 1))
        return true;
    atomic_store_explicit(&mark->books, books, memory_order_release);
    return false;
}

static __attribute__((noinline)) void charge_wait_for_books(struct gate_mark *mark)
{
    int error = errno;
    do
        charge_sleep(CLOCK_MS);
    while (!charge_mark(mark));
    errno = error;
}

/* The ring whose books may be used until charge_put. */
static inline struct ring *charge_get(struct gate *gate, struct gate_mark **mark)
{
    *mark = gate_mark_mine != &gate_nobody ? gate_mark_mine : gate_mark_get();
    if (*mark && !charge_mark(*mark))
        charge_wait_for_books(*mark);
    return atomic_load_explicit(&gate->ring, memory_order_relaxed);
}

static inline void charge_put(struct gate_mark *mark)
{
    if (mark)
        atomic_store_explicit(&mark->books,
                              atomic_load_explicit(&mark->books, memory_order_relaxed) + 1,
                              memory_order_release);
}

static double charge_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* A refusal: what was asked, what had to be reserved for it, and what stood against it. */
struct charge_refusal {
    uint64_t asked, bytes, used, cap;
    bool tenant;
};

static void charge_say(struct ring *ring, const struct charge_refusal *r)
{
    static struct log_rate rate;
    char holders[512], growth[64] = "";
    unsigned more = 0;
    if (!log_every(&rate, CHARGE_SAY_NS, &more))
        return;
    ledger_holders(ring, holders, sizeof holders);
    if (r->bytes > r->asked + CHARGE_GRAIN)
        snprintf(growth, sizeof growth, ", for which its pool may grow by %.1f MiB",
                 charge_mib(r->bytes));
    log_warn("mem-refused",
             "out of memory: asked %.1f MiB%s, %s uses %.1f MiB of its cap of %.1f MiB (%s)%s",
             charge_mib(r->asked), growth, r->tenant ? "the tenant" : "this process",
             charge_mib(r->used), charge_mib(r->cap), holders,
             more ? "; more like this were not shown" : "");
}

static void charge_refused_books(struct ring *ring, const struct charge_refusal *r)
{
    struct cuslice_slot *me = ring_me(ring);
    struct cuslice_tenant *tenant = ring_tenant(ring);
    uint64_t now = clock_now();
    slot_count(ring_shared(ring), ring->slot, refusals, 1);
    slot_count(ring_shared(ring), ring->slot, refused_bytes, r->asked);
    atomic_store(&me->books.last_refusal_ns, now);
    atomic_store(&me->books.last_refusal_asked, r->asked);
    atomic_store(&tenant->books.last_refusal_ns, now);
    atomic_store(&tenant->books.last_refusal_asked, r->asked);
    atomic_store(&tenant->refusal_used, r->used);
    atomic_store(&tenant->refusal_cap, r->cap);
}

static void charge_refused(struct ring *ring, uint64_t bytes, uint64_t asked, enum ledger_cap which)
{
    int error = errno;
    bool tenant = which == LEDGER_TENANT;
    struct charge_refusal r = {.asked = asked,
                               .bytes = bytes,
                               .used = tenant ? ledger_tenant(ring) : ledger_process(ring),
                               .cap = tenant ? ledger_limit(ring) : ring_process_limit(ring),
                               .tenant = tenant};
    charge_refused_books(ring, &r);
    charge_say(ring, &r);
    errno = error;
}

/* Not granted at once: a refusal, or nobody refuses in observe mode. */
static __attribute__((noinline)) bool charge_not_granted(struct ring *ring, uint64_t bytes,
                                                         uint64_t asked, enum ledger_cap which)
{
    if (guest.mode == CONFIG_OBSERVE) {
        if (ledger_force(ring, bytes, &which) < 0)
            slot_count(ring_shared(ring), ring->slot, would_refuse, 1);
        return true;
    }
    if (asked)
        charge_refused(ring, bytes, asked, which);
    return false;
}

static inline void charge_start(struct charge *charge, enum charge_family family, uint64_t bytes)
{
    charge->gate = charge->under_way = NULL;
    charge->item.bytes = bytes;
    charge->item.kind = ALLOCS_OWNED;
    charge->retry_until_ns = 0;
    charge->family = family;
}

/* More than any device has stays as it is: the ledger refuses it. */
static uint64_t charge_round(uint64_t bytes)
{
    return bytes > UINT64_MAX / 2 ? bytes : (bytes + CHARGE_GRAIN - 1) & ~(CHARGE_GRAIN - 1);
}

static bool charge_ask(struct charge *charge, struct gate *gate, uint64_t asked)
{
    enum ledger_cap which = LEDGER_TENANT;
    struct gate_mark *mark;
    struct ring *ring = charge_get(gate, &mark);
    bool granted =
        guest.mode != CONFIG_OBSERVE && ledger_reserve(ring, charge->item.bytes, &which) == 0;
    if (__builtin_expect(!granted, 0))
        granted = charge_not_granted(ring, charge->item.bytes, asked, which);
    charge_put(mark);
    charge->gate = granted ? gate : NULL;
    return granted;
}

/* The books and the device change at different moments: other clients, who take differences, are
 * told of both. Small ones are not worth it. */
static inline void charge_begin(struct charge *charge, struct gate *gate)
{
    if (__builtin_expect(charge->item.bytes < FOOTPRINT_LARGE, 1))
        return;
    charge->under_way = gate;
    footprint_begin(gate);
}

static inline void charge_end(struct charge *charge)
{
    if (__builtin_expect(charge->under_way != NULL, 0))
        footprint_end(charge->under_way);
    charge->under_way = NULL;
}

bool charge_reserve_on(struct charge *charge, struct gate *gate, uint64_t bytes, uint64_t asked)
{
    charge_start(charge, POINTER, charge_round(bytes));
    if (!gate || bytes == 0 || !guest_attached())
        return guest.state != GUEST_REFUSED;
    charge->item.whose = allocs_whose((unsigned)(gate - guest.gate), ALLOCS_NOBODY);
    return charge_ask(charge, gate, asked);
}

bool charge_others(struct gate *gate)
{
    struct gate_mark *mark;
    struct cuslice_tenant *tenant = ring_tenant(charge_get(gate, &mark));
    unsigned members = 0;
    for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
        members += (unsigned)__builtin_popcountll(atomic_load(&tenant->members[w]));
    charge_put(mark);
    return members > 1;
}

/* Whether it may be paged out. */
static void charge_choose(struct charge *charge)
{
    struct gate_mark *mark;
    bool paged = charge->family == MANAGED;
    if (charge->family == PLAIN) {
        paged = oversubscribe_beyond(charge->gate, charge_get(charge->gate, &mark));
        charge_put(mark);
    }
    if (paged) {
        charge->item.kind = ALLOCS_PAGED;
        footprint_managed(charge->item.bytes);
    }
}

static void charge_count_paged(struct gate *gate, int64_t change)
{
    struct gate_mark *mark;
    ledger_paged(charge_get(gate, &mark), change);
    charge_put(mark);
}

/* Whose an allocation is matters with several contexts: it goes when its context goes. NULL: it is
 * not counted. */
static struct gate *charge_whose(struct charge *charge)
{
    CUcontext handle;
    const struct context *mine =
        real.cuCtxGetCurrent(&handle) == CUDA_SUCCESS ? contexts_known(handle) : NULL;
    if (__builtin_expect(!mine, 0))
        mine = contexts_note();
    struct gate *gate = mine ? mine->gate : gate_current();
    charge->item.whose =
        mine ? mine->whose : allocs_whose(gate ? (unsigned)(gate - guest.gate) : 0, ALLOCS_NOBODY);
    return gate;
}

static __attribute__((noinline)) bool charge_reserve_large(struct charge *charge, struct gate *gate,
                                                           uint64_t asked)
{
    charge_begin(charge, gate);
    if (!charge_ask(charge, gate, asked)) {
        charge_end(charge);
        return false;
    }
    if (gate->oversubscribed)
        charge_choose(charge);
    return true;
}

bool charge_reserve(struct charge *charge, enum charge_family family, uint64_t bytes)
{
    charge_start(charge, family, charge_round(bytes));
    if (__builtin_expect(!guest_attached(), 0))
        return guest.state != GUEST_REFUSED;
    struct gate *gate = charge_whose(charge);
    if (!gate || bytes == 0)
        return true;
    if (__builtin_expect(bytes >= FOOTPRINT_LARGE || gate->oversubscribed, 0))
        return charge_reserve_large(charge, gate, bytes);
    return charge_ask(charge, gate, bytes);
}

void charge_give_back(struct gate *gate, uint64_t bytes)
{
    struct gate_mark *mark;
    ledger_release(charge_get(gate, &mark), bytes);
    charge_put(mark);
}

void charge_add(struct gate *gate, uint64_t bytes)
{
    enum ledger_cap which;
    struct gate_mark *mark;
    (void)ledger_force(charge_get(gate, &mark), bytes, &which); /* in use, whatever the cap says */
    charge_put(mark);
}

void charge_exported(struct gate *gate, int64_t change, bool gone)
{
    struct gate_mark *mark;
    ledger_exported(charge_get(gate, &mark), change, gone);
    charge_put(mark);
}

void charge_imported(struct gate *gate, int64_t change)
{
    struct gate_mark *mark;
    ledger_imported(charge_get(gate, &mark), change);
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

/* Memory of the dead is waited for first: plain memory is what the program asked. */
static bool charge_wait_again(struct charge *charge, uint64_t now)
{
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
    return true;
}

/* What the driver has no room for becomes managed. */
static bool charge_page(struct charge *charge)
{
    if (!charge->gate->oversubscribed || charge->family != PLAIN || charge_paged(charge))
        return false;
    charge->item.kind = ALLOCS_PAGED;
    return true;
}

bool charge_again(struct charge *charge, CUresult rc)
{
    int error = errno;
    if (rc != CUDA_ERROR_OUT_OF_MEMORY || !charge->gate || !guest_attached())
        return false;
    bool again = charge_wait_again(charge, clock_now()) || charge_page(charge);
    errno = error;
    return again;
}

/* A key that was known already: its free was not seen. */
static void charge_forget(unsigned kind, unsigned gate, uint64_t bytes)
{
    if (!allocs_with_context(kind) || !bytes || gate >= guest.gates)
        return;
    if (kind == ALLOCS_PAGED)
        charge_count_paged(&guest.gate[gate], -(int64_t)bytes);
    charge_give_back(&guest.gate[gate], bytes);
}

static bool charge_enter_handle(const struct charge *charge, enum handles_kind kind, uint64_t key)
{
    struct handles_item before, item = {.bytes = charge->item.bytes,
                                        .gate = allocs_gate(charge->item),
                                        .owner = allocs_owner(charge->item),
                                        .kind = charge->item.kind};
    bool entered = handles_put(kind, key, item, &before);
    charge_forget(before.kind, before.gate, before.bytes);
    return entered;
}

static bool charge_enter_pointer(const struct charge *charge, uint64_t key)
{
    struct allocs_item before;
    bool entered = allocs_put(key, charge->item, &before);
    charge_forget(before.kind, allocs_gate(before), before.bytes);
    return entered || charge_enter_handle(charge, HANDLES_POINTER, key);
}

static __attribute__((noinline)) void charge_enter(const struct charge *charge, uint64_t key)
{
    bool entered = charge->family == ARRAY ? charge_enter_handle(charge, HANDLES_ARRAY, key)
                                           : charge_enter_pointer(charge, key);
    if (entered && charge_paged(charge))
        charge_count_paged(charge->gate, (int64_t)charge->item.bytes);
    if (__builtin_expect(!entered, 0))
        log_error("allocs-full", "no memory to remember an allocation: it stays counted until the "
                                 "process ends");
}

CUresult charge_settle(struct charge *charge, CUresult rc, uint64_t key)
{
    if (!charge->gate)
        return rc;
    if (rc != CUDA_SUCCESS)
        charge_give_back(charge->gate, charge->item.bytes);
    else if (charge->family == ARRAY || charge_paged(charge) ||
             !allocs_put_quickly(key, charge->item))
        charge_enter(charge, key);
    charge_end(charge);
    return rc;
}

static struct allocs_item charge_take_handle(enum handles_kind kind, uint64_t key)
{
    struct handles_item item;
    if (!handles_take(kind, key, &item))
        return (struct allocs_item){0};
    return (struct allocs_item){
        .bytes = item.bytes, .whose = allocs_whose(item.gate, item.owner), .kind = item.kind};
}

/* Out of the table before the driver is asked, since the address may be another thread's as soon as
 * the driver has freed it. */
void charge_take(struct charge *charge, enum charge_family family, uint64_t key)
{
    charge_start(charge, family, 0);
    if (__builtin_expect(!guest_attached(), 0))
        return;
    struct allocs_item item =
        family == ARRAY ? charge_take_handle(HANDLES_ARRAY, key) : allocs_take(key);
    if (__builtin_expect(!item.bytes, 0) && family != ARRAY)
        item = charge_take_handle(HANDLES_POINTER, key);
    if (!item.bytes || allocs_gate(item) >= guest.gates)
        return;
    charge->item = item;
    charge->gate = &guest.gate[allocs_gate(item)];
    if (__builtin_expect(charge_paged(charge), 0))
        charge_count_paged(charge->gate, -(int64_t)item.bytes);
    charge_begin(charge, charge->gate);
}

/* The driver has freed it. */
static void charge_freed(const struct charge *charge)
{
    switch (charge->item.kind) {
    case ALLOCS_POOL_EXPORTED:
        charge_exported(charge->gate, -(int64_t)charge->item.bytes, true);
        pools_freed(allocs_owner(charge->item));
        break;
    case ALLOCS_POOLED:
        pools_freed(allocs_owner(charge->item));
        break;
    case ALLOCS_IMPORTED:
        charge_imported(charge->gate, -(int64_t)charge->item.bytes);
        break;
    case ALLOCS_EXPORTED:
        charge_exported(charge->gate, -(int64_t)charge->item.bytes, true);
        charge_give_back(charge->gate, charge->item.bytes);
        break;
    default:
        charge_give_back(charge->gate, charge->item.bytes);
    }
}

/* A free that failed although the pointer was known. Another thread may have freed it meanwhile, by
 * the very same call; then there is nothing left to remember, whoever has the address now. */
static bool charge_gone(const struct charge *charge, uint64_t key)
{
    struct allocs_item now;
    CUdeviceptr base;
    size_t bytes;
    if (charge->family == ARRAY)
        return false;
    CUresult rc = real.cuMemGetAddressRange_v2(&base, &bytes, key);
    return rc == CUDA_ERROR_NOT_FOUND || rc == CUDA_ERROR_INVALID_VALUE || allocs_peek(key, &now);
}

CUresult charge_return(struct charge *charge, CUresult rc, uint64_t key)
{
    if (__builtin_expect(charge->gate && rc == CUDA_SUCCESS && charge->item.kind == ALLOCS_OWNED &&
                             charge->family == POINTER,
                         1)) {
        charge_give_back(charge->gate, charge->item.bytes);
        charge_end(charge);
        return rc;
    }
    if (charge->gate && (rc == CUDA_SUCCESS || charge_gone(charge, key)))
        charge_freed(charge);
    else if (charge->gate)
        charge_enter(charge, key);
    else if (rc == CUDA_SUCCESS && charge->family == POINTER)
        graphs_freed();
    if (rc == CUDA_SUCCESS && charge->family == ARRAY)
        physical_array_gone((void *)(uintptr_t)key);
    charge_end(charge);
    return rc;
}

void charge_context(struct gate *gate, uint64_t bytes)
{
    struct gate_mark *mark;
    ledger_context(charge_get(gate, &mark), bytes);
    charge_put(mark);
}

void charge_context_gone(struct gate *gate, unsigned owner)
{
    struct allocs_gone gone = {0};
    if (gate) {
        allocs_take_owner(owner, &gone);
        handles_take_owner(owner, &gone);
    }
    physical_context_gone(owner);
    if (gone.paged)
        charge_count_paged(gate, -(int64_t)gone.paged);
    if (gone.bytes)
        charge_give_back(gate, gone.bytes);
    if (gone.exported)
        charge_exported(gate, -(int64_t)gone.exported, true);
    pools_context_gone();
}

static uint64_t charge_pitch_bytes(uint64_t width, uint64_t height)
{
    uint64_t bytes, pitch = (width + CHARGE_PITCH - 1) / CHARGE_PITCH * CHARGE_PITCH;
    return __builtin_mul_overflow(pitch, height, &bytes) || pitch < width ? UINT64_MAX / 2 : bytes;
}

/* What is no element size is for the driver to refuse. */
static enum charge_family charge_pitch_family(unsigned int element)
{
    return element == 4 || element == 8 || element == 16 ? PLAIN : POINTER;
}

/* The reservation becomes what the driver really took. */
static bool charge_adjust(struct charge *charge, uint64_t bytes)
{
    struct charge more = {0};
    if (!charge->gate)
        return true;
    bytes = charge_round(bytes);
    if (bytes > charge->item.bytes &&
        !charge_reserve_on(&more, charge->gate, bytes - charge->item.bytes, bytes))
        return false;
    if (bytes < charge->item.bytes)
        charge_give_back(charge->gate, charge->item.bytes - bytes);
    charge->item.bytes = bytes;
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
    if (!charge_reserve(&charge, charge_pitch_family(element), charge_pitch_bytes(width, height)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t got_pitch = 0;
    do
        rc = charge_paged(&charge)
                 ? oversubscribe_pitch(&got, &got_pitch, width, height)
                 : real.cuMemAllocPitch_v2(&got, &got_pitch, width, height, element);
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
    if (!charge_reserve(&charge, POINTER, charge_pitch_bytes(width, height)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = real.cuMemAllocPitch(pointer, pitch, width, height, element);
    return charge_settle(&charge, rc, rc == CUDA_SUCCESS ? *pointer : 0);
}
