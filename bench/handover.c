/* handover DIR CPU CPU ROUNDS COUNT WORK_US [CLIENTS]: how long a turn takes from one process to
 * another.
 *
 * Two processes, each on a CPU, pass something back and forth COUNT times by the ring's token, then
 * COUNT times by a bare futex word, and so on for ROUNDS: between two passes the one that has it
 * stays busy for WORK_US while the other sleeps. With CLIENTS more than two all of them want it all
 * the time, the even ones on one CPU, the odd ones on the other, and each has it COUNT times; the
 * bare words, one of each process, go round. A sample is the time from just before the pass to just
 * after the next one's claim. Prints `ring NS` or `futex NS` for each. Knows no CUDA; the ring is
 * the product's own, without a gate in front and without a keeper behind.
 */
#include <errno.h>
#include <limits.h>
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
#include "place.h"
#include "ring.h"
#include "watch.h"

#define HANDOVER_WAIT_NS (10 * CLOCK_S)

enum handover_way { HANDOVER_RING, HANDOVER_FUTEX };

/* What the processes share besides the ring. */
struct handover_shared {
    _Atomic uint32_t turn[CUSLICE_SLOTS]; /* the bare futex words: 1 in that of whose turn it is */
    _Atomic uint32_t turns[2];            /* turns had since the start, by way */
    _Atomic uint32_t met;                 /* processes that have begun a phase, of all phases */
    _Atomic uint32_t all_met;             /* phases that all have begun */
    _Atomic uint32_t samples[2];
    _Atomic uint64_t passed_ns; /* just before the last pass; 0 = there was none in this phase */
    uint64_t sample[];          /* those of one way, then those of the other */
};

struct handover {
    struct handover_shared *shared;
    struct ring ring;
    unsigned me;
    unsigned clients;
    unsigned cpu[2];
    unsigned rounds;
    unsigned count;
    uint32_t met;      /* phases begun */
    uint32_t mine;     /* turns had by the ring since the start */
    uint32_t begun[2]; /* turns of all when this phase began, by way */
    uint64_t work_ns;
};

static void handover_join(struct handover *h, const char *directory)
{
    struct segment_spec device = {.uuid = {1},
                                  .device_name = "bench",
                                  .device_bytes = 1 << 30,
                                  .quantum_ns = 20 * CLOCK_MS,
                                  .allowance_ns = CLOCK_S};
    struct tenant_spec tenant = {
        .weight = 100, .priority = CUSLICE_NORMAL, .mem_limit = CUSLICE_NO_LIMIT};
    snprintf(tenant.key, sizeof tenant.key, "bench-%u", h->me % CUSLICE_TENANTS);
    snprintf(tenant.display, sizeof tenant.display, "bench-%u", h->me % CUSLICE_TENANTS);
    int rc = ring_join(&h->ring, directory, &device, &tenant);
    if (rc < 0)
        place_fail("handover", "ring_join", -rc);
    if (notice_begin() == 0) /* what a keeper does: it must cost those who wait nothing */
        notice_add(&h->ring);
}

static unsigned handover_room(const struct handover *h)
{
    return h->rounds * h->count * h->clients;
}

/* The first and the last turns of a phase are left out: not all of them wait yet, or any more. */
static void handover_note(struct handover *h, enum handover_way way)
{
    uint64_t now = clock_now(), passed = atomic_load(&h->shared->passed_ns);
    uint32_t turn = atomic_load(&h->shared->turns[way]) - h->begun[way];
    if (passed && turn >= h->clients && turn < (h->count - 1) * h->clients)
        h->shared->sample[way * handover_room(h) + atomic_fetch_add(&h->shared->samples[way], 1)] =
            now - passed;
}

static void handover_work(const struct handover *h)
{
    for (uint64_t end = clock_after(h->work_ns); clock_now() < end;)
        ;
}

/* All have ended the phase before. Who waits for it sleeps: the others are still being measured. */
static void handover_meet(struct handover *h)
{
    struct handover_shared *shared = h->shared;
    uint64_t end = clock_after(HANDOVER_WAIT_NS);
    h->met++;
    if (atomic_fetch_add(&shared->met, 1) + 1 == h->met * h->clients) {
        atomic_store(&shared->all_met, h->met);
        futex_wake(&shared->all_met, INT_MAX);
    }
    while (atomic_load(&shared->all_met) < h->met) {
        if (clock_now() > end)
            place_fail("handover", "the other processes", ETIMEDOUT);
        futex_wait(&shared->all_met, h->met - 1, end);
    }
}

/* ---- By the ring --------------------------------------------------------------------------------
 */

static uint64_t handover_take(struct handover *h)
{
    struct watch watch = {0};
    uint64_t token, end = clock_after(HANDOVER_WAIT_NS);
    for (;;) {
        uint32_t news = ring_news(&h->ring);
        ring_want(&h->ring);
        if (ring_look(&h->ring, &token) == 1)
            break;
        ring_wait(&h->ring, news, &watch, end);
        if (clock_now() > end)
            place_fail("handover", "the token", ETIMEDOUT);
    }
    ring_claim(&h->ring, token);
    return token;
}

/* A pass with nobody waiting would be no hand-over; another comes back while the others have turns
 * left in this phase, that is fewer than all_turns each. */
static void handover_await_waiter(struct handover *h, uint32_t all_turns)
{
    uint64_t end = clock_after(HANDOVER_WAIT_NS);
    while (!ring_wanted(&h->ring) &&
           atomic_load(&h->shared->turns[HANDOVER_RING]) - h->mine < (h->clients - 1) * all_turns) {
        if (clock_now() > end)
            place_fail("handover", "a waiter", ETIMEDOUT);
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
    h->mine++;
    atomic_fetch_add(&h->shared->turns[HANDOVER_RING], 1);
    atomic_store(&h->shared->passed_ns, clock_now());
    int rc = ring_pass(&h->ring, &token, false);
    if (rc != 0)
        place_fail("handover", "ring_pass", rc < 0 ? -rc : EPROTO);
}

/* ---- By a bare word -----------------------------------------------------------------------------
 */

static void handover_turn_futex(struct handover *h)
{
    _Atomic uint32_t *mine = &h->shared->turn[h->me];
    _Atomic uint32_t *next = &h->shared->turn[(h->me + 1) % h->clients];
    uint64_t end = clock_after(HANDOVER_WAIT_NS);
    while (!atomic_load(mine)) {
        futex_wait(mine, 0, end);
        if (clock_now() > end)
            place_fail("handover", "the futex word", ETIMEDOUT);
    }
    handover_note(h, HANDOVER_FUTEX);
    handover_work(h);
    atomic_store(mine, 0);
    atomic_fetch_add(&h->shared->turns[HANDOVER_FUTEX], 1);
    atomic_store(&h->shared->passed_ns, clock_now());
    atomic_store(next, 1);
    futex_wake(next, 1);
}

/* ---- All ---------------------------------------------------------------------------------------
 */

static void handover_phase(struct handover *h, enum handover_way way, uint32_t all_turns)
{
    handover_meet(h);
    if (h->me == 0)
        atomic_store(&h->shared->passed_ns, 0);
    h->begun[way] = atomic_load(&h->shared->turns[way]);
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
    place_pin("handover", h->cpu[h->me % 2]);
    handover_join(h, directory);
    for (unsigned i = 0; i < h->rounds; i++) {
        handover_phase(h, HANDOVER_RING, (i + 1) * h->count);
        handover_phase(h, HANDOVER_FUTEX, 0);
    }
    handover_meet(h);
    notice_drop(&h->ring);
    ring_leave(&h->ring);
}

static void handover_print(const struct handover *h, enum handover_way way, const char *name)
{
    const uint64_t *sample = &h->shared->sample[way * handover_room(h)];
    for (unsigned i = 0; i < h->shared->samples[way]; i++)
        printf("%s %llu\n", name, (unsigned long long)sample[i]);
}

static void handover_all(struct handover *h, const char *directory)
{
    pid_t child = 1;
    for (unsigned i = 1; i < h->clients && child > 0; i++) {
        h->me = i;
        child = fork();
        if (child < 0)
            place_fail("handover", "fork", errno);
    }
    if (child > 0)
        h->me = 0;
    handover_run(h, directory);
    if (child == 0)
        exit(0);
    for (int status; wait(&status) > 0;)
        if (status != 0)
            place_fail("handover", "another process", ECHILD);
    handover_print(h, HANDOVER_RING, "ring");
    handover_print(h, HANDOVER_FUTEX, "futex");
}

static void handover_share(struct handover *h)
{
    size_t bytes = sizeof *h->shared + 2 * sizeof(uint64_t) * handover_room(h);
    h->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h->shared == MAP_FAILED)
        place_fail("handover", "mmap", errno);
    h->shared->turn[0] = 1;
}

int main(int count, char **words)
{
    static struct handover h;
    if (count != 7 && count != 8) {
        fprintf(stderr, "usage: handover DIR CPU CPU ROUNDS COUNT WORK_US [CLIENTS]\n");
        return 2;
    }
    h.cpu[0] = (unsigned)atoi(words[2]);
    h.cpu[1] = (unsigned)atoi(words[3]);
    h.rounds = (unsigned)atoi(words[4]);
    h.count = (unsigned)atoi(words[5]);
    h.work_ns = (uint64_t)atoi(words[6]) * CLOCK_US;
    h.clients = count > 7 ? (unsigned)atoi(words[7]) : 2;
    if (h.clients < 2 || h.clients > CUSLICE_SLOTS || h.count < 3)
        place_fail("handover", "CLIENTS or COUNT", EINVAL);
    clock_init();
    handover_share(&h);
    handover_all(&h, words[1]);
    return 0;
}
