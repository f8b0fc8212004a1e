/* Where the demo plays: see stage.h. The driver is tried in a child, because one that hangs or
 * crashes while it starts must not take the demo with it. */
#include "stage.h"

#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STAGE_NO_DRIVER = 10, STAGE_NO_DEVICE = 11, STAGE_PROBE_SECONDS = 20 };

/* The driver's two calls, by prototype only: the demo itself is built without CUDA. */
typedef int stage_init(unsigned flags);
typedef int stage_count(int *count);

static int stage_probe_here(void)
{
    int count = 0;

    alarm(STAGE_PROBE_SECONDS);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return STAGE_NO_DRIVER;
    stage_init *init = (stage_init *)dlsym(driver, "cuInit");
    stage_count *devices = (stage_count *)dlsym(driver, "cuDeviceGetCount");
    if (!init || !devices)
        return STAGE_NO_DRIVER;
    return init(0) == 0 && devices(&count) == 0 && count > 0 ? 0 : STAGE_NO_DEVICE;
}

static void stage_probe(struct stage *stage)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        _exit(stage_probe_here());
    if (child < 0 || waitpid(child, &status, 0) < 0)
        snprintf(stage->why, sizeof(stage->why), "no process could be started to look for a GPU");
    else if (!WIFEXITED(status))
        snprintf(stage->why, sizeof(stage->why), "the driver did not start (signal %d)",
                 WTERMSIG(status));
    else if (WEXITSTATUS(status) == STAGE_NO_DRIVER)
        snprintf(stage->why, sizeof(stage->why), "there is no CUDA driver on this machine");
    else if (WEXITSTATUS(status) != 0)
        snprintf(stage->why, sizeof(stage->why), "the CUDA driver finds no usable GPU");
    stage->simulated = stage->why[0] != 0;
}

/* BUILD/examples/demo/demo: three names off the end. */
static int stage_find_build(struct stage *stage)
{
    ssize_t length = readlink("/proc/self/exe", stage->build, sizeof(stage->build) - 1);

    if (length < 0)
        return -errno;
    stage->build[length] = 0;
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(stage->build, '/');
        if (!slash)
            return -ENOENT;
        *slash = 0;
    }
    return 0;
}

static int stage_make(struct stage *stage)
{
    const char *temporary = getenv("TMPDIR");

    snprintf(stage->root, sizeof(stage->root), "%.64s/cuslice-demo-XXXXXX",
             temporary && *temporary && strlen(temporary) <= 64 ? temporary : "/tmp");
    if (!mkdtemp(stage->root))
        return -errno;
    snprintf(stage->rings, sizeof(stage->rings), "%.128s/rings", stage->root);
    snprintf(stage->device, sizeof(stage->device), "%.128s/device", stage->root);
    if (mkdir(stage->rings, 0700) < 0 || mkdir(stage->device, 0700) < 0)
        return -errno;
    return 0;
}

int stage_begin(struct stage *stage, bool simulate)
{
    memset(stage, 0, sizeof(*stage));
    int error = stage_find_build(stage);
    if (!error)
        error = stage_make(stage);
    if (error) {
        fprintf(stderr, "demo: cannot set up: %s\n", strerror(-error));
        return error;
    }
    if (simulate)
        snprintf(stage->why, sizeof(stage->why), "you asked for one");
    if (simulate)
        stage->simulated = true;
    else
        stage_probe(stage);
    return 0;
}

/* Settings of the visitor's own shell must not change what the demo shows. */
static void stage_forget_settings(void)
{
    char name[128];

    for (char **entry = environ; *entry;) {
        size_t length = strcspn(*entry, "=");
        bool ours = strncmp(*entry, "CUSLICE_", 8) == 0 || strncmp(*entry, "SIMCUDA_", 8) == 0;
        if (!ours || length >= sizeof(name)) {
            entry++;
            continue;
        }
        memcpy(name, *entry, length);
        name[length] = 0;
        unsetenv(name);
    }
}

void stage_dress(const struct stage *stage)
{
    char path[2 * PATH_MAX];
    const char *old = getenv("LD_LIBRARY_PATH");

    stage_forget_settings();
    if (!stage->simulated)
        return;
    snprintf(path, sizeof(path), "%s/sim%s%s", stage->build, old && *old ? ":" : "",
             old ? old : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("SIMCUDA_DIR", stage->device, 1);
    setenv("SIMCUDA_MEMORY", "16Gi", 1);
    setenv("SIMCUDA_LINGER", "100ms", 1);
}

static int stage_remove(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st;
    (void)kind;
    (void)place;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

void stage_end(const struct stage *stage)
{
    /* The simulated device goes by itself when its last client has gone, and may write its last
     * lines while the directory is being emptied. */
    for (int i = 0; i < 50; i++) {
        if (stage->simulated)
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        if (nftw(stage->root, stage_remove, 16, FTW_DEPTH | FTW_PHYS) == 0 &&
            access(stage->root, F_OK) < 0)
            return;
    }
    fprintf(stderr, "demo: %s could not be removed\n", stage->root);
}
