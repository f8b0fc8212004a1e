/* start COUNT PROGRAM [LIBRARY...]: what preloading each library adds to a program's start.
 *
 * Spawns PROGRAM and waits for its end, COUNT times without a preload and with each library, in
 * turn. Prints `NUMBER NS` for each: 0 without, 1 with the first library, and so on. Knows no CUDA
 * and loads none of the libraries itself.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "clock.h"

#define START_LIBRARIES 8
#define START_NAME "LD_PRELOAD="

static void start_fail(const char *what, int error)
{
    fprintf(stderr, "start: %s: %s\n", what, strerror(error));
    exit(1);
}

static uint64_t start_once(char *program, char *preload)
{
    char *words[] = {program, NULL}, *environment[] = {preload, NULL};
    int status;
    pid_t child;
    uint64_t begin = clock_now();
    int rc = posix_spawn(&child, program, NULL, NULL, words, environment);
    if (rc != 0)
        start_fail(program, rc);
    if (waitpid(child, &status, 0) != child)
        start_fail("waitpid", errno);
    uint64_t ns = clock_now() - begin;
    if (status != 0)
        start_fail(program, EIO);
    return ns;
}

int main(int count, char **words)
{
    static char preload[START_LIBRARIES + 1][4096];
    int times = count > 2 ? atoi(words[1]) : 0, libraries = count - 3;
    if (times < 1 || libraries > START_LIBRARIES) {
        fprintf(stderr, "usage: start COUNT PROGRAM [LIBRARY...]\n");
        return 2;
    }
    for (int i = 0; i < libraries; i++)
        snprintf(preload[i + 1], sizeof preload[0], START_NAME "%s", words[3 + i]);
    for (int i = 0; i <= libraries; i++)
        start_once(words[2], i ? preload[i] : NULL);
    for (int n = 0; n < times; n++)
        for (int i = 0; i <= libraries; i++)
            printf("%d %llu\n", i, (unsigned long long)start_once(words[2], i ? preload[i] : NULL));
    return 0;
}
