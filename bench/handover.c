/* handover DIR CPU CPU ROUNDS COUNT WORK_US: how long a turn takes from one process to another.
 *
 * Two processes, each on a CPU, pass something back and forth COUNT times by the ring's token, then
 * COUNT times by a bare futex word, and so on for ROUNDS: between two passes the one that has it
 * stays busy for WORK_US while the other sleeps. A sample is the time from just before the pass to
 * just after the other's claim. Prints `ring NS` or `futex NS` for each. Knows no CUDA; the ring is
 * the product's own, without a gate in front and without a keeper behind.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "futex.h"
#include "notice.h"
#include "ring.h"

#define HANDOVER_WAIT_NS (10 * CLOCK_S)

enum handover_way { HANDOVER_RING, HANDOVER_FUTEX };

/* What the two processes share besides the ring. */
struct handover_shared {
    _Atomic uint32_t turn;      /* the bare futex word: whose turn it is, 0 or 1 */
    _Atomic uint32_t turns[2];  /* turns had since the start */
    _Atomic uint32_t phase[2];  /* phases begun */
    _Atomic uint64_t passed_ns; /* just before the last pass; 0 = there was none in this phase */
};

struct handover {
    struct handover_shared *shared;
    struct ring ring;
    unsigned me;
    unsigned cpu[2];
    unsigned rounds;
    unsigned count;
    uint64_t work_ns;
    uint64_t *sample[2];
    unsigned samples[2];
};

static void handover_fail(const char *what, int error)
{
    fprintf(stderr, "handover: %s: %s\n", what, strerror(error));
    exit(1);
}

static void handover_pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        handover_fail("sched_setaffinity", errno);
}

static void handover_join(struct handover *h, const char *directory)
{
    struct segment_spec device = {.uuid = {1},
                                  .device_name = "bench",
                                  .device_bytes = 1 << 30,
                                  .quantum_ns = 20 * CLOCK_MS,
                                  .allowance_ns = CLOCK_S};
    struct tenant_spec tenant = {
        .weight = 100, .priority = CUSLICE_NORMAL, .mem_limit = CUSLICE_NO_LIMIT};
    snprintf(tenant.key, sizeof tenant.key, "bench-%u", h->me);
    snprintf(tenant.display, sizeof tenant.display, "bench-%u", h->me);
    int rc = ring_join(&h->ring, directory, &device, &tenant);
    if (rc < 0)
        handover_fail("ring_join", -rc);
    if (notice_begin() == 0) /* what a keeper does: it must cost those who wait nothing */
        notice_add(&h->ring);
}

static void handover_note(struct handover *h, enum handover_way way)
{
    uint64_t now = clock_now(), passed = atomic_load(&h->shared->passed_ns);
    if (passed)
        h->sample[way][h->samples[way]++] = now - passed;
}

static void handover_work(const struct handover *h)
{
    for (uint64_t end = clock_after(h->work_ns); clock_now() < end;)
        ;
}

/* Both have ended the phase before. */
static void handover_meet(struct handover *h)
{
    uint32_t mine = atomic_fetch_add(&h->shared->phase[h->me], 1) + 1;
    for (uint64_t end = clock_after(HANDOVER_WAIT_NS);
         atomic_load(&h->shared->phase[!h->me]) < mine; sched_yield())
        if (clock_now() > end)
            handover_fail("the other process", ETIMEDOUT);
}

/* ---- By the ring --------------------------------------------------------------------------------
 */

static uint64_t handover_take(struct handover *h)
{
    struct ring_watch watch = {0};
    uint64_t token, end = clock_after(HANDOVER_WAIT_NS);
    for (;;) {
        uint32_t news = ring_news(&h->ring);
        ring_want(&h->ring);
        if (ring_look(&h->ring, &token) == 1)
            break;
        ring_wait(&h->ring, news, &watch, end);
        if (clock_now() > end)
            handover_fail("the token", ETIMEDOUT);
    }
    ring_claim(&h->ring, token);
    return token;
}

/* A pass with nobody waiting would be no hand-over; the other comes back while it has turns left in
 * this phase. */
static void handover_await_waiter(struct handover *h, uint32_t all_turns)
{
    uint64_t end = clock_after(HANDOVER_WAIT_NS);
    while (!ring_wanted(&h->ring) && atomic_load(&h->shared->turns[!h->me]) < all_turns) {
        if (clock_now() > end)
            handover_fail("a waiter", ETIMEDOUT);
        sched_yield();
    }
}

static void handover_turn_ring(struct handover *h, uint32_t all_turns)
{
    uint64_t token = handover_take(h);
    handover_note(h, HANDOVER_RING);
    ring_arm(&h->ring, token, true);
    handover_work(h);
    handover_await_waiter(h, all_turns);
    atomic_fetch_add(&h->shared->turns[h->me], 1);
    atomic_store(&h->shared->passed_ns, clock_now());
    int rc = ring_pass(&h->ring, &token, false);
    if (rc != 0)
        handover_fail("ring_pass", rc < 0 ? -rc : EPROTO);
}

/* ---- By a bare word -----------------------------------------------------------------------------
 */

static void handover_turn_futex(struct handover *h)
{
    uint64_t end = clock_after(HANDOVER_WAIT_NS);
    while (atomic_load(&h->shared->turn) != h->me) {
        futex_wait(&h->shared->turn, !h->me, end);
        if (clock_now() > end)
            handover_fail("the futex word", ETIMEDOUT);
    }
    handover_note(h, HANDOVER_FUTEX);
    handover_work(h);
    atomic_store(&h->shared->passed_ns, clock_now());
    atomic_store(&h->shared->turn, !h->me);
    futex_wake(&h->shared->turn, 1);
}

/* ---- Both ---------------------------------------------------------------------------------------
 */

static void handover_phase(struct handover *h, enum handover_way way, uint32_t all_turns)
{
    handover_meet(h);
    if (h->me == 0)
        atomic_store(&h->shared->passed_ns, 0);
    handover_meet(h);
    for (unsigned i = 0; i < h->count; i++) {
        if (way == HANDOVER_RING)
            handover_turn_ring(h, all_turns);
        else
            handover_turn_futex(h);
    }
}

static void handover_run(struct handover *h, const char *directory)
{
    size_t room = (size_t)h->rounds * h->count;
    h->sample[0] = calloc(room, sizeof(uint64_t));
    h->sample[1] = calloc(room, sizeof(uint64_t));
    if (!h->sample[0] || !h->sample[1])
        handover_fail("memory", ENOMEM);
    handover_pin(h->cpu[h->me]);
    handover_join(h, directory);
    for (unsigned i = 0; i < h->rounds; i++) {
        handover_phase(h, HANDOVER_RING, (i + 1) * h->count);
        handover_phase(h, HANDOVER_FUTEX, 0);
    }
    handover_meet(h);
    notice_drop(&h->ring);
    ring_leave(&h->ring);
}

static void handover_print(const struct handover *h)
{
    for (unsigned i = 0; i < h->samples[HANDOVER_RING]; i++)
        printf("ring %llu\n", (unsigned long long)h->sample[HANDOVER_RING][i]);
    for (unsigned i = 0; i < h->samples[HANDOVER_FUTEX]; i++)
        printf("futex %llu\n", (unsigned long long)h->sample[HANDOVER_FUTEX][i]);
    fflush(stdout);
}

static void handover_both(struct handover *h, const char *directory)
{
    int status = 0;
    pid_t child = fork();
    if (child < 0)
        handover_fail("fork", errno);
    h->me = child == 0;
    handover_run(h, directory);
    if (child != 0 && (waitpid(child, &status, 0) < 0 || status != 0))
        handover_fail("the other process", ECHILD);
    handover_print(h);
}

int main(int count, char **words)
{
    static struct handover h;
    if (count != 7) {
        fprintf(stderr, "usage: handover DIR CPU CPU ROUNDS COUNT WORK_US\n");
        return 2;
    }
    h.cpu[0] = (unsigned)atoi(words[2]);
    h.cpu[1] = (unsigned)atoi(words[3]);
    h.rounds = (unsigned)atoi(words[4]);
    h.count = (unsigned)atoi(words[5]);
    h.work_ns = (uint64_t)atoi(words[6]) * CLOCK_US;
    h.shared =
        mmap(NULL, sizeof *h.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h.shared == MAP_FAILED)
        handover_fail("mmap", errno);
    clock_init();
    handover_both(&h, words[1]);
    return 0;
}
