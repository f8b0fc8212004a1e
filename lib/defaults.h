/*
 * defaults: the node administrator's file `defaults` in the ring directory, lines of KEY=VALUE.
 * Decides whether the file can be trusted and cuts it into lines; what the keys mean is config's
 * business. Runs in config_load only. Must never believe a file that another tenant could have
 * written.
 */
#ifndef CUSLICE_DEFAULTS_H
#define CUSLICE_DEFAULTS_H

#include <stddef.h>
#include <sys/types.h>

#define DEFAULTS_MAX 16384

/* Reads DIRECTORY/defaults into text, which holds DEFAULTS_MAX bytes, and tells whose file it is.
 * 0; -ENOENT without such a file; -EPERM when it is not a regular file owned by root or by the
 * directory's owner that only its owner may write; -EFBIG; or another -errno. */
int defaults_read(const char *directory, char text[DEFAULTS_MAX], uid_t *owner);

/* Takes the next line that is neither blank nor a comment off *text, cutting it up in place. 1 with
 * *key and *value set, 0 at the end, -EINVAL for a line without `=` (then *key is the line).
 * *number counts lines. */
int defaults_next(char **text, unsigned *number, char **key, char **value);

#endif
