/* What `cuslice status` says of memory: a table of tenants, each with its processes, and the last
 * refusals. One thread. */
#ifndef CUSLICE_CTL_MEMORY_H
#define CUSLICE_CTL_MEMORY_H

#include "status.h"

#define MEMORY_NAME 24

/* Prints the tenants that have processes or hold bytes; all of them when `all`. */
void memory_print(const struct status_ring *ring, bool all);

/* The tenant's name for people, its middle left out when it is long; returns text. */
char *memory_name(char text[MEMORY_NAME], const struct status_tenant *tenant);

#endif
