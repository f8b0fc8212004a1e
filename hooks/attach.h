/*
 * attach: how a process becomes a client. The whole order of initialisation is in attach.c; nothing
 * of ours runs in a process before its cuInit has succeeded.
 */
#ifndef CUSLICE_HOOKS_ATTACH_H
#define CUSLICE_HOOKS_ATTACH_H

#include "driver.h"

struct gate;

/* cuInit: the driver's own, then settings, rings, keeper. */
CUresult attach_init(unsigned int flags);

/* Moves one device's gate and books to the ring that its path names now; 0 or -errno. Keeper only.
 */
int attach_move(struct gate *gate);

/* Joins the gang that the settings name, with one device's gate, unless it has; a failure is said,
 * and the device takes its turns alone. */
void attach_gang(struct gate *gate);

/* A thread has a context of this device current. */
void attach_used(struct gate *gate);

#endif
