/*
 * Waiting for the device: a short look, then a futex sleep with a time limit, after which the
 * device itself is looked at. No lock is held here. Any thread.
 */
#include "core.h"

enum { SPINS = 200 };
#define RECHECK UINT64_C(100000000)

bool wait_word(const _Atomic uint64_t *word, uint64_t value, _Atomic uint32_t *waiters, bool spin)
{
    const _Atomic uint32_t *low = (const _Atomic uint32_t *)(const void *)word;
    bool lives = true;
    uint64_t seen;

    for (unsigned i = 0; spin && i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            return true;
        util_pause();
    }
    atomic_fetch_add(waiters, 1);
    atomic_fetch_add(&sim.arena->sleepers, 1);
    if (atomic_load(&sim.board->sleeping) == 2)
        bell_ring(0);
    while ((seen = atomic_load(word)) < value && lives) {
        util_futex_wait(low, (uint32_t)seen, RECHECK);
        if (atomic_load(word) == seen)
            lives = start_device_lives();
    }
    atomic_fetch_sub(&sim.arena->sleepers, 1);
    atomic_fetch_sub(waiters, 1);
    return seen >= value || atomic_load(word) >= value;
}

bool wait_stream(const struct stream *stream, uint64_t seq)
{
    bool spin = !(stream->context->flags & CU_CTX_SCHED_BLOCKING_SYNC);

    return wait_word(&stream->shared->completed, seq, &stream->shared->waiters, spin);
}

CUresult stream_wait(struct stream *stream, uint64_t seq)
{
    if (!wait_stream(stream, seq))
        return START_DEVICE_GONE;
    return context_error(stream->context);
}
