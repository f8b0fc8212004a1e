/*
 * What the driver says about itself: its version and the names of its errors. Plain tables and one
 * setting; any thread, no lock.
 */
#ifndef SIM_CLIENT_NAMES_H
#define SIM_CLIENT_NAMES_H

/* Tells the driver's CUDA version (SIMCUDA_DRIVER_VERSION, else the header's CUDA_VERSION). */
int names_driver_version(void);

#endif
