/*
 * config: the settings of this process, from built-in values, the node's defaults file and the
 * environment. Owns the only getenv of the library and the table options.def. config_load runs
 * once, in attach or in the tool, config_peek where a process only looks; the structure is
 * read-only afterwards and may be read by any thread. Precedence: environment, then node defaults,
 * then built-in. Settings made with `cuslice set` live in the ring and go before all of these; they
 * are not this file's business.
 */
#ifndef CUSLICE_CONFIG_H
#define CUSLICE_CONFIG_H

#include "cap.h"
#include "clock.h"
#include "log.h"

#define CONFIG_PATH_MAX 1024
#define CONFIG_NAME_MAX 64
#define CONFIG_TEXT_MAX 2048

enum config_mode { CONFIG_ENFORCE, CONFIG_OBSERVE, CONFIG_OFF };
enum config_policy { CONFIG_OPEN, CONFIG_CLOSED };
enum config_priority { CONFIG_LOW, CONFIG_NORMAL, CONFIG_HIGH };
enum config_origin { CONFIG_BUILT_IN, CONFIG_NODE, CONFIG_ENVIRONMENT };

/* CONFIG_dir, CONFIG_log, ...: the place of each option in config.origin. */
enum config_option {
#define OPTION(field, name, type, text, min, max, help) CONFIG_##field,
#include "options.def"
    CONFIG_COUNT
};

#define CONFIG_FIELD_PATH(field) char field[CONFIG_PATH_MAX];
#define CONFIG_FIELD_NAME(field) char field[CONFIG_NAME_MAX];
#define CONFIG_FIELD_LEVEL(field) enum log_level field;
#define CONFIG_FIELD_MODE(field) enum config_mode field;
#define CONFIG_FIELD_POLICY(field) enum config_policy field;
#define CONFIG_FIELD_PRIORITY(field) enum config_priority field;
#define CONFIG_FIELD_NUMBER(field) unsigned field;
#define CONFIG_FIELD_PERCENT(field) unsigned field;
#define CONFIG_FIELD_DURATION(field) uint64_t field;
#define CONFIG_FIELD_CAPS(field) struct caps field;

/* One field per option; strings not set are "", numbers not set are 0. */
struct config {
#define OPTION(field, name, type, text, min, max, help) CONFIG_FIELD_##type(field)
#include "options.def"
    enum config_origin origin[CONFIG_COUNT];
    /* 0: none */
    unsigned weight_ceiling;
    unsigned limit_ceiling;
    unsigned priority_ceiling;      /* 1 + enum config_priority */
    unsigned oversubscribe_ceiling; /* 1 + the highest value */
};

/* Fills *config, applies CUSLICE_LOG and CUSLICE_LOG_FILE to log.h, and warns about values and
 * names it does not take. 0, or -EINVAL when a cap is bad (said in one line): the caller then
 * refuses to go on. *config is complete in both cases. Reads files, never blocks, allocates
 * nothing, keeps errno. */
int config_load(struct config *config);

/* The same without a word and without touching log.h: for a process that only looks. */
int config_peek(struct config *config);

/* Whether `text` would be taken for the option or ceiling called `name`: 0, -EINVAL, or -ENOENT for
 * an unknown name. Prints nothing. */
int config_check(const char *name, const char *text);

/* Reads `text` into the place of the option called `name`: what the tool sets for others. No
 * ceiling applies. 0; -EINVAL or -ENOENT as config_check, and *config is as it was. Prints nothing.
 */
int config_put(struct config *config, const char *name, const char *text);

/* What the option called `name` accepts, in words; "" for an unknown name. */
void config_describe(const char *name, char *text, size_t size);

/* One line of `cuslice config`. The texts live until the callback returns. */
struct config_row {
    const char *name;
    const char *value;  /* "" where not set */
    const char *origin; /* "built-in", "node defaults" or "environment" */
    const char *help;
};

/* Calls row for every option, then for every ceiling that is set; stops at the first answer that is
 * not 0 and returns it. */
int config_each(const struct config *config, int (*row)(const struct config_row *row, void *arg),
                void *arg);

/* "built-in", "node defaults" or "environment". */
const char *config_origin_text(enum config_origin origin);

#endif
