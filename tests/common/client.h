/* What every CUDA client program of the tests shares: checks, a clock, the test kernels, children.
 *
 * Owns one struct client per process (device 0, its primary context, the module of
 * tests/kernels/kernels.ptx). Runs in whatever thread the program calls it from. Knows the CUDA
 * driver API alone: it must never include or name anything of cuslice, so that the same program
 * runs bare, under the preload, on the simulated driver and on hardware.
 *
 * A program ends by client_pass (0), client_fail (1) or client_skip (77), each of which prints one
 * line. A failing program first raises every flag it made, so that no kernel spins on for ever.
 */
#ifndef TESTS_CLIENT_H
#define TESTS_CLIENT_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define FOR_EVER UINT64_MAX

/* How long a test waits for something that should come at once, on a busy machine. */
#define SOON (10 * SECOND)
/* How long a test watches that something does not come. */
#define WHILE (200 * MS)

#define CHECK_CU(call) client_expect((call), CUDA_SUCCESS, #call, __FILE__, __LINE__)
#define EXPECT_CU(call, error) client_expect((call), (error), #call, __FILE__, __LINE__)
#define CHECK(condition, ...) \
    do { \
        if (!(condition)) \
            client_fail_at(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)

/* The kernels of tests/kernels/kernels.ptx, by name. */
struct client {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction noop;
    CUfunction spin;
    CUfunction wait;
    CUfunction set;
    CUfunction add;
    CUfunction fill;
    CUfunction fault;
};

/* A word in pinned host memory, as both sides see it. */
struct flag {
    volatile uint32_t *host;
    CUdeviceptr device;
};

/* A forked process and the two pipes to it. */
struct child {
    pid_t pid;
    int to;
    int from;
};

/* --- ends and checks: any thread --- */
void client_expect(CUresult got, CUresult wanted, const char *call, const char *file, int line);
void client_fail_at(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));
void client_pass(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void client_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
const char *client_error_name(CUresult error);

/* --- time, in nanoseconds of CLOCK_MONOTONIC --- */
uint64_t client_now(void);
void client_sleep(uint64_t ns);

/* A setting of the simulated device for this program, before CUDA is initialised; one that is in
 * the environment already stays. Means nothing on hardware. */
void client_setting(const char *name, const char *value);

/* Initialises CUDA, makes the primary context of device 0 current and loads the kernels; skips the
 * program where there is no device. */
void client_open(struct client *c);
/* Initialises CUDA and finds device 0, no more. */
void client_init(struct client *c);
/* Loads the kernels into the current context. */
void client_load(struct client *c);
/* Makes the client's context current in a further thread. */
void client_adopt(const struct client *c);
/* Loads the sm_90 kernel pdl_spin_ns, or skips the program on an older device. */
CUfunction client_load_pdl(const struct client *c);

/* Finds a driver entry point by its exported name, NULL where the driver lacks it; for calls newer
 * than the oldest driver the program should run on. */
void *client_symbol(const char *name);
int client_attribute(const struct client *c, CUdevice_attribute attribute);
/* What the simulated device has handed out to this process on a device: memory that calls asked
 * for, and what contexts cost besides. On hardware there is no such figure: the program skips. */
struct handed_out {
    unsigned long long memory, context;
    unsigned long long used, orphaned; /* of the whole device */
};
struct handed_out client_handed_out(int device);
/* Where the simulated device writes what ran when, NULL on hardware. */
const char *client_trace(void);

/* --- launches of one thread block, in stream order --- */
void client_noop(const struct client *c, CUstream stream);
void client_spin(const struct client *c, CUstream stream, uint64_t ns);
void client_wait(const struct client *c, CUstream stream, CUdeviceptr flag, uint32_t value);
void client_set(const struct client *c, CUstream stream, CUdeviceptr word, uint32_t value);
void client_add(const struct client *c, CUstream stream, CUdeviceptr word, uint32_t value);
void client_fill(const struct client *c, CUstream stream, CUdeviceptr to, uint32_t value,
                 uint64_t count);
/* Launches spin with so many threads that no second such kernel fits on the device beside it. */
void client_spin_wide(const struct client *c, CUstream stream, uint64_t ns);

/* --- shorthands --- */
CUstream client_stream(unsigned flags);
CUevent client_event(unsigned flags);
/* An event recorded in the stream now. */
CUevent client_mark(CUstream stream);
CUdeviceptr client_alloc(size_t bytes);
/* What is free on the device, as the driver says. */
size_t client_free_bytes(void);
/* Pinned, zeroed, mapped host memory. */
void *client_pinned(size_t bytes, CUdeviceptr *device);
struct flag client_flag(void);
void client_raise(const struct flag *flag, uint32_t value);
double client_elapsed_ms(CUevent start, CUevent end);

/* Whether the event, the stream or the word comes to be done within ns; polls. */
bool client_event_within(CUevent event, uint64_t ns);
bool client_stream_within(CUstream stream, uint64_t ns);
bool client_word_within(const volatile uint32_t *word, uint32_t value, uint64_t ns);

/* Runs body in a further thread, which calls client_adopt first if it wants the context. */
pthread_t client_thread(void *(*body)(void *), void *arg);
void client_thread_join(pthread_t thread);

/* Forks a process that runs body and exits with what it returns; before CUDA is initialised, since
 * the child of a process that did cannot use it. */
struct child client_fork(int (*body)(struct child *parent, void *arg), void *arg);
/* One word to and from the other side; hearing fails the program when the other side is gone or
 * silent for SOON. */
void client_tell(const struct child *other, uint64_t word);
uint64_t client_hear(const struct child *other);
/* Waits for the child's end; its wait status. */
int client_join(const struct child *child);
/* Joins and fails this program unless the child passed; skips it when the child skipped. */
void client_join_passed(const struct child *child);

#endif
