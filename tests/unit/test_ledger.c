/* ledger: both caps to the byte, many threads in several processes, what fits is never refused,
 * what does not never passes, clients that die at each step, absurd sizes, caps that move. The sums
 * that are compared are the test's own, not the ledger's. timeout: 150 (under a sanitizer)
 */
#include "ledger.h"

#include <pthread.h>
#include <sched.h>

#include "room.h"

static struct ring a, b, c;
static uint64_t unit = 1; /* of what is raced for; small ones, and large, go another way */
static struct cuslice_segment *shared;

static void begin(uint64_t limit)
{
    room_open();
    REQUIRE(room_try_join(&a, "family", 100, limit) == 0);
    REQUIRE(room_try_join(&b, "family", 100, limit) == 0);
    REQUIRE(room_try_join(&c, "stranger", 100, CUSLICE_NO_LIMIT) == 0);
    shared = ring_shared(&a);
}

static void end(void)
{
    ring_leave(&a);
    ring_leave(&b);
    ring_leave(&c);
    room_close();
}

/* 0, or which cap refused, as a number that is not 0. */
static int ask(struct ring *ring, uint64_t bytes)
{
    enum ledger_cap which = (enum ledger_cap)77;
    int rc = ledger_reserve(ring, bytes, &which);

    CHECK(rc == 0 || rc == -ENOMEM);
    if (rc == 0)
        CHECK_EQ(which, 77); /* set on refusal only */
    return rc == 0 ? 0 : 10 + (int)which;
}

#define GRANTED 0
#define BY_TENANT (10 + LEDGER_TENANT)
#define BY_PROCESS (10 + LEDGER_PROCESS)

static void test_to_the_byte(void)
{
    begin(100);
    CHECK_EQ(ask(&a, 0), GRANTED);
    CHECK_EQ(ask(&a, 101), BY_TENANT);
    CHECK_EQ(ask(&a, 100), GRANTED);
    CHECK_EQ(ask(&a, 1), BY_TENANT);
    CHECK_EQ(ask(&a, 0), GRANTED);
    ledger_release(&a, 1);
    CHECK_EQ(ask(&a, 2), BY_TENANT);
    CHECK_EQ(ask(&a, 1), GRANTED);
    CHECK_EQ(ledger_process(&a), 100);
    CHECK_EQ(ring_me(&a)->pending, 0);
    CHECK_EQ(ring_me(&a)->peak, 100);
    CHECK_EQ(ring_tenant(&a)->mem_peak, 100);
    ledger_release(&a, 100);
    CHECK_EQ(ledger_tenant(&a), 0);
    end();
}

static void test_sum_of_a_tenant(void)
{
    begin(100);
    CHECK_EQ(ask(&c, 1000000), GRANTED); /* a stranger's bytes are not counted here */
    CHECK_EQ(ask(&a, 60), GRANTED);
    CHECK_EQ(ask(&b, 41), BY_TENANT);
    CHECK_EQ(ask(&b, 40), GRANTED);
    CHECK_EQ(ledger_tenant(&a), 100);
    CHECK_EQ(ledger_tenant(&b), 100);
    CHECK_EQ(ledger_process(&b), 40);
    ledger_release(&a, 60);
    CHECK_EQ(ask(&b, 60), GRANTED);
    CHECK_EQ(ask(&b, 1), BY_TENANT);
    end();
}

static void test_cap_of_a_process(void)
{
    begin(100);
    b.process_limit = 30;
    CHECK_EQ(ask(&b, 31), BY_PROCESS);
    CHECK_EQ(ask(&b, 30), GRANTED);
    CHECK_EQ(ask(&b, 1), BY_PROCESS);
    CHECK_EQ(ask(&a, 71), BY_TENANT);
    CHECK_EQ(ask(&a, 70), GRANTED);
    ledger_release(&b, 30);
    CHECK_EQ(ask(&b, 30), GRANTED);
    end();
}

static void test_no_memory_at_all(void)
{
    begin(0);
    CHECK_EQ(ask(&a, 1), BY_TENANT);
    CHECK_EQ(ask(&a, 0), GRANTED);
    end();
}

/* Sizes that would wrap a sum are refused whatever the caps, and disturb nobody. */
static void test_absurd_sizes(void)
{
    static const uint64_t size[] = {UINT64_MAX, UINT64_MAX - 59, UINT64_C(1) << 63,
                                    LEDGER_MOST + 1};
    enum ledger_cap which;

    begin(100);
    CHECK_EQ(ask(&a, 60), GRANTED);
    for (unsigned i = 0; i < 4; i++) {
        CHECK_EQ(ask(&a, size[i]), BY_TENANT);
        CHECK_EQ(ask(&b, size[i]), BY_TENANT);
        CHECK_EQ(ask(&c, size[i]), BY_TENANT);
        CHECK_EQ(ledger_force(&a, size[i], &which), -ENOMEM);
        ledger_release(&a, size[i]);
        CHECK_EQ(ledger_tenant(&a), 60);
        CHECK_EQ(ring_me(&a)->pending, 0);
    }
    c.process_limit = 5;
    CHECK_EQ(ask(&c, UINT64_MAX), BY_PROCESS);
    CHECK_EQ(ring_tenant(&a)->mem_peak, 60);
    CHECK_EQ(ask(&b, 40), GRANTED);
    end();
}

static void test_large_sizes_without_a_cap(void)
{
    begin(CUSLICE_NO_LIMIT);
    CHECK_EQ(ask(&a, LEDGER_MOST), GRANTED);
    CHECK_EQ(ask(&a, 1), BY_PROCESS);
    CHECK_EQ(ask(&b, LEDGER_MOST), GRANTED);
    CHECK_EQ(ledger_tenant(&a), 2 * LEDGER_MOST);
    ledger_release(&a, LEDGER_MOST);
    ledger_release(&b, LEDGER_MOST);
    CHECK_EQ(ledger_tenant(&a), 0);
    end();
}

static void test_cap_that_moves(void)
{
    begin(100);
    CHECK_EQ(ask(&a, 80), GRANTED);
    ring_tenant(&a)->mem_limit = 50;
    CHECK_EQ(ledger_limit(&b), 50);
    CHECK_EQ(ask(&a, 1), BY_TENANT);
    CHECK_EQ(ask(&b, 1), BY_TENANT);
    CHECK_EQ(ledger_tenant(&a), 80); /* nothing is taken away */
    ledger_release(&a, 40);
    CHECK_EQ(ask(&b, 11), BY_TENANT);
    CHECK_EQ(ask(&b, 10), GRANTED);
    ring_tenant(&a)->mem_limit = 200;
    CHECK_EQ(ask(&b, 150), GRANTED);
    CHECK_EQ(ask(&a, 1), BY_TENANT);
    end();
}

static void test_observing(void)
{
    enum ledger_cap which = LEDGER_PROCESS;

    begin(100);
    CHECK_EQ(ledger_force(&a, 90, &which), 0);
    CHECK_EQ(ledger_force(&a, 90, &which), -ENOMEM);
    CHECK_EQ(which, LEDGER_TENANT);
    CHECK_EQ(ledger_process(&a), 180);
    CHECK_EQ(ring_me(&a)->pending, 0);
    ledger_release(&a, 90);
    a.process_limit = 95;
    CHECK_EQ(ledger_force(&a, 6, &which), -ENOMEM);
    CHECK_EQ(which, LEDGER_PROCESS);
    end();
}

static void test_what_a_program_sees(void)
{
    uint64_t free_bytes = 1000, total = 2000;

    begin(100);
    CHECK_EQ(ask(&a, 60), GRANTED);
    ledger_mask(&b, &free_bytes, &total);
    CHECK(free_bytes == 40 && total == 100);
    b.process_limit = 30;
    free_bytes = 1000, total = 2000;
    ledger_mask(&b, &free_bytes, &total);
    CHECK(free_bytes == 30 && total == 30);
    free_bytes = 7, total = 2000;
    ledger_mask(&a, &free_bytes, &total);
    CHECK(free_bytes == 7 && total == 100);
    ring_tenant(&a)->mem_limit = 10;
    free_bytes = 1000, total = 2000;
    ledger_mask(&a, &free_bytes, &total);
    CHECK(free_bytes == 0 && total == 10);
    free_bytes = 1000, total = 2000;
    ledger_mask(&c, &free_bytes, &total);
    CHECK(free_bytes == 1000 && total == 2000);
    end();
}

static void test_largest_holders_first(void)
{
    char text[200], small[12];

    begin(CUSLICE_NO_LIMIT);
    ledger_holders(&a, text, sizeof(text));
    CHECK_STR(text, "");
    CHECK_EQ(ask(&a, 3 * ROOM_MIB), GRANTED);
    CHECK_EQ(ask(&b, 5 * ROOM_MIB), GRANTED);
    snprintf(ring_me(&a)->command, 32, "small");
    snprintf(ring_me(&b)->command, 32, "large");
    ring_me(&a)->pid = 11;
    ring_me(&b)->pid = 22;
    ledger_holders(&a, text, sizeof(text));
    CHECK_STR(text, "large[22] 5.0 MiB, small[11] 3.0 MiB");
    ledger_release(&b, 2 * ROOM_MIB);
    ledger_holders(&a, text, sizeof(text));
    CHECK_STR(text, "small[11] 3.0 MiB, large[22] 3.0 MiB");
    ledger_holders(&a, small, sizeof(small));
    CHECK_STR(small, "small[11] 3");
    memset(ring_me(&a)->command, 'x', 32);
    ledger_holders(&a, text, sizeof(text));
    CHECK_HAS(text, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx[11]");
    end();
}

static void test_more_given_back_than_taken(void)
{
    begin(100);
    CHECK_EQ(ask(&a, 10), GRANTED);
    ledger_release(&a, 30);
    CHECK_EQ(ledger_tenant(&b), 0);
    CHECK_EQ(ask(&b, 100), GRANTED);
    end();
}

/* A stray bit among the members brings a stranger's bytes in only if the slot says so too. */
static void test_stray_member(void)
{
    begin(100);
    CHECK_EQ(ask(&c, 70), GRANTED);
    ring_tenant(&a)->members[0] |= UINT64_C(1) << c.slot;
    ring_tenant(&a)->members[3] = UINT64_MAX;
    CHECK_EQ(ask(&a, 100), GRANTED);
    ring_tenant(&a)->members[3] = 0;
    ring_tenant(&a)->members[0] &= ~(UINT64_C(1) << c.slot);
    end();
}

/* ---- Death at each step: L1, L3, between the two halves of L3, L4 ---- */

static int dying_body(void *arg)
{
    unsigned at = *(unsigned *)arg;
    struct ring mine;
    struct cuslice_slot *me;

    if (room_try_join(&mine, "family", 100, 100) < 0)
        return 1;
    me = ring_me(&mine);
    if (at < 4)
        atomic_fetch_add(&me->pending, 60); /* L1 */
    else
        atomic_fetch_add(&me->bytes, UINT64_C(1) << CUSLICE_BYTES_BITS); /* L1 of a small one */
    if (at >= 1 && at <= 2)
        atomic_fetch_add(&me->bytes, 60); /* L3 */
    if (at == 2 || at == 3)
        atomic_fetch_sub(&me->pending, 60); /* L3, or L4 */
    raise(SIGKILL);
    return 2;
}

static void test_death_at_each_step(void)
{
    for (unsigned at = 0; at <= 4; at++) {
        begin(100);
        CHECK_EQ(room_join_child(room_fork(dying_body, &at)), 1000 + SIGKILL);
        uint64_t before = clock_now();
        CHECK_EQ(ask(&a, 100), GRANTED); /* whoever is refused looks for the dead first */
        CHECK(clock_now() - before < CLOCK_S);
        CHECK_EQ(ledger_tenant(&a), 100);
        CHECK_EQ(ring_clients(&a), at == 3 ? 4 : 3); /* the last one stood in nobody's way */
        CHECK_EQ(ask(&a, 1), BY_TENANT);
        CHECK_EQ(ring_clients(&a), 3);
        end();
    }
}

/* One that is stopped with an announcement up costs a wait that ends, and is then believed. */
static void test_stopped_announcer(void)
{
    uint64_t before;

    begin(100);
    ring_me(&a)->pending = 60;
    before = clock_now();
    CHECK_EQ(ask(&b, 41), BY_TENANT);
    CHECK(clock_now() - before < 2 * CLOCK_S);
    before = clock_now();
    CHECK_EQ(ask(&b, 40), GRANTED);
    CHECK(clock_now() - before < 100 * CLOCK_MS);
    ring_me(&a)->pending = 0;
    end();
}

/* A small announcement counts in steps of 512, and goes with what is granted in one addition. */
static void test_small_announcement(void)
{
    begin(100 * 512);
    atomic_fetch_add(&ring_me(&a)->bytes, UINT64_C(60) << CUSLICE_BYTES_BITS); /* L1 */
    CHECK_EQ(ledger_process(&a), 0);
    CHECK_EQ(ask(&b, 41 * 512), BY_TENANT);
    CHECK_EQ(ask(&b, 40 * 512), GRANTED);
    atomic_fetch_add(&ring_me(&a)->bytes, 60 * 512 - (UINT64_C(60) << CUSLICE_BYTES_BITS)); /* L3 */
    CHECK_EQ(ledger_process(&a), 60 * 512);
    CHECK_EQ(ledger_tenant(&a), 100 * 512);
    ledger_release(&a, 60 * 512);
    ledger_release(&b, 40 * 512);
    CHECK_EQ(ask(&a, 20 * 512), GRANTED);
    CHECK_EQ(ring_me(&a)->bytes, 20 * 512);
    end();
}

/* ---- Two at the same instant ---- */

#define ROUNDS 100000
#define LONGEST_DUEL_NS (2 * CLOCK_S) /* a slow machine fights fewer rounds */

struct duel {
    _Atomic(uint32_t) ready[2]; /* rounds begun */
    _Atomic(uint32_t) asked[2]; /* rounds asked in */
    _Atomic(uint32_t) won[2];
    _Atomic(int32_t) rc[2];
    _Atomic(uint32_t) last; /* round; set before it begins */
    uint64_t bytes[2];
    uint32_t none, both; /* rounds in which so many were granted */
};

static struct duel *duel;

static void meet(_Atomic(uint32_t) *words, unsigned me, uint32_t round)
{
    atomic_store(&words[me], round);
    for (unsigned spins = 0; atomic_load(&words[1 - me]) < round; spins++)
        if (spins > 2000)
            sched_yield();
}

static void duel_run(struct ring *ring, unsigned me)
{
    uint64_t deadline = clock_after(LONGEST_DUEL_NS);
    enum ledger_cap which;

    for (uint32_t round = 1; round != duel->last + 1 || duel->last == 0; round++) {
        if (me == 0 && (round == ROUNDS || clock_now() > deadline))
            duel->last = round;
        meet(duel->ready, me, round);
        int rc = ledger_reserve(ring, duel->bytes[me], &which);
        atomic_store(&duel->rc[me], rc);
        meet(duel->asked, me, round);
        if (me == 0) {
            int won = (duel->rc[0] == 0) + (duel->rc[1] == 0);
            duel->none += won == 0;
            duel->both += won == 2;
        }
        if (rc == 0) {
            atomic_fetch_add(&duel->won[me], 1);
            ledger_release(ring, duel->bytes[me]);
        }
    }
}

static int second_body(void *arg)
{
    struct ring mine;

    (void)arg;
    if (room_try_join(&mine, "family", 100, 100 * unit) < 0)
        return 1;
    duel_run(&mine, 1);
    ring_leave(&mine);
    return 0;
}

static void duel_of_processes(uint64_t first, uint64_t second, suseconds_t stumble_us)
{
    pid_t child;

    duel = room_page(sizeof(*duel));
    duel->bytes[0] = first * unit;
    duel->bytes[1] = second * unit;
    begin(100 * unit);
    child = room_fork(second_body, NULL);
    room_stumble(stumble_us);
    duel_run(&a, 0);
    room_stumble(0);
    CHECK_EQ(room_join_child(child), 0);
    CHECK_EQ(ledger_tenant(&a), 0);
    CHECK_EQ(ring_me(&a)->pending, 0);
    end();
}

static void test_one_of_two(void)
{
    duel_of_processes(60, 60, 0);
    CHECK_EQ(duel->none, 0);
    CHECK_EQ(duel->both, 0);
    CHECK_EQ(duel->won[0] + duel->won[1], duel->last);
    CHECK(duel->last >= ROUNDS / 50);
    munmap(duel, sizeof(*duel));
}

static void test_both_of_two(void)
{
    duel_of_processes(60, 40, 0);
    CHECK_EQ(duel->both, duel->last);
    munmap(duel, sizeof(*duel));
}

/* The same while one of them stops between its instructions. */
static void test_one_of_two_stumbling(void)
{
    duel_of_processes(60, 60, 400);
    CHECK_EQ(duel->none, 0);
    CHECK_EQ(duel->both, 0);
    munmap(duel, sizeof(*duel));
}

static void *second_thread(void *arg)
{
    duel_run(arg, 1);
    return NULL;
}

/* The same within one process, whose threads share one slot. */
static void duel_of_threads(uint64_t limit, uint64_t process_limit)
{
    pthread_t thread;

    duel = room_page(sizeof(*duel));
    duel->bytes[0] = duel->bytes[1] = 60 * unit;
    begin(limit);
    a.process_limit = process_limit;
    REQUIRE(pthread_create(&thread, NULL, second_thread, &a) == 0);
    duel_run(&a, 0);
    pthread_join(thread, NULL);
    CHECK_EQ(duel->none, 0);
    CHECK_EQ(duel->both, 0);
    CHECK_EQ(ledger_tenant(&b), 0);
    end();
    munmap(duel, sizeof(*duel));
}

static void test_one_of_two_threads(void)
{
    duel_of_threads(100 * unit, CUSLICE_NO_LIMIT);
}

static void test_one_of_two_threads_by_process(void)
{
    duel_of_threads(CUSLICE_NO_LIMIT, 100 * unit);
}

/* ---- Bytes that change hands while a third one sums ---- */

struct baton {
    _Atomic(uint32_t) end;
    _Atomic(uint32_t) turn;
    _Atomic(uint32_t) moves;
};

static struct baton *baton;

static int baton_body(void *arg)
{
    unsigned me = *(unsigned *)arg;
    enum ledger_cap which;
    struct ring mine;

    if (room_try_join(&mine, "family", 100, 100 * unit) < 0)
        return 1;
    while (!atomic_load(&baton->end)) {
        if (atomic_load(&baton->turn) != me) {
            sched_yield();
            continue;
        }
        if (ledger_reserve(&mine, 60 * unit, &which) < 0)
            return 2;
        for (unsigned i = 0; i < 2000; i++) /* most of the time somebody has them */
            atomic_load(&baton->end);
        ledger_release(&mine, 60 * unit);
        atomic_fetch_add(&baton->moves, 1);
        atomic_store(&baton->turn, 1 - me);
    }
    return 0;
}

/* Never more than 60 are taken by the two, so 40 always fit, and 60 do for the two. */
static void test_moving_bytes_are_not_counted_twice(void)
{
    unsigned index[2] = {0, 1}, refused = 0, asked = 0;
    pid_t child[2];

    baton = room_page(sizeof(*baton));
    begin(100 * unit);
    for (unsigned i = 0; i < 2; i++)
        child[i] = room_fork(baton_body, &index[i]);
    room_stumble(400);
    for (uint64_t until = clock_after(CLOCK_S); clock_now() < until || baton->moves < 100;
         asked++) {
        if (ask(&b, 40 * unit) == GRANTED)
            ledger_release(&b, 40 * unit);
        else
            refused++;
    }
    room_stumble(0);
    atomic_store(&baton->end, 1);
    for (unsigned i = 0; i < 2; i++)
        CHECK_EQ(room_join_child(child[i]), 0);
    CHECK_EQ(refused, 0);
    CHECK(asked > 1000);
    end();
    munmap(baton, sizeof(*baton));
}

/* ---- Many threads in two processes ---- */

#define THREADS 8
#define LIMIT (1000 * unit)

struct crowd {
    _Atomic(int64_t) sum;    /* of what callers have been granted */
    _Atomic(int64_t) own[2]; /* by process */
    _Atomic(uint32_t) over, granted, refused;
    _Atomic(uint32_t) ready;
};

static struct crowd *crowd;

struct member {
    struct ring *ring;
    unsigned process, index;
    pthread_t thread;
};

/* The sum is raised after the grant and lowered before the release: it is never above what is
 * really granted, so above the cap it is a proof. */
static void *member_body(void *arg)
{
    struct member *me = arg;
    uint64_t random = 77 + me->index + 1000 * me->process;
    enum ledger_cap which;

    for (unsigned i = 0; i < 6000; i++) {
        int64_t bytes = (int64_t)unit * (1 + (int64_t)(room_random(&random) % 250));

        if (ledger_reserve(me->ring, (uint64_t)bytes, &which) < 0) {
            atomic_fetch_add(&crowd->refused, 1);
            continue;
        }
        int64_t sum = atomic_fetch_add(&crowd->sum, bytes) + bytes;
        int64_t own = atomic_fetch_add(&crowd->own[me->process], bytes) + bytes;
        if ((uint64_t)sum > LIMIT || (uint64_t)own > me->ring->process_limit)
            atomic_fetch_add(&crowd->over, 1);
        atomic_fetch_add(&crowd->granted, 1);
        if (i % 8 == 0)
            sched_yield();
        atomic_fetch_sub(&crowd->sum, bytes);
        atomic_fetch_sub(&crowd->own[me->process], bytes);
        ledger_release(me->ring, (uint64_t)bytes);
    }
    return NULL;
}

static void crowd_run(struct ring *ring, unsigned process)
{
    struct member member[THREADS];

    atomic_fetch_add(&crowd->ready, 1);
    room_await(&crowd->ready, 2);
    for (unsigned i = 0; i < THREADS; i++) {
        member[i] = (struct member){.ring = ring, .process = process, .index = i};
        REQUIRE(pthread_create(&member[i].thread, NULL, member_body, &member[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(member[i].thread, NULL);
}

static int crowd_body(void *arg)
{
    struct ring mine;

    (void)arg;
    if (room_try_join(&mine, "family", 100, LIMIT) < 0)
        return 1;
    mine.process_limit = 700 * unit;
    crowd_run(&mine, 1);
    int rc = ledger_process(&mine) == 0 && ring_me(&mine)->pending == 0 ? 0 : 2;
    ring_leave(&mine);
    return rc;
}

static void test_many_threads_in_two_processes(void)
{
    pid_t child;

    crowd = room_page(sizeof(*crowd));
    begin(LIMIT);
    child = room_fork(crowd_body, NULL);
    crowd_run(&a, 0);
    CHECK_EQ(room_join_child(child), 0);
    CHECK_EQ(crowd->over, 0);
    CHECK_EQ(crowd->granted + crowd->refused, 2 * THREADS * 6000);
    CHECK(crowd->granted > 1000);
    CHECK_EQ(ledger_tenant(&b), 0);
    CHECK_EQ(ring_me(&a)->pending, 0);
    CHECK(ring_tenant(&a)->mem_peak <= LIMIT);
    end();
    munmap(crowd, sizeof(*crowd));
}

/* ---- Alone, with plenty of room: a grant without an announcement ---- */

static void test_alone_to_the_byte(void)
{
    begin(CUSLICE_NO_LIMIT);
    CHECK_EQ(ask(&c, 512), GRANTED);
    CHECK(c.roomy);
    CHECK_EQ(ask(&c, 512), GRANTED);
    CHECK_EQ(ring_me(&c)->bytes, 1024);
    CHECK(ring_me(&c)->peak == 1024 && ring_tenant(&c)->mem_peak == 1024);
    ring_tenant(&c)->mem_limit = 2000; /* moves while it has forgotten to look */
    CHECK_EQ(ask(&c, 976), GRANTED);
    CHECK_EQ(ask(&c, 1), BY_TENANT);
    CHECK_EQ(ring_me(&c)->bytes, 2000);
    CHECK(!c.roomy);
    ring_tenant(&c)->mem_limit = CUSLICE_NO_LIMIT;
    CHECK_EQ(ask(&c, 1), GRANTED);
    CHECK(c.roomy);
    c.process_limit = 2001;
    CHECK_EQ(ask(&c, 1), BY_PROCESS);
    CHECK_EQ(ring_me(&c)->bytes, 2001);
    CHECK_EQ(ask(&a, 512), GRANTED); /* of a family of two */
    CHECK(!a.roomy);
    end();
}

/* Somebody enters the tenant: what he has is seen at once. */
static void test_no_longer_alone(void)
{
    struct ring other;

    begin(CUSLICE_NO_LIMIT);
    CHECK_EQ(ask(&c, 512), GRANTED);
    ring_tenant(&c)->mem_limit = 1024;
    c.roomy = true;
    REQUIRE(room_try_join(&other, "stranger", 100, CUSLICE_NO_LIMIT) == 0);
    CHECK_EQ(ask(&other, 512), GRANTED);
    CHECK_EQ(ask(&c, 1), BY_TENANT);
    CHECK_EQ(ledger_tenant(&c), 1024);
    ledger_release(&other, 512);
    CHECK_EQ(ask(&c, 512), GRANTED);
    ring_leave(&other);
    end();
}

#define NEWCOMERS 300
#define NEWCOMERS_LIMIT (192 * ROOM_MIB)

struct newcomers {
    _Atomic(int64_t) sum; /* of what callers have been granted */
    _Atomic(uint32_t) over, end, small, large, refused;
};

static struct newcomers *newcomers;

static bool newcomers_hold(struct ring *ring, int64_t bytes)
{
    enum ledger_cap which;

    if (ledger_reserve(ring, (uint64_t)bytes, &which) < 0)
        return false;
    if (atomic_fetch_add(&newcomers->sum, bytes) + bytes > (int64_t)NEWCOMERS_LIMIT)
        atomic_fetch_add(&newcomers->over, 1);
    return true;
}

static void newcomers_drop(struct ring *ring, int64_t bytes)
{
    atomic_fetch_sub(&newcomers->sum, bytes);
    ledger_release(ring, (uint64_t)bytes);
}

/* Up to 15 MiB in small requests, over and over. */
static void *resident_body(void *arg)
{
    unsigned most = 15 * 32, held = 0;

    while (!atomic_load(&newcomers->end)) {
        for (; held < most && newcomers_hold(arg, 32 << 10); held++)
            atomic_fetch_add(&newcomers->small, 1);
        for (; held > 0; held--)
            newcomers_drop(arg, 32 << 10);
    }
    return NULL;
}

/* Takes what there is, most of which the residents may have counted on. */
static int newcomers_body(void *arg)
{
    unsigned *chunk = arg, held = 0;

    for (unsigned i = 0; i < NEWCOMERS; i++) {
        struct ring mine;
        if (room_try_join(&mine, "home", 100, NEWCOMERS_LIMIT) < 0)
            return 1;
        for (; held < 200 / *chunk && newcomers_hold(&mine, *chunk * ROOM_MIB); held++)
            atomic_fetch_add(&newcomers->large, 1);
        atomic_fetch_add(&newcomers->refused, held < 200 / *chunk);
        for (; held > 0; held--)
            newcomers_drop(&mine, *chunk * ROOM_MIB);
        ring_leave(&mine);
    }
    return 0;
}

/* Four threads that were alone, and processes that come and go: the cap holds at every instant. */
static void test_newcomers(void)
{
    unsigned chunk = 4;
    pthread_t thread[4];
    struct ring home;

    newcomers = room_page(sizeof(*newcomers));
    begin(CUSLICE_NO_LIMIT);
    REQUIRE(room_try_join(&home, "home", 100, NEWCOMERS_LIMIT) == 0);
    pid_t child = room_fork(newcomers_body, &chunk);
    for (unsigned i = 0; i < 4; i++)
        REQUIRE(pthread_create(&thread[i], NULL, resident_body, &home) == 0);
    CHECK_EQ(room_join_child(child), 0);
    atomic_store(&newcomers->end, 1);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(newcomers->over, 0);
    CHECK(newcomers->small > 1000 && newcomers->large > 1000);
    CHECK_EQ(newcomers->refused, NEWCOMERS); /* 200 MiB are more than the cap */
    CHECK_EQ(ledger_tenant(&home), 0);
    CHECK(ring_tenant(&home)->mem_peak <= NEWCOMERS_LIMIT);
    ring_leave(&home);
    end();
    munmap(newcomers, sizeof(*newcomers));
}

int main(void)
{
    TEST(test_to_the_byte);
    TEST(test_sum_of_a_tenant);
    TEST(test_cap_of_a_process);
    TEST(test_no_memory_at_all);
    TEST(test_absurd_sizes);
    TEST(test_large_sizes_without_a_cap);
    TEST(test_cap_that_moves);
    TEST(test_observing);
    TEST(test_what_a_program_sees);
    TEST(test_largest_holders_first);
    TEST(test_more_given_back_than_taken);
    TEST(test_stray_member);
    TEST(test_death_at_each_step);
    TEST(test_stopped_announcer);
    TEST(test_small_announcement);
    TEST(test_alone_to_the_byte);
    TEST(test_no_longer_alone);
    TEST(test_newcomers);
    for (unit = 1; unit <= 512 * 512; unit *= 512) {
        TEST(test_one_of_two);
        TEST(test_both_of_two);
        TEST(test_one_of_two_stumbling);
        TEST(test_one_of_two_threads);
        TEST(test_one_of_two_threads_by_process);
        TEST(test_moving_bytes_are_not_counted_twice);
        TEST(test_many_threads_in_two_processes);
    }
    return test_result();
}
