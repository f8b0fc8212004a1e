/* The environment that a started program gets: see environment.h. */
#include "environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"

void environment_begin(struct environment *environment, unsigned more)
{
    unsigned count = 0;

    while (environ[count])
        count++;
    environment->count = count;
    environment->entry = calloc(count + more + 1, sizeof(char *));
    if (!environment->entry)
        exit(ctl_fail("out of memory"));
    memcpy(environment->entry, environ, count * sizeof(char *));
}

/* Its place, or count where the name is new. */
static unsigned environment_index(const struct environment *environment, const char *name)
{
    size_t length = strlen(name);
    unsigned i = 0;

    for (; i < environment->count; i++)
        if (strncmp(environment->entry[i], name, length) == 0 &&
            environment->entry[i][length] == '=')
            break;
    return i;
}

const char *environment_find(const struct environment *environment, const char *name)
{
    unsigned i = environment_index(environment, name);

    return i < environment->count ? environment->entry[i] + strlen(name) + 1 : "";
}

void environment_set(struct environment *environment, const char *name, const char *format, ...)
{
    unsigned i = environment_index(environment, name);
    va_list arguments;
    char *value;
    char *entry;

    va_start(arguments, format);
    if (vasprintf(&value, format, arguments) < 0 || asprintf(&entry, "%s=%s", name, value) < 0)
        exit(ctl_fail("out of memory"));
    va_end(arguments);
    free(value);
    environment->entry[i] = entry;
    if (i == environment->count)
        environment->count++;
}
