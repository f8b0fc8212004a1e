/* A few lines of text that are drawn again and again in one place of a terminal, or printed once
 * each when the output is no terminal. Owns standard output and the cursor; one thread, except
 * screen_restore, which a signal handler may call. */
#ifndef DEMO_SCREEN_H
#define DEMO_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

enum screen_style {
    SCREEN_PLAIN,
    SCREEN_BOLD,
    SCREEN_DIM,
    SCREEN_GOOD,
    SCREEN_BAD,
    SCREEN_FIRST, /* one colour per guest */
    SCREEN_SECOND,
    SCREEN_THIRD
};

struct screen {
    bool live;   /* a terminal: redraw in place */
    bool colour; /* and NO_COLOR is not set */
    bool blocks; /* the locale's characters are UTF-8 */
    int columns;
    int column; /* of the line being written */
    int lines;  /* drawn by the last frame */
    int written;
    size_t used;
    char text[32768];
};

/* Looks at standard output; hides the cursor of a terminal. */
void screen_open(struct screen *screen);

/* Begins a frame: on a terminal it takes the place of the one before. */
void screen_begin(struct screen *screen);

/* Adds text to the line, cut at the terminal's width. */
void screen_put(struct screen *screen, enum screen_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds blanks up to a column. */
void screen_move(struct screen *screen, int column);

/* Ends the line. */
void screen_line(struct screen *screen);

/* Writes the frame out. */
void screen_show(struct screen *screen);

/* Leaves the last frame where it is; what follows goes below. Shows the cursor again. */
void screen_close(struct screen *screen);

/* Shows the cursor again. Async-signal-safe. */
void screen_restore(void);

#endif
