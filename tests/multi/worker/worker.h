/*
 * The worker: a plain CUDA driver program that does what it is told on standard input, one command
 * a line, and answers each with one line. It knows the CUDA driver API and nothing else; the tests
 * start it bare or under a preload. farm.py is the other side.
 *
 * A line `T command words...` runs in thread T (0 is the main one; others are started when first
 * named and have the context current), and is answered by `T answer...`. Commands of one thread run
 * in order. Driver calls answer with their result as a number.
 */
#ifndef TESTS_WORKER_H
#define TESTS_WORKER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS 1000000ull

/* The driver's functions, as found through the door that the program was started with. */
struct calls {
#define CALL(name) __typeof__(name) *name;
#include "calls.def"
};
extern struct calls cu;

/* Fills `cu`: before anything else. `door`: linked, handle, default, next, proc, proc1, old. False,
 * with one line on stderr, when it does not open. */
bool calls_find(const char *door);
bool calls_find_linked(const char *door);

#define JOB_WORDS 16

/* One command and its answer. */
struct job {
    int count;
    char *word[JOB_WORDS];
    char answer[16384];
};

void job_answer(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A word as a number; `otherwise` when it is missing. */
uint64_t job_number(const struct job *job, int index, uint64_t otherwise);
const char *job_text(const struct job *job, int index, const char *otherwise);

/* What the whole process has opened. */
struct worker {
    CUdevice device;
    CUcontext context;
    CUfunction noop, spin, wait, add, fault;
    CUstream stream[8]; /* 0: the default stream; the others are made when first named */
    volatile uint32_t *flag;
    CUdeviceptr flag_device;
    uint32_t flag_value;
    CUdeviceptr pad;  /* scratch for memsets and copies */
    CUarray array[2]; /* the same, for copies of arrays */
    CUgraph recorded;
    CUgraphExec graph;
};
extern struct worker worker;

#define PAD_BYTES ((size_t)1 << 16)

uint64_t worker_now(void);
void worker_sleep(uint64_t ns);
/* The stream with this number: 0 is NULL, 4 to 7 are non-blocking ones, 8 and 9 the named ones. */
#define WORKER_LEGACY 8
#define WORKER_PER_THREAD 9
CUstream worker_stream(uint64_t number);
/* Runs one command; the answer is in the job. */
void worker_run(struct job *job);
CUresult worker_open(int ordinal);
/* Loads the kernels into the current context. */
CUresult worker_load(void);
CUresult worker_spin(CUstream stream, uint64_t ns);

struct command {
    const char *name;
    void (*run)(struct job *job);
};
extern const struct command commands_launch[];
extern const struct command commands_memory[];
extern const struct command commands_contexts[];
extern const struct command commands_capture[];
extern const struct command commands_handles[];
extern const struct command commands_process[];
extern const struct command commands_share[];

#endif
