/* `cuslice hooks`: the driver functions that the library stands in front of, by class.
 *
 * The names come from the hooks' own table by way of the build (hooks/names.sh); nothing of CUDA is
 * known here. One thread. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "ctl.h"
#include "cuslice/version.h"
#include "json.h"

const char hooks_help[] =
    "usage: cuslice hooks [--json] [CLASS...]\n"
    "\n"
    "Lists the CUDA driver functions that libcuslice.so of this version stands in front of, with\n"
    "the class that says what it does there; only those of the classes named.\n"
    "\n"
    "  GATE     work that occupies the GPU waits for its turn\n"
    "  GRAPH    so does a graph, which may take memory besides\n"
    "  COPY     so do copies that stay within the device, or all with CUSLICE_GATE_COPIES=1\n"
    "  CHARGE   device memory is counted before the driver is asked\n"
    "  POOL     stream-ordered memory is counted by what its pool takes\n"
    "  FREE     device memory is given back\n"
    "  SYNC     work is known to be done, so that the GPU may be passed on early\n"
    "  LIFE     contexts, streams and others' handles come and go\n"
    "  SPECIAL  anything else, such as start, look-up and memory figures\n"
    "\n"
    "  --json   one JSON object: version; hooks, a list of name and class\n"
    "\n"
    "What is not listed goes to the driver untouched.\n";

struct hooks_row {
    const char *class;
    const char *name;
};

static const struct hooks_row hooks_rows[] = {
#define HOOK(class, name) {#class, #name},
#include "hook_names.h"
};
enum { HOOKS_ROWS = sizeof(hooks_rows) / sizeof(hooks_rows[0]) };

static bool hooks_wanted(const char *class, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcasecmp(class, argv[i]) == 0)
            return true;
    return argc == 0;
}

/* CTL_USAGE, said, for a class that no row has. */
static int hooks_check(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        unsigned row = 0;
        while (row < HOOKS_ROWS && strcasecmp(hooks_rows[row].class, argv[i]) != 0)
            row++;
        if (row == HOOKS_ROWS)
            return ctl_usage("hooks", "no class '%s'", argv[i]);
    }
    return CTL_OK;
}

static int hooks_json(int argc, char **argv)
{
    cJSON *root = cJSON_CreateObject();

    cJSON_AddStringToObject(root, "version", CUSLICE_VERSION);
    cJSON *list = cJSON_AddArrayToObject(root, "hooks");
    for (unsigned i = 0; i < HOOKS_ROWS; i++) {
        if (!hooks_wanted(hooks_rows[i].class, argc, argv))
            continue;
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", hooks_rows[i].name);
        cJSON_AddStringToObject(row, "class", hooks_rows[i].class);
        cJSON_AddItemToArray(list, row);
    }
    return json_print(root);
}

int hooks_main(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    bool json = false;
    int answer;

    while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (answer != 'j')
            return ctl_bad_option(argv, answer);
        json = true;
    }
    int code = hooks_check(argc - optind, argv + optind);
    if (code)
        return code;
    if (json)
        return hooks_json(argc - optind, argv + optind);
    for (unsigned i = 0; i < HOOKS_ROWS; i++)
        if (hooks_wanted(hooks_rows[i].class, argc - optind, argv + optind))
            printf("%-8s %s\n", hooks_rows[i].class, hooks_rows[i].name);
    return CTL_OK;
}
