/*
 * setting: what is known about each setting: the types, and the tables that options.def expands to.
 * The inside of config: config.c alone includes this. Constants and pure functions; any thread.
 */
#ifndef CUSLICE_SETTING_H
#define CUSLICE_SETTING_H

#include "config.h"

struct setting_type;

struct setting {
    const char *name;
    const struct setting_type *type;
    const char *built_in;
    const char *help;
    size_t offset; /* of its value in struct config */
    uint64_t min;
    uint64_t max;
};

/* The options, in the order of enum config_option. */
extern const struct setting setting_options[CONFIG_COUNT];

/* The i-th ceiling; NULL past the end. */
const struct setting *setting_ceiling(size_t i);

/* The option, or the ceiling, of this name; NULL without one. */
const struct setting *setting_find_option(const char *name);
const struct setting *setting_find_ceiling(const char *name);

/* True for the names of options.def, reserved ones too. */
bool setting_known(const char *name);

/* The known name with the fewest letters to change, add or drop. */
const char *setting_nearest(const char *name);

/* True when the value is a struct cap_list: what was asked, or the ceiling. */
bool setting_is_caps(const struct setting *setting);

/* Where the value lies. */
void *setting_place(struct config *config, const struct setting *setting);

/* Reads a text into its place; 0, or -EINVAL and the place is as it was. */
int setting_read(const struct setting *setting, const char *text, struct config *config);

/* Whether setting_read would take the text. */
int setting_check(const struct setting *setting, const char *text);

/* The value as text, "" where it is not set. */
void setting_write(const struct setting *setting, const struct config *config, char *text,
                   size_t size);

/* What is accepted, in words. */
void setting_describe(const struct setting *setting, char *text, size_t size);

#endif
