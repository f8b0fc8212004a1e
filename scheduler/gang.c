/*
 * gang: the turn of several rings (see gang.h). Runs in keepers. Takes no lock and waits for
 * nothing; all it keeps is in the gang's file.
 *
 * WHY. Two jobs of one process per GPU each run collectives: kernels on all their GPUs that wait
 * for one another. Where each GPU picks its next client alone, one job gets one GPU and the other
 * job the other; both wait for their missing half until the allowance is used up.
 *
 * THE RULES. Turns are numbered. A member says that it wants one, that it holds its ring's token
 * for one, that it has nothing to do in it, that its work has left the GPU.
 *   1 One that wants is enough: all ask, each on its own ring.
 *   2 In the order of UUIDs: a member asks only while every ring before its own is held for this
 *     turn and none after it, and keeps a token, before the turn is open, only while that stays so.
 *     Whoever holds one ring and waits for another waits for a later one, so gangs and other
 *     clients cannot wait for each other in a circle.
 *   3 The turn opens for a member when all rings are held. It is then a turn as any other: of a
 *     quantum while somebody waits on any of the rings, and shorter when none of the members has
 *     anything to do.
 *   4 Who finds that it is to end says so; all close and drain. When all that hold have drained the
 *     number of the turn grows by one, and each gives its token back. Until then the turn can go
 *     on: what one has on its GPU may wait for what another has not submitted yet, so a member that
 *     opens its gate for that takes back that it was drained. The word of the turn counts this, so
 *     that nobody ends the turn on an older view.
 *     So that there is little of that, each says how much it has submitted in the turn, and those
 *     who are behind submit as much as the others have: the ranks of a job do the same things.
 *   5 A member whose allowance is used up, in gathering or in the drain, ends the turn without
 *     waiting for the others; so does one that drains for a while when a latecomer waits for a
 *     turn. One whose ring comes after all that are held need not: it joins the turn, even one that
 *     ends, since the others may wait for what it has not submitted yet.
 *   6 Gathering ends when nobody wants the turn any more, or is at an end while a ring is missing:
 *     the gate then does not open.
 *
 * STEPS, as the code and tests/model/gang.pml name them. The words of a member are stores of its
 * own, those of the gang single instructions; N is the news to all others (gang_tell).
 *   look    L1 want, N   L2 read the turn
 *   away    A1 held = 0 (was it held for the turn: E)   A2 ending? then D2-D4   S
 *   S       others' S1 used, S2 held, S3 want
 *   holding S   H1 ending?   H2 held = the turn, or 0   H3 the word of the turn, counted up   N   S
 *   end     E1 read the turn   E2 ending = it, N
 *   drained D1 drained = the turn, N   D2 read the word   D3 others' held and drained
 *           D4 the word, from what was read to the next turn, N
 *   again   B1 drained = 0   B2 the word, counted up
 *   passed  P1 held = 0      join J1 lock, J2 clear, J3 used      leave X1 clear, X2 N
 * Who adds itself to those that D3 looks at does so before it counts up the word (H2 before H3, B1
 * before B2), and D4 is made from a word that was read before D3: so it fails, or the other finds
 * the turn over. Who gives up its part while it gathers (H2) looks once more behind that, since one
 * that has come in between may have opened on it: that one holds before it looks, so one of the two
 * sees the other.
 *
 * DEATH, at any line: the words stay; who waits for others looks every few milliseconds at the
 * locks and strikes the dead. A member that does not move keeps the others waiting no longer than
 * their allowance (5), and its ring is taken from it by those who wait there. A member that loses
 * its ring's token ends the turn that it held it for, for all.
 */
#include "gang.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "futex.h"
#include "log.h"
#include "mapfile.h"
#include "tenant.h"

#define GANG_LOCK(member) ((uint64_t)(member))

struct gang_name {
    const char *tenant, *name;
};

/* ---- The file ---- */

/* Of both texts, with the zero between them. */
static uint64_t gang_hash(const struct gang_name *name)
{
    uint64_t tenant = tenant_hash(TENANT_HASH, name->tenant) * TENANT_HASH_PRIME;
    return tenant_hash(tenant, name->name);
}

static int gang_fill(void *memory, size_t size, void *arg)
{
    struct cuslice_gang *shared = memory;
    const struct gang_name *name = arg;
    shared->magic = CUSLICE_GANG_MAGIC;
    shared->version = CUSLICE_GANG_VERSION;
    shared->members = CUSLICE_GANG_MEMBERS;
    shared->size = size;
    snprintf(shared->tenant, sizeof shared->tenant, "%s", name->tenant);
    snprintf(shared->name, sizeof shared->name, "%s", name->name);
    shared->turn = CUSLICE_GANG_WORD(1, 0);
    return 0;
}

static bool gang_is(const struct cuslice_gang *shared, const struct gang_name *name)
{
    return shared->magic == CUSLICE_GANG_MAGIC && shared->version == CUSLICE_GANG_VERSION &&
           shared->size == sizeof *shared &&
           strncmp(shared->tenant, name->tenant, sizeof shared->tenant) == 0 &&
           strncmp(shared->name, name->name, sizeof shared->name) == 0;
}

static int gang_map(struct gang *gang, int fd, const struct gang_name *name)
{
    struct stat st;
    int error = 0;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size != sizeof *gang->shared)
        return -EPROTO;
    gang->device = st.st_dev;
    gang->inode = st.st_ino;
    gang->shared = mapfile_map(fd, sizeof *gang->shared, &error);
    if (!gang->shared)
        return error;
    if (madvise(gang->shared, sizeof *gang->shared, MADV_DONTFORK) < 0)
        return -errno;
    return gang_is(gang->shared, name) ? 0 : -EPROTO;
}

static void gang_clear(struct cuslice_gang_member *member)
{
    atomic_store(&member->used, 0);
    atomic_store(&member->want, 0);
    atomic_store(&member->held, 0);
    atomic_store(&member->idle, 0);
    atomic_store(&member->drained, 0);
    atomic_store(&member->closed, 0);
    atomic_store(&member->submitted, 0);
}

static struct cuslice_gang_member *gang_me(const struct gang *gang)
{
    return &gang->shared->member[gang->me];
}

static bool gang_used(const struct cuslice_gang_member *member)
{
    return atomic_load(&member->used) != 0;
}

/* First the places that look free, then all: a dead member's looks taken. */
static int gang_seize(struct gang *gang, int fd, const uint8_t uuid[16])
{
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
            struct cuslice_gang_member *member = &gang->shared->member[i];
            if ((!pass && gang_used(member)) || mapfile_lock(fd, GANG_LOCK(i)) != 0)
                continue;
            gang_clear(member); /* J2 */
            memcpy(member->uuid, uuid, sizeof member->uuid);
            atomic_store(&member->pid, getpid());
            atomic_store(&member->sleep, i);
            atomic_store(&member->used, 1); /* J3 */
            gang->me = gang->sleep = i;
            memcpy(gang->uuid, uuid, sizeof gang->uuid);
            return 0;
        }
    return -ENOSPC;
}

void gang_close(struct gang *gang)
{
    if (gang->shared)
        munmap(gang->shared, sizeof *gang->shared);
    gang->shared = NULL;
}

int gang_join(struct gang *gang, const char *directory, const char *tenant, const char *name,
              const uint8_t uuid[16])
{
    struct gang_name names = {tenant, name};
    *gang = (struct gang){0};
    snprintf(gang->path, sizeof gang->path, "%s/%016llx.gang", directory,
             (unsigned long long)gang_hash(&names));
    int fd = mapfile_find(gang->path, sizeof *gang->shared, 0666, gang_fill, &names);
    if (fd < 0)
        return fd;
    int rc = gang_map(gang, fd, &names);
    if (rc == 0)
        rc = gang_seize(gang, fd, uuid);
    close(fd); /* the mapping keeps the lock */
    if (rc < 0)
        gang_close(gang);
    return rc;
}

bool gang_current(const struct gang *gang)
{
    return mapfile_named(gang->path, gang->device, gang->inode);
}

/* ---- News ---- */

const _Atomic uint32_t *gang_news_word(const struct gang *gang)
{
    return &gang->shared->member[gang->sleep].wake;
}

void gang_sleep_with(struct gang *gang, const struct gang *other)
{
    if (gang->device != other->device || gang->inode != other->inode)
        return; /* its place there is another's here */
    gang->sleep = other->sleep;
    atomic_store(&gang_me(gang)->sleep, gang->sleep);
}

/* This member's words, or those of the gang, have changed. */
static void gang_tell(struct gang *gang)
{
    uint64_t told = 0;
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        unsigned sleep = atomic_load(&member->sleep) % CUSLICE_GANG_MEMBERS;
        if (i == gang->me || !gang_used(member) || told >> sleep & 1)
            continue;
        told |= UINT64_C(1) << sleep;
        atomic_fetch_add(&gang->shared->member[sleep].wake, 1); /* N */
        futex_wake(&gang->shared->member[sleep].wake, INT_MAX);
    }
}

void gang_leave(struct gang *gang)
{
    gang_clear(gang_me(gang)); /* X1 */
    gang_tell(gang);           /* X2 */
}

unsigned gang_reap(struct gang *gang)
{
    unsigned reaped = 0;
    int fd = mapfile_reopen(gang->path, gang->device, gang->inode);
    if (fd < 0)
        return 0;
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        struct cuslice_gang_member *member = &gang->shared->member[i];
        if (i == gang->me || !gang_used(member) || mapfile_lock(fd, GANG_LOCK(i)) != 0)
            continue;
        if (gang_used(member)) {
            gang_clear(member);
            reaped++;
        }
        mapfile_unlock(fd, GANG_LOCK(i));
    }
    close(fd);
    if (reaped)
        gang_tell(gang);
    return reaped;
}

/* ---- The turn ---- */

static uint64_t gang_turn(const struct gang *gang)
{
    return CUSLICE_GANG_TURN(atomic_load(&gang->shared->turn));
}

/* Whether a member has a part in the turn: it holds its ring's token for it. */
static bool gang_in(const struct cuslice_gang_member *member, uint64_t turn)
{
    return gang_used(member) && atomic_load(&member->held) == turn;
}

/* What a member sees of the rings for a turn. */
struct gang_view {
    bool before;  /* a ring before its own is not held */
    bool after;   /* a ring after its own is held */
    bool taken;   /* another member holds its own ring */
    bool missing; /* some ring is not held */
    bool wanted;  /* somebody wants a turn */
};

/* Whether some member holds this GPU's ring for the turn. */
static bool gang_holds(const struct cuslice_gang *shared, const uint8_t uuid[16], uint64_t turn)
{
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++)
        if (gang_in(&shared->member[i], turn) && memcmp(shared->member[i].uuid, uuid, 16) == 0)
            return true;
    return false;
}

static struct gang_view gang_view(const struct gang *gang, uint64_t turn)
{
    struct gang_view view = {0};
    const struct cuslice_gang_member *me = gang_me(gang);
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (!gang_used(member))
            continue;
        int order = memcmp(member->uuid, me->uuid, 16);
        bool held = gang_holds(gang->shared, member->uuid, turn);
        view.before |= order < 0 && !held;
        view.after |= order > 0 && held;
        view.taken |= order == 0 && i != gang->me && gang_in(member, turn);
        view.missing |= !held;
        view.wanted |= atomic_load(&member->want) != 0;
    }
    return view;
}

/* The turn is over once all that hold have drained; at once when `force`d. */
static void gang_advance(struct gang *gang, bool force)
{
    uint64_t word = atomic_load(&gang->shared->turn), turn = CUSLICE_GANG_TURN(word); /* D2 */
    for (unsigned i = 0; !force && i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (gang_in(member, turn) && atomic_load(&member->drained) != turn) /* D3 */
            return;
    }
    uint64_t next = CUSLICE_GANG_WORD(turn + 1, 0);
    if (atomic_compare_exchange_strong(&gang->shared->turn, &word, next)) /* D4 */
        gang_tell(gang);
}

void gang_end(struct gang *gang)
{
    uint64_t turn = gang_turn(gang);                          /* E1 */
    if (atomic_exchange(&gang->shared->ending, turn) != turn) /* E2 */
        gang_tell(gang);
}

/* The token is not held. If it was, and not given back, somebody took it. */
static enum gang_step gang_look_away(struct gang *gang, uint64_t turn)
{
    struct cuslice_gang_member *me = gang_me(gang);
    if (atomic_exchange(&me->held, 0) == turn) /* A1; it may have opened for others by that word */
        gang_end(gang);
    gang->opened = 0;
    if (atomic_load(&gang->shared->ending) == turn) { /* A2 */
        gang_advance(gang, false);
        turn = gang_turn(gang);
    }
    struct gang_view view = gang_view(gang, turn);
    if (!view.wanted)
        return GANG_REST;
    return view.before || view.after || view.taken ? GANG_AWAY : GANG_ASK;
}

/* Counts in the turn's word that more is to come in it: nobody ends it on an older view. False when
 * it is over. */
static bool gang_keep(struct gang *gang, uint64_t turn)
{
    uint64_t word = atomic_load(&gang->shared->turn);
    while (CUSLICE_GANG_TURN(word) == turn)
        if (atomic_compare_exchange_weak(&gang->shared->turn, &word,
                                         CUSLICE_GANG_WORD(turn, word + 1)))
            return true;
    return false;
}

/* The token is held for the turn from now on: who counts those that have drained on an older view
 * of the turn fails. False when the turn is over already. */
static bool gang_take_part(struct gang *gang, uint64_t turn)
{
    struct cuslice_gang_member *me = gang_me(gang);
    atomic_store(&me->drained, 0); /* it may have been there before, and have lost its token */
    atomic_store(&me->held, turn); /* H2 */
    if (gang_keep(gang, turn)) {   /* H3 */
        gang_tell(gang);
        return true;
    }
    atomic_store(&me->held, 0);
    return false;
}

/* Holds it, and the turn is not open here. Before the word is given up another may have read it and
 * opened the turn: that one then holds its own, which is looked for once more. */
static bool gang_gives_up(struct gang *gang, uint64_t turn, struct gang_view *view)
{
    struct cuslice_gang_member *me = gang_me(gang);
    if (atomic_load(&me->held) == 0)
        return view->before || view->after || view->taken;
    if (!view->before && !view->taken)
        return false;
    atomic_store(&me->held, 0); /* H2 */
    *view = gang_view(gang, turn);
    return view->before || view->taken;
}

static enum gang_step gang_look_holding(struct gang *gang, uint64_t turn)
{
    struct cuslice_gang_member *me = gang_me(gang);
    uint64_t held = atomic_load(&me->held);
    if (held == turn && gang->opened == turn)
        return atomic_load(&gang->shared->ending) == turn ? GANG_END : GANG_OPEN; /* H1 */
    struct gang_view view = gang_view(gang, turn);
    bool ending = atomic_load(&gang->shared->ending) == turn; /* H1 */
    if ((held && held != turn) || gang_gives_up(gang, turn, &view))
        return GANG_OVER;
    if (atomic_load(&me->held) == 0) {
        if (!gang_take_part(gang, turn))
            return GANG_OVER;
        view = gang_view(gang, turn);
    }
    if (view.missing && !ending && view.wanted)
        return GANG_GATHER;
    if (view.missing && !ending) /* who wanted it has got what it wanted, or is gone */
        gang_end(gang);
    if (view.missing) /* it has not opened here, and is not to any more */
        return GANG_OVER;
    gang->opened = turn;
    return ending ? GANG_END : GANG_OPEN;
}

/* Says again what a damaged file may have lost. */
static void gang_heal(struct gang *gang)
{
    struct cuslice_gang_member *me = gang_me(gang);
    if (memcmp(me->uuid, gang->uuid, sizeof me->uuid) != 0)
        memcpy(me->uuid, gang->uuid, sizeof me->uuid);
    if (atomic_load(&me->sleep) != gang->sleep)
        atomic_store(&me->sleep, gang->sleep);
    if (!gang_used(me))
        atomic_store(&me->used, 1);
}

void gang_return(struct gang *gang)
{
    gang->opened = 0;
    gang_heal(gang);
}

enum gang_step gang_look(struct gang *gang, bool wants, bool holds)
{
    gang_heal(gang);
    if (atomic_exchange(&gang_me(gang)->want, wants) == 0 && wants) /* L1 */
        gang_tell(gang);
    uint64_t turn = gang_turn(gang); /* L2 */
    return holds ? gang_look_holding(gang, turn) : gang_look_away(gang, turn);
}

bool gang_crowded(const struct gang *gang)
{
    uint64_t turn = gang_turn(gang);
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (i != gang->me && gang_used(member) && atomic_load(&member->want) &&
            atomic_load(&member->held) != turn)
            return true;
    }
    return false;
}

bool gang_barred(const struct gang *gang)
{
    uint64_t turn = gang_turn(gang);
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (!gang_used(member) || !atomic_load(&member->want) || atomic_load(&member->held) == turn)
            continue;
        for (unsigned j = 0; j < CUSLICE_GANG_MEMBERS; j++)
            if (gang_in(&gang->shared->member[j], turn) &&
                memcmp(gang->shared->member[j].uuid, member->uuid, sizeof member->uuid) >= 0)
                return true;
    }
    return false;
}

bool gang_idle(struct gang *gang, bool idle)
{
    uint64_t turn = gang_turn(gang), mine = idle ? turn : 0;
    if (atomic_exchange(&gang_me(gang)->idle, mine) != mine && idle)
        gang_tell(gang);
    for (unsigned i = 0; idle && i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (gang_in(member, turn) && atomic_load(&member->idle) != turn)
            return false;
    }
    return idle;
}

bool gang_resting(const struct gang *gang)
{
    uint64_t turn = gang_turn(gang);
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (i != gang->me && gang_in(member, turn) && atomic_load(&member->idle) == turn)
            return true;
    }
    return false;
}

void gang_closed(struct gang *gang, uint64_t submitted)
{
    struct cuslice_gang_member *me = gang_me(gang);
    uint64_t held = atomic_load(&me->held);
    uint64_t before = atomic_exchange(&me->submitted, submitted);
    if (atomic_exchange(&me->closed, held) != held || before != submitted)
        gang_tell(gang);
}

uint64_t gang_behind(const struct gang *gang)
{
    const struct cuslice_gang_member *me = gang_me(gang);
    uint64_t turn = gang_turn(gang), mine = atomic_load(&me->submitted), most = mine;
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++) {
        const struct cuslice_gang_member *member = &gang->shared->member[i];
        if (!gang_in(member, turn) || atomic_load(&member->closed) != turn)
            continue;
        uint64_t its = atomic_load(&member->submitted);
        most = its > most ? its : most;
    }
    return most - mine;
}

bool gang_drained(struct gang *gang)
{
    struct cuslice_gang_member *me = gang_me(gang);
    uint64_t held = atomic_load(&me->held);
    if (held == 0 || held != gang_turn(gang))
        return true;
    if (atomic_exchange(&me->drained, held) != held) /* D1 */
        gang_tell(gang);
    gang_advance(gang, false);
    return gang_turn(gang) != held;
}

bool gang_again(struct gang *gang)
{
    struct cuslice_gang_member *me = gang_me(gang);
    uint64_t held = atomic_load(&me->held);
    atomic_store(&me->drained, 0);        /* B1 */
    return held && gang_keep(gang, held); /* B2 */
}

void gang_abandon(struct gang *gang)
{
    uint64_t held = atomic_load(&gang_me(gang)->held);
    if (held && held == gang_turn(gang))
        gang_advance(gang, true);
}

void gang_passed(struct gang *gang)
{
    struct cuslice_gang_member *me = gang_me(gang);
    atomic_store(&me->held, 0); /* P1 */
    atomic_store(&me->idle, 0);
    gang->opened = 0;
}

bool gang_first(const struct gang *gang)
{
    for (unsigned i = 0; i < CUSLICE_GANG_MEMBERS; i++)
        if (gang_used(&gang->shared->member[i]) &&
            memcmp(gang->shared->member[i].uuid, gang_me(gang)->uuid, 16) < 0)
            return false;
    return true;
}
