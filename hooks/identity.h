/*
 * identity: which tenant this process belongs to, said in one place for clients and for processes
 * that only ask.
 */
#ifndef CUSLICE_HOOKS_IDENTITY_H
#define CUSLICE_HOOKS_IDENTITY_H

#include <stdbool.h>

#include "config.h"
#include "tenant.h"

/* The key that this process shares with others: given by name, else its PID namespace when that is
 * not the host's. False when it shares none: a client is then a tenant by itself. */
bool identity_key(const struct config *config, char key[CUSLICE_TEXT]);

/* Who a client is and what it asks for, all but its caps. */
void identity_describe(struct tenant_spec *spec, const struct config *config);

#endif
