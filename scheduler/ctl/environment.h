/* The environment that a started program gets: a copy of the tool's own, changed here and handed to
 * exec. The tool's own environment is never touched. One thread; out of memory ends the tool. */
#ifndef CUSLICE_CTL_ENVIRONMENT_H
#define CUSLICE_CTL_ENVIRONMENT_H

struct environment {
    unsigned count;
    char **entry; /* NULL at the end: what exec takes */
};

/* Copies the tool's environment, with room for `more` new names. */
void environment_begin(struct environment *environment, unsigned more);

/* The value of a name, "" where it is not set. */
const char *environment_find(const struct environment *environment, const char *name);

/* Sets a name to what the format says, in place of an old value. */
void environment_set(struct environment *environment, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
