/*
 * capture: what a piece of code writes to stderr, as one text. For the main thread of a unit test
 * only.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include "test.h"

#include <fcntl.h>

#define CAPTURE_MAX 65536

struct capture {
    int kept; /* the real stderr */
    int file;
    char text[CAPTURE_MAX];
};

static inline void capture_begin(struct capture *c)
{
    char name[] = "/tmp/capture-XXXXXX";

    c->file = mkstemp(name);
    REQUIRE(c->file >= 0);
    unlink(name);
    REQUIRE(fcntl(c->file, F_SETFL, O_APPEND) == 0);
    c->kept = dup(STDERR_FILENO);
    REQUIRE(dup2(c->file, STDERR_FILENO) >= 0);
}

/* The text so far, complete once nothing writes any more. */
static inline const char *capture_end(struct capture *c)
{
    ssize_t n;

    dup2(c->kept, STDERR_FILENO);
    close(c->kept);
    n = pread(c->file, c->text, sizeof(c->text) - 1, 0);
    close(c->file);
    c->text[n > 0 ? n : 0] = '\0';
    return c->text;
}

static inline unsigned capture_lines(const struct capture *c)
{
    unsigned lines = 0;

    for (const char *p = c->text; *p; p++)
        lines += *p == '\n';
    return lines;
}

#endif
