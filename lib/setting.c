/*
 * setting: the types of settings, and the tables that options.def expands to.
 * Owns nothing but constants. Runs on any thread. Must never read the environment or print: what is
 * done about a bad value is config's decision.
 */
#include "setting.h"
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How one type of setting is read, written and described. */
struct setting_type {
    int (*read)(const struct setting *setting, const char *text, void *value);
    void (*write)(const struct setting *setting, const void *value, char *text, size_t size);
    void (*describe)(const struct setting *setting, char *text, size_t size);
    const char *const *words; /* of the types that are a choice */
};

/* The largest value of any type. */
union setting_value {
    char text[CONFIG_PATH_MAX];
    struct cap_list caps;
    uint64_t duration;
    unsigned number;
};

static int setting_read_path(const struct setting *setting, const char *text, void *value)
{
    (void)setting;
    if (text[0] != '/' || strlen(text) >= CONFIG_PATH_MAX)
        return -EINVAL;
    strcpy(value, text);
    return 0;
}

static int setting_read_name(const struct setting *setting, const char *text, void *value)
{
    size_t length = strlen(text);

    if (length < setting->min || length > setting->max)
        return -EINVAL;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] > '~')
            return -EINVAL;
    }
    strcpy(value, text);
    return 0;
}

static void setting_write_text(const struct setting *setting, const void *value, char *text,
                               size_t size)
{
    (void)setting;
    snprintf(text, size, "%s", (const char *)value);
}

static void setting_describe_path(const struct setting *setting, char *text, size_t size)
{
    (void)setting;
    snprintf(text, size, "an absolute path below %d bytes", CONFIG_PATH_MAX);
}

static void setting_describe_name(const struct setting *setting, char *text, size_t size)
{
    snprintf(text, size, "%" PRIu64 " to %" PRIu64 " printable ASCII characters", setting->min,
             setting->max);
}

static int setting_read_choice(const struct setting *setting, const char *text, void *value)
{
    for (unsigned i = 0; setting->type->words[i]; i++) {
        if (strcmp(text, setting->type->words[i]) == 0) {
            memcpy(value, &i, sizeof(i));
            return 0;
        }
    }
    return -EINVAL;
}

static void setting_write_choice(const struct setting *setting, const void *value, char *text,
                                 size_t size)
{
    unsigned i;

    memcpy(&i, value, sizeof(i));
    snprintf(text, size, "%s", setting->type->words[i]);
}

static void setting_describe_choice(const struct setting *setting, char *text, size_t size)
{
    const char *const *words = setting->type->words;
    size_t used = (size_t)snprintf(text, size, "one of %s", words[0]);

    for (unsigned i = 1; words[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ", %s", words[i]);
}

static int setting_read_number(const struct setting *setting, const char *text, void *value)
{
    uint64_t number;

    if (units_parse_number(text, &number) < 0 || number < setting->min || number > setting->max)
        return -EINVAL;
    *(unsigned *)value = (unsigned)number;
    return 0;
}

static void setting_write_number(const struct setting *setting, const void *value, char *text,
                                 size_t size)
{
    unsigned number = *(const unsigned *)value;

    (void)setting;
    *text = '\0';
    if (number)
        snprintf(text, size, "%u", number);
}

static void setting_describe_number(const struct setting *setting, char *text, size_t size)
{
    snprintf(text, size, "a whole number from %" PRIu64 " to %" PRIu64, setting->min, setting->max);
}

/* Ten-thousandths of a percent are kept; finer ones are cut off. */
static int setting_read_percent(const struct setting *setting, const char *text, void *value)
{
    uint64_t parts;

    if (units_parse_percent(text, &parts) < 0 || parts < setting->min || parts > setting->max)
        return -EINVAL;
    *(unsigned *)value = (unsigned)parts;
    return 0;
}

static void setting_write_percent(const struct setting *setting, const void *value, char *text,
                                  size_t size)
{
    unsigned parts = *(const unsigned *)value;

    (void)setting;
    *text = '\0';
    if (parts)
        units_format_percent(parts, text, size);
}

static void setting_describe_percent(const struct setting *setting, char *text, size_t size)
{
    char min[32], max[32];

    units_format_percent(setting->min, min, sizeof(min));
    units_format_percent(setting->max, max, sizeof(max));
    snprintf(text, size, "a percentage (50, 50%%, 12.5%%) from %s to %s", min, max);
}

static int setting_read_duration(const struct setting *setting, const char *text, void *value)
{
    uint64_t ns;

    if (units_parse_duration(text, &ns) < 0 || ns < setting->min || ns > setting->max)
        return -EINVAL;
    *(uint64_t *)value = ns;
    return 0;
}

static void setting_write_duration(const struct setting *setting, const void *value, char *text,
                                   size_t size)
{
    (void)setting;
    units_format_duration(*(const uint64_t *)value, text, size);
}

static void setting_describe_duration(const struct setting *setting, char *text, size_t size)
{
    char min[32], max[32];

    units_format_duration(setting->min, min, sizeof(min));
    units_format_duration(setting->max, max, sizeof(max));
    snprintf(text, size, "a duration (500us, 20ms, 1.5s; a bare number is ms) from %s to %s", min,
             max);
}

static int setting_read_caps(const struct setting *setting, const char *text, void *value)
{
    (void)setting;
    return cap_parse(text, value) < 0 ? -EINVAL : 0;
}

static void setting_write_caps(const struct setting *setting, const void *value, char *text,
                               size_t size)
{
    (void)setting;
    cap_format(value, text, size);
}

static void setting_describe_caps(const struct setting *setting, char *text, size_t size)
{
    (void)setting;
    snprintf(text, size, "%s", CAP_FORMS);
}

static const char *const setting_words_level[] = {"error", "warn", "info", "debug", NULL};
static const char *const setting_words_mode[] = {"enforce", "observe", "off", NULL};
static const char *const setting_words_policy[] = {"open", "closed", NULL};
static const char *const setting_words_priority[] = {"low", "normal", "high", NULL};
static const char *const setting_words_priority_max[] = {"none", "low", "normal", "high", NULL};
static const char *const setting_words_switch_max[] = {"none", "0", "1", NULL};

#define SETTING_CHOICE(words) \
    { \
        setting_read_choice, setting_write_choice, setting_describe_choice, words \
    }
static const struct setting_type setting_type_PATH = {setting_read_path, setting_write_text,
                                                      setting_describe_path, NULL};
static const struct setting_type setting_type_NAME = {setting_read_name, setting_write_text,
                                                      setting_describe_name, NULL};
static const struct setting_type setting_type_NUMBER = {setting_read_number, setting_write_number,
                                                        setting_describe_number, NULL};
static const struct setting_type setting_type_PERCENT = {
    setting_read_percent, setting_write_percent, setting_describe_percent, NULL};
static const struct setting_type setting_type_DURATION = {
    setting_read_duration, setting_write_duration, setting_describe_duration, NULL};
static const struct setting_type setting_type_CAPS = {setting_read_caps, setting_write_caps,
                                                      setting_describe_caps, NULL};
static const struct setting_type setting_type_LEVEL = SETTING_CHOICE(setting_words_level);
static const struct setting_type setting_type_MODE = SETTING_CHOICE(setting_words_mode);
static const struct setting_type setting_type_POLICY = SETTING_CHOICE(setting_words_policy);
static const struct setting_type setting_type_PRIORITY = SETTING_CHOICE(setting_words_priority);
static const struct setting_type setting_type_PRIORITY_MAX =
    SETTING_CHOICE(setting_words_priority_max);
static const struct setting_type setting_type_SWITCH_MAX = SETTING_CHOICE(setting_words_switch_max);

/* Where a value lies: caps hold what was asked beside the ceiling. */
#define SETTING_PLACE_PATH(field) offsetof(struct config, field)
#define SETTING_PLACE_NAME(field) offsetof(struct config, field)
#define SETTING_PLACE_LEVEL(field) offsetof(struct config, field)
#define SETTING_PLACE_MODE(field) offsetof(struct config, field)
#define SETTING_PLACE_POLICY(field) offsetof(struct config, field)
#define SETTING_PLACE_PRIORITY(field) offsetof(struct config, field)
#define SETTING_PLACE_NUMBER(field) offsetof(struct config, field)
#define SETTING_PLACE_PERCENT(field) offsetof(struct config, field)
#define SETTING_PLACE_DURATION(field) offsetof(struct config, field)
#define SETTING_PLACE_CAPS(field) offsetof(struct config, field.asked)
#define SETTING_CEILING_NUMBER(field) offsetof(struct config, field##_ceiling)
#define SETTING_CEILING_PERCENT(field) offsetof(struct config, field##_ceiling)
#define SETTING_CEILING_PRIORITY_MAX(field) offsetof(struct config, field##_ceiling)
#define SETTING_CEILING_SWITCH_MAX(field) offsetof(struct config, field##_ceiling)
#define SETTING_CEILING_CAPS(field) offsetof(struct config, field.ceiling)

const struct setting setting_options[CONFIG_COUNT] = {
#define OPTION(field, name, type, text, min, max, help) \
    {name, &setting_type_##type, text, help, SETTING_PLACE_##type(field), min, max},
#include "options.def"
};

static const struct setting setting_ceilings[] = {
#define OPTION(field, name, type, text, min, max, help)
#define CEILING(field, name, type, min, max, help) \
    {name, &setting_type_##type, "", help, SETTING_CEILING_##type(field), min, max},
#include "options.def"
};

static const char *const setting_reserved[] = {
#define OPTION(field, name, type, text, min, max, help)
#define RESERVED(name, help) name,
#include "options.def"
};

#define SETTING_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define SETTING_CEILINGS SETTING_LENGTH(setting_ceilings)
#define SETTING_RESERVED SETTING_LENGTH(setting_reserved)

const struct setting *setting_ceiling(size_t i)
{
    return i < SETTING_CEILINGS ? &setting_ceilings[i] : NULL;
}

/* The i-th of all known names: options, ceilings, reserved; NULL past the end. */
static const char *setting_name(size_t i)
{
    if (i < CONFIG_COUNT)
        return setting_options[i].name;
    i -= CONFIG_COUNT;
    if (i < SETTING_CEILINGS)
        return setting_ceilings[i].name;
    i -= SETTING_CEILINGS;
    return i < SETTING_RESERVED ? setting_reserved[i] : NULL;
}

static const struct setting *setting_find(const struct setting *table, size_t count,
                                          const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

const struct setting *setting_find_option(const char *name)
{
    return setting_find(setting_options, CONFIG_COUNT, name);
}

const struct setting *setting_find_ceiling(const char *name)
{
    return setting_find(setting_ceilings, SETTING_CEILINGS, name);
}

static unsigned setting_least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* The number of letters to change, add or drop; names longer than the table's are far from all. */
static unsigned setting_distance(const char *a, const char *b)
{
    unsigned row[CONFIG_NAME_MAX + 1];
    unsigned width = (unsigned)strlen(b);

    if (width > CONFIG_NAME_MAX || strlen(a) > CONFIG_NAME_MAX)
        return CONFIG_NAME_MAX;
    for (unsigned k = 0; k <= width; k++)
        row[k] = k;
    for (unsigned i = 1; *a; a++, i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (unsigned k = 1; k <= width; k++) {
            unsigned changed = diagonal + (*a != b[k - 1]);

            diagonal = row[k];
            row[k] = setting_least(changed, setting_least(row[k], row[k - 1]) + 1);
        }
    }
    return row[width];
}

const char *setting_nearest(const char *name)
{
    const char *nearest = setting_name(0);
    const char *known;

    for (size_t i = 1; (known = setting_name(i)); i++) {
        if (setting_distance(name, known) < setting_distance(name, nearest))
            nearest = known;
    }
    return nearest;
}

bool setting_known(const char *name)
{
    const char *known;

    for (size_t i = 0; (known = setting_name(i)); i++) {
        if (strcmp(name, known) == 0)
            return true;
    }
    return false;
}

bool setting_is_caps(const struct setting *setting)
{
    return setting->type == &setting_type_CAPS;
}

void *setting_place(struct config *config, const struct setting *setting)
{
    return (char *)config + setting->offset;
}

int setting_read(const struct setting *setting, const char *text, struct config *config)
{
    return setting->type->read(setting, text, setting_place(config, setting));
}

int setting_check(const struct setting *setting, const char *text)
{
    union setting_value value;

    return setting->type->read(setting, text, &value);
}

void setting_write(const struct setting *setting, const struct config *config, char *text,
                   size_t size)
{
    setting->type->write(setting, (const char *)config + setting->offset, text, size);
}

void setting_describe(const struct setting *setting, char *text, size_t size)
{
    setting->type->describe(setting, text, size);
}
