/*
 * notice: the kernel's word of a client's death, for those who wait for the holder. One word per
 * slot, which its owner alone writes and the kernel marks when it ends the owner. A notice is a
 * hint: who has one looks at the lock, which decides (slot.h).
 */
#ifndef CUSLICE_SCHEDULER_NOTICE_H
#define CUSLICE_SCHEDULER_NOTICE_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "futex.h"
#include "ring.h"

/* The first looks at the lock of one that is said to be dead are so far apart, later ones by this
 * part of the time since. */
#define NOTICE_FIRST_NS UINT64_C(20000)
#define NOTICE_SHARE 4

/* Makes the calling thread the one whose end the kernel tells of, for this process; once, and by a
 * thread that lives as long as the process means to hold turns. 0 or -errno (a seccomp filter, say:
 * then the process's death is found by looks alone). */
int notice_begin(void);

/* From here on this client's waiters are told; until it is dropped. Both by the thread that began,
 * which drops all before it ends. Nothing happens where it could not begin. */
void notice_add(struct ring *ring);
void notice_drop(struct ring *ring);

/* Whether the slot's owner has been said to be dead. */
static inline bool notice_given(const struct cuslice_slot *slot)
{
    return atomic_load(&slot->death) == (FUTEX_WAITERS | FUTEX_OWNER_DIED);
}

/* Fills in the word to sleep on for a notice of this slot; false when none is to come. */
static inline bool notice_word(const struct cuslice_slot *slot, struct futex_watch *watch)
{
    uint32_t seen = atomic_load(&slot->death);
    *watch = (struct futex_watch){&slot->death, seen, false};
    return (seen & FUTEX_WAITERS) && !(seen & FUTEX_OWNER_DIED);
}

/* How long until the lock of one that was said to be dead `since_ns` ago is looked at again,
 * `most_ns` at most: it falls when the kernel has taken the process apart, so a look comes not much
 * later. */
static inline uint64_t notice_period(uint64_t since_ns, uint64_t most_ns)
{
    uint64_t period = since_ns / NOTICE_SHARE;
    return period < NOTICE_FIRST_NS ? NOTICE_FIRST_NS : period < most_ns ? period : most_ns;
}

/* Says it again where a damaged file has lost it. */
static inline void notice_heal(struct ring *ring)
{
    uint32_t value = atomic_load_explicit(&ring->notice, memory_order_relaxed);
    if (value && atomic_load_explicit(&ring_me(ring)->death, memory_order_relaxed) != value)
        atomic_store(&ring_me(ring)->death, value);
}

#endif
