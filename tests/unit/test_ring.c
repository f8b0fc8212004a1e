/* ring: every step of the protocol by itself, on a clock that stands still where it can: taking,
 * passing, renewing, giving up, lost wake-ups, death at each numbered step, who is revoked and who
 * is not, and files that hold nonsense. */
#include "ring.h"

#include <pthread.h>
#include <sys/prctl.h>

#include "notice.h"
#include "policy.h"
#include "room.h"
#include "slot.h"

#define MS CLOCK_MS
#define QUANTUM (20 * MS)
#define ALLOWANCE (100 * MS)

static struct ring a, b, c;
static struct cuslice_segment *shared;

static void begin(void)
{
    room_stop_clock();
    room_open();
    room_join(&a, "alpha", 100);
    room_join(&b, "beta", 100);
    room_join(&c, "gamma", 100);
    shared = ring_shared(&a);
}

static void end(void)
{
    ring_leave(&a);
    ring_leave(&b);
    ring_leave(&c);
    room_close();
    clock_fake(NULL);
}

/* What the keeper has been called. */
static uint32_t calls(const struct ring *ring)
{
    return *ring_call_word(ring);
}

static unsigned holder(void)
{
    return CUSLICE_TOKEN_HOLDER(shared->token);
}

static bool bit(const struct ring *ring)
{
    return shared->waiting[ring->slot / 64] >> (ring->slot % 64) & 1;
}

/* The ring's client wants and gets the token, which is free. */
static uint64_t take(struct ring *ring)
{
    uint64_t token = 0;

    ring_want(ring);
    REQUIRE(ring_look(ring, &token) == 1);
    ring_claim(ring, token);
    return token;
}

static void test_take_and_pass(void)
{
    uint64_t first, second, epoch;

    begin();
    epoch = CUSLICE_TOKEN_EPOCH(shared->token);
    first = take(&a);
    CHECK(ring_holds(&a, first) && !ring_holds(&b, first));
    CHECK_EQ(CUSLICE_TOKEN_EPOCH(first), epoch + 1);
    CHECK_EQ(ring_token(&b), first);
    CHECK(!ring_wanted(&a));
    ring_want(&b);
    CHECK(ring_wanted(&a) && !ring_wanted(&b));
    CHECK_EQ(ring_look(&b, &second), 0);
    room_pass(5 * MS);
    uint32_t news = ring_news(&b);
    CHECK_EQ(ring_pass(&a, &first, false), 0);
    CHECK(ring_news(&b) != news);
    CHECK_EQ(ring_look(&b, &second), 1);
    CHECK_EQ(CUSLICE_TOKEN_EPOCH(second), epoch + 2);
    room_pass(2 * MS);
    ring_claim(&b, second);
    CHECK(!bit(&b));
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, 5 * MS);
    CHECK_EQ(ring_tenant(&a)->books.slices, 1);
    CHECK_EQ(ring_tenant(&b)->books.waited_ns, 7 * MS);
    CHECK_EQ(ring_tenant(&b)->wait.count, 1);
    CHECK_EQ(ring_tenant(&b)->wait.sum_ns, 7 * MS);
    CHECK_EQ(ring_me(&b)->waiting_since_ns, 0);
    ring_claim(&b, second); /* another thread of the same process */
    CHECK_EQ(ring_tenant(&b)->wait.count, 1);
    CHECK_EQ(ring_pass(&b, &second, false), 0);
    CHECK_EQ(holder(), CUSLICE_NOBODY);
    CHECK_EQ(ring_pass(&b, &second, false), -ESTALE);
    end();
}

static void test_renewing(void)
{
    uint64_t token, old;

    begin();
    token = old = take(&a);
    room_pass(QUANTUM);
    CHECK_EQ(ring_renew(&a, &token, true), 1); /* alone, and wants more: a new turn */
    CHECK_EQ(CUSLICE_TOKEN_EPOCH(token), CUSLICE_TOKEN_EPOCH(old) + 1);
    CHECK_EQ(ring_token(&a), token);
    CHECK_EQ(ring_me(&a)->claimed_epoch, CUSLICE_TOKEN_EPOCH(token));
    old = token;
    CHECK_EQ(ring_renew(&a, &token, false), 1); /* alone, with nothing to do: goes on */
    CHECK_EQ(token, old);
    ring_want(&b);
    room_pass(QUANTUM);
    CHECK_EQ(ring_renew(&a, &token, true), 0);
    CHECK_EQ(token, old);
    CHECK_EQ(ring_pass(&a, &token, true), 0);
    CHECK_EQ(holder(), b.slot);
    CHECK_EQ(ring_renew(&a, &token, true), -ESTALE);
    end();
}

/* The one with less use goes on although another waits. */
static void test_renewing_when_due(void)
{
    uint64_t token, old;

    begin();
    token = old = take(&a);
    ring_want(&b);
    ring_tenant(&b)->vtime = 1000 * MS;
    room_pass(QUANTUM);
    CHECK_EQ(ring_renew(&a, &token, true), 1);
    CHECK(token != old);
    old = token;
    room_pass(QUANTUM);
    CHECK_EQ(ring_pass(&a, &token, true), 1);
    CHECK(token != old && ring_token(&a) == token);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    CHECK_EQ(holder(), b.slot);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, 2 * QUANTUM);
    end();
}

static void test_slice_end(void)
{
    uint64_t token, from = 0;

    begin();
    token = take(&a);
    uint64_t granted = room_clock();
    room_pass(3 * MS);
    CHECK_EQ(ring_slice_end(&a, token, &from), granted + QUANTUM);
    CHECK_EQ(from, granted);
    ring_me(&a)->grant_epoch = 1; /* a granter that came too late: the holder counts from now */
    CHECK_EQ(ring_slice_end(&a, token, &from), room_clock() + QUANTUM);
    ring_claim(&a, token);
    CHECK_EQ(ring_me(&a)->grant_epoch, CUSLICE_TOKEN_EPOCH(token));
    shared->quantum_ns = UINT64_MAX;
    CHECK_EQ(ring_slice_end(&a, token, &from), room_clock() + 10 * CLOCK_S);
    end();
}

static void test_giving_up(void)
{
    uint64_t mine, token = 0;

    begin();
    mine = take(&a);
    ring_want(&b);
    CHECK_EQ(ring_unwant(&b, &token), 0);
    CHECK(!bit(&b) && ring_me(&b)->waiting_since_ns == 0);
    CHECK_EQ(ring_pass(&a, &mine, false), 0);
    CHECK_EQ(holder(), CUSLICE_NOBODY);
    mine = take(&a);
    ring_want(&b);
    CHECK_EQ(ring_pass(&a, &mine, false), 0); /* while b makes up its mind */
    CHECK_EQ(ring_unwant(&b, &token), 1);
    CHECK_EQ(token, ring_token(&a));
    CHECK_EQ(ring_pass(&b, &token, false), 0);
    CHECK_EQ(holder(), CUSLICE_NOBODY);
    /* Other threads of b that still wait are woken, to say so again. */
    mine = take(&a);
    ring_want(&b);
    uint32_t news = ring_news(&b);
    ring_unwant(&b, &token);
    CHECK(ring_news(&b) != news);
    end();
}

/* R1, then death: the next look of any waiter finds the token free, and policy has its say. */
static void test_free_token_is_found(void)
{
    uint64_t token;

    begin();
    ring_want(&b);
    ring_want(&c);
    ring_tenant(&b)->vtime = 5;
    CHECK_EQ(ring_look(&b, &token), 0);
    CHECK_EQ(holder(), c.slot);
    CHECK_EQ(ring_look(&c, &token), 1);
    end();
}

/* G2, then death: a watcher does what the granter could not. */
static void test_lost_wake_is_repaired(void)
{
    struct watch watch = {0};
    uint64_t epoch;
    uint32_t news;

    begin();
    take(&a);
    ring_want(&b);
    ring_want(&c);
    epoch = CUSLICE_TOKEN_EPOCH(shared->token) + 1;
    ring_me(&b)->grant_ns = room_clock();
    ring_me(&b)->grant_epoch = epoch;
    shared->token = CUSLICE_TOKEN(epoch, b.slot);
    news = ring_news(&b);
    watch_look(&c, &watch);
    room_pass(WATCH_NS);
    watch_look(&c, &watch);
    CHECK_EQ(ring_news(&b), news + 1);
    ring_claim(&b, shared->token);
    room_pass(WATCH_NS);
    watch_look(&c, &watch);
    CHECK_EQ(ring_news(&b), news + 1);
    end();
}

static void test_dead_holder(void)
{
    struct watch watch = {0};

    begin();
    take(&a);
    ring_want(&b);
    room_pass(3 * MS);
    room_die(&a);
    shared = ring_shared(&b);
    CHECK(watch_look(&b, &watch)); /* the first look is enough */
    CHECK_EQ(holder(), b.slot);
    CHECK_EQ(shared->reaped, 1);
    CHECK_EQ(shared->tenant[a.tenant].books.charged_ns, 3 * MS);
    room_join(&a, "alpha", 100);
    end();
}

/* A pod goes as a whole: its holder and its waiters. None of the dead is granted a turn. */
static void test_dead_waiters_go_with_the_holder(void)
{
    struct ring more[6];
    struct watch watch = {0};
    uint64_t epoch;

    begin();
    for (unsigned i = 0; i < 6; i++)
        room_join(&more[i], "pod", 100);
    take(&a);
    for (unsigned i = 0; i < 6; i++)
        ring_want(&more[i]);
    ring_want(&b);
    ring_tenant(&b)->vtime = 100 * MS; /* behind all of them */
    epoch = CUSLICE_TOKEN_EPOCH(shared->token);
    for (unsigned i = 0; i < 6; i++)
        room_die(&more[i]);
    room_die(&a);
    shared = ring_shared(&b);
    CHECK(watch_look(&b, &watch));
    CHECK_EQ(holder(), b.slot);
    CHECK_EQ(CUSLICE_TOKEN_EPOCH(shared->token), epoch + 1);
    CHECK_EQ(shared->reaped, 7);
    room_join(&a, "alpha", 100);
    end();
}

/* A late granter names a client that has left: whoever looks moves the token on, for good. */
static void test_absent_holder(void)
{
    struct watch watch = {0};

    begin();
    ring_want(&b);
    shared->waiting[3] |= UINT64_C(1) << 63;
    shared->token = CUSLICE_TOKEN(77, 255);
    CHECK(watch_look(&b, &watch));
    CHECK_EQ(holder(), b.slot);
    CHECK_EQ(shared->waiting[3], 0);
    shared->token = CUSLICE_TOKEN(99, 0x1234);
    uint64_t token;
    ring_want(&b);
    CHECK_EQ(ring_look(&b, &token), 1);
    CHECK_EQ(token, CUSLICE_TOKEN(100, b.slot));
    end();
}

/* Looks every WATCH_NS until the token moves or `limit` has passed; the time it took. */
static uint64_t watch_until_moved(struct ring *ring, struct watch *watch, uint64_t limit)
{
    uint64_t start = room_clock(), token = shared->token;

    watch_look(ring, watch);
    while (shared->token == token && room_clock() - start < limit) {
        room_pass(WATCH_NS);
        watch_look(ring, watch);
    }
    return room_clock() - start;
}

static void test_overdue_holder_is_revoked(void)
{
    struct watch watch = {0};
    uint64_t lease, took;
    uint32_t news;

    begin();
    ring_want(&b);
    ring_tenant(&b)->vtime = 1;
    lease = take(&a);
    ring_want(&a); /* other threads of a are at its closed gate */
    news = ring_news(&a);
    took = watch_until_moved(&b, &watch, 10 * CLOCK_S);
    CHECK(took > QUANTUM + ALLOWANCE + WATCH_GRACE_NS);
    CHECK(took <= QUANTUM + ALLOWANCE + WATCH_GRACE_NS + WATCH_NS);
    CHECK_EQ(holder(), b.slot);
    CHECK(ring_token(&a) != lease);
    CHECK(!bit(&a));              /* it must not be granted again while it does not move */
    CHECK(ring_news(&a) != news); /* and hears of it when it does */
    CHECK_EQ(ring_tenant(&a)->books.revocations, 1);
    CHECK_EQ(ring_tenant(&a)->books.overruns, 1);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, took);
    CHECK_EQ(ring_pass(&a, &lease, true), -ESTALE);
    CHECK_EQ(ring_renew(&a, &lease, true), -ESTALE);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, took);
    CHECK_EQ(ring_tenant(&a)->books.slices, 0);
    end();
}

/* Who held it for long while nobody wanted it has allowance and grace from the first who does. */
static void test_late_waiter_is_patient(void)
{
    struct watch watch = {0};
    uint64_t took;

    begin();
    take(&a);
    room_pass(100 * CLOCK_S);
    ring_want(&b);
    took = watch_until_moved(&b, &watch, 10 * CLOCK_S);
    CHECK(took > ALLOWANCE + WATCH_GRACE_NS);
    CHECK(took <= ALLOWANCE + WATCH_GRACE_NS + WATCH_NS);
    end();
}

/* The client that passed last looks on; its looks from before anybody waited do not count. */
static void test_watching_without_waiters_blames_nobody(void)
{
    struct watch watch = {0};
    uint64_t took, token;

    begin();
    token = take(&c);
    ring_want(&a);
    ring_pass(&c, &token, false);
    ring_claim(&a, shared->token);
    token = shared->token;
    CHECK_EQ(watch_until_moved(&c, &watch, 3 * CLOCK_S), 3 * CLOCK_S);
    CHECK_EQ(shared->token, token);
    ring_want(&b);
    took = watch_until_moved(&c, &watch, 3 * CLOCK_S);
    CHECK(took > ALLOWANCE + WATCH_GRACE_NS - WATCH_NS);
    CHECK(took <= ALLOWANCE + WATCH_GRACE_NS + 2 * WATCH_NS);
    end();
}

/* A node that slept for ten seconds: whoever wakes first must not blame the others. */
static void test_observer_that_slept_blames_nobody(void)
{
    struct watch watch = {0};
    uint64_t lease;

    begin();
    lease = take(&a);
    ring_want(&b);
    for (unsigned i = 0; i < 10; i++) {
        watch_look(&b, &watch);
        room_pass(WATCH_NS);
    }
    for (unsigned i = 0; i < 2; i++) {
        room_pass(10 * CLOCK_S);
        for (unsigned j = 0; j < 5; j++) {
            watch_look(&b, &watch);
            room_pass(WATCH_NS);
        }
        CHECK_EQ(shared->token, lease);
    }
    /* Its own waking time alone counts: 40 ms and 2 x 20 ms of the 130 ms are gone. */
    uint64_t took = watch_until_moved(&b, &watch, CLOCK_S);
    CHECK(took >= 40 * MS && took <= 70 * MS);
    end();
}

/* Looks that are meant to be seldom prove nothing, however many: only close ones blame. */
static void test_far_looks_blame_nobody(void)
{
    struct watch watch = {0};
    uint64_t lease;

    begin();
    lease = take(&a);
    ring_want(&b);
    for (unsigned i = 0; i < 20; i++) {
        watch_look(&b, &watch);
        watch.due_ns = room_clock() + 250 * MS;
        room_pass(251 * MS);
    }
    CHECK_EQ(shared->token, lease);
    CHECK(watch_until_moved(&b, &watch, CLOCK_S) <= 5 * WATCH_NS); /* four more, close */
    CHECK_EQ(holder(), b.slot);
    end();
}

static void test_passing_in_time_is_no_revocation(void)
{
    struct watch watch = {0};
    uint64_t token;

    begin();
    token = take(&a);
    ring_want(&b);
    CHECK_EQ(watch_until_moved(&b, &watch, QUANTUM + ALLOWANCE), QUANTUM + ALLOWANCE);
    CHECK_EQ(ring_pass(&a, &token, true), 0);
    CHECK_EQ(holder(), b.slot);
    CHECK_EQ(ring_tenant(&a)->books.revocations, 0);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, QUANTUM + ALLOWANCE);
    end();
}

/* A ring whose settings are nonsense revokes within the widest of ranges, and not before the
 * narrowest. */
static void test_nonsense_settings(void)
{
    struct watch watch = {0};

    begin();
    shared->allowance_ns = UINT64_MAX;
    shared->quantum_ns = UINT64_MAX - 5;
    take(&a);
    ring_want(&b);
    CHECK_EQ(watch_until_moved(&b, &watch, 60 * CLOCK_S), 60 * CLOCK_S);
    CHECK(watch_until_moved(&b, &watch, 60 * CLOCK_S) <= 11 * CLOCK_S);
    CHECK_EQ(holder(), b.slot);
    end();
}

static void test_arming(void)
{
    uint64_t token;
    struct watch watch = {0};
    uint32_t news;

    begin();
    token = take(&a);
    CHECK(!ring_arm(&a, token, true));
    ring_want(&b);
    CHECK(ring_arm(&a, token, false));
    clock_fake(NULL); /* from here on time passes */
    news = calls(&a);
    ring_wait(&b, ring_news(&b), &watch, clock_after(MS));
    CHECK(calls(&a) != news);
    CHECK(ring_arm(&a, token, true));
    ring_claim(&a, token);
    news = calls(&a);
    ring_wait(&b, ring_news(&b), &watch, clock_after(MS));
    CHECK_EQ(calls(&a), news);
    end();
}

/* A wake-up between the look and the wait is not lost, whatever the deadline. */
static void test_news_before_the_wait(void)
{
    struct watch watch = {0};
    uint32_t news;
    uint64_t before;

    begin();
    clock_fake(NULL);
    take(&a);
    for (unsigned i = 0; i < CUSLICE_SLOTS / 64; i++)
        shared->waiting[i] = 0xff; /* many stand before b: its own look is far away */
    news = ring_news(&b);
    ring_want(&b);
    ring_poke(shared, b.slot);
    before = clock_now();
    ring_wait(&b, news, &watch, CLOCK_NEVER);
    CHECK(clock_now() - before < 200 * MS);
    memset((void *)shared->waiting, 0, sizeof(shared->waiting));
    end();
}

/* While nobody waits a turn is charged as it goes on; who comes then is not set back by what was
 * charged already. */
static void test_newcomer_is_not_set_back(void)
{
    uint64_t token;

    begin();
    token = take(&a);
    for (unsigned i = 0; i < 100; i++) {
        room_pass(CLOCK_S);
        CHECK_EQ(ring_renew(&a, &token, false), 1);
    }
    room_pass(QUANTUM);
    ring_want(&b);
    CHECK_EQ(ring_tenant(&b)->vtime, 100 * CLOCK_S);
    end();
}

static void test_joiner_wakes_the_holder(void)
{
    struct ring late;
    uint32_t news;

    begin();
    take(&a);
    news = calls(&a);
    room_join(&late, "late", 100);
    CHECK(calls(&a) != news);
    CHECK_EQ(ring_clients(&a), 4);
    ring_leave(&late);
    end();
}

static void test_leaving_passes_on(void)
{
    uint64_t token;

    begin();
    take(&a);
    ring_want(&b);
    room_pass(4 * MS);
    ring_leave(&a);
    shared = ring_shared(&b);
    CHECK_EQ(ring_look(&b, &token), 1);
    CHECK_EQ(shared->tenant[a.tenant].books.charged_ns, 4 * MS);
    room_join(&a, "alpha", 100);
    end();
}

static void test_epoch_goes_round(void)
{
    uint64_t token;

    begin();
    shared->token = CUSLICE_TOKEN((UINT64_C(1) << 48) - 1, CUSLICE_NOBODY);
    token = take(&a);
    CHECK_EQ(token, CUSLICE_TOKEN(1, a.slot)); /* 0 is no epoch */
    room_pass(QUANTUM);
    CHECK_EQ(ring_renew(&a, &token, true), 1);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, QUANTUM);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    end();
}

static void test_wiped_token_is_nobodys(void)
{
    uint64_t token;

    begin();
    REQUIRE(a.slot == 0);
    shared->token = 0;
    ring_want(&b);
    CHECK_EQ(ring_look(&b, &token), 1);
    CHECK_EQ(token, CUSLICE_TOKEN(1, b.slot));
    shared->token = 0;
    ring_unwant(&b, &token);
    CHECK_EQ(ring_look(&a, &token), 0);
    end();
}

static void test_idle_time_is_free(void)
{
    uint64_t token;

    begin();
    token = take(&a);
    room_pass(5 * MS);
    ring_charge(&a, token);
    room_pass(50 * MS);
    ring_idle(&a, token);
    room_pass(2 * MS);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, 7 * MS);
    ring_charge(&a, token); /* the turn is over */
    ring_idle(&a, token);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, 7 * MS);
    end();
}

/* What a client needs others to know of it, it says again whenever it wants a turn. */
static void test_damage_to_a_slot_heals(void)
{
    begin();
    ring_me(&a)->tenant = 3000;
    ring_me(&a)->joined_ns = 0;
    ring_me(&a)->last_grant_ns = UINT64_MAX;
    ring_tenant(&a)->members[0] = 0;
    shared->attached[0] = 0;
    ring_want(&a);
    CHECK_EQ(ring_me(&a)->tenant, a.tenant);
    CHECK(ring_me(&a)->joined_ns != 0);
    CHECK_EQ(ring_me(&a)->last_grant_ns, 0);
    CHECK_EQ(ring_tenant(&a)->members[0], 1);
    CHECK_EQ(shared->attached[0], 1);
    shared->attached[0] = 7;
    end();
}

/* A moment's pause takes nothing of what a client is owed; a longer one makes it a sleeper. */
static void test_a_pause_keeps_what_is_owed(void)
{
    for (unsigned quanta = 0; quanta < 3; quanta += 2) {
        begin();
        uint64_t token = take(&a), vtime = 1000 * MS;
        ring_tenant(&a)->vtime = vtime;
        ring_tenant(&b)->vtime = vtime + 200 * MS;
        ring_want(&b);
        CHECK_EQ(ring_pass(&a, &token, false), 0);
        room_pass(quanta * QUANTUM + MS);
        ring_want(&a);
        if (quanta)
            CHECK_EQ(ring_tenant(&a)->vtime, vtime + 200 * MS - QUANTUM);
        else
            CHECK(ring_tenant(&a)->vtime < vtime + QUANTUM);
        end();
    }
}

/* Whether another client is due is asked without moving anything. */
static void test_due(void)
{
    begin();
    uint64_t token = take(&a);
    room_pass(QUANTUM);
    CHECK(!ring_due(&a, token)); /* nobody else wants it */
    ring_want(&b);
    CHECK(ring_due(&a, token));
    CHECK_EQ(shared->token, token);
    CHECK(!ring_due(&a, token + 1));
    end();
}

/* Who is likely to be next is woken once, and again when the pass is put off. */
static void test_expecting(void)
{
    begin();
    uint64_t token = take(&a), due = room_clock() + 2 * MS;
    ring_want(&b);
    ring_want(&c);
    uint32_t next = ring_news(&b), further = ring_news(&c);
    ring_expect(&a, token, due);
    CHECK_EQ(ring_news(&b), next + 1);
    ring_expect(&a, token, due + MS / 2);
    CHECK_EQ(ring_news(&b), next + 1);
    CHECK_EQ(ring_me(&a)->due_ns, due + MS / 2);
    ring_expect(&a, token, due + 3 * MS);
    CHECK_EQ(ring_news(&b), next + 2);
    CHECK_EQ(ring_news(&c), further);
    end();
}

/* Without a time to look for, or on crowded CPUs, there is no close look. */
static void test_nothing_to_look_for(void)
{
    struct watch watch = {0};
    int slack = -1, own = prctl(PR_GET_TIMERSLACK);

    begin();
    uint64_t token = take(&a);
    ring_want(&b);
    CHECK(!ring_wait_close(&b, &watch, &slack)); /* nothing said */
    ring_expect(&a, token, room_clock() - MS);
    CHECK(!ring_wait_close(&b, &watch, &slack)); /* long past */
    ring_expect(&a, token, room_clock() + CLOCK_S);
    CHECK(!ring_wait_close(&b, &watch, &slack)); /* far off */
    ring_expect(&a, token, room_clock());
    CHECK_EQ(slack, own);
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 1);
    clock_give_slack(slack);
    slack = -1;
    shared->crowded_ns = room_clock() + MS;
    CHECK(!ring_wait_close(&b, &watch, &slack)); /* crowded */
    CHECK_EQ(slack, -1);                         /* nor are the thread's timers touched for that */
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), own);
    shared->crowded_ns = 0;
    ring_expect(&a, token, room_clock() + 4 * MS);
    CHECK_EQ(watch.told, 0);
    ring_me(&a)->death = FUTEX_WAITERS | FUTEX_OWNER_DIED; /* its pass will not come */
    CHECK(!ring_wait_close(&b, &watch, &slack));
    clock_give_slack(slack);
    CHECK_EQ(watch.told, token);
    CHECK_EQ(shared->close_ns, 0);
    CHECK_EQ(ring_me(&b)->looking, 0);
    end();
}

/* What runs in others' turns uses up a limit like what runs in its own. */
static void test_overrun_counts_for_the_limit(void)
{
    begin();
    ring_tenant(&b)->limit_ppm = ring_tenant(&b)->limit_rate = 250000;
    CHECK_EQ(ring_limit_until(&b), 0);
    ring_overrun(&b, 500 * MS);
    CHECK(ring_limit_until(&b) > room_clock() + CLOCK_S);
    CHECK_EQ(ring_limit_until(&a), 0);
    end();
}

/* A thread at the gate that its own process has closed does not look for its own pass. */
static void test_no_look_at_itself(void)
{
    struct watch watch = {0};
    int slack = -1;

    begin();
    clock_fake(NULL);
    uint64_t token = take(&a);
    ring_want(&b);
    ring_want(&a);
    ring_expect(&a, token, clock_after(CLOCK_MS));
    CHECK(!ring_wait_close(&a, &watch, &slack));
    CHECK_EQ(shared->close_ns, 0);
    end();
}

/* A passer that finds the flag up does not wake; the flag of somebody who died is taken down. */
static void test_looking(void)
{
    begin();
    uint64_t token = take(&a);
    ring_want(&b);
    ring_me(&b)->looking = 1;
    uint32_t news = ring_news(&b);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    CHECK_EQ(ring_news(&b), news + 1); /* a later sleep would not begin */
    CHECK_EQ(holder(), b.slot);
    unsigned slot = b.slot;
    room_die(&b);
    ring_me(&a)->wake++;
    slot_reap(&a.segment, slot);
    room_join(&b, "beta", 100);
    CHECK_EQ(b.slot, slot);
    CHECK_EQ(ring_me(&b)->looking, 0);
    end();
}

static void *look_closely(void *arg)
{
    struct watch watch = {0};
    int slack = -1; /* the thread ends */
    bool *seen = arg;
    *seen = ring_wait_close(&b, &watch, &slack);
    return NULL;
}

/* Another thread passes while one looks closely: it sees that without being woken. A busy machine
 * may keep it from looking in time, so one of many turns will do. */
static void test_close_look(void)
{
    bool seen = false;
    begin();
    clock_fake(NULL);
    for (int turn = 0; turn < 4000 && !seen; turn++) {
        pthread_t thread;
        uint64_t token = take(&a), due = clock_after(MS);
        ring_want(&b);
        shared->crowded_ns = 0;
        ring_expect(&a, token, due);
        REQUIRE(pthread_create(&thread, NULL, look_closely, &seen) == 0);
        while (clock_now() < due)
            ;
        CHECK_EQ(ring_pass(&a, &token, false), 0);
        pthread_join(thread, NULL);
        seen = seen && shared->close_ns > 0;
        CHECK_EQ(ring_me(&b)->looking, 0);
        REQUIRE(ring_look(&b, &token) == 1);
        ring_claim(&b, token);
        CHECK_EQ(ring_pass(&b, &token, false), 0);
    }
    CHECK(seen);
    end();
}

/* Of a client whose tenant nobody knows it would never be the turn, and it would wait for ever. */
static void test_damage_while_waiting_heals(void)
{
    uint64_t token = 0;

    begin();
    ring_want(&a);
    CHECK_EQ(ring_look(&a, &token), 1);
    ring_claim(&a, token);
    ring_want(&b);
    ring_want(&c);
    ring_me(&b)->tenant = 3000;
    ring_want(&b); /* as it does between two waits */
    CHECK_EQ(ring_me(&b)->tenant, b.tenant);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    CHECK_EQ(CUSLICE_TOKEN_HOLDER(shared->token), b.slot);
    end();
}

static void test_tending(void)
{
    char path[SEGMENT_PATH_MAX], aside[SEGMENT_PATH_MAX + 8];

    begin();
    snprintf(path, sizeof(path), "%s", a.segment.path);
    snprintf(aside, sizeof(aside), "%s.aside", path);
    struct cuslice_slot *s = &shared->slot[b.slot];
    CHECK_EQ(ring_tend(&a), 0);
    room_die(&b);
    CHECK_EQ(ring_tend(&c), 0); /* a is next after c, and lives */
    CHECK_EQ(shared->reaped, 0);
    s->death = FUTEX_WAITERS | 1; /* its guards would have been told */
    s->guard_ns = room_clock() - CLOCK_S;
    CHECK_EQ(ring_tend(&a), 0);
    CHECK_EQ(shared->reaped, 0);
    s->guard_ns = room_clock() - 3 * CLOCK_S;
    CHECK_EQ(ring_tend(&a), 0);
    CHECK_EQ(shared->reaped, 1);
    room_join(&b, "beta", 100);
    room_die(&b);
    s->death = FUTEX_WAITERS | 1;
    s->guard_ns = room_clock() + CLOCK_S; /* damage */
    CHECK_EQ(ring_tend(&a), 0);
    CHECK_EQ(shared->reaped, 2);
    room_join(&b, "beta", 100);
    REQUIRE(rename(path, aside) == 0);
    CHECK_EQ(ring_tend(&a), -ESTALE);
    REQUIRE(rename(aside, path) == 0);
    CHECK_EQ(ring_tend(&a), 0);
    end();
}

static void test_name_of_the_holder(void)
{
    char text[CUSLICE_TEXT];

    begin();
    ring_holder_name(&b, text, sizeof(text));
    CHECK_STR(text, "nobody");
    take(&a);
    ring_holder_name(&b, text, sizeof(text));
    CHECK_STR(text, "alpha");
    memset(ring_tenant(&a)->display, 'x', CUSLICE_TEXT);
    ring_holder_name(&b, text, sizeof(text));
    CHECK_EQ(strlen(text), CUSLICE_TEXT - 1);
    end();
}

/* Three who take the token, give it back and pause, again and again, while signals stop them
 * between any two instructions: nobody's turn is ever taken away by a giver that looks too late. */
struct racer {
    struct ring ring;
    pthread_t thread;
    unsigned turns, stolen;
};

static _Atomic(bool) racing;

static void spin(uint64_t us)
{
    for (uint64_t until = clock_after(us * CLOCK_US); clock_now() < until;)
        ;
}

static void *race_body(void *arg)
{
    struct racer *me = arg;
    uint64_t seed = 7 + me->ring.slot;
    uint64_t token;

    while (atomic_load(&racing)) {
        if (!room_take(&me->ring, &token, clock_after(CLOCK_S)))
            continue;
        me->turns++;
        spin(room_random(&seed) % 40);
        int rc = ring_pass(&me->ring, &token, false);
        me->stolen += rc == -ESTALE;
        spin(room_random(&seed) % 80);
    }
    return NULL;
}

static void test_givers_race(void)
{
    static struct racer racer[3];
    struct sigaction action = {.sa_handler = room_on_alarm}, before;
    uint64_t seed = 42;

    sigaction(SIGUSR1, &action, &before);
    room_open();
    racing = true;
    for (unsigned i = 0; i < 3; i++) {
        racer[i].turns = racer[i].stolen = 0;
        room_join(&racer[i].ring, i ? "two" : "one", 100);
    }
    ring_shared(&racer[0].ring)->allowance_ns = 50 * CLOCK_S;
    for (unsigned i = 0; i < 3; i++)
        REQUIRE(pthread_create(&racer[i].thread, NULL, race_body, &racer[i]) == 0);
    for (uint64_t until = clock_after(2 * CLOCK_S); clock_now() < until;) {
        pthread_kill(racer[room_random(&seed) % 3].thread, SIGUSR1);
        room_sleep(10 * CLOCK_US);
    }
    racing = false;
    for (unsigned i = 0; i < 3; i++)
        pthread_join(racer[i].thread, NULL);
    sigaction(SIGUSR1, &before, NULL);
    for (unsigned i = 0; i < 3; i++) {
        CHECK(racer[i].turns > 100);
        CHECK_EQ(racer[i].stolen, 0);
        ring_leave(&racer[i].ring);
    }
    room_close();
}

/* Death at each numbered step, in a process of its own, while another one sleeps at its gate. */
enum step { W1, G1_SELF, G2_SELF, CLAIMED, G1_NEXT, G2_NEXT, R1, STEPS };

struct death {
    enum step step;
    unsigned next; /* slot of the survivor */
    _Atomic(uint32_t) ready;
    _Atomic(uint64_t) time_ns; /* just before it */
};

static void by_hand(struct cuslice_segment *s, uint64_t old, unsigned next, bool all)
{
    uint64_t epoch = CUSLICE_TOKEN_EPOCH(old) + 1;

    s->slot[next].grant_ns = clock_now();
    s->slot[next].grant_epoch = epoch;
    if (all)
        atomic_compare_exchange_strong(&s->token, &old, CUSLICE_TOKEN(epoch, next));
}

static int dying_body(void *arg)
{
    struct death *death = arg;
    struct cuslice_segment *s;
    struct ring ring;
    uint64_t token = 0;

    room_join(&ring, "dying", 100);
    s = ring_shared(&ring);
    if (death->step >= CLAIMED)
        token = take(&ring);
    else
        atomic_fetch_or(&s->waiting[0], UINT64_C(1) << ring.slot); /* W1 */
    if (death->step == G1_SELF || death->step == G2_SELF)
        by_hand(s, s->token, ring.slot, death->step == G2_SELF);
    atomic_store(&death->ready, 1);
    if (death->step >= CLAIMED)
        while (!(s->waiting[0] & UINT64_C(1) << death->next))
            room_sleep(MS / 10);
    room_sleep(10 * MS);
    if (death->step == G1_NEXT || death->step == G2_NEXT)
        by_hand(s, token, death->next, death->step == G2_NEXT);
    if (death->step == R1)
        atomic_compare_exchange_strong(
            &s->token, &token, CUSLICE_TOKEN(CUSLICE_TOKEN_EPOCH(token) + 1, CUSLICE_NOBODY));
    atomic_store(&death->time_ns, clock_now());
    raise(SIGKILL);
    return 1;
}

/* Nanoseconds from the death until the survivor has the token. */
static uint64_t survive(struct death *death, enum step step)
{
    struct ring survivor;
    uint64_t token, got;
    pid_t child;

    room_open();
    room_join(&survivor, "survivor", 100);
    *death = (struct death){.step = step, .next = survivor.slot};
    child = room_fork(dying_body, death);
    REQUIRE(room_await(&death->ready, 1));
    REQUIRE(room_take(&survivor, &token, clock_after(5 * CLOCK_S)));
    got = clock_now();
    CHECK_EQ(room_join_child(child), 1000 + SIGKILL);
    CHECK_EQ(ring_token(&survivor), token);
    ring_leave(&survivor);
    room_close();
    return got > death->time_ns ? got - death->time_ns : 0;
}

static void test_death_at_each_step(void)
{
    struct death *death = room_page(sizeof(*death));

    for (enum step step = W1; step < STEPS; step++) {
        uint64_t best = CLOCK_NEVER;

        for (unsigned i = 0; i < 5; i++) {
            uint64_t took = survive(death, step);
            best = took < best ? took : best;
            CHECK(took < CLOCK_S); /* on a machine with other work */
        }
        CHECK(best <= 10 * MS);
    }
    munmap(death, sizeof(*death));
}

/* The holder and those who stand first are stopped together, as a frozen container is: the last in
 * the row still gets its turn. */
static int stopped_body(void *arg)
{
    _Atomic(uint32_t) *ready = arg;
    struct ring ring;
    uint64_t token;

    room_join(&ring, "frozen", 100);
    ring_want(&ring);
    ring_look(&ring, &token);
    atomic_fetch_add(ready, 1);
    pause();
    return 1;
}

static void test_stopped_together(void)
{
    _Atomic(uint32_t) *ready = room_page(4096);
    struct ring survivor;
    uint64_t token, before;
    pid_t child[8];

    room_open();
    for (unsigned i = 0; i < 8; i++) {
        child[i] = room_fork(stopped_body, (void *)ready);
        REQUIRE(room_await(ready, i + 1));
        kill(child[i], SIGSTOP);
    }
    room_join(&survivor, "survivor", 10000);
    CHECK(CUSLICE_TOKEN_HOLDER(ring_token(&survivor)) < 8);
    before = clock_now();
    for (unsigned i = 0; i < 8; i++) {
        REQUIRE(room_take(&survivor, &token, clock_after(8 * CLOCK_S)));
        ring_pass(&survivor, &token, false);
    }
    /* Each of the eight is waited for once, and not again. */
    CHECK(clock_now() - before < 8 * (QUANTUM + ALLOWANCE + 500 * MS));
    for (unsigned i = 0; i < 8; i++) {
        kill(child[i], SIGKILL);
        kill(child[i], SIGCONT);
        room_join_child(child[i]);
    }
    ring_leave(&survivor);
    room_close();
    munmap((void *)ready, 4096);
}

/* A limit of 25 % that 10 ms have used up: b is passed over, sleeps on its own timer, and is found
 * again when the budget has grown. */
static void test_limit_holds_back(void)
{
    struct watch watch = {0};
    uint64_t token, mine;

    begin();
    ring_tenant(&b)->limit_ppm = ring_tenant(&b)->limit_rate = 250000;
    CHECK(ring_limited(&b) && !ring_limited(&a));
    token = take(&b);
    CHECK(ring_cut(&a, token) == CLOCK_NEVER);
    uint64_t cut = ring_cut(&b, token);
    CHECK(cut > room_clock() && cut < room_clock() + QUANTUM);
    room_pass(10 * MS);
    CHECK(ring_cut(&b, token) <= room_clock());
    CHECK_EQ(ring_renew(&b, &token, true), 0); /* although nobody else waits */
    CHECK_EQ(ring_pass(&b, &token, true), 0);
    CHECK_EQ(holder(), CUSLICE_NOBODY);
    uint64_t until = ring_limit_until(&b);
    CHECK(until > room_clock() + 15 * MS && until < room_clock() + 45 * MS);
    ring_want(&b);
    CHECK_EQ(ring_look(&b, &mine), 0);
    CHECK(!ring_wanted(&a) && !ring_arm(&a, token, false));
    ring_wait(&b, ring_news(&b) - 1, &watch, clock_after(CLOCK_S));
    CHECK(watch.token == 0); /* it looks for nobody meanwhile */
    token = take(&a);
    uint32_t news = calls(&a);
    ring_wait(&b, ring_news(&b) - 1, &watch, clock_after(CLOCK_S));
    CHECK_EQ(calls(&a), news); /* nor does it wake the holder */
    room_pass(until - room_clock());
    CHECK(ring_wanted(&a));
    CHECK_EQ(ring_limit_until(&b), 0);
    ring_wait(&b, ring_news(&b) - 1, &watch, clock_after(CLOCK_S));
    CHECK(calls(&a) != news);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    CHECK_EQ(ring_look(&b, &mine), 1);
    end();
}

/* Those that their limits hold back do not watch, so the others must not count on them. */
static void test_held_back_do_not_watch(void)
{
    struct watch watch = {0};
    struct ring more[8];
    uint64_t token;

    begin();
    for (unsigned i = 0; i < 8; i++) {
        room_join(&more[i], "limited", 100);
        ring_want(&more[i]);
    }
    ring_tenant(&more[0])->limit_ppm = 10000;
    ring_tenant(&more[0])->limit_paid = (room_clock() + 5 * CLOCK_S) & ~UINT64_C(1);
    token = take(&a);
    struct ring last;
    room_join(&last, "delta", 100);
    ring_want(&last);
    CHECK(last.slot > more[7].slot);
    ring_wait(&last, ring_news(&last) - 1, &watch, clock_after(CLOCK_S));
    shared = ring_shared(&b);
    room_die(&a);
    watch.due_ns = 0;
    for (unsigned i = 0; i < 2 && holder() == a.slot; i++) {
        room_pass(WATCH_NS);
        watch_look(&last, &watch);
    }
    CHECK_EQ(holder(), last.slot);
    CHECK(token != ring_token(&last));
    for (unsigned i = 0; i < 8; i++)
        ring_leave(&more[i]);
    ring_leave(&last);
    ring_leave(&b);
    ring_leave(&c);
    room_close();
    clock_fake(NULL);
}

/* Charged from the first submission to the last completion when nobody waits. */
static void test_rest_after_work_is_free(void)
{
    uint64_t token;

    begin();
    token = take(&a);
    room_pass(3 * MS);
    uint64_t since = room_clock();
    room_pass(2 * MS);
    ring_rested(&a, token, since);
    CHECK_EQ(ring_pass(&a, &token, false), 0);
    CHECK_EQ(ring_tenant(&a)->books.charged_ns, 3 * MS);
    end();
}

/* The keeper of a lower class is woken although it is armed, and passes at once. */
static void test_higher_class_wakes_the_holder(void)
{
    struct watch watch = {0};
    uint64_t token;

    begin();
    ring_tenant(&a)->priority = CUSLICE_LOW;
    ring_tenant(&c)->priority = CUSLICE_HIGH;
    token = take(&a);
    ring_want(&b);
    ring_tenant(&b)->priority = CUSLICE_LOW;
    CHECK(ring_arm(&a, token, true));
    CHECK_EQ(ring_cut(&a, token), CLOCK_NEVER);
    uint32_t news = calls(&a);
    ring_wait(&b, ring_news(&b) - 1, &watch, clock_after(CLOCK_S));
    CHECK_EQ(calls(&a), news);
    ring_want(&c);
    watch = (struct watch){0};
    ring_wait(&c, ring_news(&c) - 1, &watch, clock_after(CLOCK_S));
    CHECK(calls(&a) != news);
    CHECK(ring_cut(&a, token) <= room_clock());
    room_pass(MS);
    CHECK_EQ(ring_renew(&a, &token, true), 0);
    CHECK_EQ(ring_pass(&a, &token, true), 0);
    CHECK_EQ(holder(), c.slot);
    end();
}

/* Out of what is owed to it a low one gets a turn, marked with its epoch, and booked on it. */
static void test_turn_of_a_lower_class(void)
{
    uint64_t token, low;

    begin();
    ring_tenant(&a)->priority = CUSLICE_HIGH;
    token = take(&a);
    ring_want(&b);
    room_pass(50 * MS);
    CHECK(ring_cut(&a, token) <= room_clock());
    CHECK_EQ(ring_pass(&a, &token, true), 0);
    CHECK_EQ(holder(), b.slot);
    low = ring_token(&b);
    CHECK_EQ(shared->class_epoch, CUSLICE_TOKEN_EPOCH(low));
    ring_claim(&b, low);
    ring_want(&a);
    uint64_t owed = shared->class_owed;
    CHECK(owed > 900 * CLOCK_US && owed < 1100 * CLOCK_US);
    CHECK_EQ(ring_cut(&b, low), room_clock() + owed);
    room_pass(400 * CLOCK_US);
    CHECK_EQ(ring_renew(&b, &low, true), 1); /* it may go on */
    CHECK_EQ(shared->class_epoch, CUSLICE_TOKEN_EPOCH(low));
    room_pass(3 * MS);
    CHECK_EQ(ring_pass(&b, &low, true), 0);
    CHECK_EQ(holder(), a.slot);
    CHECK(shared->class_epoch != CUSLICE_TOKEN_EPOCH(ring_token(&a)));
    CHECK_EQ((int64_t)shared->class_owed, (int64_t)(owed - 3400 * CLOCK_US));
    end();
}

int main(void)
{
    TEST(test_limit_holds_back);
    TEST(test_held_back_do_not_watch);
    TEST(test_rest_after_work_is_free);
    TEST(test_higher_class_wakes_the_holder);
    TEST(test_turn_of_a_lower_class);
    TEST(test_take_and_pass);
    TEST(test_renewing);
    TEST(test_renewing_when_due);
    TEST(test_slice_end);
    TEST(test_giving_up);
    TEST(test_free_token_is_found);
    TEST(test_lost_wake_is_repaired);
    TEST(test_dead_holder);
    TEST(test_dead_waiters_go_with_the_holder);
    TEST(test_absent_holder);
    TEST(test_overdue_holder_is_revoked);
    TEST(test_late_waiter_is_patient);
    TEST(test_watching_without_waiters_blames_nobody);
    TEST(test_observer_that_slept_blames_nobody);
    TEST(test_far_looks_blame_nobody);
    TEST(test_passing_in_time_is_no_revocation);
    TEST(test_nonsense_settings);
    TEST(test_arming);
    TEST(test_news_before_the_wait);
    TEST(test_newcomer_is_not_set_back);
    TEST(test_joiner_wakes_the_holder);
    TEST(test_leaving_passes_on);
    TEST(test_epoch_goes_round);
    TEST(test_wiped_token_is_nobodys);
    TEST(test_idle_time_is_free);
    TEST(test_damage_to_a_slot_heals);
    TEST(test_a_pause_keeps_what_is_owed);
    TEST(test_due);
    TEST(test_expecting);
    TEST(test_nothing_to_look_for);
    TEST(test_overrun_counts_for_the_limit);
    TEST(test_no_look_at_itself);
    TEST(test_looking);
    TEST(test_close_look);
    TEST(test_damage_while_waiting_heals);
    TEST(test_tending);
    TEST(test_name_of_the_holder);
    TEST(test_givers_race);
    TEST(test_death_at_each_step);
    TEST(test_stopped_together);
    return test_result();
}
