/* What cuslice does, in a quarter of a minute: three unmodified CUDA programs share one GPU
 * 50/30/20 under memory caps of their own, one asks for more than it may have.
 *
 * Starts the programs with `cuslice run` (a real GPU where there is one, else the simulated
 * device), reads the ring while they run, and judges at the end: exit code 0 when shares and caps
 * held, 1 when not, 2 for wrong usage. One thread. Everything it makes lies in one temporary
 * directory and everything it starts is its own child; both are gone when it ends, Ctrl-C included.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "guest.h"
#include "screen.h"
#include "stage.h"
#include "status.h"
#include "tally.h"
#include "text.h"
#include "view.h"

enum {
    KERNEL_US = 1500,
    SAMPLE_MS = 5,
    DRAW_MS = 100,
    PRINT_MS = 2000,
    SHOW_MS = 8000,
    START_MS = 40000,
    MARGIN_POINTS = 5
};

static struct guest guests[GUESTS] = {
    {.name = "training", .weight = 50, .cap = "4Gi", .memory_mib = 3072},
    {.name = "inference", .weight = 30, .cap = "2Gi", .memory_mib = 1536},
    {.name = "notebook",
     .weight = 20,
     .cap = "1Gi",
     .memory_mib = 768,
     .more_mib = 512,
     .more_at_ms = 3000},
};
static struct status_ring ring;
static struct tally tally;
static struct screen screen;
static struct stage stage;
static volatile sig_atomic_t interrupted;

static void demo_interrupt(int signal_number)
{
    interrupted = signal_number;
}

static void demo_catch(void)
{
    struct sigaction action = {.sa_handler = demo_interrupt};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void demo_pause(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

/* False, after a message, when a guest has ended that should run. */
static bool demo_guests_run(void)
{
    for (int i = 0; i < GUESTS; i++) {
        guest_listen(&guests[i]);
        if (guest_lives(&guests[i]))
            continue;
        if (!interrupted)
            fprintf(stderr, "demo: %s ended early\n", guests[i].name);
        return false;
    }
    return true;
}

/* Opens the only ring in the demo's directory; false when there is none yet. */
static bool demo_open_ring(struct status_file *file)
{
    static struct status_names names;
    char path[PATH_MAX + STATUS_NAME + 2], reason[STATUS_REASON];

    if (status_list(stage.rings, &names) < 0 || names.count == 0)
        return false;
    snprintf(path, sizeof(path), "%s/%s", stage.rings, names.name[0]);
    return status_open(path, file, reason, sizeof(reason)) == 0;
}

/* Waits until all three have joined and had a turn. */
static bool demo_wait_for_guests(struct status_file *file)
{
    bool open = false;

    for (unsigned waited = 0; waited < START_MS && !interrupted; waited += 20) {
        if (!demo_guests_run())
            break;
        open = open || demo_open_ring(file);
        if (open) {
            status_read(file, &ring);
            if (tally_ready(&ring, guests))
                return true;
        }
        demo_pause(20);
    }
    if (open)
        status_close(file);
    return false;
}

static bool demo_show(struct status_file *file, struct view *view)
{
    uint64_t drawn = 0;
    uint64_t every = (screen.live ? DRAW_MS : PRINT_MS) * CLOCK_MS;

    tally_begin(&tally, &ring, guests);
    while (tally.now_ns - tally.begin_ns < SHOW_MS * CLOCK_MS) {
        if (interrupted || !demo_guests_run())
            return false;
        status_read(file, &ring);
        tally_update(&tally, &ring, guests);
        view_sample(view);
        if (tally.now_ns - tally.begin_ns >= drawn + (screen.live ? 0 : every)) {
            drawn += every;
            screen.live ? view_draw(view, &screen) : view_print(view, &screen);
        }
        demo_pause(SAMPLE_MS);
    }
    return true;
}

static bool demo_judge_shares(void)
{
    bool good = true;

    screen_put(&screen, SCREEN_BOLD,
               " Shares of the GPU's time, while all three wanted it for %.1f s",
               (double)(tally.now_ns - tally.begin_ns) / 1e9);
    screen_line(&screen);
    for (int i = 0; i < GUESTS; i++) {
        double asked = tally_asked(guests, i);
        double got = tally_share(&tally, i);
        double ran = tally_kernel_share(&tally, i);
        bool fits = fabs(got - asked) <= MARGIN_POINTS && fabs(ran - asked) <= MARGIN_POINTS;
        screen_put(&screen, fits ? SCREEN_GOOD : SCREEN_BAD, "   %s ", fits ? "ok " : "off");
        screen_put(&screen, SCREEN_PLAIN,
                   "%-10s asked %4.1f%%   got %4.1f%%   of all kernels it ran %4.1f%% (%" PRIu64
                   ")",
                   guests[i].name, asked, got, ran, tally.row[i].kernels);
        screen_line(&screen);
        good = good && fits;
    }
    return good;
}

static bool demo_judge_cap(const struct guest *guest, const struct tally_row *row)
{
    char asked[TEXT_FIGURE], used[TEXT_FIGURE], total[TEXT_FIGURE];
    bool good = guest->refused && !guest->allowed && row->refusals > 0 &&
                strcmp(guest->refusal, "CUDA_ERROR_OUT_OF_MEMORY") == 0;

    screen_put(&screen, good ? SCREEN_GOOD : SCREEN_BAD, "   %s ", good ? "ok " : "off");
    if (guest->refused)
        screen_put(&screen, SCREEN_PLAIN, "%-10s asked for %s with %s in use, cap %s: %s",
                   guest->name, text_bytes(asked, guest->refused),
                   text_bytes(used, guest->refused_used), guest->cap, guest->refusal);
    else
        screen_put(&screen, SCREEN_PLAIN, "%-10s was %s beyond its cap of %s", guest->name,
                   guest->allowed ? "given memory" : "not refused anything", guest->cap);
    screen_line(&screen);
    screen_put(&screen, SCREEN_DIM, "       %-10s believes that its GPU has %s", "",
               text_bytes(total, guest->total));
    screen_line(&screen);
    return good;
}

/* All three figures are judged before anything is called good. */
static bool demo_judge(void)
{
    bool good;

    screen_close(&screen);
    screen_begin(&screen);
    screen_line(&screen);
    good = demo_judge_shares();
    screen_put(&screen, SCREEN_BOLD, " Memory");
    screen_line(&screen);
    for (int i = 0; i < GUESTS; i++)
        if (guests[i].more_mib)
            good = demo_judge_cap(&guests[i], &tally.row[i]) && good;
    screen_line(&screen);
    screen_put(&screen, SCREEN_PLAIN, " This was ");
    if (stage.simulated)
        screen_put(&screen, SCREEN_BOLD, "a simulated GPU (%s); no claim about a real one.",
                   stage.why);
    else
        screen_put(&screen, SCREEN_BOLD, "a real GPU: %s.", guests[0].device);
    screen_line(&screen);
    screen_put(&screen, good ? SCREEN_GOOD : SCREEN_BAD, good ? " As asked." : " NOT as asked.");
    screen_line(&screen);
    screen_show(&screen);
    return good;
}

static bool demo_start(void)
{
    for (int i = 0; i < GUESTS; i++) {
        int error = guest_start(&guests[i], &stage, KERNEL_US, START_MS + 2 * SHOW_MS);
        if (error) {
            fprintf(stderr, "demo: cannot start %s: %s\n", guests[i].name, strerror(-error));
            return false;
        }
    }
    return true;
}

static void demo_announce(void)
{
    if (stage.simulated)
        printf("On a simulated GPU: %s.\n", stage.why);
    else
        puts("On this machine's GPU.");
    for (int i = 0; i < GUESTS; i++)
        printf("  cuslice run --tenant %s --weight %u --mem %s -- demo_client ...\n",
               guests[i].name, guests[i].weight, guests[i].cap);
    fflush(stdout);
}

static bool demo_play(void)
{
    struct view view = {.stage = &stage,
                        .guests = guests,
                        .ring = &ring,
                        .tally = &tally,
                        .sample_ms = SAMPLE_MS,
                        .length_ms = SHOW_MS};
    struct status_file file;

    demo_announce();
    if (!demo_start() || !demo_wait_for_guests(&file))
        return false;
    screen_open(&screen);
    bool good = demo_show(&file, &view);
    status_close(&file);
    screen_close(&screen);
    return good;
}

int main(int argc, char **argv)
{
    bool simulate = argc == 2 && strcmp(argv[1], "--simulated") == 0;

    if (argc > 1 && !simulate) {
        fputs("usage: demo [--simulated]\n", stderr);
        return 2;
    }
    clock_init();
    demo_catch();
    if (stage_begin(&stage, simulate) < 0)
        return 1;
    bool played = demo_play();
    guest_end_all(guests, 3000);
    bool good = played && demo_judge();
    if (!played && !interrupted) {
        fputs("demo: the programs did not run side by side; what they said:\n", stderr);
        for (int i = 0; i < GUESTS; i++)
            guest_print_log(&guests[i]);
    }
    stage_end(&stage);
    return interrupted ? 128 + interrupted : good ? 0 : 1;
}
