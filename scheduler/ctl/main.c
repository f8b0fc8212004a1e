/* The `cuslice` tool's front door: the table of commands, help, version, and the ways to complain.
 *
 * Runs on the tool's only thread. A command gets its own arguments and returns an exit code;
 * nothing here knows what a ring is.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "ctl.h"
#include "cuslice/segment.h"
#include "cuslice/version.h"

static const char version_help[] =
    "usage: cuslice version\n"
    "\n"
    "Prints the version of this tool and of the shared layout that it reads. A ring made by a\n"
    "library with another layout version or fingerprint is refused.\n";

static int version_main(int argc, char **argv)
{
    if (argc > 1)
        return ctl_usage("version", "takes no arguments, got '%s'", argv[1]);
    printf("cuslice %s\nlayout %u\nfingerprint %08x\n", CUSLICE_VERSION, CUSLICE_LAYOUT_VERSION,
           (unsigned)CUSLICE_FINGERPRINT);
    return CTL_OK;
}

static const struct ctl_command commands[] = {
    {"run", "start a program under cuslice; its process tree is one tenant", run_help, run_main},
    {"status", "show the rings: who holds, waits, uses how much", show_help, show_main},
    {"set", "change caps, weights and slices of running programs", set_help, set_main},
    {"reap", "clear the places of dead processes now", reap_help, reap_main},
    {"config", "show every setting, its value and where that came from", settings_help,
     settings_main},
    {"hooks", "list the driver functions that are hooked, by class", hooks_help, hooks_main},
    {"version", "show the versions of the tool and of the shared layout", version_help,
     version_main},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

int ctl_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("cuslice: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return CTL_FAILED;
}

int ctl_usage(const char *command, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "cuslice %s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\nTry 'cuslice %s --help'.\n", command);
    va_end(arguments);
    return CTL_USAGE;
}

int ctl_bad_option(char **argv, int answer)
{
    const char *option = argv[optind - 1];

    if (answer == ':')
        return ctl_usage(argv[0], "'%s' needs a value", option);
    if (optopt && strncmp(option, "--", 2) != 0)
        return ctl_usage(argv[0], "unknown option '-%c'", optopt);
    return ctl_usage(argv[0], "unknown, ambiguous or misused option '%s'", option);
}

int ctl_finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    return ctl_fail("cannot write the output: %s", strerror(errno));
}

int ctl_settings(struct config *config, const char *directory)
{
    char absolute[PATH_MAX];
    int result;

    /* So that the node's defaults are read there too. */
    if (directory && realpath(directory, absolute))
        setenv("CUSLICE_DIR", absolute, 1);
    else if (directory && *directory == '/')
        setenv("CUSLICE_DIR", directory, 1);
    result = config_load(config);
    if (directory)
        snprintf(config->dir, sizeof(config->dir), "%s", directory);
    return result;
}

static void main_help(void)
{
    puts("usage: cuslice COMMAND [ARGUMENTS]\n"
         "\n"
         "Shares one NVIDIA GPU between unmodified programs, in fixed time slices and with memory\n"
         "caps.\n"
         "\n"
         "Commands:");
    for (unsigned i = 0; i < COMMANDS; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    puts("\n"
         "'cuslice COMMAND --help' tells more about each.\n"
         "\n"
         "Exit codes: 0 it worked, 1 it failed, 2 wrong usage. 'run' ends with the program's own\n"
         "code, 126 when the program cannot be executed, 127 when it is not found.");
}

static const struct ctl_command *main_find(const char *name)
{
    for (unsigned i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static bool main_is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

static int main_unknown(const char *name)
{
    fprintf(stderr, "cuslice: unknown command '%s'\nTry 'cuslice --help'.\n", name);
    return CTL_USAGE;
}

static int main_help_on(int argc, char **argv)
{
    const struct ctl_command *command;

    if (argc < 2) {
        main_help();
        return CTL_OK;
    }
    command = main_find(argv[1]);
    if (!command)
        return main_unknown(argv[1]);
    fputs(command->help, stdout);
    return CTL_OK;
}

static int main_dispatch(int argc, char **argv)
{
    const struct ctl_command *command;

    if (strcmp(argv[0], "help") == 0 || main_is_help(argv[0]))
        return main_help_on(argc, argv);
    command = main_find(strcmp(argv[0], "--version") == 0 ? "version" : argv[0]);
    if (!command)
        return main_unknown(argv[0]);
    if (argc > 1 && main_is_help(argv[1])) {
        fputs(command->help, stdout);
        return CTL_OK;
    }
    opterr = 0;
    return command->main(argc, argv);
}

int main(int argc, char **argv)
{
    clock_init();
    if (argc < 2) {
        fputs("usage: cuslice COMMAND [ARGUMENTS]\nTry 'cuslice --help'.\n", stderr);
        return CTL_USAGE;
    }
    return ctl_finish(main_dispatch(argc - 1, argv + 1));
}
