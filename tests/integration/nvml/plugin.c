/* A plugin that finds NVML by look-ups of its own, or with LINKED is bound to it by the loader. */
#include "door.h"

#ifdef LINKED
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
#endif

void plugin_ask(const char *who)
{
#ifdef LINKED
    struct nvml nvml = {nvmlInit_v2, nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetMemoryInfo};
    door_ask(who, &nvml);
#else
    door_look(who, dlopen("libnvidia-ml.so.1", RTLD_NOW));
#endif
}
