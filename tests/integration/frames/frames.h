/* What frames_client.c and the launches of its driver agree on. */
#ifndef TESTS_FRAMES_H
#define TESTS_FRAMES_H

/* Grid, block and shared bytes: so many numbers from the first one on. */
#define FRAMES_SHAPE 7u
#define FRAMES_FIRST 0x80000001u

/* extra[0], called with extra[1] in the middle of a cuLaunchKernel. */
typedef void frames_callback(void *arg);

#endif
