/*
 * keeper: one thread, which looks at each device in turn (turn.h) and sleeps at the bottom of its
 * loop until there is news or the next look is due (see keeper.h). Once a second it looks after the
 * rings themselves.
 */
#include "keeper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "attach.h"
#include "clock.h"
#include "closely.h"
#include "contexts.h"
#include "footprint.h"
#include "futex.h"
#include "gang.h"
#include "gate.h"
#include "guard.h"
#include "log.h"
#include "notice.h"
#include "real.h"
#include "slot.h"
#include "turn.h"

#define KEEPER_STACK (256 * 1024)
#define KEEPER_TEND_NS CLOCK_S
#define KEEPER_EXIT_NS (50 * CLOCK_MS)

static pthread_t keeper_thread;
static _Atomic bool keeper_stopping;
static bool keeper_started;

/* From here on this client's death is told of, and it is guarded. */
static void keeper_join(struct ring *ring)
{
    notice_add(ring);
    guard_begin(ring);
}

/* ---- Once a second ---- */

/* A ring that lost its name is left for the one that has it now. While there is none (the directory
 * is gone, say) the old one goes on; that is tried again less and less often. */
static void keeper_tend(struct gate *gate)
{
    struct turn *turn = turn_of(gate);
    turn_books(gate);
    footprint_tend(gate);
    if (gate->gang && !gang_current(gate->gang))
        gather_regroup(gate);
    if (turn->move_skip > 0 && turn->move_skip-- > 1)
        return;
    if (ring_tend(gate->ring) != -ESTALE)
        return;
    notice_drop(gate->ring);
    if (attach_move(gate) == 0)
        *turn = (struct turn){.published = turn->published};
    else
        turn->move_skip = turn->move_wait = turn->move_wait < 64 ? 2 * turn->move_wait + 1 : 64;
    keeper_join(gate->ring);
}

/* ---- The loop ---- */

#define KEEPER_WATCHES (GATE_DEVICES * (1 + GUARD_WORDS) + 1)
_Static_assert(KEEPER_WATCHES <= FUTEX_WATCH_MAX, "all is watched at once");

/* How many words there are to sleep on: first those for news, then those of the guarded. */
struct keeper_words {
    unsigned news, all;
};

/* Whether this keeper can sleep on several words: not before Linux 5.16, or under a seccomp filter
 * that does not know the call. Such a filter may come later. */
static bool keeper_guards;

static void keeper_say_guards(bool guards)
{
    keeper_guards = guards;
    for (unsigned i = 0; i < guest.gates; i++)
        guard_say(guest.gate[i].ring, guards);
}

/* Beside news: that clients die which this one guards. Where one word at a time can be watched,
 * several devices take a look every millisecond. */
static void keeper_nap_till(const struct futex_watch watch[FUTEX_WATCH_MAX],
                            struct keeper_words words, uint64_t until)
{
    keeper_say_guards(keeper_guards);
    int rc = words.all > 1 ? futex_wait_many(watch, words.all, until) : -ENOSYS;
    for (unsigned i = words.news; i < words.all; i++)
        guard_pass_on(&watch[i]);
    if (rc != -ENOSYS)
        return;
    if (words.all > 1)
        keeper_say_guards(false);
    if (words.news > 1)
        until = turn_sooner(until, clock_after(TURN_TICK_NS));
    futex_wait(watch[0].word, watch[0].expected, until);
}

/* The devices' words, and the gang's. */
static unsigned keeper_news(struct futex_watch watch[FUTEX_WATCH_MAX])
{
    unsigned n = 0;
    const struct gang *gang = NULL;
    for (unsigned i = 0; i < guest.gates; i++) {
        const struct ring *ring = guest.gate[i].ring;
        const _Atomic(uint32_t) *word = ring_call_word(ring);
        watch[n++] = (struct futex_watch){word, atomic_load(word), false};
        gang = gang ? gang : guest.gate[i].gang;
    }
    if (gang) { /* all of this process sleep on one */
        const _Atomic uint32_t *word = gang_news_word(gang);
        watch[n++] = (struct futex_watch){word, atomic_load(word), false};
    }
    return n;
}

/* What ends its sleep, as it stands before a look. */
static struct keeper_words keeper_watches(struct futex_watch watch[FUTEX_WATCH_MAX])
{
    unsigned news = keeper_news(watch), all = news;
    for (unsigned i = 0; keeper_guards && i < guest.gates; i++)
        all += guard_words(guest.gate[i].ring, &watch[all]);
    return (struct keeper_words){news, all};
}

/* Sleeps, and learns how late a sleep ends. */
static void keeper_nap(const struct futex_watch watch[FUTEX_WATCH_MAX], struct keeper_words words,
                       uint64_t until)
{
    keeper_nap_till(watch, words, until);
    uint64_t now = clock_now();
    for (unsigned i = 0; now >= until && i < guest.gates; i++)
        closely_slept(&turn_of(&guest.gate[i])->closely, until, now);
}

/* This thread lives as long as the process: its end is what others are told of. */
static void keeper_notices(void)
{
    int rc = notice_begin();
    if (rc < 0)
        log_info("no-notice",
                 "a robust list is refused here (%s): others find this process's death up to 4 ms "
                 "later",
                 strerror(-rc));
    for (unsigned i = 0; i < guest.gates; i++)
        keeper_join(guest.gate[i].ring);
}

/* The turn first: it is in a hurry. */
static uint64_t keeper_look(struct gate *gate)
{
    uint64_t turn = turn_look(gate);
    return turn_sooner(turn, guard_look(gate->ring, &turn_of(gate)->guard));
}

static void *keeper_main(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    uint64_t tend = clock_after(KEEPER_TEND_NS);
    (void)unused;
    prctl(PR_SET_NAME, "cuslice");
    prctl(PR_SET_TIMERSLACK, 1);
    if (REAL_HAS(cuThreadExchangeStreamCaptureMode))
        real.cuThreadExchangeStreamCaptureMode(&mode);
    keeper_notices();
    keeper_guards = futex_waits_many();
    while (!atomic_load(&keeper_stopping)) {
        struct futex_watch watch[FUTEX_WATCH_MAX];
        uint64_t until = tend;
        struct keeper_words words = keeper_watches(watch);
        for (unsigned i = 0; i < guest.gates; i++)
            until = turn_sooner(until, keeper_look(&guest.gate[i]));
        if (clock_now() >= tend) {
            for (unsigned i = 0; i < guest.gates; i++)
                keeper_tend(&guest.gate[i]);
            tend = clock_after(KEEPER_TEND_NS);
            continue;
        }
        keeper_nap(watch, words, until);
    }
    for (unsigned i = 0; i < guest.gates; i++)
        notice_drop(guest.gate[i].ring);
    return NULL;
}

int keeper_start(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    turn_reset();
    keeper_stopping = false;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, KEEPER_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&keeper_thread, &attributes, keeper_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    keeper_started = rc == 0;
    return -rc;
}

/* What is under way gets a short time to leave the GPU before the token goes on. */
static void keeper_finish(struct gate *gate, uint64_t deadline)
{
    struct ring *ring = gate->ring;
    uint64_t token = ring_token(ring);
    if (guest.mode == CONFIG_ENFORCE && ring_holds(ring, token)) {
        gate_close(gate, token);
        ring_wake_waiting(ring_shared(ring)); /* notice_drop was before */
        contexts_drain_begin(gate);
        while ((gate_inside(gate) || contexts_drain_poll(gate) != CONTEXTS_DONE) &&
               clock_now() < deadline)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    turn_books(gate);
    if (gate->gang)
        gang_leave(gate->gang);
    slot_leave(&ring->segment, ring->slot);
}

void keeper_forget(void)
{
    keeper_started = false;
}

/* Whether the thread has ended in time. Asked again and again: the one timed join that older libcs
 * have goes by the time of day, which may jump. */
static bool keeper_ended(uint64_t deadline)
{
    while (pthread_tryjoin_np(keeper_thread, NULL) != 0) {
        if (clock_now() >= deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return true;
}

void keeper_stop(void)
{
    uint64_t deadline = clock_after(KEEPER_EXIT_NS);
    if (!keeper_started)
        return;
    atomic_store(&keeper_stopping, true);
    for (unsigned i = 0; i < guest.gates; i++)
        ring_poke(ring_shared(guest.gate[i].ring), guest.gate[i].ring->slot);
    if (!keeper_ended(clock_after(CLOCK_S)))
        return; /* it is inside the driver: the lock tells the others when the process is gone */
    for (unsigned i = 0; i < guest.gates; i++)
        keeper_finish(&guest.gate[i], deadline);
}
