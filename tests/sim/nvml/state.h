/*
 * What this library knows: how many devices there are and what the device process says of them
 * right now. Asking never starts a device; where none runs the configured ones are reported as
 * idle.
 */
#ifndef SIM_NVML_STATE_H
#define SIM_NVML_STATE_H

#include "layout.h"
#include "nvml_abi.h"

struct state {
    struct status status;
    struct status_client *clients; /* status.clients of them, freed by state_put */
};

/* Devices as configured, or as the running device process has them. */
unsigned state_devices(void);

/* Asks the device process. NVML_ERROR_UNINITIALIZED before nvmlInit. The caller gives the answer
 * back with state_put. Blocks for two seconds at most. */
nvmlReturn_t state_get(struct state *state);
void state_put(struct state *state);

/* One device of it; GPU_IS_LOST when it fell off the bus. */
nvmlReturn_t state_get_device(nvmlDevice_t device, struct state *state, unsigned *index);

/* nvmlInit and nvmlShutdown count. */
nvmlReturn_t state_open(void);
nvmlReturn_t state_close(void);
nvmlReturn_t state_check(void);

nvmlDevice_t state_handle(unsigned index);
nvmlReturn_t state_index(nvmlDevice_t device, unsigned *index);

#endif
