/*
 * guard: who is told of whose death. Every client is guarded by two others, those before it in the
 * order of slots: their keepers sleep on its death word (notice.h) and clear up after it. What is
 * written here holds for kernels with futex_waitv and robust lists; elsewhere nobody guards, and
 * looks find the dead (ring.c). guard.c has how.
 */
#ifndef CUSLICE_SCHEDULER_GUARD_H
#define CUSLICE_SCHEDULER_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "futex.h"
#include "ring.h"

/* Death words that one client sleeps on at most. */
#define GUARD_WORDS 6u

/* What a keeper remembers between two looks. Zero-initialised. */
struct guard {
    uint64_t said;    /* those that are said to be dead, in one number; 0: none */
    uint64_t said_ns; /* since when it is just these */
    uint64_t next_ns; /* not before then are their locks looked at again */
    uint64_t lapsed;  /* guards in between that are awake no longer, in one number; 0: none */
};

/* The words to sleep on, to be read before a look: what changes from then on ends the sleep. How
 * many. */
unsigned guard_words(const struct ring *ring, struct futex_watch word[GUARD_WORDS]);

/* For who was woken by `word`, one of those: the kernel wakes one sleeper, who wakes the others. */
void guard_pass_on(const struct futex_watch *word);

/* One look at those guarded, by their notices; reaps who is dead. When the next one is due without
 * another notice; CLOCK_NEVER. Takes system calls only after a notice. */
uint64_t guard_look(struct ring *ring, struct guard *guard);

/* This client's keeper sleeps on such words (from now on), or cannot. */
void guard_say(struct ring *ring, bool able);

/* Whether this client's keeper said so lately, and its own death would be told of: else it might
 * die with the one that it guards. */
bool guard_awake(const struct cuslice_slot *s, uint64_t now);

/* This client's death word has its value: those who are to guard it are called, to take note. */
void guard_begin(const struct ring *ring);

/* Whether clients that are awake guard `slot`, as many as there should be. */
bool guard_has(const struct ring *ring, unsigned slot);

#endif
