/* `cuslice config`: every setting of this environment, its value and its origin.
 *
 * A thin view of lib/config: what it prints is what a program started from here would use. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "ctl.h"
#include "json.h"
#include "table.h"

const char settings_help[] =
    "usage: cuslice config [--json] [--dir DIRECTORY]\n"
    "\n"
    "Shows every setting that a program started from here would get, and where it came from:\n"
    "built-in, node defaults (the file 'defaults' in the ring directory) or environment. Ceilings\n"
    "of the node are listed last. Ends with 1 when a memory cap is bad, because CUDA would then\n"
    "refuse to start in that program.\n"
    "\n"
    "  --json           one JSON object: settings, a list of name, value (null when not set),\n"
    "                   origin and help; and valid\n"
    "  --dir DIRECTORY  the ring directory whose 'defaults' are read (CUSLICE_DIR)\n";

static int settings_row(const struct config_row *row, void *arg)
{
    struct table *table = arg;

    table_add(table, "%s", row->name);
    table_add(table, "%s", *row->value ? row->value : "-");
    table_add(table, "%s", row->origin);
    table_add(table, "%s", row->help);
    return 0;
}

static void settings_print(const struct config *config)
{
    static const char *const headings[] = {"SETTING", "VALUE", "ORIGIN", "MEANING"};
    struct table table;

    table_begin(&table, "llll", headings);
    config_each(config, settings_row, &table);
    table_end(&table, "");
}

static int settings_json_row(const struct config_row *row, void *arg)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "name", row->name);
    if (*row->value)
        cJSON_AddStringToObject(object, "value", row->value);
    else
        cJSON_AddNullToObject(object, "value");
    cJSON_AddStringToObject(object, "origin", row->origin);
    cJSON_AddStringToObject(object, "help", row->help);
    cJSON_AddItemToArray(arg, object);
    return 0;
}

static int settings_print_json(const struct config *config, bool valid)
{
    cJSON *root = cJSON_CreateObject();

    config_each(config, settings_json_row, cJSON_AddArrayToObject(root, "settings"));
    cJSON_AddBoolToObject(root, "valid", valid);
    return json_print(root);
}

int settings_main(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"dir", required_argument, NULL, 'd'}, {0}};
    struct config config;
    const char *directory = NULL;
    bool json = false;
    int answer;

    while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (answer == 'j')
            json = true;
        else if (answer == 'd')
            directory = optarg;
        else
            return ctl_bad_option(argv, answer);
    }
    if (optind < argc)
        return ctl_usage("config", "takes no arguments, got '%s'", argv[optind]);

    bool valid = ctl_settings(&config, directory) == 0;
    int code = CTL_OK;
    if (json)
        code = settings_print_json(&config, valid);
    else
        settings_print(&config);
    return valid ? code : CTL_FAILED;
}
