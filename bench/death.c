/* death DIR CPU CPU COUNT MIB: how long the death of a holder takes to reach who waits for it.
 *
 * COUNT times, each way in turn: a process of MIB resident MiB, asleep on the first CPU, holds
 * something; another waits for it on the second CPU; the first is killed. A sample is the time from
 * just before the kill to just after the other has it. Ways:
 *
 *   ring    the token of the product's own ring, claimed; the holder has a thread that the kernel
 *           tells of, as a client's keeper is
 *   looks   the same without such a thread: the waiter looks from time to time
 *   lock    the lock that tells the ring's living from its dead, kept by a mapping as there; the
 *           waiter is blocked in the kernel
 *   robust  a robust futex; the waiter sleeps on the word
 *
 * Prints `WAY NS` for each. Knows no CUDA.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "futex.h"
#include "mapfile.h"
#include "notice.h"
#include "place.h"
#include "ring.h"
#include "watch.h"

#define DEATH_WAIT_NS (10 * CLOCK_S)
/* Until the waiter sleeps; and where in the period of looks the kill comes is spread over one. */
#define DEATH_SETTLE_NS (3 * CLOCK_MS)

enum death_way { DEATH_RING, DEATH_LOOKS, DEATH_LOCK, DEATH_ROBUST, DEATH_WAYS };

static const char *const death_names[DEATH_WAYS] = {"ring", "looks", "lock", "robust"};

struct death_shared {
    _Atomic uint32_t word;  /* the robust futex */
    _Atomic uint32_t ready; /* 1: the holder has it; 2: the waiter is about to wait */
    _Atomic uint64_t got_ns;
};

struct death {
    struct death_shared *shared;
    const char *directory;
    char lock[4096]; /* the file with the lock */
    unsigned cpu[2];
    size_t bytes;
    enum death_way way;
    struct ring ring;
};

static void death_join(struct death *d, const char *name)
{
    struct segment_spec device = {.uuid = {1},
                                  .device_name = "bench",
                                  .device_bytes = 1 << 30,
                                  .quantum_ns = 10 * CLOCK_S,
                                  .allowance_ns = CLOCK_S};
    struct tenant_spec tenant = {
        .weight = 100, .priority = CUSLICE_NORMAL, .mem_limit = CUSLICE_NO_LIMIT};
    snprintf(tenant.key, sizeof tenant.key, "%s", name);
    snprintf(tenant.display, sizeof tenant.display, "%s", name);
    int rc = ring_join(&d->ring, d->directory, &device, &tenant);
    if (rc < 0)
        place_fail("death", "ring_join", -rc);
}

static void death_take(struct death *d)
{
    struct watch watch = {0};
    uint64_t token, end = clock_after(DEATH_WAIT_NS);
    for (;;) {
        uint32_t news = ring_news(&d->ring);
        ring_want(&d->ring);
        if (ring_look(&d->ring, &token) == 1)
            break;
        ring_wait(&d->ring, news, &watch, end);
        if (clock_now() > end)
            place_fail("death", "the token", ETIMEDOUT);
    }
    ring_claim(&d->ring, token);
    ring_arm(&d->ring, token, true);
}

static int death_open(const struct death *d)
{
    int fd = open(d->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        place_fail("death", d->lock, errno);
    return fd;
}

/* ---- The holder ---------------------------------------------------------------------------------
 */

static void death_hold_lock(const struct death *d)
{
    int fd = death_open(d);
    if (mapfile_lock(fd, 0) < 0 || !mapfile_map(fd, 4096, NULL))
        place_fail("death", "the lock", EAGAIN);
    close(fd);
}

static void death_hold_robust(const struct death *d)
{
    static struct robust_list_head head;
    static struct robust_list node;
    head.list.next = &node;
    node.next = &head.list;
    head.futex_offset = (char *)&d->shared->word - (char *)&node;
    atomic_store(&d->shared->word, (uint32_t)syscall(SYS_gettid) | FUTEX_WAITERS);
    if (syscall(SYS_set_robust_list, &head, sizeof head) != 0)
        place_fail("death", "set_robust_list", errno);
}

static void *death_keeper(void *arg)
{
    struct death *d = arg;
    if (d->way == DEATH_RING) {
        int rc = notice_begin();
        if (rc < 0)
            place_fail("death", "notice_begin", -rc);
        notice_add(&d->ring);
    }
    if (d->way == DEATH_ROBUST)
        death_hold_robust(d);
    atomic_store(&d->shared->ready, 1);
    for (;;)
        pause();
    return NULL;
}

static void death_holder(struct death *d)
{
    pthread_t keeper;
    char *memory = d->bytes ? malloc(d->bytes) : NULL;
    place_pin("death", d->cpu[0]);
    if (d->bytes && !memory)
        place_fail("death", "memory", ENOMEM);
    for (size_t i = 0; i < d->bytes; i += 4096)
        ((volatile char *)memory)[i] = 1;
    if (d->way == DEATH_RING || d->way == DEATH_LOOKS) {
        death_join(d, "holder");
        death_take(d);
    }
    if (d->way == DEATH_LOCK)
        death_hold_lock(d);
    int rc = pthread_create(&keeper, NULL, death_keeper, d);
    if (rc != 0)
        place_fail("death", "pthread_create", rc);
    for (;;)
        pause();
}

/* ---- The waiter ---------------------------------------------------------------------------------
 */

static void death_await_lock(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(fd, F_OFD_SETLKW, &lock) != 0)
        place_fail("death", "F_OFD_SETLKW", errno);
}

static void death_await_robust(const struct death *d)
{
    uint64_t end = clock_after(DEATH_WAIT_NS);
    for (uint32_t seen; !((seen = atomic_load(&d->shared->word)) & FUTEX_OWNER_DIED);) {
        futex_wait(&d->shared->word, seen, end);
        if (clock_now() > end)
            place_fail("death", "the robust futex", ETIMEDOUT);
    }
}

static void death_waiter(struct death *d)
{
    bool ring = d->way == DEATH_RING || d->way == DEATH_LOOKS;
    int fd = death_open(d);
    place_pin("death", d->cpu[1]);
    if (ring)
        death_join(d, "waiter");
    atomic_store(&d->shared->ready, 2);
    if (ring)
        death_take(d);
    else if (d->way == DEATH_LOCK)
        death_await_lock(fd);
    else
        death_await_robust(d);
    atomic_store(&d->shared->got_ns, clock_now());
    if (ring)
        ring_leave(&d->ring);
}

/* ---- Both ---------------------------------------------------------------------------------------
 */

static void death_sleep(uint64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};
    nanosleep(&t, NULL);
}

static void death_await_ready(const struct death *d, uint32_t value)
{
    for (uint64_t end = clock_after(DEATH_WAIT_NS); atomic_load(&d->shared->ready) != value;) {
        death_sleep(CLOCK_MS / 10);
        if (clock_now() > end)
            place_fail("death", "the other process", ETIMEDOUT);
    }
}

static pid_t death_start(struct death *d, void body(struct death *), uint32_t ready)
{
    pid_t child = fork();
    if (child < 0)
        place_fail("death", "fork", errno);
    if (child == 0) {
        body(d);
        _exit(0);
    }
    death_await_ready(d, ready);
    return child;
}

static uint64_t death_once(struct death *d, enum death_way way, uint64_t phase_ns)
{
    int status;
    d->way = way;
    atomic_store(&d->shared->ready, 0);
    pid_t holder = death_start(d, death_holder, 1);
    pid_t waiter = death_start(d, death_waiter, 2);
    death_sleep(DEATH_SETTLE_NS + phase_ns);
    uint64_t killed = clock_now();
    kill(holder, SIGKILL);
    if (waitpid(waiter, &status, 0) != waiter || status != 0)
        place_fail("death", "the waiter", ECHILD);
    if (waitpid(holder, &status, 0) != holder || !WIFSIGNALED(status))
        place_fail("death", "the holder", ECHILD);
    return atomic_load(&d->shared->got_ns) - killed;
}

int main(int count, char **words)
{
    static struct death d;
    int times = count == 6 ? atoi(words[4]) : 0;
    if (times < 1) {
        fprintf(stderr, "usage: death DIR CPU CPU COUNT MIB\n");
        return 2;
    }
    d.directory = words[1];
    d.cpu[0] = (unsigned)atoi(words[2]);
    d.cpu[1] = (unsigned)atoi(words[3]);
    d.bytes = (size_t)atoi(words[5]) << 20;
    snprintf(d.lock, sizeof d.lock, "%s/lock", words[1]);
    d.shared =
        mmap(NULL, sizeof *d.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (d.shared == MAP_FAILED)
        place_fail("death", "mmap", errno);
    clock_init();
    for (int n = 0; n < times; n++)
        for (enum death_way way = 0; way < DEATH_WAYS; way++) {
            uint64_t phase = WATCH_NS * (unsigned)n / (unsigned)times;
            printf("%s %llu\n", death_names[way], (unsigned long long)death_once(&d, way, phase));
            fflush(stdout);
        }
    return 0;
}
