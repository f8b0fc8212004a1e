/* Where the demo plays: the build tree it came from, its temporary directories, and whether the GPU
 * is a real or a simulated one. */
#ifndef DEMO_STAGE_H
#define DEMO_STAGE_H

#include <limits.h>
#include <stdbool.h>

struct stage {
    bool simulated;
    char build[PATH_MAX];
    char root[PATH_MAX];  /* temporary; holds the two below and the guests' logs */
    char rings[PATH_MAX]; /* CUSLICE_DIR */
    char device[PATH_MAX];
    char why[160]; /* why the GPU is simulated */
};

/* Finds the build tree by the program's own path, makes the directories, and tries in a process of
 * its own whether a real driver starts, unless simulate says not to. 0, or -errno after a message.
 */
int stage_begin(struct stage *stage, bool simulate);

/* Sets this process's environment to what a guest gets; in a child that is about to exec. */
void stage_dress(const struct stage *stage);

/* Removes the temporary directories, waiting a little for the simulated device to have gone. */
void stage_end(const struct stage *stage);

#endif
