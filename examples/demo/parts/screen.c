/* Text redrawn in place: see screen.h. Uses the plain ANSI sequences that every terminal of the
 * last forty years knows, and none at all when standard output is no terminal. */
#include "screen.h"

#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *const screen_codes[] = {"", "1", "2", "1;32", "1;31", "36", "35", "33"};
static volatile bool screen_cursor_hidden;

/* The tallest frame and the line below it: on a lower terminal it would scroll away from its place.
 */
enum { SCREEN_ROWS = 18 };

static void screen_size(int *columns, int *rows)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;

    *columns = known ? size.ws_col : 80;
    *rows = known ? size.ws_row : 24;
}

static void screen_write(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t done = write(STDOUT_FILENO, text, length);
        if (done <= 0)
            return;
        text += done;
        length -= (size_t)done;
    }
}

void screen_open(struct screen *screen)
{
    const char *terminal = getenv("TERM");
    const char *no_colour = getenv("NO_COLOR");
    int rows;

    memset(screen, 0, sizeof(*screen));
    setlocale(LC_CTYPE, "");
    screen_size(&screen->columns, &rows);
    screen->live =
        isatty(STDOUT_FILENO) && terminal && strcmp(terminal, "dumb") != 0 && rows >= SCREEN_ROWS;
    screen->colour = screen->live && !(no_colour && *no_colour);
    screen->blocks = screen->live && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    screen->columns = screen->live ? screen->columns : 200;
    if (screen->live) {
        screen_cursor_hidden = true;
        screen_write("\033[?25l", 6);
    }
}

/* Raw bytes of the frame: nothing here counts as a column. */
static void screen_raw(struct screen *screen, const char *text, size_t length)
{
    if (length > sizeof(screen->text) - screen->used)
        return;
    memcpy(screen->text + screen->used, text, length);
    screen->used += length;
}

static void screen_raw_text(struct screen *screen, const char *text)
{
    screen_raw(screen, text, strlen(text));
}

void screen_begin(struct screen *screen)
{
    char up[16];
    int rows;

    screen->used = 0;
    screen->column = screen->written = 0;
    if (!screen->live)
        return;
    screen_size(&screen->columns, &rows);
    if (screen->lines > 0) {
        snprintf(up, sizeof(up), "\033[%dA\r", screen->lines);
        screen_raw_text(screen, up);
    }
}

/* Takes as many characters (not bytes) as fit; the last column stays free, for terminals that wrap
 * there. */
static size_t screen_fit(struct screen *screen, const char *text)
{
    size_t bytes = 0;

    while (text[bytes]) {
        bool begins = ((unsigned char)text[bytes] & 0xc0) != 0x80;
        if (begins && screen->column >= screen->columns - 1)
            break;
        screen->column += begins;
        bytes++;
    }
    return bytes;
}

void screen_put(struct screen *screen, enum screen_style style, const char *format, ...)
{
    char text[512], code[16];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t length = screen_fit(screen, text);
    bool styled = screen->colour && style != SCREEN_PLAIN;
    if (styled) {
        snprintf(code, sizeof(code), "\033[%sm", screen_codes[style]);
        screen_raw_text(screen, code);
    }
    screen_raw(screen, text, length);
    if (styled)
        screen_raw_text(screen, "\033[0m");
}

void screen_move(struct screen *screen, int column)
{
    while (screen->column < column && screen->column < screen->columns - 1)
        screen_put(screen, SCREEN_PLAIN, " ");
}

void screen_line(struct screen *screen)
{
    screen_raw_text(screen, screen->live ? "\033[K\r\n" : "\n");
    screen->column = 0;
    screen->written++;
}

void screen_show(struct screen *screen)
{
    if (screen->live)
        screen_raw_text(screen, "\033[J");
    screen_write(screen->text, screen->used);
    screen->lines = screen->written;
}

void screen_close(struct screen *screen)
{
    screen_restore();
    screen->lines = 0;
}

void screen_restore(void)
{
    if (screen_cursor_hidden)
        screen_write("\033[?25h\033[0m", 10);
    screen_cursor_hidden = false;
}
