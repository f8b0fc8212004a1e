/* How the demo looks: the live table, the plain lines of a pipe, and the verdict. Draws what the
 * tally says and decides nothing. */
#ifndef DEMO_VIEW_H
#define DEMO_VIEW_H

#include "screen.h"
#include "tally.h"

/* The last holders of the token, one entry per sample. */
enum { VIEW_TRACE = 512 };

struct view {
    const struct stage *stage;
    const struct guest *guests;
    const struct status_ring *ring;
    const struct tally *tally;
    unsigned sample_ms; /* time between two entries of the trace */
    unsigned length_ms; /* of the whole show */
    unsigned traced;
    signed char trace[VIEW_TRACE];
};

/* Notes who holds the token now. */
void view_sample(struct view *view);

/* Draws the live table. */
void view_draw(const struct view *view, struct screen *screen);

/* Prints the same as a few plain lines. */
void view_print(const struct view *view, struct screen *screen);

#endif
