/* The `cuslice` tool: its commands and how they end.
 *
 * The tool is a thin user of lib and scheduler: it reads rings, starts programs, changes settings
 * and prints. It runs as a short process of its own with one thread, and may do what the library
 * must never do (exit, standard output). It never joins a ring and signals nobody.
 */
#ifndef CUSLICE_CTL_H
#define CUSLICE_CTL_H

#include <stdbool.h>

#include "config.h"

/* How every command ends; `run` ends as the program it started does. */
enum { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2, CTL_NOT_EXECUTABLE = 126, CTL_NOT_FOUND = 127 };

/* A command: argv[0] is its name; the table in main.c is the only list. */
struct ctl_command {
    const char *name;
    const char *summary;
    const char *help;
    int (*main)(int argc, char **argv);
};

int run_main(int argc, char **argv);
int show_main(int argc, char **argv);
int set_main(int argc, char **argv);
int reap_main(int argc, char **argv);
int hooks_main(int argc, char **argv);
int settings_main(int argc, char **argv);

extern const char run_help[];
extern const char show_help[];
extern const char set_help[];
extern const char reap_help[];
extern const char hooks_help[];
extern const char settings_help[];

/* Prints `cuslice: ...` on standard error and returns CTL_FAILED. */
int ctl_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints `cuslice COMMAND: ...` and where to find help on standard error; returns CTL_USAGE. */
int ctl_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says what getopt_long did not take, given what it returned (':' or '?'); returns CTL_USAGE. */
int ctl_bad_option(char **argv, int answer);

/* Flushes standard output; CTL_FAILED, said, when not everything could be written. */
int ctl_finish(int code);

/* Loads the settings; directory, when not NULL, goes before the ring directory they name. 0, or
 * -EINVAL for a bad cap, which has been said. */
int ctl_settings(struct config *config, const char *directory);

#endif
