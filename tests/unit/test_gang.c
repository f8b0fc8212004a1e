/* gang: rings are taken in the order of UUIDs, the turn opens when all are held and ends when all
 * have drained; latecomers, those who lose their token, the dead, two on one ring, a damaged file;
 * and a random walk in which no two gangs ever wait for each other.
 */
#include "gang.h"

#include <fcntl.h>

#include "room.h"

static const uint8_t uuid[4][16] = {{1}, {2}, {3}, {4}};
static struct gang a, b, c;

static int join(struct gang *gang, unsigned gpu)
{
    return gang_join(gang, room_path, "tenant", "name", uuid[gpu]);
}

static void leave(struct gang *gang)
{
    gang_leave(gang);
    gang_close(gang);
}

static void begin(void)
{
    room_open();
    REQUIRE(join(&a, 0) == 0 && join(&b, 1) == 0 && join(&c, 2) == 0);
}

static void end(void)
{
    leave(&a);
    leave(&b);
    leave(&c);
    room_close();
}

static uint64_t turn(void)
{
    return CUSLICE_GANG_TURN(atomic_load(&a.shared->turn));
}

/* All three hold their tokens, and the turn is open. */
static void gather(void)
{
    gang_look(&a, true, false);
    gang_look(&a, true, true);
    gang_look(&b, false, true);
    CHECK_EQ(gang_look(&c, false, true), GANG_OPEN);
    CHECK_EQ(gang_look(&a, false, true), GANG_OPEN);
    CHECK_EQ(gang_look(&b, false, true), GANG_OPEN);
}

static void test_nobody_wants(void)
{
    begin();
    CHECK_EQ(gang_look(&a, false, false), GANG_REST);
    CHECK_EQ(gang_look(&c, false, false), GANG_REST);
    CHECK(gang_first(&a));
    CHECK(!gang_first(&b));
    end();
}

/* One that wants makes all ask, each when the rings before its own are held. */
static void test_in_order(void)
{
    begin();
    CHECK_EQ(gang_look(&c, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&b, false, false), GANG_AWAY);
    CHECK_EQ(gang_look(&a, false, false), GANG_ASK);
    CHECK_EQ(gang_look(&a, false, true), GANG_GATHER);
    CHECK_EQ(gang_look(&c, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&b, false, false), GANG_ASK);
    CHECK_EQ(gang_look(&b, false, true), GANG_GATHER);
    CHECK_EQ(gang_look(&a, false, true), GANG_GATHER);
    CHECK_EQ(gang_look(&c, true, false), GANG_ASK);
    CHECK_EQ(gang_look(&c, true, true), GANG_OPEN);
    CHECK_EQ(gang_look(&a, false, true), GANG_OPEN);
    CHECK_EQ(gang_look(&b, false, true), GANG_OPEN);
    end();
}

/* A token that comes before its time goes back. */
static void test_out_of_order(void)
{
    begin();
    gang_look(&a, true, false);
    CHECK_EQ(gang_look(&b, false, true), GANG_OVER);
    gang_passed(&b);
    CHECK_EQ(gang_look(&a, true, true), GANG_GATHER);
    CHECK_EQ(gang_look(&b, false, true), GANG_GATHER);
    CHECK_EQ(gang_look(&a, true, false), GANG_AWAY); /* it was revoked */
    CHECK_EQ(gang_look(&b, false, true), GANG_OVER);
    gang_passed(&b);
    CHECK_EQ(gang_look(&a, true, false), GANG_ASK);
    end();
}

/* The turn is over when the last has drained, and not before. */
static void test_end(void)
{
    begin();
    gather();
    uint64_t first = turn();
    gang_end(&b);
    CHECK_EQ(gang_look(&a, true, true), GANG_END);
    CHECK(!gang_drained(&a));
    CHECK(!gang_drained(&c));
    CHECK_EQ(turn(), first);
    CHECK(gang_drained(&b));
    CHECK_EQ(turn(), first + 1);
    CHECK(gang_drained(&a) && gang_drained(&c));
    gang_passed(&a);
    gang_passed(&b);
    CHECK_EQ(gang_look(&c, false, true), GANG_OVER);
    gang_passed(&c);
    CHECK_EQ(gang_look(&a, true, false), GANG_ASK);
    CHECK_EQ(gang_look(&c, false, false), GANG_AWAY);
    end();
}

/* Who takes it back that it was drained keeps the turn going; too late, it is told so. */
static void test_taken_back(void)
{
    begin();
    gather();
    gang_end(&a);
    gang_drained(&a);
    gang_drained(&b);
    CHECK(gang_again(&a));
    CHECK(!gang_drained(&c));
    CHECK(gang_drained(&a));
    CHECK(!gang_again(&b));
    CHECK(!gang_again(&c));
    end();
}

static void test_behind(void)
{
    begin();
    gather();
    gang_end(&a);
    CHECK_EQ(gang_behind(&a), 0);
    gang_closed(&a, 7);
    CHECK_EQ(gang_behind(&a), 0);
    CHECK_EQ(gang_behind(&b), 7);
    gang_closed(&b, 9);
    CHECK_EQ(gang_behind(&a), 2);
    CHECK_EQ(gang_behind(&c), 9);
    gang_closed(&a, 9);
    CHECK_EQ(gang_behind(&a), 0);
    end();
}

static void test_abandoned(void)
{
    begin();
    gather();
    gang_end(&a);
    gang_drained(&a);
    gang_abandon(&a);
    CHECK(gang_drained(&a));
    CHECK_EQ(gang_look(&b, false, true), GANG_OVER);
    end();
}

/* Who gathers when nobody wants the turn any more lets it go, and does not open on what is missing.
 */
static void test_pointless(void)
{
    begin();
    gang_look(&c, true, false);
    CHECK_EQ(gang_look(&a, false, true), GANG_GATHER);
    gang_look(&c, false, false);
    CHECK_EQ(gang_look(&a, false, true), GANG_OVER);
    CHECK(gang_drained(&a));
    gang_passed(&a);
    CHECK_EQ(gang_look(&a, false, false), GANG_REST);
    CHECK_EQ(turn(), 2);
    end();
}

/* One that has not come in time: the others give back what they hold, without having opened. */
static void test_gathering_is_ended(void)
{
    begin();
    CHECK_EQ(gang_look(&a, true, true), GANG_GATHER);
    CHECK_EQ(gang_look(&b, true, true), GANG_GATHER);
    gang_end(&a);
    CHECK_EQ(gang_look(&a, true, true), GANG_OVER);
    CHECK_EQ(gang_look(&b, true, true), GANG_OVER);
    CHECK(!gang_drained(&a));
    CHECK(gang_drained(&b));
    CHECK_EQ(turn(), 2);
    end();
}

/* Who comes to hold counts: a word of the turn that was read before that is an old one. */
static void test_part_is_counted(void)
{
    begin();
    uint64_t word = atomic_load(&a.shared->turn);
    gang_look(&a, true, true);
    CHECK(!atomic_compare_exchange_strong(&a.shared->turn, &word, CUSLICE_GANG_WORD(2, 0)));
    CHECK_EQ(turn(), 1);
    end();
}

/* Nobody has anything to do: only when all say so. */
static void test_idle(void)
{
    begin();
    gather();
    CHECK(!gang_resting(&a));
    CHECK(!gang_idle(&b, true));
    CHECK(gang_resting(&a));
    CHECK(!gang_idle(&a, true));
    CHECK(!gang_idle(&b, false));
    CHECK(!gang_idle(&c, true));
    CHECK(gang_idle(&b, true));
    end();
}

/* One that comes while the turn is open has no part in it, and is somebody who waits. */
static void test_latecomer(void)
{
    struct gang late;

    begin();
    gather();
    CHECK(!gang_crowded(&a));
    REQUIRE(join(&late, 3) == 0);
    CHECK_EQ(gang_look(&late, true, false), GANG_ASK); /* behind all that is held: it may join */
    CHECK(gang_crowded(&a) && !gang_barred(&a));
    leave(&late);
    leave(&b);
    REQUIRE(join(&b, 1) == 0); /* in the middle */
    CHECK_EQ(gang_look(&b, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&a, false, true), GANG_OPEN);
    CHECK(gang_crowded(&a) && gang_barred(&a));
    gang_end(&a);
    gang_drained(&a);
    CHECK(gang_drained(&c));
    gang_passed(&a);
    gang_passed(&c);
    CHECK_EQ(gang_look(&b, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&a, false, false), GANG_ASK);
    end();
}

/* The same behind all that is held, when the turn ends already: the drain may wait for it. */
static void test_latecomer_to_the_end(void)
{
    struct gang late;

    begin();
    gather();
    gang_end(&a);
    REQUIRE(join(&late, 3) == 0);
    CHECK_EQ(gang_look(&late, true, false), GANG_ASK);
    CHECK_EQ(gang_look(&late, true, true), GANG_END);
    gang_closed(&a, 5);
    CHECK_EQ(gang_behind(&late), 5);
    gang_drained(&a);
    gang_drained(&b);
    CHECK(!gang_drained(&c)); /* the latecomer is waited for */
    CHECK(gang_drained(&late));
    leave(&late);
    end();
}

/* Who leaves is not waited for, keeps its place, and may come back to it. */
static void test_left_and_returned(void)
{
    struct gang late;

    begin();
    gang_leave(&b);
    gang_look(&a, true, false);
    CHECK_EQ(gang_look(&a, true, true), GANG_GATHER);
    CHECK_EQ(gang_look(&c, false, true), GANG_OPEN);
    REQUIRE(join(&late, 3) == 0);
    CHECK(late.me != b.me);
    CHECK_EQ(gang_reap(&a), 0);
    leave(&late);
    gang_end(&a);
    gang_drained(&a);
    CHECK(gang_drained(&c));
    gang_passed(&a);
    gang_passed(&c);
    gang_return(&b);
    gang_look(&a, true, true);
    CHECK_EQ(gang_look(&c, false, false), GANG_AWAY);
    gang_look(&b, false, true);
    CHECK_EQ(gang_look(&c, false, true), GANG_OPEN);
    end();
}

/* Whose gate is open in a turn that ends keeps its part in it, whoever comes. */
static void test_open_to_the_end(void)
{
    struct gang late;

    begin();
    gather();
    gang_end(&a);
    REQUIRE(join(&late, 3) == 0);
    CHECK_EQ(gang_look(&late, true, true), GANG_END);
    leave(&b);
    REQUIRE(join(&b, 1) == 0);
    CHECK_EQ(gang_look(&late, true, true), GANG_END);
    leave(&late);
    end();
}

/* A token that is taken in an open turn ends it for all. */
static void test_revoked(void)
{
    begin();
    gather();
    CHECK_EQ(gang_look(&b, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&a, false, true), GANG_END);
    CHECK(!gang_drained(&a));
    CHECK(gang_drained(&c)); /* b holds nothing, and is not waited for */
    end();
}

/* The same where the turn has opened for others, and not yet for the one that loses it. */
static void test_revoked_in_gathering(void)
{
    begin();
    gang_look(&a, true, true);
    gang_look(&b, false, true);
    CHECK_EQ(gang_look(&c, false, true), GANG_OPEN);
    CHECK_EQ(gang_look(&a, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&c, false, true), GANG_END);
    end();
}

/* One that was drained, lost its token and came back into the same turn is not drained any more. */
static void test_back_again(void)
{
    begin();
    gather();
    gang_end(&a);
    gang_drained(&c);
    CHECK_EQ(gang_look(&c, true, false), GANG_ASK);
    CHECK_EQ(gang_look(&c, true, true), GANG_END);
    CHECK(!gang_drained(&a));
    CHECK(!gang_drained(&b));
    CHECK(gang_drained(&c));
    end();
}

static void test_two_on_one_ring(void)
{
    struct gang twin;

    begin();
    REQUIRE(join(&twin, 0) == 0);
    CHECK_EQ(gang_look(&twin, true, false), GANG_ASK);
    CHECK_EQ(gang_look(&a, true, false), GANG_ASK);
    CHECK_EQ(gang_look(&a, true, true), GANG_GATHER);
    CHECK_EQ(gang_look(&twin, true, false), GANG_AWAY);
    CHECK_EQ(gang_look(&b, false, true), GANG_GATHER);
    CHECK_EQ(gang_look(&c, false, true), GANG_OPEN);
    CHECK(gang_crowded(&c)); /* the twin waits */
    leave(&twin);
    end();
}

/* Without a word, as a kill does. */
static void die(struct gang *gang)
{
    munmap(gang->shared, sizeof *gang->shared);
}

static void test_death(void)
{
    begin();
    gather();
    gang_end(&a);
    gang_drained(&a);
    CHECK(!gang_drained(&c));
    die(&b);
    CHECK_EQ(gang_reap(&a), 1);
    CHECK_EQ(gang_reap(&a), 0);
    CHECK(gang_drained(&a));
    REQUIRE(join(&b, 1) == 0);
    CHECK_EQ(b.me, 1); /* the place of the dead */
    end();
}

static void test_dead_place_is_taken(void)
{
    struct gang many[CUSLICE_GANG_MEMBERS], last;

    room_open();
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++)
        REQUIRE(join(&many[i], i % 4) == 0);
    CHECK_EQ(join(&last, 0), -ENOSPC);
    die(&many[33]);
    CHECK_EQ(join(&last, 0), 0);
    CHECK_EQ(last.me, 33);
    room_close();
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++)
        if (i != 33)
            die(&many[i]);
    die(&last);
}

static void test_other_gangs_are_apart(void)
{
    struct gang other;

    begin();
    REQUIRE(gang_join(&other, room_path, "tenant", "other", uuid[0]) == 0);
    gang_look(&a, true, false);
    CHECK_EQ(gang_look(&other, false, false), GANG_REST);
    leave(&other);
    REQUIRE(gang_join(&other, room_path, "other", "name", uuid[0]) == 0);
    CHECK_EQ(gang_look(&other, false, false), GANG_REST);
    leave(&other);
    end();
}

/* A file that is none is refused; one that lost its name is told from the one that has it. */
static void test_foreign_file(void)
{
    struct gang other;

    begin();
    CHECK(gang_current(&a));
    a.shared->version++;
    CHECK_EQ(join(&other, 0), -EPROTO);
    a.shared->version--;
    unlink(a.path);
    CHECK(!gang_current(&a));
    CHECK_EQ(gang_reap(&a), 0);
    REQUIRE(join(&other, 0) == 0);
    CHECK(gang_current(&other));
    CHECK(!gang_current(&a));
    leave(&other);
    int fd = open(other.path, O_WRONLY | O_TRUNC);
    CHECK_EQ(join(&other, 0), -EPROTO);
    close(fd);
    end();
}

static unsigned wakes(const struct gang *gang)
{
    return atomic_load(&gang->shared->member[gang->me].wake);
}

/* All of a process sleep on one word, unless one of them is in an earlier file, where the place
 * that has its number is another's in the new one. */
static void test_sleep_together(void)
{
    struct gang first, second, third;

    begin();
    gang_sleep_with(&a, &b);
    CHECK(gang_news_word(&a) == &a.shared->member[b.me].wake);
    REQUIRE(join(&third, 3) == 0);
    gang_sleep_with(&third, &a);
    CHECK(gang_news_word(&third) == &third.shared->member[b.me].wake);
    unsigned before = wakes(&b);
    gang_look(&c, true, false);
    CHECK_EQ(wakes(&b), before + 1);
    CHECK_EQ(wakes(&a), 0);
    leave(&third);
    unlink(a.path);
    REQUIRE(join(&first, 0) == 0 && join(&second, 1) == 0);
    gang_sleep_with(&second, &a);
    CHECK(gang_news_word(&second) == &second.shared->member[second.me].wake);
    gang_look(&first, true, false);
    CHECK_EQ(wakes(&second), 1);
    leave(&first);
    leave(&second);
    end();
}

/* Whatever the words say, every call returns. */
static void test_damaged(void)
{
    uint64_t random = 4711;

    begin();
    for (unsigned round = 0; round < 20000; round++) {
        struct gang *gang = round % 3 == 0 ? &a : round % 3 == 1 ? &b : &c;
        uint64_t *word = (uint64_t *)(void *)&a.shared->turn;
        word[room_random(&random) % ((sizeof *a.shared - 152) / 8)] =
            round % 2 ? room_random(&random) : room_random(&random) % 4;
        gang_look(gang, round & 4, round & 8);
        gang_crowded(gang);
        gang_resting(gang);
        gang_idle(gang, round & 16);
        gang_behind(gang);
        gang_drained(gang);
        gang_again(gang);
        gang_end(gang);
        gang_first(gang);
        if (round % 64 == 0)
            gang_abandon(gang);
        if (round % 256 == 0)
            gang_reap(gang);
        gang_passed(gang);
    }
    end();
}

/* ---- Two gangs and their rings ---- */

#define RINGS 3
#define STEPS 200000

struct walker {
    struct gang gang;
    unsigned ring, job;
    bool asks, holds, open;
};

/* One step of a keeper, with rings that are plain words: who holds each, 0 for nobody. */
static void walk(struct walker *w, unsigned holder[RINGS], unsigned me, uint64_t random)
{
    w->holds = holder[w->ring] == me;
    switch (gang_look(&w->gang, true, w->holds)) {
    case GANG_ASK:
        if (holder[w->ring] == 0)
            holder[w->ring] = me;
        break;
    case GANG_OPEN:
        w->open = true;
        if (random % 8 == 0)
            gang_end(&w->gang);
        break;
    case GANG_END:
        if (!gang_drained(&w->gang))
            break;
        __attribute__((fallthrough));
    case GANG_OVER:
        holder[w->ring] = 0;
        w->open = false;
        gang_passed(&w->gang);
        break;
    default:
        break;
    }
}

static void walk_join(struct walker *w)
{
    REQUIRE(gang_join(&w->gang, room_path, w->job ? "two" : "one", "g", uuid[w->ring]) == 0);
}

/* A client dies without a word, or loses its ring's token, or comes anew. The ring's own watchers
 * take the token off the dead. */
static void walk_accident(struct walker *w, unsigned holder[RINGS], unsigned me, uint64_t random)
{
    if (holder[w->ring] == me)
        holder[w->ring] = 0;
    if (random % 2 == 0)
        return;
    die(&w->gang);
    w->open = false;
    walk_join(w);
}

/* Keepers of two gangs on the same rings take steps in any order: turns go on for both, and while
 * one has its turn open the other has none. One accident in so many steps; 0: none, and without one
 * no two turns are ever open at once. */
static void test_walk(unsigned accidents)
{
    static struct walker walker[2 * RINGS];
    unsigned holder[RINGS] = {0}, opened[2] = {0}, mixed = 0, before[2] = {0};
    uint64_t random = 99 + accidents;

    room_open();
    for (unsigned i = 0; i < 2 * RINGS; i++) {
        walker[i] = (struct walker){.ring = i % RINGS, .job = i / RINGS};
        walk_join(&walker[i]);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t draw = room_random(&random);
        unsigned i = (unsigned)(draw % (2 * RINGS));
        bool was = walker[i].open;
        if (accidents && (draw >> 16) % accidents == 0)
            walk_accident(&walker[i], holder, i + 1, draw >> 40);
        else
            walk(&walker[i], holder, i + 1, draw >> 32);
        if (step % 64 == 0) /* as keepers that wait do */
            gang_reap(&walker[i].gang);
        opened[walker[i].job] += walker[i].open && !was;
        for (unsigned r = 0; r < RINGS; r++)
            for (unsigned s = 0; s < RINGS; s++)
                mixed += walker[r].open && walker[RINGS + s].open;
        if (step % 10000 == 9999) {
            CHECK(opened[0] > before[0] && opened[1] > before[1]);
            before[0] = opened[0];
            before[1] = opened[1];
        }
    }
    CHECK(accidents || mixed == 0);
    CHECK(opened[0] > STEPS / 1000 && opened[1] > STEPS / 1000);
    for (unsigned i = 0; i < 2 * RINGS; i++)
        leave(&walker[i].gang);
    room_close();
}

static void test_two_gangs(void)
{
    test_walk(0);
}

static void test_two_gangs_and_accidents(void)
{
    test_walk(1000);
    test_walk(100);
}

int main(void)
{
    TEST(test_nobody_wants);
    TEST(test_in_order);
    TEST(test_out_of_order);
    TEST(test_end);
    TEST(test_taken_back);
    TEST(test_behind);
    TEST(test_abandoned);
    TEST(test_pointless);
    TEST(test_gathering_is_ended);
    TEST(test_part_is_counted);
    TEST(test_idle);
    TEST(test_latecomer);
    TEST(test_latecomer_to_the_end);
    TEST(test_left_and_returned);
    TEST(test_open_to_the_end);
    TEST(test_revoked);
    TEST(test_revoked_in_gathering);
    TEST(test_back_again);
    TEST(test_two_on_one_ring);
    TEST(test_death);
    TEST(test_dead_place_is_taken);
    TEST(test_other_gangs_are_apart);
    TEST(test_foreign_file);
    TEST(test_sleep_together);
    TEST(test_damaged);
    TEST(test_two_gangs);
    TEST(test_two_gangs_and_accidents);
    return test_result();
}
