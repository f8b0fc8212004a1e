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
 * and the device takes its turns alone. Then the keeper looks anew: it has another word to watch;
 * or else the threads that wait do, and ask for themselves. Any thread may call it. */
void attach_gang(struct gate *gate);

/* A thread has a context of this device current: at the first such word it joins the device's gang
 * by itself, so that the others know of the device before work is submitted that they may wait for.
 * The last of these contexts has gone, and no other is being noted: the keeper is told. */
void attach_used(struct gate *gate);
void attach_unused(struct gate *gate);

/* Leaves the gang with a device that is still not used. Keeper only. */
void attach_ungang(struct gate *gate);

#endif
