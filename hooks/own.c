/*
 * own: who may make driver calls on cuslice's account (see own.h). Any thread; never on the fast
 * way. Holds no lock but guest.driver_lock and calls no driver.
 */
#include "own.h"

#include "gate.h"

__thread uintptr_t own_since;

void own_take_at(uintptr_t here)
{
    if (own_since == 0)
        lock_take(&guest.driver_lock);
    if (own_since < here)
        own_since = here;
}

bool own_try_at(uintptr_t here)
{
    if (own_since > here || (own_since == 0 && !lock_try(&guest.driver_lock)))
        return false;
    own_since = here;
    return true;
}

void own_put_at(uintptr_t here)
{
    if (own_since == here) /* else a handler's, within another section, or one that it put back */
        own_left_slow();
}

void own_left_slow(void)
{
    own_since = 0;
    lock_put(&guest.driver_lock);
}
