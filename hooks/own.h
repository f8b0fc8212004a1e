/*
 * own: guest.driver_lock, under which cuslice makes driver calls of its own that a dying context or
 * a capture that begins would upset. Any thread. A program's signal handler may jump out of such a
 * call (siglongjmp): the lock then stays taken, and everybody else waits for it, until the thread
 * comes here again and is seen to be no longer in it, by its place on the stack (as with the marks,
 * gate.h). Sections are short of the keeper's only, and never within one another.
 */
#ifndef CUSLICE_HOOKS_OWN_H
#define CUSLICE_HOOKS_OWN_H

#include <stdbool.h>
#include <stdint.h>

/* Where on the stack the calling thread took the lock, 0 = it has not. */
extern __thread uintptr_t own_since;

void own_take_at(uintptr_t here);
bool own_try_at(uintptr_t here);
void own_put_at(uintptr_t here);
void own_left_slow(void);

/* Takes the lock, and waits for it. A handler that takes it within its own thread's section goes on
 * in that, since nobody could end it. */
#define own_take() own_take_at((uintptr_t)__builtin_frame_address(0))

/* Takes it if it is free; true when taken. A handler within its own thread's section gets none. */
#define own_try() own_try_at((uintptr_t)__builtin_frame_address(0))

/* Puts it back; from the function that took it. */
#define own_put() own_put_at((uintptr_t)__builtin_frame_address(0))

/* A submission begins, at `here` on the stack: puts back what one before it was torn out of. */
static inline void own_left(uintptr_t here)
{
    if (__builtin_expect(own_since != 0, 0) && own_since <= here)
        own_left_slow();
}

#endif
