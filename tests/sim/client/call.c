/*
 * Calls to the device through the arena's call slot, and its doorbell. One call at a time per
 * process; the device answers without waiting for anything, so the lock is never held for long.
 */
#include <string.h>
#include <time.h>

#include "core.h"

enum { SPINS = 400 };
#define RECHECK UINT64_C(100000000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void bell_ring(uint64_t bits)
{
    atomic_fetch_or(&sim.board->bell[sim.client], bits);
    if (atomic_load(&sim.board->sleeping) && atomic_exchange(&sim.board->sleeping, 0))
        util_futex_wake(&sim.board->sleeping, 1);
}

/* True: answered. */
static bool call_wait(struct call_slot *slot)
{
    for (unsigned i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&slot->state, memory_order_acquire) == CALL_ANSWERED)
            return true;
        util_pause();
    }
    atomic_store(&slot->waiting, 1);
    while (atomic_load(&slot->state) != CALL_ANSWERED) {
        util_futex_wait(&slot->state, CALL_ASKED, RECHECK);
        if (atomic_load(&slot->state) != CALL_ANSWERED && !start_device_lives())
            break;
    }
    atomic_store(&slot->waiting, 0);
    return atomic_load(&slot->state) == CALL_ANSWERED;
}

CUresult call_device(enum call_op op, const uint64_t *in, unsigned in_count, uint64_t *out,
                     const char *text)
{
    struct call_slot *slot = &sim.arena->call;
    CUresult result = START_DEVICE_GONE;

    pthread_mutex_lock(&lock);
    slot->op = op;
    for (unsigned i = 0; i < in_count; i++)
        slot->in[i] = in[i];
    if (text) {
        strncpy(slot->text, text, SIM_NAME - 1);
        slot->text[SIM_NAME - 1] = 0;
    }
    atomic_store(&slot->state, CALL_ASKED);
    bell_ring(SIM_BELL_CALL);
    if (call_wait(slot)) {
        result = (CUresult)slot->result;
        if (out)
            memcpy(out, slot->out, sizeof(slot->out));
    }
    atomic_store(&slot->state, CALL_IDLE);
    pthread_mutex_unlock(&lock);
    return result;
}
