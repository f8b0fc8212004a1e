/* How the demo looks: see view.h. Columns that do not fit are left out, the least needed first. */
#include "view.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

/* Where the columns begin; 0: left out. */
struct view_columns {
    int bar;
    int bar_width;
    int got;
    int asked;
    int state;
    int memory;
    int waited;
    int slices;
};

static struct view_columns view_fit(int width)
{
    struct view_columns at = {.bar = 15};
    int rest = 9 + 7 + 17;

    if (width >= 76)
        rest += 19;
    if (width >= 104)
        rest += 10 + 8;
    at.bar_width = width - at.bar - rest - 1;
    at.bar_width = at.bar_width < 8 ? 8 : at.bar_width > 40 ? 40 : at.bar_width;
    at.got = at.bar + at.bar_width;
    at.asked = at.got + 9;
    at.state = at.asked + 7;
    at.memory = width >= 76 ? at.state + 17 : 0;
    at.waited = width >= 104 ? at.memory + 19 : 0;
    at.slices = width >= 104 ? at.waited + 10 : 0;
    return at;
}

static enum screen_style view_style(int guest)
{
    return guest < 0 ? SCREEN_DIM : (enum screen_style)(SCREEN_FIRST + guest);
}

void view_sample(struct view *view)
{
    view->trace[view->traced++ % VIEW_TRACE] = (signed char)tally_holder(view->tally);
}

/* What it got, to an eighth of a character; the place of what it asked for is marked. */
static void view_bar(struct screen *screen, int width, double got, double asked, int guest)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int filled = (int)(got / 100 * width * 8 + 0.5);
    int mark = (int)(asked / 100 * width + 0.5);

    for (int i = 0; i < width; i++) {
        int part = filled - 8 * i;
        if (part >= 8)
            screen_put(screen, view_style(guest), "%s", screen->blocks ? "█" : "#");
        else if (part > 0 && screen->blocks)
            screen_put(screen, view_style(guest), "%s", eighths[part]);
        else if (i == mark)
            screen_put(screen, SCREEN_PLAIN, "%s", screen->blocks ? "┊" : "|");
        else
            screen_put(screen, SCREEN_DIM, "%s", screen->blocks ? "·" : ".");
    }
}

static void view_head(const struct view *view, struct screen *screen)
{
    char memory[TEXT_FIGURE], quantum[TEXT_FIGURE];
    double seconds = (double)(view->tally->now_ns - view->tally->begin_ns) / 1e9;
    const char *dot = screen->blocks ? "·" : "-";

    screen_put(screen, SCREEN_BOLD, " cuslice");
    screen_put(screen, SCREEN_PLAIN, "  three unmodified CUDA programs, one GPU");
    screen_line(screen);
    screen_put(screen, SCREEN_DIM, " %s %s %s %s slices of %s %s %.1f of %.0f s", view->ring->name,
               dot, text_bytes(memory, view->ring->device_bytes), dot,
               text_duration(quantum, view->ring->quantum_ns), dot, seconds, view->length_ms / 1e3);
    if (view->stage->simulated)
        screen_put(screen, SCREEN_BOLD, "  simulated");
    screen_line(screen);
}

static void view_headings(struct screen *screen, const struct view_columns *at)
{
    const char *names[] = {"TENANT", "GPU TIME", "    GOT", "ASKED",
                           "NOW",    "MEMORY",   "WAITED",  "SLICES"};
    int places[] = {3, at->bar, at->got, at->asked, at->state, at->memory, at->waited, at->slices};

    for (int i = 0; i < 8; i++)
        if (places[i]) {
            screen_move(screen, places[i]);
            screen_put(screen, SCREEN_DIM, "%s", names[i]);
        }
    screen_line(screen);
}

static void view_state(struct screen *screen, const struct tally_row *row, int guest)
{
    char text[TEXT_FIGURE];

    if (!row->present)
        screen_put(screen, SCREEN_DIM, "not there");
    else if (row->holds)
        screen_put(screen, view_style(guest), "%s %s", row->draining ? "drains" : "runs",
                   text_duration(text, row->holding_ns));
    else if (row->waiting_ns)
        screen_put(screen, SCREEN_PLAIN, "waits %s", text_duration(text, row->waiting_ns));
    else
        screen_put(screen, SCREEN_DIM, "between turns");
}

static void view_row(const struct view *view, struct screen *screen, const struct view_columns *at,
                     int guest)
{
    const struct tally_row *row = &view->tally->row[guest];
    double got = tally_share(view->tally, guest);
    double asked = tally_asked(view->guests, guest);
    char a[TEXT_FIGURE], b[TEXT_FIGURE];

    screen_put(screen, view_style(guest), " %s ", !row->holds ? " " : screen->blocks ? "▶" : ">");
    screen_put(screen, row->holds ? SCREEN_BOLD : SCREEN_PLAIN, "%s", view->guests[guest].name);
    screen_move(screen, at->bar);
    view_bar(screen, at->bar_width, got, asked, guest);
    screen_put(screen, SCREEN_BOLD, " %5.1f%%", got);
    screen_move(screen, at->asked);
    screen_put(screen, SCREEN_PLAIN, "%4.0f%%", asked);
    screen_move(screen, at->state);
    view_state(screen, row, guest);
    if (at->memory) {
        screen_move(screen, at->memory);
        screen_put(screen, row->refusals ? SCREEN_BAD : SCREEN_PLAIN, "%s",
                   text_bytes(a, row->memory));
        screen_put(screen, SCREEN_PLAIN, " of %s", text_cap(b, row->cap));
    }
    if (at->waited) {
        screen_move(screen, at->waited);
        screen_put(screen, SCREEN_PLAIN, "%s", text_duration(a, row->waited_ns));
        screen_move(screen, at->slices);
        screen_put(screen, SCREEN_PLAIN, "%6llu", (unsigned long long)row->slices);
    }
    screen_line(screen);
}

/* One lane a guest; the newest sample stands at the right. */
static void view_lane(const struct view *view, struct screen *screen, unsigned count, int guest)
{
    screen_put(screen, SCREEN_PLAIN, "   %-12s", view->guests[guest].name);
    for (unsigned i = count; i > 0; i--) {
        bool held = i <= view->traced && view->trace[(view->traced - i) % VIEW_TRACE] == guest;
        if (held)
            screen_put(screen, view_style(guest), "%s", screen->blocks ? "▄" : "#");
        else
            screen_put(screen, SCREEN_DIM, "%s", screen->blocks ? "·" : ".");
    }
    screen_line(screen);
}

static void view_trace(const struct view *view, struct screen *screen)
{
    unsigned width = screen->columns > 24 ? (unsigned)screen->columns - 16 : 8;
    unsigned count = width < VIEW_TRACE ? width : VIEW_TRACE;

    screen_put(screen, SCREEN_DIM, "   WHO HAD THE GPU in the last %u ms, a mark each %u ms",
               count * view->sample_ms, view->sample_ms);
    screen_line(screen);
    for (int i = 0; i < GUESTS; i++)
        view_lane(view, screen, count, i);
}

static void view_news(const struct view *view, struct screen *screen)
{
    char asked[TEXT_FIGURE], used[TEXT_FIGURE];

    for (int i = 0; i < GUESTS; i++)
        if (view->guests[i].refused) {
            screen_put(screen, SCREEN_BAD, "   refused");
            screen_put(screen, SCREEN_PLAIN, "  %s asked for %s more, has %s, may have %s",
                       view->guests[i].name, text_bytes(asked, view->guests[i].refused),
                       text_bytes(used, view->guests[i].refused_used), view->guests[i].cap);
        }
    screen_line(screen);
}

void view_draw(const struct view *view, struct screen *screen)
{
    screen_begin(screen);
    struct view_columns at = view_fit(screen->columns);
    screen_line(screen);
    view_head(view, screen);
    screen_line(screen);
    view_headings(screen, &at);
    for (int i = 0; i < GUESTS; i++)
        view_row(view, screen, &at, i);
    screen_line(screen);
    view_trace(view, screen);
    screen_line(screen);
    view_news(view, screen);
    screen_show(screen);
}

void view_print(const struct view *view, struct screen *screen)
{
    char a[TEXT_FIGURE], b[TEXT_FIGURE], c[TEXT_FIGURE], d[TEXT_FIGURE];

    screen_begin(screen);
    screen_put(screen, SCREEN_PLAIN, "after %.1f s",
               (double)(view->tally->now_ns - view->tally->begin_ns) / 1e9);
    screen_line(screen);
    for (int i = 0; i < GUESTS; i++) {
        const struct tally_row *row = &view->tally->row[i];
        screen_put(screen, SCREEN_PLAIN, "  %c %-10s got %5.1f%%  asked %2.0f%%  %-5s %7s",
                   row->holds ? '>' : ' ', view->guests[i].name, tally_share(view->tally, i),
                   tally_asked(view->guests, i), row->holds ? "runs" : "waits",
                   text_duration(a, row->holds ? row->holding_ns : row->waiting_ns));
        screen_put(screen, SCREEN_PLAIN, "  waited %6s  memory %6s of %6s  %3llu slices%s",
                   text_duration(b, row->waited_ns), text_bytes(c, row->memory),
                   text_cap(d, row->cap), (unsigned long long)row->slices,
                   row->refusals ? "  over-cap request refused" : "");
        screen_line(screen);
    }
    screen_show(screen);
}
