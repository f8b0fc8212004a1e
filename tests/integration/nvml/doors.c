/*
 * doors [BYTES]: asks NVML for the first device's memory through every door that a program has;
 * with BYTES after having allocated so many with the driver; `info` is what cuMemGetInfo says then.
 * With LINKED the program is linked with NVML; else nothing is loaded until it asks.
 */
#include "door.h"

#ifdef LINKED
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
#endif

static void doors_cuda(size_t bytes)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    unsigned long long pointer = 0;
    size_t free = 0, total = 0;
    int rc = cuda ? ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0) : -1;
    if (rc == 0)
        rc = ((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0);
    if (rc == 0)
        rc = ((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(context);
    if (rc == 0)
        rc = ((int (*)(void *, size_t))dlsym(cuda, "cuMemAlloc_v2"))(&pointer, bytes);
    if (rc == 0)
        rc = ((int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2"))(&free, &total);
    printf("info %d %zu %zu %zu\n", rc, total, free, total - free);
}

static void doors_plugin(const char *file, const char *who)
{
    void *plugin = dlopen(file, RTLD_NOW | RTLD_DEEPBIND);
    void (*ask)(const char *) = plugin ? (void (*)(const char *))dlsym(plugin, "plugin_ask") : NULL;
    if (ask)
        ask(who);
    else
        printf("error %s\n", dlerror());
}

int main(int argc, char **argv)
{
    if (argc > 1)
        doors_cuda(strtoull(argv[1], NULL, 0));
#ifdef LINKED
    struct nvml nvml = {nvmlInit_v2, nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetMemoryInfo};
    door_ask("linked", &nvml);
#else
    doors_plugin(getenv("PLUGIN"), "deep");
    doors_plugin(getenv("PLUGIN_LINKED"), "deep-linked");
    door_look("handle", dlopen("libnvidia-ml.so.1", RTLD_NOW));
    door_look("path", dlopen(getenv("NVML"), RTLD_NOW | RTLD_GLOBAL));
#endif
    door_look("default", RTLD_DEFAULT);
    door_look("next", RTLD_NEXT);
    return 0;
}
