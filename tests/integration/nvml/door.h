/* What a caller asks NVML, and how the program shows it: `WHO RC TOTAL FREE USED`. */
#ifndef TESTS_NVML_DOOR_H
#define TESTS_NVML_DOOR_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    unsigned long long total, free, used;
};

/* The functions, as linked or as found. */
struct nvml {
    int (*init)(void);
    int (*handle)(unsigned, void **);
    int (*memory)(void *, struct memory *);
};

static inline void door_ask(const char *who, const struct nvml *nvml)
{
    struct memory m = {0, 0, 0};
    void *device = NULL;
    int rc = nvml->init && nvml->handle && nvml->memory ? nvml->init() : -1;
    if (rc == 0)
        rc = nvml->handle(0, &device);
    if (rc == 0)
        rc = nvml->memory(device, &m);
    printf("%s %d %llu %llu %llu\n", who, rc, m.total, m.free, m.used);
}

static inline void door_look(const char *who, void *handle)
{
    struct nvml nvml = {(int (*)(void))dlsym(handle, "nvmlInit_v2"),
                        (int (*)(unsigned, void **))dlsym(handle, "nvmlDeviceGetHandleByIndex_v2"),
                        (int (*)(void *, struct memory *))dlsym(handle, "nvmlDeviceGetMemoryInfo")};
    door_ask(who, &nvml);
}

#endif
