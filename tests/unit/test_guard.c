/* guard: whoever dies is cleared up after by the two before it in the circle, however many die or
 * stop at once, without anybody's looks; who waits looks seldom then, and still revokes in time;
 * whatever the file says, nobody alive is reaped. */
#include "guard.h"

#include <limits.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "notice.h"
#include "room.h"

#define MS CLOCK_MS
#define SEATS 12u
#define DIED (FUTEX_WAITERS | FUTEX_OWNER_DIED)
/* The keepers here walk anew as seldom as this, so that nothing is found by that. */
#define NEVER (60 * CLOCK_S)
/* What is told is found so soon, on a busy machine; by walks and looks it would be later. */
#define SOON (100 * MS)
#define AWAKE (2500 * MS)

enum order { IDLE, HOLD, WAIT, LEAVE };

/* One per child, in the order of slots. */
struct seat {
    _Atomic(uint32_t) order;
    _Atomic(uint32_t) done; /* it holds, waits, or has left */
    _Atomic(uint32_t) ready;
    _Atomic(uint64_t) got_ns; /* when it got the token that it waited for */
    _Atomic(uint32_t) loops;  /* of its keeper */
    _Atomic(uint32_t) grants; /* its holder gives the token to so many's slot + 1, and dies */
    pid_t pid;
};

static struct seat *seat;
static struct cuslice_segment *shared;
static unsigned seats;
static _Atomic(uint32_t) *told_stops; /* the first that is told stops at once */
static uint64_t lag; /* between a keeper's look and its sleep: it has other devices to look at */

/* A program under a sanitizer takes long to be taken apart. */
static uint64_t soon(void)
{
    const char *san = getenv("SAN");

    return san && *san ? 8 * CLOCK_S : SOON;
}

static bool told_here(void)
{
    return futex_waits_many() && notice_begin() == 0;
}

static bool attached(unsigned slot)
{
    return atomic_load(&shared->attached[slot / 64]) >> (slot % 64) & 1;
}

/* ---- A client in a child ---- */

static struct ring own;
static struct seat *mine;
static _Atomic bool ending;

/* The loop of hooks/keeper.c, with nothing in it that looks at others. */
static void *keeper_body(void *unused)
{
    struct guard guard = {0};

    (void)unused;
    REQUIRE(notice_begin() == 0);
    notice_add(&own);
    guard_begin(&own);
    while (!atomic_load(&ending)) {
        struct futex_watch watch[1 + GUARD_WORDS];
        const _Atomic(uint32_t) *call = ring_call_word(&own);
        watch[0] = (struct futex_watch){call, atomic_load(call), false};
        unsigned n = 1 + guard_words(&own, &watch[1]);
        uint64_t until = guard_look(&own, &guard), most = clock_after(NEVER);
        atomic_fetch_add(&mine->loops, 1);
        guard_say(&own, true);
        if (lag)
            room_sleep(lag);
        atomic_store(&mine->ready, 1);
        int rc = futex_wait_many(watch, n, until < most ? until : most);
        if (rc < 1)
            continue;
        guard_pass_on(&watch[rc]);
        if (atomic_exchange(told_stops, 0))
            raise(SIGSTOP);
    }
    notice_drop(&own);
    return NULL;
}

/* As ring.c's G1 and G2, and no further. */
static void move_to(unsigned slot)
{
    uint64_t old = atomic_load(&shared->token), epoch = CUSLICE_TOKEN_EPOCH(old) + 1;

    atomic_store(&shared->slot[slot].grant_ns, clock_now());
    atomic_store(&shared->slot[slot].grant_epoch, epoch);
    REQUIRE(atomic_compare_exchange_strong(&shared->token, &old, CUSLICE_TOKEN(epoch, slot)));
}

static void hold(void)
{
    uint64_t token;

    REQUIRE(room_take(&own, &token, clock_after(CLOCK_S)));
    ring_arm(&own, token, true);
    atomic_store(&mine->done, 1);
    while (!atomic_load(&mine->grants))
        room_sleep(MS / 5);
    move_to(mine->grants - 1);
    raise(SIGKILL);
}

/* Without a look at the holder. */
static void wait_for_it(void)
{
    uint64_t token;

    for (;;) {
        uint32_t news = ring_news(&own);
        ring_want(&own);
        if (ring_look(&own, &token) == 1)
            break;
        atomic_store(&mine->done, 1);
        futex_wait(&ring_me(&own)->wake, news, clock_after(NEVER));
    }
    ring_claim(&own, token);
    ring_arm(&own, token, true);
    atomic_store(&mine->got_ns, clock_now());
    for (;;)
        pause();
}

static int client_body(void *arg)
{
    pthread_t keeper;

    mine = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    room_join(&own, "client", 100);
    REQUIRE(own.slot == (unsigned)(mine - seat));
    REQUIRE(pthread_create(&keeper, NULL, keeper_body, NULL) == 0);
    while (!atomic_load(&mine->order))
        room_sleep(MS / 5);
    if (mine->order == HOLD)
        hold();
    if (mine->order == WAIT)
        wait_for_it();
    atomic_store(&ending, true);
    ring_call(shared, own.slot);
    pthread_join(keeper, NULL);
    ring_leave(&own);
    atomic_store(&mine->done, 1);
    return 0;
}

/* ---- The circle ---- */

static void sit(unsigned n)
{
    memset(&seat[n], 0, sizeof seat[n]);
    seat[n].pid = room_fork(client_body, &seat[n]);
    REQUIRE(room_await(&seat[n].ready, 1));
}

/* Whether their keepers have come to rest. */
static void settle(void)
{
    for (uint32_t before = 0, now = 1; before != now;) {
        before = now;
        room_sleep(20 * MS);
        now = 0;
        for (unsigned i = 0; i < SEATS; i++)
            now += atomic_load(&seat[i].loops);
    }
}

static void open_circle(unsigned n)
{
    struct segment s;

    room_open();
    REQUIRE(segment_open(&s, room_path, &room_device) == 0); /* makes the file */
    segment_close(&s);
    shared = room_map();
    memset(seat, 0, SEATS * sizeof *seat);
    for (seats = 0; seats < n; seats++)
        sit(seats);
    settle();
}

static void tell(unsigned n, enum order order)
{
    atomic_store(&seat[n].order, order);
    REQUIRE(room_await(&seat[n].done, 1));
}

/* Ends the child, which may have ended. */
static void bury(unsigned n)
{
    if (seat[n].pid) {
        kill(seat[n].pid, SIGKILL);
        room_join_child(seat[n].pid);
    }
    seat[n].pid = 0;
}

static void close_circle(void)
{
    for (unsigned i = 0; i < SEATS; i++)
        bury(i);
    room_unmap(shared);
    room_close();
}

static void stop(unsigned n)
{
    int status;

    kill(seat[n].pid, SIGSTOP);
    REQUIRE(waitpid(seat[n].pid, &status, WUNTRACED) == seat[n].pid && WIFSTOPPED(status));
}

/* Its keeper said last that it guards so long ago. */
static void age(unsigned n, uint64_t ns)
{
    atomic_store(&shared->slot[n].guard_ns, clock_now() - ns);
}

static struct ring seen_by(void)
{
    struct ring ring = {.slot = 0};

    ring.segment.shared = shared;
    return ring;
}

static bool has(unsigned slot)
{
    struct ring ring = seen_by();

    return guard_has(&ring, slot);
}

/* Nanoseconds until the slot is free. */
static uint64_t cleared_after(unsigned slot)
{
    uint64_t from = clock_now();

    while (attached(slot) && clock_now() < from + soon())
        room_sleep(MS / 10);
    return clock_now() - from;
}

/* ---- One death ---- */

/* Neither holder nor waiting: nobody but its guards has a reason to look. */
static void test_idle_client(void)
{
    static const unsigned clients[] = {2, 3, 8};

    for (unsigned i = 0; i < 3; i++) {
        open_circle(clients[i]);
        uint32_t others = clients[i] > 3 ? seat[4].loops : 0;
        bury(1);
        uint64_t took = cleared_after(1);
        printf("of %u: cleared %.2f ms after its end\n", clients[i], (double)took / 1e6);
        CHECK(took < soon());
        CHECK_EQ(shared->reaped, 1);
        CHECK_EQ(shared->slot[1].death, 0);
        CHECK_EQ(shared->slot[1].guard_ns, 0);
        if (clients[i] > 3)
            CHECK_EQ(seat[4].loops, others); /* nobody but its guards is woken */
        close_circle();
    }
}

/* The kernel wakes one of the two: it passes that on before it stops. */
static void test_first_told_stops(void)
{
    open_circle(6);
    atomic_store(told_stops, 1);
    bury(3);
    CHECK(cleared_after(3) < soon());
    CHECK_EQ(atomic_exchange(told_stops, 0), 0);
    close_circle();
}

static uint32_t loops(void)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < SEATS; i++)
        n += atomic_load(&seat[i].loops);
    return n;
}

/* Anybody can wake who sleeps on a word in the file: they do not go on waking each other. */
static void test_woken_for_nothing(void)
{
    open_circle(5);
    uint32_t before = loops();
    for (unsigned i = 0; i < 20; i++) {
        futex_wake(&shared->slot[3].death, 1);
        room_sleep(5 * MS);
    }
    printf("woken 20 times for nothing: %u looks\n", loops() - before);
    CHECK(loops() - before <= 20);
    close_circle();
}

/* ---- Many at once ---- */

/* Kills 1 to 5 of nine, in some order, while 4 holds: 3 and 2 guard it. 7 waits. `stopped` is one
 * of them that is stopped and lives on. */
static void kill_row(unsigned stopped, uint64_t *seed)
{
    unsigned order[] = {1, 2, 3, 4, 5};

    open_circle(9);
    tell(4, HOLD);
    tell(7, WAIT);
    if (stopped)
        stop(stopped);
    for (unsigned i = 5; i-- > 1;) {
        unsigned j = (unsigned)(room_random(seed) % (i + 1)), at = order[i];
        order[i] = order[j];
        order[j] = at;
    }
    for (unsigned i = 0; i < 5; i++)
        if (order[i] != stopped)
            kill(seat[order[i]].pid, SIGKILL);
    for (unsigned i = 1; i < 6; i++)
        if (i != stopped)
            bury(i);
    uint64_t fell = clock_now(); /* the last lock, or before that */
    for (unsigned i = 1; i < 6; i++)
        if (i != stopped)
            CHECK(cleared_after(i) < soon());
    for (unsigned i = 0; i < 500 && !seat[7].got_ns; i++)
        room_sleep(MS);
    CHECK(seat[7].got_ns && seat[7].got_ns < fell + soon());
    CHECK_EQ(CUSLICE_TOKEN_HOLDER(shared->token), 7);
    /* One that is killed while it reaps may not come to count that. */
    CHECK(shared->reaped > 0 && shared->reaped <= (stopped ? 4 : 5));
    close_circle();
}

static void test_holder_and_its_guards(void)
{
    uint64_t seed = 4711;

    for (unsigned n = 0; n < 10; n++)
        kill_row(0, &seed);
}

/* The second death comes at any moment between a look and the sleep after it. */
static void test_slow_keeper(void)
{
    lag = 3 * MS;
    for (uint64_t apart = 0; apart < 10 * MS; apart += MS) {
        open_circle(3);
        kill(seat[1].pid, SIGKILL);
        room_sleep(apart);
        bury(2);
        CHECK(cleared_after(2) < soon());
        bury(1);
        CHECK(cleared_after(1) < soon());
        close_circle();
    }
    lag = 0;
}

static void test_one_guard_stopped(void)
{
    uint64_t seed = 4711;

    for (unsigned n = 0; n < 4; n++) {
        kill_row(3, &seed);
        kill_row(2, &seed);
    }
}

/* ---- Those that are stopped ---- */

/* 3's guards are stopped for long: 0 and 6 before them walk on, and find its death. */
static void test_stopped_for_long(void)
{
    open_circle(7);
    CHECK(has(3));
    stop(1);
    stop(2);
    CHECK(has(3)); /* as it seems */
    age(1, AWAKE + MS);
    age(2, AWAKE + MS);
    CHECK(has(3)); /* by 0 and 6 */
    age(6, AWAKE + MS);
    age(5, AWAKE + MS);
    age(4, AWAKE + MS);
    CHECK(!has(3)); /* by 0 alone, within so many words */
    for (unsigned i = 4; i < 7; i++)
        age(i, 0);
    struct ring ring = seen_by();
    ring_call(shared, 0);
    ring_call(shared, 6);
    settle();
    bury(3);
    CHECK(cleared_after(3) < soon());
    struct futex_watch word[GUARD_WORDS];
    CHECK_EQ(guard_words(&ring, word), 4); /* 1 and 2 as well, and 4 and 5 */
    close_circle();
}

static _Atomic(uint32_t) relieved;

static void *frozen_body(void *word)
{
    futex_wait(word, atomic_load((_Atomic(uint32_t) *)word), clock_after(10 * CLOCK_S));
    atomic_store(&relieved, 1);
    return NULL;
}

/* 2 is frozen in its sleep on 3's word, and stands first there. A thread stands in for it. */
static void test_frozen_in_its_sleep(void)
{
    pthread_t thread;

    open_circle(7);
    stop(2);
    REQUIRE(pthread_create(&thread, NULL, frozen_body, (void *)&shared->slot[3].death) == 0);
    room_sleep(20 * MS);
    ring_call(shared, 0); /* they stand behind it from here on */
    ring_call(shared, 1);
    settle();
    CHECK_EQ(atomic_load(&relieved), 0);
    age(2, AWAKE + MS);
    ring_call(shared, 1);
    settle();
    CHECK_EQ(atomic_load(&relieved), 1);
    bury(3);
    CHECK(cleared_after(3) < soon());
    uint32_t before = loops();
    ring_call(shared, 1);
    settle();
    CHECK(loops() - before <= 2); /* once is enough, and one that was under way */
    pthread_join(thread, NULL);
    close_circle();
}

/* 3's guards are said to be dead, and their locks take long to fall. */
static void test_slow_deaths(void)
{
    open_circle(7);
    for (unsigned i = 1; i < 3; i++) {
        stop(i);
        shared->slot[i].death = DIED;
    }
    ring_call(shared, 0);
    ring_call(shared, 6);
    room_sleep(20 * MS);
    CHECK(has(3));
    bury(3);
    CHECK(cleared_after(3) < soon());
    CHECK(attached(1) && attached(2));
    close_circle();
}

/* A newcomer finds its guards although those next to it are stopped. */
static void test_newcomer_behind_the_stopped(void)
{
    open_circle(5);
    tell(4, LEAVE);
    bury(4);
    stop(3);
    stop(2);
    age(3, AWAKE + MS);
    age(2, AWAKE + MS);
    ring_call(shared, 1);
    ring_call(shared, 0);
    settle();
    sit(4);
    bury(4);
    CHECK(cleared_after(4) < soon());
    close_circle();
}

/* ---- Who comes and goes ---- */

static void test_newcomer(void)
{
    open_circle(7);
    tell(3, LEAVE);
    bury(3);
    settle();
    CHECK(!attached(3));
    sit(3); /* in the same slot */
    CHECK(has(3));
    bury(3);
    CHECK(cleared_after(3) < soon());
    close_circle();
}

/* 3 and 2 go, which guarded 4: 1 and 0 do now. 1 is stopped, for it sleeps on 3 already. */
static void test_leavers(void)
{
    open_circle(7);
    stop(1);
    atomic_store(&seat[2].order, LEAVE);
    atomic_store(&seat[3].order, LEAVE);
    REQUIRE(room_await(&seat[2].done, 1) && room_await(&seat[3].done, 1));
    room_sleep(20 * MS);
    CHECK(has(4));
    bury(4);
    CHECK(cleared_after(4) < soon());
    close_circle();
}

/* ---- A granter that dies ---- */

/* 1 gives its turn to 4, and is killed before it can wake it. */
static void test_granter(void)
{
    open_circle(6);
    tell(1, HOLD);
    tell(4, WAIT);
    room_sleep(20 * MS);
    atomic_store(&seat[1].grants, 4 + 1);
    room_join_child(seat[1].pid);
    seat[1].pid = 0;
    uint64_t fell = clock_now();
    for (unsigned i = 0; i < 500 && !seat[4].got_ns; i++)
        room_sleep(MS);
    CHECK(seat[4].got_ns && seat[4].got_ns < fell + soon());
    CHECK_EQ(CUSLICE_TOKEN_HOLDER(shared->token), 4);
    close_circle();
}

/* ---- A file that lies ---- */

static uint64_t looks_in(struct ring *ring, struct guard *guard, uint64_t ns)
{
    uint64_t looks = 0;

    for (uint64_t end = clock_now() + ns; clock_now() < end; looks++) {
        uint64_t next = guard_look(ring, guard);
        if (next == CLOCK_NEVER)
            return looks;
        REQUIRE(next > clock_now());
        room_pass(next - clock_now());
    }
    return looks;
}

/* The word of one that lives says that it is dead. */
static void test_wrong_notice(void)
{
    struct ring ring[3];
    struct guard guard = {0};

    room_stop_clock();
    room_open();
    for (unsigned i = 0; i < 3; i++)
        room_join(&ring[i], "client", 100);
    CHECK_EQ(looks_in(&ring[0], &guard, CLOCK_S), 0);
    uint32_t generation = ring_me(&ring[1])->generation;
    ring_me(&ring[1])->death = DIED;
    CHECK(!guard_has(&ring[2], 1));
    uint64_t first = looks_in(&ring[0], &guard, 16 * MS);
    uint64_t second = looks_in(&ring[0], &guard, CLOCK_S);
    looks_in(&ring[0], &guard, 30 * CLOCK_S);
    uint64_t late = looks_in(&ring[0], &guard, CLOCK_S);
    printf("looks in 16 ms: %" PRIu64 ", the next second: %" PRIu64 ", one later: %" PRIu64 "\n",
           first, second, late);
    CHECK(first > 10 && first < 60);
    CHECK(second > 200 && second < 300);
    CHECK(late <= 5);
    CHECK_EQ(ring_me(&ring[1])->generation, generation);
    CHECK_EQ(ring_shared(&ring[0])->reaped, 0);
    /* Another death meanwhile is looked into at once. */
    CHECK(guard_look(&ring[0], &guard) > clock_now() + 200 * MS);
    room_pass(MS);
    ring_me(&ring[2])->death = DIED;
    room_die(&ring[2]);
    looks_in(&ring[0], &guard, MS);
    CHECK_EQ(ring_shared(&ring[0])->reaped, 1);
    ring_leave(&ring[0]);
    ring_leave(&ring[1]);
    room_close();
    clock_fake(NULL);
}

/* Random words, times and bits: four that live stay where they are. */
static void test_any_file(void)
{
    struct ring ring[4];
    struct guard guard[4] = {{0}};
    uint32_t generation[4];
    uint64_t seed = 4711, longest = 0;

    room_open();
    for (unsigned i = 0; i < 4; i++) {
        room_join(&ring[i], "client", 100);
        generation[i] = ring_me(&ring[i])->generation;
    }
    struct cuslice_segment *all = ring_shared(&ring[0]);
    for (unsigned n = 0; n < 400; n++) {
        for (unsigned s = 0; s < CUSLICE_SLOTS; s++) {
            uint64_t bits = room_random(&seed), now = clock_now();
            all->slot[s].death = bits & 1 ? DIED : (uint32_t)room_random(&seed);
            all->slot[s].guard_ns = bits & 2 ? now + bits % CLOCK_S : bits & 4 ? now : bits;
        }
        for (unsigned s = 0; n % 5 == 0 && s < CUSLICE_SLOTS; s++) { /* nobody is awake */
            all->slot[s].death = FUTEX_WAITERS | 1;
            all->slot[s].guard_ns = 0;
        }
        for (unsigned w = 0; w < CUSLICE_SLOT_WORDS; w++)
            all->attached[w] = n % 3 ? room_random(&seed) : room_random(&seed) & 0xf;
        for (unsigned i = 0; i < 4; i++) {
            struct futex_watch word[GUARD_WORDS];
            uint64_t from = clock_now();
            CHECK(guard_look(&ring[i], &guard[i]) > from);
            CHECK(guard_words(&ring[i], word) <= GUARD_WORDS);
            guard_has(&ring[i], (unsigned)room_random(&seed) % CUSLICE_SLOTS);
            guard_begin(&ring[i]);
            guard_say(&ring[i], true);
            CHECK(ring_me(&ring[i])->guard_ns <= clock_now());
            longest = clock_now() - from > longest ? clock_now() - from : longest;
            CHECK_EQ(ring_me(&ring[i])->generation, generation[i]);
        }
    }
    printf("the longest of 1600 looks took %.2f ms\n", (double)longest / 1e6);
    CHECK(longest < CLOCK_S);
    for (unsigned i = 0; i < 4; i++)
        ring_leave(&ring[i]);
    room_close();
}

/* One whose own death nobody would be told of guards nobody. */
static void test_silent_guards(void)
{
    open_circle(5);
    CHECK(has(3));
    atomic_store(&shared->slot[2].death, 0);
    CHECK(has(3)); /* by 1 and 0 */
    for (unsigned i = 0; i < 5; i++)
        if (i != 3)
            atomic_store(&shared->slot[i].death, 0);
    CHECK(!has(3));
    close_circle();
}

/* Where nobody says that it guards (no futex_waitv, say), looks go no further than guards would. */
static void test_far(void)
{
    struct ring ring[12];
    struct guard guard = {0};

    room_open();
    for (unsigned i = 0; i < 12; i++)
        room_join(&ring[i], "client", 100);
    ring_me(&ring[7])->death = DIED;
    CHECK(guard_look(&ring[0], &guard) == CLOCK_NEVER);
    CHECK(guard_look(&ring[1], &guard) != CLOCK_NEVER);
    for (unsigned i = 0; i < 12; i++)
        ring_leave(&ring[i]);
    room_close();
}

/* ---- Who waits ---- */

/* Waits for so long, or until it has the token; how often it was awake. */
static unsigned wait_at_most(struct ring *ring, struct watch *watch, uint64_t ns)
{
    unsigned rounds = 0;
    uint64_t token;

    for (uint64_t end = clock_after(ns); clock_now() < end; rounds++) {
        uint32_t news = ring_news(ring);
        ring_want(ring);
        if (ring_look(ring, &token) == 1) {
            ring_claim(ring, token);
            break;
        }
        ring_wait(ring, news, watch, end);
    }
    return rounds;
}

static long slept(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void test_looks_seldom(void)
{
    struct ring waiter;
    struct watch watch = {0};

    open_circle(4);
    tell(3, HOLD);
    room_join(&waiter, "waiter", 100);
    shared->allowance_ns = 10 * CLOCK_S;
    wait_at_most(&waiter, &watch, 20 * MS); /* it learns whose turn it is */
    long before = slept();
    unsigned rounds = wait_at_most(&waiter, &watch, CLOCK_S);
    long naps = slept() - before;
    printf("awake %u times in a second, %ld sleeps\n", rounds, naps);
    CHECK(rounds <= 6);
    CHECK(naps <= 6);
    ring_leave(&waiter);
    close_circle();
}

static void *waiter_body(void *arg)
{
    struct watch watch = {0};

    wait_at_most(arg, &watch, 60 * MS);
    return NULL;
}

/* Nobody but its guards sleeps on the word of a holder that has not claimed its turn, lest the one
 * wake-up goes to one that dies with it. */
static void test_who_sleeps_on_the_word(void)
{
    struct ring waiter;
    pthread_t thread;
    int most = 0;

    open_circle(5);
    tell(1, HOLD);
    room_join(&waiter, "waiter", 100);
    move_to(4);
    REQUIRE(pthread_create(&thread, NULL, waiter_body, &waiter) == 0);
    for (unsigned i = 0; i < 12; i++) {
        room_sleep(3 * MS);
        int n = futex_wake(&shared->slot[4].death, INT_MAX);
        most = n > most ? n : most;
    }
    CHECK_EQ(most, 2);
    pthread_join(thread, NULL);
    ring_leave(&waiter);
    close_circle();
}

/* A holder that lives and does not move, at the end of the times that it has. */
static void test_hung_holder(void)
{
    uint64_t best = CLOCK_NEVER;

    for (unsigned n = 0; n < 3; n++) {
        struct ring waiter;
        struct watch watch = {0};
        open_circle(4);
        room_join(&waiter, "waiter", 100);
        tell(2, HOLD);
        uint64_t granted = shared->slot[2].grant_ns;
        wait_at_most(&waiter, &watch, 2 * CLOCK_S);
        uint64_t took = clock_now() - granted;
        CHECK(ring_holds(&waiter, shared->token));
        CHECK(took > 125 * MS);
        best = took < best ? took : best;
        ring_leave(&waiter);
        close_circle();
    }
    printf("revoked %.1f ms after its grant\n", (double)best / 1e6);
    CHECK(best < 200 * MS);
}

static void *passer_body(void *arg)
{
    room_sleep(*(uint64_t *)arg);
    move_to(3);
    ring_poke(shared, 3);
    return NULL;
}

/* The turn changes while the waiter sleeps, and the next holder is the one that does not move. */
static void test_hung_after_a_change(void)
{
    uint64_t best = CLOCK_NEVER, wait = 60 * MS;

    for (unsigned n = 0; n < 3; n++) {
        struct ring waiter;
        struct watch watch = {0};
        pthread_t passer;
        open_circle(4);
        tell(2, HOLD);
        tell(3, WAIT);
        room_join(&waiter, "waiter", 100);
        shared->allowance_ns = 400 * MS;
        REQUIRE(pthread_create(&passer, NULL, passer_body, &wait) == 0);
        wait_at_most(&waiter, &watch, 3 * CLOCK_S);
        uint64_t took = clock_now() - shared->slot[3].grant_ns;
        pthread_join(passer, NULL);
        CHECK(ring_holds(&waiter, shared->token));
        CHECK(took > 425 * MS);
        best = took < best ? took : best;
        ring_leave(&waiter);
        close_circle();
    }
    printf("revoked %.1f ms after its grant\n", (double)best / 1e6);
    CHECK(best < 530 * MS);
}

/* A keeper that asks in place of threads (hooks/gather.c) blames likewise. */
static void test_hung_watched_by_a_keeper(void)
{
    struct ring asker;
    struct watch watch = {0};
    unsigned looks = 0;
    uint64_t token, took = 0;

    open_circle(4);
    room_join(&asker, "asker", 100);
    tell(2, HOLD);
    shared->allowance_ns = 400 * MS;
    uint64_t granted = shared->slot[2].grant_ns;
    for (uint64_t end = clock_after(3 * CLOCK_S); clock_now() < end && !took; looks++) {
        ring_want(&asker);
        if (ring_look(&asker, &token) == 1)
            took = clock_now() - granted;
        watch_look(&asker, &watch);
        room_sleep(watch_after(&asker, &watch));
    }
    printf("revoked %.1f ms after its grant, after %u looks\n", (double)took / 1e6, looks);
    CHECK(took > 425 * MS && took < 600 * MS);
    CHECK(looks < 40);
    ring_leave(&asker);
    close_circle();
}

int main(void)
{
    seat = room_page(SEATS * sizeof *seat);
    told_stops = room_page(sizeof *told_stops);
    clock_init();
    if (!told_here()) {
        printf("no futex_waitv or no robust lists here\n");
        return TEST_SKIP;
    }
    TEST(test_wrong_notice);
    TEST(test_any_file);
    TEST(test_silent_guards);
    TEST(test_far);
    TEST(test_idle_client);
    TEST(test_first_told_stops);
    TEST(test_woken_for_nothing);
    TEST(test_holder_and_its_guards);
    TEST(test_slow_keeper);
    TEST(test_one_guard_stopped);
    TEST(test_stopped_for_long);
    TEST(test_slow_deaths);
    TEST(test_frozen_in_its_sleep);
    TEST(test_newcomer);
    TEST(test_newcomer_behind_the_stopped);
    TEST(test_leavers);
    TEST(test_granter);
    TEST(test_looks_seldom);
    TEST(test_who_sleeps_on_the_word);
    TEST(test_hung_holder);
    TEST(test_hung_after_a_change);
    TEST(test_hung_watched_by_a_keeper);
    return test_result();
}
