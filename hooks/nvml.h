/*
 * nvml: stands in front of libnvidia-ml.so.1, so that what it says of a device's memory is what
 * programs under a cap see. nvml.def has the functions. A process that only asks joins nothing.
 */
#ifndef CUSLICE_HOOKS_NVML_H
#define CUSLICE_HOOKS_NVML_H

#include <stdbool.h>

#include "nvml_abi.h"
#include "pairs.h"

#pragma GCC visibility push(default)
#define MASK(name, mask, ...) nvmlReturn_t name(PAIRS_DECLARE(__VA_ARGS__));
#include "nvml.def"
#pragma GCC visibility pop

/* The library's own functions; stand-ins that fail until nvml_load, and for what it lacks. */
struct nvml_real {
#define MASK(name, mask, ...) nvmlReturn_t (*name)(PAIRS_DECLARE(__VA_ARGS__));
#define USE(name, ...) nvmlReturn_t (*name)(PAIRS_DECLARE(__VA_ARGS__));
#include "nvml.def"
};
extern struct nvml_real nvml_real;

/* Whether the library is there; it is never loaded on a program's behalf. Blocking the first time.
 */
bool nvml_load(void);

#endif
