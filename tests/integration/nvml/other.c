/*
 * A management library of another make, for what the simulated one does not show: memory that
 * the device keeps for itself, a structure of a version that is not out yet, a UUID of any kind,
 * figures that are not available, and, with OLD, no functions of later versions. OTHER_UUID is
 * what its one device is called, OTHER_PID who is on it.
 */
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
#define TOTAL (8192 * MIB)
#define RESERVED (400 * MIB)
#define USED (1000 * MIB)

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gi, ci;
};

static char device;

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    *handle = &device;
    return index ? 2 : 0;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length)
{
    const char *text = getenv("OTHER_UUID");
    if (handle != &device || strlen(text) >= length)
        return 2;
    strcpy(uuid, text);
    return 0;
}

/* An instance's place within its device; programs count from 0. */
int nvmlDeviceGetIndex(void *handle, unsigned *index)
{
    *index = 3;
    return handle == &device ? 0 : 2;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *m)
{
    if (handle != &device || !m)
        return 2;
    *m = (struct memory){TOTAL, TOTAL - RESERVED - USED, RESERVED + USED};
    return 0;
}

#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *m)
{
    if (handle != &device || !m)
        return 2;
    if (m->version >> 24 < 2 || m->version >> 24 > 3)
        return 25;
    m->total = TOTAL;
    m->reserved = RESERVED;
    m->free = TOTAL - RESERVED - USED;
    m->used = USED;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *list)
{
    unsigned pid = (unsigned)atoi(getenv("OTHER_PID"));
    if (handle != &device || *count < 3)
        return 7;
    list[0] = (struct process){pid, -1ull, 1, 0};
    list[1] = (struct process){pid, 777, 2, 0};
    list[2] = (struct process){1, 777, 3, 0};
    *count = 3;
    return 0;
}
#endif
