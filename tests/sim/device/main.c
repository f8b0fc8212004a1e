/*
 * The device process: starts as a daemon, then loops: hear the bells, carry out what the clock has
 * passed, sleep until the next thing. It ends by itself when nobody has been there for a while.
 * Everything it owns belongs to this thread; the side threads only wake it. It must never wait for
 * a client and never be stopped by one.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define CALL_LINGER UINT64_C(30000)
#define FIRST_LINGER UINT64_C(10000000000)
#define LONGEST_SLEEP UINT64_C(1000000000)
#define QUIET_SLEEP UINT64_C(100000)

static uint64_t now;
static uint64_t last_call;
static _Atomic uint32_t nudged; /* a side thread has something */

uint64_t device_now(void)
{
    return now;
}

uint64_t device_refresh(void)
{
    now = util_now();
    return now;
}

void main_wake(void)
{
    atomic_store(&nudged, 1);
    if (atomic_exchange(&board->sleeping, 0))
        util_futex_wake(&board->sleeping, 1);
}

/* --- one round --- */

static void main_hear_streams(struct client *client, uint64_t bits)
{
    for (unsigned i = 0; i < client->stream_count; i++)
        if (client->streams[i] && (bits & SIM_BELL_STREAM(i)))
            stream_look(client->streams[i]);
}

static bool asked[SIM_CLIENTS]; /* who has called and has no answer yet */

static void main_hear(void)
{
    for (unsigned i = 0; i < client_most; i++) {
        uint64_t bits;

        if (!atomic_load_explicit(&board->bell[i], memory_order_relaxed))
            continue;
        bits = atomic_exchange(&board->bell[i], 0);
        if (!clients[i]->used)
            continue;
        if (bits & ~SIM_BELL_CALL)
            main_hear_streams(clients[i], bits);
        asked[i] |= (bits & SIM_BELL_CALL) != 0;
    }
}

static void main_answer(void)
{
    for (unsigned i = 0; i < client_most; i++) {
        if (asked[i] && clients[i]->used) {
            call_serve(clients[i]);
            last_call = now;
        }
        asked[i] = false;
    }
}

static void main_hear_watch(void)
{
    struct watch_event events[64];
    unsigned n = watch_take(events, 64);

    for (unsigned i = 0; i < n; i++)
        if (events[i].kind == WATCH_PROCESS)
            client_died(events[i].index);
        else if (events[i].kind == WATCH_SOCKET)
            client_hung_up(events[i].index);
        else
            door_event(&events[i]);
    if (n)
        watch_done();
}

/* The earliest thing on any engine, carried out if its time has come. */
static uint64_t main_step(bool *stepped)
{
    struct engine *engine = NULL;
    struct copier *copier = NULL;
    uint64_t next = UTIL_NEVER;

    for (unsigned i = 0; i < settings.devices; i++) {
        uint64_t t = engine_next(&devices[i].engine);

        if (t < next) {
            next = t;
            engine = &devices[i].engine;
            copier = NULL;
        }
        for (unsigned c = 0; c < 2; c++) {
            t = copier_next(&devices[i].copier[c]);
            if (t < next) {
                next = t;
                copier = &devices[i].copier[c];
            }
        }
    }
    *stepped = next <= now;
    if (*stepped && copier)
        copier_step(copier, next);
    else if (*stepped)
        engine_step(engine, next);
    return next;
}

static uint64_t main_catch_up(void)
{
    uint64_t next;
    bool stepped;

    stream_settle();
    do {
        next = main_step(&stepped);
        if (stepped)
            stream_settle();
    } while (stepped);
    return next;
}

/* Calls and deaths find everything done that ended before: the device may have slept through it. */
static uint64_t main_round(void)
{
    uint64_t next;

    device_refresh();
    atomic_store(&nudged, 0);
    main_hear();
    main_catch_up();
    main_hear_watch();
    main_answer();
    next = main_catch_up();
    client_step(now);
    export_step(now);
    if (trace_due() <= now)
        trace_flush();
    return next;
}

/* --- sleeping --- */

static bool main_rung(void)
{
    if (atomic_load(&nudged) || watch_pending())
        return true;
    for (unsigned i = 0; i < client_most; i++)
        if (atomic_load(&board->bell[i]))
            return true;
    return false;
}

/* Whether what comes next is an end that clients see by the clock (stream_tell), so that the device
 * need not be awake for it: hardware takes no processor either, at the moment others need one. */
static bool main_quiet(uint64_t next)
{
    uint64_t until = next + QUIET_SLEEP + settings.spin;

    if (next == UTIL_NEVER || next > now + settings.spin)
        return false;
    for (unsigned i = 0; i < settings.devices; i++)
        for (unsigned c = 0; c < 2; c++)
            if (copier_next(&devices[i].copier[c]) <= until)
                return false;
    for (unsigned i = 0; i < settings.devices; i++)
        if (engine_next(&devices[i].engine) <= until && !engine_quiet(&devices[i].engine, now))
            return false;
    return true;
}

static uint64_t main_earliest(uint64_t engines, bool quiet)
{
    uint64_t polls = stream_next_poll(), leaving = client_next(), trace = trace_due();
    uint64_t exports = export_next();
    uint64_t next = engines > settings.spin ? engines - settings.spin : 0;

    if (engines == UTIL_NEVER)
        next = engines;
    if (quiet)
        next = engines + QUIET_SLEEP;
    if (polls < next)
        next = polls;
    if (leaving < next)
        next = leaving;
    if (exports < next)
        next = exports;
    return trace < next ? trace : next;
}

static void main_sleep(uint64_t engines)
{
    bool quiet = main_quiet(engines);
    uint64_t until = main_earliest(engines, quiet);

    device_refresh();
    if (now < last_call + CALL_LINGER || until <= now) {
        util_pause();
        return;
    }
    if (until - now > LONGEST_SLEEP)
        until = now + LONGEST_SLEEP;
    if (until - now > 1000000)
        trace_flush();
    atomic_store(&board->sleeping, quiet ? 2 : 1);
    if (!main_rung() && (!quiet || main_quiet(engines)))
        util_futex_wait(&board->sleeping, quiet ? 2 : 1, until - now);
    atomic_store(&board->sleeping, 0);
}

/* --- beginning and end --- */

static void main_loop(void)
{
    uint64_t alone = device_refresh() + (settings.linger < FIRST_LINGER ? FIRST_LINGER : 0);

    for (;;) {
        uint64_t next = main_round();

        if (client_count())
            alone = now;
        else if (now > alone && now - alone > settings.linger && door_close())
            break;
        main_sleep(next);
    }
    trace_flush();
}

/* What the starting program had open is not the device's to keep. */
static void main_close_inherited(int except)
{
    int least = except > 2 ? except : 2;

    if (except > 3)
        syscall(SYS_close_range, 3, except - 1, 0);
    if (!syscall(SYS_close_range, least + 1, ~0u, 0))
        return;
    for (int fd = 3, most = (int)sysconf(_SC_OPEN_MAX); fd < most && fd < 65536; fd++)
        if (fd != except)
            close(fd);
}

/* Hardware does not queue for a processor. Where the kernel allows it the device runs before
 * others, in short turns; where not, it is only less punctual. */
static void main_take_priority(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = 48, .nice = -20, .runtime = 100000};

    if (syscall(SYS_sched_setattr, 0, &attributes, 0))
        setpriority(PRIO_PROCESS, 0, -20);
}

/* The descriptor on which the starter waits for "ready" is named by the first argument. */
static int main_daemonize(int ready)
{
    struct rlimit files;
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid)
        _exit(0);
    setsid();
    main_close_inherited(ready);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "simcuda-device");
    prctl(PR_SET_TIMERSLACK, 1);
    main_take_priority();
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return 0;
}

static int main_open(void)
{
    int error;

    settings_load();
    util_clock_init();
    umask(0);
    mkdir(settings.directory, 0777);
    error = trace_open();
    if (!error)
        error = area_create();
    if (!error)
        error = watch_start();
    if (!error)
        error = worker_start();
    if (!error)
        error = door_open();
    if (!error && chdir("/"))
        error = -errno;
    return error;
}

int main(int argc, char **argv)
{
    int ready = argc > 1 ? atoi(argv[1]) : -1;
    int error = main_daemonize(ready);

    if (!error)
        error = main_open();
    if (error)
        fprintf(stderr, "simcuda-device: %s\n", strerror(-error));
    if (ready >= 0) {
        char byte = error ? 'e' : 'r';
        ssize_t n = write(ready, &byte, 1);

        (void)n;
        close(ready);
    }
    if (error)
        return 1;
    main_loop();
    return 0;
}
