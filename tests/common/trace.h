/* Reads the simulated device's trace: what ran when, for whom (format: tests/sim/README.md).
 *
 * For programs that check the device itself, or a library in front of it, against the device's own
 * word. There is no trace on hardware: trace_open skips the program there.
 */
#ifndef TESTS_TRACE_H
#define TESTS_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* One uninterrupted stretch of execution. */
struct trace_run {
    uint64_t start;
    uint64_t end;
    uint64_t submit;
    uint64_t seq;
    int pid;
    int context;
    int stream;
    int piece;
    bool last;
    char kind[16];
    char name[64];
};

/* One event of a client: join, leave, dead, torndown. */
struct trace_event {
    uint64_t time;
    int pid;
    char what[16];
};

/* Opens the trace, or skips the program where there is none. */
FILE *trace_open(void);
/* The next record of that kind, going past the others; false at the (present) end of the file. */
bool trace_next_run(FILE *trace, struct trace_run *run);
bool trace_next_event(FILE *trace, struct trace_event *event);
/* Collects the runs of a process, by name, in the order of the trace, until there are `wanted`
 * finished ones (last piece); fails the program when they do not come. Returns how many stretches
 * there were. */
unsigned trace_collect(FILE *trace, int pid, const char *name, unsigned wanted,
                       struct trace_run *runs, unsigned room);
/* When the event happened to the process; fails the program when it does not come within 10 s. */
uint64_t trace_await(FILE *trace, int pid, const char *what);

#endif
