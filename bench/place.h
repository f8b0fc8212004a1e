/* place: what the benchmarks' programs without CUDA share: how one of them ends when it cannot
 * measure, and the CPU that it runs on. Called by any of their processes.
 */
#ifndef CUSLICE_BENCH_PLACE_H
#define CUSLICE_BENCH_PLACE_H

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void place_fail(const char *program, const char *what, int error)
{
    fprintf(stderr, "%s: %s: %s\n", program, what, strerror(error));
    exit(1);
}

static inline void place_pin(const char *program, unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        place_fail(program, "sched_setaffinity", errno);
}

#endif
