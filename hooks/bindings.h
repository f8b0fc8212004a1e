/*
 * bindings: the words through which loaded objects call the driver's functions. Objects loaded with
 * RTLD_DEEPBIND and linked with the driver are bound to the driver itself; these are bound to the
 * hooks instead.
 */
#ifndef CUSLICE_HOOKS_BINDINGS_H
#define CUSLICE_HOOKS_BINDINGS_H

#include <stdbool.h>

/* Looks through every loaded object; for after a load with RTLD_DEEPBIND, when the driver is
 * there. Any thread; takes the loader's lock, allocates nothing. */
void bindings_redirect(void);

#endif
