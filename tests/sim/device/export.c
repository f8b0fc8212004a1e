/*
 * Descriptors that hold memory: what a client exported lives as long as anybody has the file open.
 * The client's open file is locked; the device opens the file anew and looks now and then whether
 * the lock is still there, since it goes with the last copy of that descriptor in any process. Main
 * thread only.
 */
#include <cuda.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "device.h"

#define LOOK_EVERY UINT64_C(10000000)

struct export
{
    struct export *next;
    uint64_t address;
    int fd;
};

static struct export *exports;
static uint64_t next_look;

static bool export_held(const struct export *export)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(export->fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

uint32_t export_open(const struct client *client, uint64_t address, uint64_t descriptor)
{
    struct export *export = calloc(1, sizeof(*export));
    char path[64];

    if (!export)
        return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(path, sizeof(path), "/proc/%d/fd/%u", client->host_pid, (unsigned)descriptor);
    export->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    export->address = address;
    if (export->fd < 0 || !export_held(export) || !pool_hold_alone(address)) {
        if (export->fd >= 0)
            close(export->fd);
        free(export);
        return CUDA_ERROR_INVALID_VALUE;
    }
    export->next = exports;
    exports = export;
    return CUDA_SUCCESS;
}

void export_look(void)
{
    for (struct export **at = &exports; *at;) {
        struct export *export = *at;

        if (export_held(export)) {
            at = &export->next;
            continue;
        }
        *at = export->next;
        pool_drop_alone(export->address);
        close(export->fd);
        free(export);
    }
}

uint64_t export_next(void)
{
    return exports ? next_look : UTIL_NEVER;
}

void export_step(uint64_t now)
{
    if (!exports || now < next_look)
        return;
    export_look();
    next_look = now + LOOK_EVERY;
}
