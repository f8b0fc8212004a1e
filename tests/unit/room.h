/*
 * room: what the tests of scheduler/ share: a ring directory of the test's own, clients that join
 * it from this process or from children, and a clock that stands still. Several struct ring in one
 * process are clients like any others, since each has an open file description of its own;
 * room_die() ends one without a word, as a kill does.
 */
#ifndef ROOM_H
#define ROOM_H

#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "clock.h"
#include "ring.h"
#include "slot.h"
#include "watch.h"

#define ROOM_MIB (UINT64_C(1) << 20)

static char room_path[64];
static pid_t room_owner;
static _Atomic uint64_t room_time;

static const struct segment_spec room_device = {
    .uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
    .device_name = "Test Device",
    .device_bytes = UINT64_C(80) << 30,
    .quantum_ns = 20 * CLOCK_MS,
    .allowance_ns = 100 * CLOCK_MS,
};

static inline uint64_t room_clock(void)
{
    return atomic_load(&room_time);
}

/* From here on time moves only by room_pass. */
static inline void room_stop_clock(void)
{
    atomic_store(&room_time, 1000 * CLOCK_S);
    clock_fake(room_clock);
}

static inline void room_pass(uint64_t ns)
{
    atomic_fetch_add(&room_time, ns);
}

static inline void room_sleep(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / CLOCK_S), .tv_nsec = (long)(ns % CLOCK_S)};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static inline void room_close(void)
{
    DIR *dir = opendir(room_path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(room_path);
}

/* A program that gives up half-way leaves no directory; its children leave it alone. */
static inline void room_at_exit(void)
{
    if (getpid() == room_owner)
        room_close();
}

/* A new, empty ring directory. */
static inline void room_open(void)
{
    if (room_owner == 0)
        atexit(room_at_exit);
    room_owner = getpid();
    snprintf(room_path, sizeof(room_path), "%s",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm/room-XXXXXX" : "/tmp/room-XXXXXX");
    REQUIRE(mkdtemp(room_path));
}

static inline struct tenant_spec room_tenant(const char *key, uint32_t weight, uint64_t limit)
{
    struct tenant_spec spec = {
        .weight = weight, .mode = CUSLICE_ENFORCE, .priority = CUSLICE_NORMAL, .mem_limit = limit};

    snprintf(spec.key, sizeof(spec.key), "%s", key);
    snprintf(spec.display, sizeof(spec.display), "%s", key);
    return spec;
}

static inline int room_try_join(struct ring *ring, const char *key, uint32_t weight, uint64_t limit)
{
    struct tenant_spec spec = room_tenant(key, weight, limit);

    memset(ring, 0, sizeof(*ring));
    ring->process_limit = CUSLICE_NO_LIMIT;
    return ring_join(ring, room_path, &room_device, &spec);
}

static inline void room_join(struct ring *ring, const char *key, uint32_t weight)
{
    REQUIRE(room_try_join(ring, key, weight, CUSLICE_NO_LIMIT) == 0);
}

/* The client is gone and has told nobody. */
static inline void room_die(struct ring *ring)
{
    segment_close(&ring->segment);
}

/* The ring's file seen by nobody's client. */
static inline struct cuslice_segment *room_map(void)
{
    char path[SEGMENT_PATH_MAX];
    void *memory;
    int fd;

    segment_path(path, sizeof(path), room_path, room_device.uuid);
    fd = open(path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    memory = mmap(NULL, sizeof(struct cuslice_segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(memory != MAP_FAILED);
    close(fd);
    return memory;
}

static inline void room_unmap(struct cuslice_segment *shared)
{
    munmap(shared, sizeof(*shared));
}

/* Memory that children share with this process. */
static inline void *room_page(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    REQUIRE(memory != MAP_FAILED);
    return memory;
}

/* A child that runs body(arg) and exits with what it returns. */
static inline pid_t room_fork(int (*body)(void *arg), void *arg)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        int rc = body(arg);

        fflush(stdout);
        _exit(rc);
    }
    return pid;
}

/* The child's exit status; 1000 and the signal when one ended it. */
static inline int room_join_child(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0)
        REQUIRE(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Waits until the word is at least `value`; false after five seconds. */
static inline bool room_await(_Atomic(uint32_t) *word, uint32_t value)
{
    for (unsigned i = 0; i < 10000; i++) {
        if (atomic_load(word) >= value)
            return true;
        room_sleep(CLOCK_MS / 2);
    }
    return false;
}

/* A number from a small generator; the same seed gives the same ones. */
static inline uint64_t room_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Waits for the token as a thread at the gate does; false when it has not come by the deadline.
 * Real clock only. */
static inline bool room_take(struct ring *ring, uint64_t *token, uint64_t deadline_ns)
{
    struct watch watch = {0};

    while (clock_now() < deadline_ns) {
        uint32_t news = ring_news(ring);

        ring_want(ring);
        if (ring_look(ring, token) == 1) {
            ring_claim(ring, *token);
            return true;
        }
        ring_wait(ring, news, &watch, deadline_ns);
    }
    if (ring_unwant(ring, token) == 0)
        return false;
    ring_claim(ring, *token);
    return true;
}

static inline void room_on_alarm(int signal)
{
    int saved = errno;

    (void)signal;
    room_sleep(20 * CLOCK_US);
    errno = saved;
}

/* From here on this process stops for a moment every so often, between any two instructions; 0 ends
 * it. Children do not. */
static inline void room_stumble(suseconds_t every_us)
{
    struct itimerval timer = {.it_interval.tv_usec = every_us, .it_value.tv_usec = every_us};
    struct sigaction action = {.sa_handler = room_on_alarm, .sa_flags = SA_RESTART};

    if (every_us)
        sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

#endif
