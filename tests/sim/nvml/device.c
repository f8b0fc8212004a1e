/*
 * What the management library says of one device: names and numbers that never change, memory and
 * load as the device process tells them, and the fixed figures of a device that has no fan, no heat
 * and no clock. What a simulated device cannot have is NOT_SUPPORTED. Any thread.
 */
#include <stdio.h>
#include <string.h>

#include "identity.h"
#include "nvml_calls.h"
#include "state.h"

enum {
    DEVICE_TEMPERATURE = 40,     /* degrees Celsius */
    DEVICE_POWER_IDLE = 50000,   /* milliwatts */
    DEVICE_POWER_PERMILLE = 250, /* more per thousandth of load */
    DEVICE_POWER_LIMIT = 300000,
    DEVICE_CLOCK = 1500, /* MHz */
    DEVICE_CLOCK_MEMORY = 2500,
    DEVICE_LINK_GENERATION = 4,
    DEVICE_LINK_WIDTH = 16,
    DEVICE_SAMPLING = 1000000, /* microseconds */
    DEVICE_BUS_WIDTH = 5120,
    DEVICE_CORES_PER_PROCESSOR = 128,
};

/* How the calls about constants begin and end. */
static nvmlReturn_t device_number(nvmlDevice_t device, unsigned *to, unsigned value)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    if (to == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *to = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t device_text(char *to, unsigned size, const char *text)
{
    if (to == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (size <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t device_refuse(nvmlDevice_t device)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

/* --- names
 * ------------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    return result == NVML_SUCCESS ? device_text(name, length, identity_name()) : result;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    char text[64];
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    identity_uuid_text(index, text, sizeof(text));
    return device_text(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *to)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    if (to == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *to = index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    return nvmlDeviceGetIndex(device, minor);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, int *brand)
{
    unsigned value;
    nvmlReturn_t result = device_number(device, brand == NULL ? NULL : &value, NVML_BRAND_UNKNOWN);

    if (result == NVML_SUCCESS)
        *brand = (int)value;
    return result;
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length)
{
    (void)serial;
    (void)length;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    if (pci == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(pci, 0, sizeof(*pci));
    identity_pci_text(index, 4, pci->busIdLegacy, sizeof(pci->busIdLegacy));
    identity_pci_text(index, 8, pci->busId, sizeof(pci->busId));
    pci->bus = identity_bus(index);
    pci->pciDeviceId = IDENTITY_PCI_DEVICE;
    pci->pciSubSystemId = IDENTITY_PCI_SUBSYSTEM;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t info;
    nvmlReturn_t result;

    if (pci == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = nvmlDeviceGetPciInfo_v3(device, &info);
    if (result != NVML_SUCCESS)
        return result;
    memset(pci, 0, sizeof(*pci));
    memcpy(pci->busId, info.busIdLegacy, sizeof(pci->busId));
    pci->bus = info.bus;
    pci->pciDeviceId = info.pciDeviceId;
    pci->pciSubSystemId = info.pciSubSystemId;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    if (major == NULL || minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = IDENTITY_ARCH / 10;
    *minor = IDENTITY_ARCH % 10;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores)
{
    return device_number(device, cores, IDENTITY_PROCESSORS * DEVICE_CORES_PER_PROCESSOR);
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned *width)
{
    return device_number(device, width, DEVICE_BUS_WIDTH);
}

/* --- memory
 * ------------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct state state;
    unsigned index;
    nvmlReturn_t result;

    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = state_get_device(device, &state, &index);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = state.status.device[index].total;
    memory->used = state.status.device[index].used;
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    state_put(&state);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    nvmlReturn_t result;

    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct state state;
    unsigned index;
    nvmlReturn_t result;

    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = state_get_device(device, &state, &index);
    if (result != NVML_SUCCESS)
        return result;
    memory->bar1Total = state.status.device[index].total;
    memory->bar1Used = 0;
    memory->bar1Free = memory->bar1Total;
    state_put(&state);
    return NVML_SUCCESS;
}

/* --- load
 * --------------------------------------------------------------------------------------------- */

static nvmlReturn_t device_load(nvmlDevice_t device, unsigned *permille)
{
    struct state state;
    unsigned index;
    nvmlReturn_t result = state_get_device(device, &state, &index);

    if (result != NVML_SUCCESS)
        return result;
    *permille = state.status.device[index].busy_permille;
    state_put(&state);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    unsigned permille;
    nvmlReturn_t result;

    if (utilization == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = device_load(device, &permille);
    if (result != NVML_SUCCESS)
        return result;
    utilization->gpu = (permille + 9) / 10;
    utilization->memory = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t device_coder(nvmlDevice_t device, unsigned *utilization, unsigned *period)
{
    if (period == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *period = DEVICE_SAMPLING;
    return device_number(device, utilization, 0);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *utilization,
                                             unsigned *period)
{
    return device_coder(device, utilization, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *utilization,
                                             unsigned *period)
{
    return device_coder(device, utilization, period);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *power)
{
    unsigned permille;
    nvmlReturn_t result;

    if (power == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = device_load(device, &permille);
    if (result == NVML_SUCCESS)
        *power = DEVICE_POWER_IDLE + DEVICE_POWER_PERMILLE * permille;
    return result;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *limit)
{
    return device_number(device, limit, DEVICE_POWER_LIMIT);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned *limit)
{
    return device_number(device, limit, DEVICE_POWER_LIMIT);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit)
{
    return device_number(device, limit, DEVICE_POWER_LIMIT);
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned *mode)
{
    return device_number(device, mode, NVML_FEATURE_ENABLED);
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, unsigned *state)
{
    return device_number(device, state, NVML_PSTATE_0);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned *state)
{
    return device_number(device, state, NVML_PSTATE_0);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
    (void)energy;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *temperature)
{
    if (sensor != NVML_TEMPERATURE_GPU)
        return NVML_ERROR_INVALID_ARGUMENT;
    return device_number(device, temperature, DEVICE_TEMPERATURE);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int threshold,
                                               unsigned *temperature)
{
    (void)threshold;
    (void)temperature;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *speed)
{
    (void)speed;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *speed)
{
    (void)fan;
    (void)speed;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned *count)
{
    return device_number(device, count, 0);
}

/* Graphics, processors, memory, video. */
static nvmlReturn_t device_clock(nvmlDevice_t device, int type, unsigned *clock)
{
    if (type < 0 || type >= NVML_CLOCK_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    return device_number(device, clock, type == 2 ? DEVICE_CLOCK_MEMORY : DEVICE_CLOCK);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *clock)
{
    return device_clock(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *clock)
{
    return device_clock(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, int type, unsigned *clock)
{
    return device_clock(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                       unsigned long long *reasons)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    if (reasons == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *reasons = 0;
    return NVML_SUCCESS;
}

/* --- the link and the modes
 * ------------------------------------------------------------------------------ */

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    return device_number(device, generation, DEVICE_LINK_GENERATION);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
    return device_number(device, generation, DEVICE_LINK_GENERATION);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width)
{
    return device_number(device, width, DEVICE_LINK_WIDTH);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned *width)
{
    return device_number(device, width, DEVICE_LINK_WIDTH);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned *value)
{
    (void)counter;
    (void)value;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode)
{
    return device_number(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode)
{
    return device_number(device, mode, 0);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned *mode)
{
    return device_number(device, mode, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned *active)
{
    return device_number(device, active, NVML_FEATURE_DISABLED);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    (void)current;
    (void)pending;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter,
                                         unsigned long long *count)
{
    (void)kind;
    (void)counter;
    (void)count;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int kind, int counter,
                                             int location, unsigned long long *count)
{
    (void)kind;
    (void)counter;
    (void)location;
    (void)count;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    (void)current;
    (void)pending;
    return device_refuse(device);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    return device_number(device, count, 0);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is)
{
    return device_number(device, is, 0);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned *mode)
{
    return device_number(device, mode, 0);
}
