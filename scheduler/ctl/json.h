/* What the tool prints as JSON: snapshots of rings with stable keys, units in the names. The keys
 * are listed in `cuslice status --help`; numbers are JSON numbers, what is not known is null. */
#ifndef CUSLICE_CTL_JSON_H
#define CUSLICE_CTL_JSON_H

#include <cjson/cJSON.h>

#include "status.h"

/* Makes an object of a snapshot, the index-th ring of its directory; NULL when memory runs out. The
 * caller owns it. */
cJSON *json_ring(const struct status_ring *ring, unsigned index);

/* Prints root on standard output and frees it; CTL_OK, or CTL_FAILED (said) without memory. */
int json_print(cJSON *root);

#endif
