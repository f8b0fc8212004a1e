/*
 * The management library as a whole: init and shutdown, error texts, versions, how many devices
 * there are and how to name one. Any thread; each call asks the device process anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "identity.h"
#include "nvml_calls.h"
#include "state.h"
#include "util.h"

enum { SYSTEM_TEXT = 32, SYSTEM_CUDA = 13000, SYSTEM_CUDA_MOST = 99990 };

nvmlReturn_t nvmlInit_v2(void)
{
    return state_open();
}

nvmlReturn_t nvmlInit(void)
{
    return state_open();
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return state_open();
}

nvmlReturn_t nvmlShutdown(void)
{
    return state_close();
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "no error",
        [NVML_ERROR_UNINITIALIZED] = "not initialised",
        [NVML_ERROR_INVALID_ARGUMENT] = "bad argument",
        [NVML_ERROR_NOT_SUPPORTED] = "not supported",
        [NVML_ERROR_NO_PERMISSION] = "no permission",
        [NVML_ERROR_ALREADY_INITIALIZED] = "initialised already",
        [NVML_ERROR_NOT_FOUND] = "not found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "the place given is too small",
        [NVML_ERROR_INSUFFICIENT_POWER] = "a power cable is missing",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "driver not loaded",
        [NVML_ERROR_TIMEOUT] = "timed out",
        [NVML_ERROR_IRQ_ISSUE] = "interrupt problem",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "library not found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "function not found",
        [NVML_ERROR_CORRUPTED_INFOROM] = "information memory corrupted",
        [NVML_ERROR_GPU_IS_LOST] = "the device is lost",
        [NVML_ERROR_RESET_REQUIRED] = "the device needs a reset",
        [NVML_ERROR_OPERATING_SYSTEM] = "the operating system refused",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "driver and library do not match",
        [NVML_ERROR_IN_USE] = "in use",
        [NVML_ERROR_MEMORY] = "out of memory",
        [NVML_ERROR_NO_DATA] = "no data",
        [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = "not with error correction",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "out of resources",
        [NVML_ERROR_FREQ_NOT_SUPPORTED] = "frequency not supported",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "structure version not supported",
        [NVML_ERROR_DEPRECATED] = "no longer served",
        [NVML_ERROR_NOT_READY] = "not ready",
        [NVML_ERROR_GPU_NOT_FOUND] = "no device",
        [NVML_ERROR_INVALID_STATE] = "wrong state",
    };

    if ((unsigned)result < sizeof(texts) / sizeof(texts[0]))
        return texts[result];
    return "unknown error";
}

static nvmlReturn_t system_write(char *to, unsigned size, const char *text)
{
    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    if (to == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (size <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

static int system_cuda_version(void)
{
    return (int)util_env_number("SIMCUDA_DRIVER_VERSION", SYSTEM_CUDA, SYSTEM_CUDA_MOST);
}

/* The branch that came with a CUDA version: 580 with 13.0, 525 to 575 with 12, 450 to 520 with 11.
 */
nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    int cuda = system_cuda_version();
    int minor = cuda / 10 % 100;
    int branch = cuda < 12000 ? 470 : 525 + 5 * (minor + (minor >= 3));
    char text[SYSTEM_TEXT];

    if (cuda >= SYSTEM_CUDA)
        branch = 580 + (cuda - SYSTEM_CUDA) / 2;
    snprintf(text, sizeof(text), "%d.00.00", branch);
    return system_write(version, length, text);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    int cuda = system_cuda_version();
    char text[SYSTEM_TEXT];

    snprintf(text, sizeof(text), "%d.580.00", cuda / 1000);
    return system_write(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    if (version == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = system_cuda_version();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[SYSTEM_TEXT];
    size_t count;
    FILE *file;

    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    if (name == NULL || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return NVML_ERROR_NOT_FOUND;
    count = fread(name, 1, length - 1, file);
    fclose(file);
    name[count] = '\0';
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    struct state state;
    nvmlReturn_t result;

    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = state_get(&state);
    if (result != NVML_SUCCESS)
        return result;
    *count = state.status.devices;
    state_put(&state);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    if (device == NULL || index >= state_devices())
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = state_handle(index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char text[64];

    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    if (uuid == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < state_devices(); i++) {
        identity_uuid_text(i, text, sizeof(text));
        if (strcasecmp(text, uuid) == 0) {
            *device = state_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    char texts[2][32];

    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    if (bus == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < state_devices(); i++) {
        identity_pci_text(i, 8, texts[0], sizeof(texts[0]));
        identity_pci_text(i, 4, texts[1], sizeof(texts[1]));
        if (strcasecmp(texts[0], bus) == 0 || strcasecmp(texts[1], bus) == 0) {
            *device = state_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus, device);
}
