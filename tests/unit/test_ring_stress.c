/* ring under load: processes that take turns, die without a word, leave and join, with never two
 * holders at a time and nobody waiting for long; and clients of a file that somebody fills with
 * random bytes under them. timeout: 150 (under a sanitizer)
 */
#include "ring.h"

#include "ledger.h"
#include "log.h"
#include "room.h"

#define WORKERS 6
/* In each of two tests; with SCALE=10 in the environment ten times as many. */
#define KILLS 5000
#define MOST_SCALE 100
#define KILL_EVERY_NS (2 * CLOCK_MS) /* at most; on average half of it */
#define WORKER_IDS (KILLS * MOST_SCALE + WORKERS + 1)
#define LONGEST_WAIT_NS (3 * CLOCK_S)

struct page {
    _Atomic(uint32_t) mixed;
    _Atomic(uint32_t) end;
    _Atomic(uint32_t) inside; /* id of the worker that has the GPU */
    _Atomic(uint32_t) both;   /* times that two had it */
    _Atomic(uint32_t) stolen; /* times that a turn was gone although nobody was late */
    _Atomic(uint32_t) over;   /* times that a tenant had more bytes than its cap */
    _Atomic(uint32_t) turns;
    _Atomic(uint64_t) longest_ns;
    _Atomic(uint32_t) killed[WORKER_IDS]; /* set before the kill */
};

static struct page *page;

struct worker {
    uint32_t id;
    pid_t pid;
};

/* One who is inside when another enters was killed there, or two hold the token. */
static void enter(uint32_t id)
{
    uint32_t before = atomic_exchange(&page->inside, id);

    if (before != 0 && !atomic_load(&page->killed[before]))
        atomic_fetch_add(&page->both, 1);
}

static void leave(uint32_t id)
{
    if (!atomic_compare_exchange_strong(&page->inside, &id, 0))
        atomic_fetch_add(&page->both, 1);
}

static void note_wait(uint64_t ns)
{
    uint64_t longest = atomic_load(&page->longest_ns);

    while (longest < ns && !atomic_compare_exchange_weak(&page->longest_ns, &longest, ns))
        ;
}

/* A turn as a keeper runs it: a few renewals, then on to the next. */
static void turn(struct ring *ring, uint32_t id, uint64_t *random)
{
    uint64_t token, begun = clock_now();
    enum ledger_cap which;
    int rc = 1;

    if (!room_take(ring, &token, clock_after(LONGEST_WAIT_NS))) {
        note_wait(LONGEST_WAIT_NS);
        return;
    }
    note_wait(clock_now() - begun);
    enter(id);
    if (ledger_reserve(ring, 60, &which) == 0) {
        if (ledger_tenant(ring) > 100)
            atomic_fetch_add(&page->over, 1);
        ledger_release(ring, 60);
    }
    for (unsigned i = 0; i < 3 && rc == 1; i++) {
        if (room_random(random) % 4 == 0)
            room_sleep(room_random(random) % (300 * CLOCK_US));
        rc = ring_renew(ring, &token, true);
    }
    atomic_fetch_add(&page->turns, 1);
    leave(id);
    rc = rc < 0 ? rc : ring_pass(ring, &token, false);
    if (rc == 1) /* other threads of a client could want it; here nobody does */
        rc = ring_pass(ring, &token, false);
    if (rc < 0)
        atomic_fetch_add(&page->stolen, 1);
}

/* Tenants of three classes, two of them with a limit, when `mixed`; else equals. */
static int worker_join(struct ring *ring, const char *key, unsigned tenant)
{
    static const uint32_t limit[] = {200000, 0, 900000};
    struct tenant_spec spec = room_tenant(key, 100, 100);

    if (page->mixed) {
        spec.limit_ppm = limit[tenant];
        spec.priority = tenant;
    }
    memset(ring, 0, sizeof(*ring));
    ring->process_limit = CUSLICE_NO_LIMIT;
    return ring_join(ring, room_path, &room_device, &spec);
}

static int worker_body(void *arg)
{
    uint32_t id = *(uint32_t *)arg;
    uint64_t random = 1 + id * UINT64_C(0x9e3779b97f4a7c15);
    char key[16];
    struct ring ring;

    snprintf(key, sizeof(key), "t%u", id % 3);
    while (!atomic_load(&page->end)) {
        if (worker_join(&ring, key, id % 3) < 0)
            return 1;
        for (unsigned i = 0; i < 300 && !atomic_load(&page->end); i++)
            turn(&ring, id, &random);
        ring_leave(&ring);
    }
    return 0;
}

static void start(struct worker *worker, uint32_t id)
{
    worker->id = id;
    worker->pid = room_fork(worker_body, &worker->id);
}

static void kill_and_replace(struct worker *worker, uint32_t id)
{
    atomic_store(&page->killed[worker->id], 1);
    kill(worker->pid, SIGKILL);
    CHECK_EQ(room_join_child(worker->pid), 1000 + SIGKILL);
    start(worker, id);
}

static void check_nothing_left(void)
{
    struct cuslice_segment *shared;
    struct ring last;
    uint64_t turns = 0, token;

    room_join(&last, "last", 100);
    shared = ring_shared(&last);
    slot_reap_set(&last.segment, shared->attached, last.slot);
    CHECK_EQ(ring_clients(&last), 1);
    CHECK(room_take(&last, &token, clock_after(CLOCK_S)));
    ring_pass(&last, &token, false);
    CHECK_EQ(CUSLICE_TOKEN_HOLDER(shared->token), CUSLICE_NOBODY);
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        CHECK(shared->slot[i].bytes == 0 && shared->slot[i].pending == 0 &&
              (i == last.slot || shared->slot[i].joined_ns == 0));
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++) {
        turns += shared->tenant[i].books.slices;
        CHECK_EQ(shared->tenant[i].books.revocations, 0);
        CHECK(i == last.tenant || shared->tenant[i].members[0] == 0);
    }
    CHECK(turns >= page->turns);
    ring_leave(&last);
}

static uint32_t kills_wanted(void)
{
    const char *scale = getenv("SCALE");
    long n = scale ? strtol(scale, NULL, 10) : 1;

    return KILLS * (uint32_t)(n < 1 ? 1 : n > MOST_SCALE ? MOST_SCALE : n);
}

static void fire(bool mixed)
{
    struct worker worker[WORKERS];
    uint64_t random = 99;
    uint32_t next = 1, wanted = kills_wanted();
    struct ring settings;

    page = room_page(sizeof(*page));
    page->mixed = mixed;
    room_open();
    room_join(&settings, "settings", 100);
    ring_shared(&settings)->quantum_ns = CLOCK_MS;
    ring_shared(&settings)->allowance_ns = 20 * CLOCK_S; /* nobody is late here */
    ring_leave(&settings);
    for (unsigned i = 0; i < WORKERS; i++)
        start(&worker[i], next++);
    for (uint32_t kills = 0; kills < wanted; kills++) {
        room_sleep(room_random(&random) % KILL_EVERY_NS);
        kill_and_replace(&worker[room_random(&random) % WORKERS], next++);
    }
    atomic_store(&page->end, 1);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK_EQ(room_join_child(worker[i].pid), 0);
    CHECK(page->turns > wanted);
    CHECK_EQ(page->both, 0);
    CHECK_EQ(page->stolen, 0);
    CHECK_EQ(page->over, 0);
    CHECK(page->longest_ns < LONGEST_WAIT_NS);
    printf("%u kills, %u turns, the longest wait %.1f ms\n", wanted, page->turns,
           (double)page->longest_ns / 1e6);
    check_nothing_left();
    room_close();
    munmap(page, sizeof(*page));
}

static void test_turns_under_fire(void)
{
    fire(false);
}

/* Clients die while they book, convert and mark; nobody who lives waits for ever. */
static void test_limits_and_classes_under_fire(void)
{
    fire(true);
}

/* ---- Nonsense in the file ---- */

#define VICTIMS 4

struct victims {
    _Atomic(uint32_t) end;
    _Atomic(uint32_t) turns[VICTIMS];
    _Atomic(uint64_t) longest_ns; /* of any one call */
};

static struct victims *victims;

static void note_call(uint64_t since)
{
    uint64_t took = clock_now() - since, longest = atomic_load(&victims->longest_ns);

    while (longest < took && !atomic_compare_exchange_weak(&victims->longest_ns, &longest, took))
        ;
}

#define TIMED(call) \
    do { \
        uint64_t since_ = clock_now(); \
        (void)(call); \
        note_call(since_); \
    } while (0)

static void victim_looks(struct ring *ring)
{
    struct watch watch = {0};
    uint64_t free_bytes = 1, total = 2, granted;
    enum ledger_cap which;
    char text[256];

    TIMED(watch_look(ring, &watch));
    TIMED(ring_tend(ring));
    TIMED(ring_clients(ring));
    TIMED(ring_arm(ring, ring_token(ring), true));
    TIMED(ring_slice_end(ring, ring_token(ring), &granted));
    TIMED(ring_holder_name(ring, text, sizeof(text)));
    TIMED(ledger_holders(ring, text, sizeof(text)));
    TIMED(ledger_mask(ring, &free_bytes, &total));
    if (ledger_reserve(ring, 100, &which) == 0)
        TIMED((ledger_release(ring, 100), 0));
    TIMED(ledger_force(ring, 100, &which));
    TIMED((ledger_release(ring, 100), 0));
}

static int victim_body(void *arg)
{
    unsigned index = *(unsigned *)arg;
    struct ring ring;
    char key[16];

    snprintf(key, sizeof(key), "v%u", index / 2);
    room_join(&ring, key, 100);
    while (!atomic_load(&victims->end)) {
        uint64_t token = 0, since = clock_now();

        if (room_take(&ring, &token, clock_after(30 * CLOCK_MS))) {
            TIMED(ring_renew(&ring, &token, true));
            TIMED(ring_pass(&ring, &token, false));
            atomic_fetch_add(&victims->turns[index], 1);
        }
        note_call(since);
        victim_looks(&ring);
    }
    TIMED((ring_leave(&ring), 0));
    return 0;
}

/* Random words over the file from byte `from` on, for `ns`. Half of them are small numbers, since
 * these get further than large ones. */
static void scribble(struct cuslice_segment *shared, size_t from, uint64_t ns, uint64_t *random)
{
    volatile uint32_t *word = (volatile uint32_t *)((char *)shared + from);
    size_t words = (sizeof(*shared) - from) / sizeof(*word);

    for (uint64_t until = clock_after(ns); clock_now() < until; room_sleep(50 * CLOCK_US))
        for (unsigned i = 0; i < 200; i++) {
            uint64_t r = room_random(random);
            uint64_t place = r & 1 ? r >> 8 : (r >> 8) % 20000; /* the first slots the more */
            word[place % words] =
                (uint32_t)(r & 2 ? room_random(random) : room_random(random) % 300);
        }
}

/* Whoever still runs gets turns again, once the settings are sound. */
static void check_recovery(struct cuslice_segment *shared)
{
    uint32_t before[VICTIMS];
    bool all = false;

    atomic_store(&shared->quantum_ns, 5 * CLOCK_MS);
    atomic_store(&shared->allowance_ns, 50 * CLOCK_MS);
    for (unsigned i = 0; i < VICTIMS; i++)
        before[i] = victims->turns[i];
    for (unsigned tries = 0; tries < 400 && !all; tries++) {
        room_sleep(10 * CLOCK_MS);
        all = true;
        for (unsigned i = 0; i < VICTIMS; i++)
            all &= victims->turns[i] - before[i] >= 3;
    }
    CHECK(all);
}

static void test_nonsense_in_the_file(size_t from)
{
    unsigned index[VICTIMS];
    pid_t child[VICTIMS];
    struct cuslice_segment *shared;
    struct segment keep;
    uint64_t random = 4711 + from;

    victims = room_page(sizeof(*victims));
    room_open();
    REQUIRE(segment_open(&keep, room_path, &room_device) == 0);
    shared = room_map();
    for (unsigned i = 0; i < VICTIMS; i++) {
        index[i] = i;
        child[i] = room_fork(victim_body, &index[i]);
    }
    for (unsigned i = 0; i < VICTIMS; i++)
        CHECK(room_await(&victims->turns[i], 1));
    scribble(shared, from, 1500 * CLOCK_MS, &random);
    check_recovery(shared);
    atomic_store(&victims->end, 1);
    for (unsigned i = 0; i < VICTIMS; i++)
        CHECK_EQ(room_join_child(child[i]), 0);
    CHECK(victims->longest_ns < 2 * CLOCK_S);
    room_unmap(shared);
    segment_close(&keep);
    room_close();
    munmap(victims, sizeof(*victims));
}

static void test_nonsense_but_for_the_header(void)
{
    test_nonsense_in_the_file(offsetof(struct cuslice_segment, quantum_ns));
}

static void test_nonsense_everywhere(void)
{
    test_nonsense_in_the_file(0);
}

int main(void)
{
    log_threshold = LOG_ERROR;
    TEST(test_turns_under_fire);
    TEST(test_limits_and_classes_under_fire);
    TEST(test_nonsense_but_for_the_header);
    TEST(test_nonsense_everywhere);
    return test_result();
}
