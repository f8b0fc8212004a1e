/*
 * config: loads the settings, and says what is wrong with them.
 * Owns the only getenv. config_load runs once, on the thread that attaches; config_peek and the
 * rest may run anywhere, any number at once. Must never allocate, change the environment, or let a
 * bad cap pass as no cap.
 */
#include "config.h"
#include "defaults.h"
#include "setting.h"
#include "units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG_PREFIX "CUSLICE_"
#define CONFIG_FORMS_MAX 160

static void config_warn_name(const char *name, const char *where)
{
    log_warn("config-unknown", "%.100s in %s is no setting of cuslice; the nearest is %s", name,
             where, setting_nearest(name));
}

static void config_look_for_strangers(void)
{
    char name[CONFIG_NAME_MAX * 2];

    for (char **entry = environ; entry && *entry; entry++) {
        if (strncmp(*entry, CONFIG_PREFIX, strlen(CONFIG_PREFIX)) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (!setting_known(name))
            config_warn_name(name, "the environment");
        else if (setting_find_ceiling(name))
            log_warn("config-ceiling", "%s counts in the node's defaults file only; ignored", name);
    }
}

/* A cap that cannot be read is replaced by zero bytes: whoever goes on regardless gets nothing. */
static int config_refuse_cap(struct cap_list *caps, const char *name, const char *text,
                             const char *where)
{
    log_error("config-cap", "%s=%.200s in %s is no memory cap; accepted: %s", name, text, where,
              CAP_FORMS);
    *caps = (struct cap_list){.count = 1, .cap = {{.target = CAP_ALL, .kind = CAP_BYTES}}};
    return -EINVAL;
}

/* Reads one text into its place; a bad one is said. -EINVAL for a bad cap only, 1 when it was
 * taken. */
static int config_take(struct config *config, const struct setting *setting, const char *text,
                       const char *where)
{
    char forms[CONFIG_FORMS_MAX], kept[CONFIG_TEXT_MAX];

    if (setting_read(setting, text, config) == 0)
        return 1;
    if (setting_is_caps(setting))
        return config_refuse_cap(setting_place(config, setting), setting->name, text, where);
    setting_describe(setting, forms, sizeof(forms));
    setting_write(setting, config, kept, sizeof(kept));
    log_warn("config-value", "%s=%.200s in %s is not %s; keeping %.200s", setting->name, text,
             where, forms, *kept ? kept : "the default");
    return 0;
}

static int config_take_option(struct config *config, size_t option, const char *text,
                              enum config_origin origin)
{
    int taken = config_take(config, &setting_options[option], text, config_origin_text(origin));

    if (taken > 0)
        config->origin[option] = origin;
    return taken < 0 ? taken : 0;
}

/* An empty variable is one that is not set, except for a cap, where an empty template would mean
 * none. */
static int config_take_variable(struct config *config, size_t option)
{
    const struct setting *setting = &setting_options[option];
    const char *text = secure_getenv(setting->name);

    if (!text || (!*text && !setting_is_caps(setting)))
        return 0;
    return config_take_option(config, option, text, CONFIG_ENVIRONMENT);
}

static void config_take_built_in(struct config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        const struct setting *setting = &setting_options[i];

        if (*setting->built_in)
            setting_read(setting, setting->built_in, config);
    }
}

/* The options that decide where to look and where to complain; they are taken first. */
static bool config_is_early(size_t option)
{
    return option == CONFIG_dir || option == CONFIG_log || option == CONFIG_log_file;
}

static void config_take_early(struct config *config)
{
    struct stat st;

    log_open(config->log, NULL);
    config_take_variable(config, CONFIG_log);
    config_take_variable(config, CONFIG_log_file);
    log_open(config->log, config->log_file);
    config_take_variable(config, CONFIG_dir);
    if (!config->dir[0])
        strcpy(config->dir, stat("/run/cuslice", &st) == 0 ? "/run/cuslice" : "/dev/shm/cuslice");
}

static int config_take_line(struct config *config, const char *key, const char *value)
{
    const char *where = config_origin_text(CONFIG_NODE);
    const struct setting *setting = setting_find_option(key);

    if (setting) {
        size_t option = (size_t)(setting - setting_options);

        if (option == CONFIG_dir)
            log_warn("config-value", "%s cannot be set in the directory it names; ignored", key);
        else if (config->origin[option] != CONFIG_ENVIRONMENT)
            return config_take_option(config, option, value, CONFIG_NODE);
        return 0;
    }
    setting = setting_find_ceiling(key);
    if (!setting) {
        config_warn_name(key, where);
        return 0;
    }
    return config_take(config, setting, value, where) < 0 ? -EINVAL : 0;
}

/* A ceiling's `auto` divides by the node's own number of replicas, which no process can change. */
static int config_bind_ceiling(struct config *config, const struct setting *setting)
{
    struct cap_list *ceiling = setting_place(config, setting);

    if (!setting_is_caps(setting) || !cap_needs_replicas(ceiling))
        return 0;
    if (config->replicas) {
        cap_bind_replicas(ceiling, config->replicas);
        return 0;
    }
    return config_refuse_cap(ceiling, setting->name, "auto (without CUSLICE_REPLICAS)",
                             config_origin_text(CONFIG_NODE));
}

static int config_take_lines(struct config *config, char *text)
{
    char *key, *value;
    unsigned number = 0;
    int result = 0, found;

    while ((found = defaults_next(&text, &number, &key, &value)) != 0) {
        if (found < 0)
            log_warn("config-line", "line %u of the node defaults is not KEY=VALUE; ignored",
                     number);
        else if (config_take_line(config, key, value) < 0)
            result = -EINVAL;
    }
    for (size_t i = 0; setting_ceiling(i); i++) {
        if (config_bind_ceiling(config, setting_ceiling(i)) < 0)
            result = -EINVAL;
    }
    return result;
}

/* Where this process writes nobody says but root and its own user: the ring directory, and with it
 * the file of defaults, may be whose was first to make it. */
static void config_distrust(struct config *config, uid_t owner)
{
    if (config->origin[CONFIG_log_file] != CONFIG_NODE || owner == 0 || owner == geteuid())
        return;
    log_warn("config-value", "CUSLICE_LOG_FILE in the node defaults is another user's; ignored");
    config->log_file[0] = '\0';
    config->origin[CONFIG_log_file] = CONFIG_BUILT_IN;
}

static int config_take_node(struct config *config)
{
    char text[DEFAULTS_MAX];
    uid_t owner = 0;
    int error = defaults_read(config->dir, text, &owner);

    if (error == 0) {
        int result = config_take_lines(config, text);

        config_distrust(config, owner);
        return result;
    }
    if (error == -EPERM)
        log_warn("config-untrusted",
                 "%s/defaults ignored: it must be a regular file of root or of the directory's "
                 "owner, not writable by others",
                 config->dir);
    errno = -error;
    if (error != -EPERM && error != -ENOENT && error != -ENOTDIR)
        log_warn("config-unread", "%s/defaults ignored: %m", config->dir);
    return 0;
}

static int config_check_auto(struct config *config, size_t option)
{
    const struct setting *setting = &setting_options[option];
    struct cap_list *asked = setting_place(config, setting);

    if (!setting_is_caps(setting) || !cap_needs_replicas(asked) || config->replicas)
        return 0;
    return config_refuse_cap(asked, setting->name, "auto (without CUSLICE_REPLICAS)",
                             config_origin_text(config->origin[option]));
}

static void config_lower_weight(struct config *config)
{
    if (!config->weight_ceiling || config->weight <= config->weight_ceiling)
        return;
    if (config->origin[CONFIG_weight] == CONFIG_ENVIRONMENT)
        log_warn("config-lowered", "CUSLICE_WEIGHT=%u lowered to this node's ceiling, %u",
                 config->weight, config->weight_ceiling);
    config->weight = config->weight_ceiling;
    config->origin[CONFIG_weight] = CONFIG_NODE;
}

/* Where none is set the built-in 100 % is lowered too, as with the memory caps. */
static void config_lower_limit(struct config *config)
{
    char asked[32], ceiling[32];

    if (!config->limit_ceiling || config->limit <= config->limit_ceiling)
        return;
    units_format_percent(config->limit, asked, sizeof(asked));
    units_format_percent(config->limit_ceiling, ceiling, sizeof(ceiling));
    if (config->origin[CONFIG_limit] == CONFIG_ENVIRONMENT)
        log_warn("config-lowered", "CUSLICE_LIMIT=%s lowered to this node's ceiling, %s", asked,
                 ceiling);
    config->limit = config->limit_ceiling;
    config->origin[CONFIG_limit] = CONFIG_NODE;
}

static void config_lower_priority(struct config *config)
{
    if (!config->priority_ceiling || config->priority < config->priority_ceiling)
        return;
    if (config->origin[CONFIG_priority] == CONFIG_ENVIRONMENT)
        log_warn("config-lowered", "CUSLICE_PRIORITY is lowered to this node's ceiling");
    config->priority = (enum config_priority)(config->priority_ceiling - 1);
    config->origin[CONFIG_priority] = CONFIG_NODE;
}

static void config_lower_oversubscribe(struct config *config)
{
    if (!config->oversubscribe_ceiling || config->oversubscribe < config->oversubscribe_ceiling)
        return;
    if (config->origin[CONFIG_oversubscribe] == CONFIG_ENVIRONMENT)
        log_warn("config-lowered", "CUSLICE_OVERSUBSCRIBE is not allowed on this node");
    config->oversubscribe = config->oversubscribe_ceiling - 1;
    config->origin[CONFIG_oversubscribe] = CONFIG_NODE;
}

/* Only says it: cap_resolve takes the lower of both, also where nothing was asked. */
static void config_warn_lowered(const struct caps *caps, const char *name, unsigned replicas)
{
    char asked[CONFIG_TEXT_MAX / 8], ceiling[CONFIG_TEXT_MAX / 8];

    if (!cap_exceeds(caps, replicas))
        return;
    cap_format(&caps->asked, asked, sizeof(asked));
    cap_format(&caps->ceiling, ceiling, sizeof(ceiling));
    log_warn("config-lowered", "%s=%s lowered to this node's ceiling, %s", name, asked, ceiling);
}

static int config_settle(struct config *config)
{
    int result = 0;

    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        if (config_check_auto(config, i) < 0)
            result = -EINVAL;
    }
    config_lower_weight(config);
    config_lower_limit(config);
    config_lower_priority(config);
    config_lower_oversubscribe(config);
    config_warn_lowered(&config->mem_limit, setting_options[CONFIG_mem_limit].name,
                        config->replicas);
    config_warn_lowered(&config->process_mem_limit, setting_options[CONFIG_process_mem_limit].name,
                        config->replicas);
    return result;
}

int config_load(struct config *config)
{
    int saved = errno;
    int result;

    config_take_built_in(config);
    config_take_early(config);
    result = config_take_node(config);
    log_open(config->log, config->log_file);
    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        if (!config_is_early(i) && config_take_variable(config, i) < 0)
            result = -EINVAL;
    }
    if (!getauxval(AT_SECURE))
        config_look_for_strangers();
    if (config_settle(config) < 0)
        result = -EINVAL;
    errno = saved;
    return result;
}

int config_peek(struct config *config)
{
    int result;

    log_hush(true);
    result = config_load(config);
    log_hush(false);
    return result;
}

int config_check(const char *name, const char *text)
{
    const struct setting *setting = setting_find_option(name);

    if (!setting)
        setting = setting_find_ceiling(name);
    if (!setting)
        return -ENOENT;
    return setting_check(setting, text);
}

int config_put(struct config *config, const char *name, const char *text)
{
    const struct setting *setting = setting_find_option(name);

    return setting ? setting_read(setting, text, config) : -ENOENT;
}

void config_describe(const char *name, char *text, size_t size)
{
    const struct setting *setting = setting_find_option(name);

    *text = '\0';
    if (setting)
        setting_describe(setting, text, size);
}

const char *config_origin_text(enum config_origin origin)
{
    static const char *const text[] = {"built-in", "node defaults", "environment"};

    return text[origin];
}

static int config_show(const struct config *config, const struct setting *setting,
                       enum config_origin origin,
                       int (*row)(const struct config_row *row, void *arg), void *arg)
{
    char value[CONFIG_TEXT_MAX];
    const struct config_row shown = {setting->name, value, config_origin_text(origin),
                                     setting->help};

    setting_write(setting, config, value, sizeof(value));
    return row(&shown, arg);
}

static bool config_ceiling_set(const struct config *config, const struct setting *setting)
{
    char value[CONFIG_TEXT_MAX];

    setting_write(setting, config, value, sizeof(value));
    return *value && strcmp(value, "none") != 0;
}

int config_each(const struct config *config, int (*row)(const struct config_row *row, void *arg),
                void *arg)
{
    int result = 0;

    for (size_t i = 0; i < CONFIG_COUNT && result == 0; i++)
        result = config_show(config, &setting_options[i], config->origin[i], row, arg);
    for (size_t i = 0; setting_ceiling(i) && result == 0; i++) {
        if (config_ceiling_set(config, setting_ceiling(i)))
            result = config_show(config, setting_ceiling(i), CONFIG_NODE, row, arg);
    }
    return result;
}
