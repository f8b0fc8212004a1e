/*
 * defaults: reads DIRECTORY/defaults if its owner and mode say that only the administrator wrote
 * it. Owns nothing. Runs in config_load, on the thread that attaches. The ring directory is open to
 * everybody, so anything may lie under this name: it must never follow a link, block on a pipe, or
 * grow without bound.
 */
#include "defaults.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool defaults_trusted(const struct stat *file, const struct stat *directory)
{
    return S_ISREG(file->st_mode) && (file->st_mode & (S_IWGRP | S_IWOTH)) == 0 &&
           (file->st_uid == 0 || file->st_uid == directory->st_uid);
}

/* Reads to the end; -EFBIG when the text does not fit. */
static int defaults_fill(int fd, char *text, size_t size)
{
    size_t used = 0;

    while (used < size) {
        ssize_t n = read(fd, text + used, size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0) {
            text[used] = '\0';
            return 0;
        }
        used += (size_t)n;
    }
    return -EFBIG;
}

int defaults_read(const char *directory, char text[DEFAULTS_MAX], uid_t *owner)
{
    char path[PATH_MAX];
    struct stat file, place;
    int fd, result;

    if (snprintf(path, sizeof(path), "%s/defaults", directory) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno == ELOOP ? -EPERM : -errno;
    if (stat(directory, &place) < 0 || fstat(fd, &file) < 0)
        result = -errno;
    else if (!defaults_trusted(&file, &place))
        result = -EPERM;
    else
        result = defaults_fill(fd, text, DEFAULTS_MAX);
    if (result == 0)
        *owner = file.st_uid;
    close(fd);
    return result;
}

static bool defaults_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends. */
static char *defaults_trim(char *text)
{
    size_t length;

    while (defaults_blank(*text))
        text++;
    for (length = strlen(text); length > 0 && defaults_blank(text[length - 1]); length--)
        text[length - 1] = '\0';
    return text;
}

int defaults_next(char **text, unsigned *number, char **key, char **value)
{
    while (**text) {
        char *line = *text;
        size_t length = strcspn(line, "\n");
        char *equals;

        *text += length + (line[length] == '\n');
        line[length] = '\0';
        ++*number;
        line = defaults_trim(line);
        if (*line == '\0' || *line == '#')
            continue;
        *key = line;
        equals = strchr(line, '=');
        if (!equals)
            return -EINVAL;
        *equals = '\0';
        *key = defaults_trim(line);
        *value = defaults_trim(equals + 1);
        return 1;
    }
    return 0;
}
