/*
 * Who uses a device, as the management library tells it: one entry per process that holds memory
 * there. All of them compute; nothing draws, nothing runs under MPS. Process ids are the host's, as
 * the device process sees them. Any thread.
 */
#include <string.h>

#include "nvml_calls.h"
#include "state.h"

/* Calls put for each process on a device; returns how many there are. */
static unsigned process_each(const struct state *state, unsigned device, void *argument,
                             void (*put)(void *argument, unsigned n,
                                         const struct status_client *client))
{
    unsigned count = 0;

    for (unsigned i = 0; i < state->status.clients; i++)
        if (state->clients[i].device == device)
            put(argument, count++, &state->clients[i]);
    return count;
}

struct process_list {
    void *entries;
    unsigned room;
};

static void process_put_v1(void *argument, unsigned n, const struct status_client *client)
{
    const struct process_list *list = argument;
    nvmlProcessInfo_v1_t *entries = list->entries;

    if (n < list->room)
        entries[n] = (nvmlProcessInfo_v1_t){(unsigned)client->host_pid, client->bytes};
}

static void process_put_v2(void *argument, unsigned n, const struct status_client *client)
{
    const struct process_list *list = argument;
    nvmlProcessInfo_t *entries = list->entries;

    if (n < list->room)
        entries[n] = (nvmlProcessInfo_t){(unsigned)client->host_pid, client->bytes,
                                         (unsigned)NVML_NO_INSTANCE, (unsigned)NVML_NO_INSTANCE};
}

static void process_put_detail(void *argument, unsigned n, const struct status_client *client)
{
    const struct process_list *list = argument;
    nvmlProcessDetail_v1_t *entries = list->entries;

    if (n < list->room)
        entries[n] =
            (nvmlProcessDetail_v1_t){(unsigned)client->host_pid, client->bytes,
                                     (unsigned)NVML_NO_INSTANCE, (unsigned)NVML_NO_INSTANCE, 0};
}

/* *count: room on entry, how many there are on return; too little room is told apart. */
static nvmlReturn_t process_list(nvmlDevice_t device, unsigned *count, void *entries,
                                 void (*put)(void *, unsigned, const struct status_client *))
{
    struct process_list list;
    struct state state;
    nvmlReturn_t result;
    unsigned index;

    if (count == NULL || (*count > 0 && entries == NULL))
        return NVML_ERROR_INVALID_ARGUMENT;
    result = state_get_device(device, &state, &index);
    if (result != NVML_SUCCESS)
        return result;
    list.entries = entries;
    list.room = *count;
    *count = process_each(&state, index, &list, put);
    state_put(&state);
    return *count > list.room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t process_none(nvmlDevice_t device, unsigned *count)
{
    unsigned index;
    nvmlReturn_t result = state_index(device, &index);

    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *entries)
{
    return process_list(device, count, entries, process_put_v1);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *entries)
{
    return process_list(device, count, entries, process_put_v2);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *entries)
{
    return process_list(device, count, entries, process_put_v2);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                   nvmlProcessInfo_v1_t *entries)
{
    (void)entries;
    return process_none(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_t *entries)
{
    (void)entries;
    return process_none(device, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_t *entries)
{
    (void)entries;
    return process_none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v1_t *entries)
{
    (void)entries;
    return process_none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_t *entries)
{
    (void)entries;
    return process_none(device, count);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_t *entries)
{
    (void)entries;
    return process_none(device, count);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *list)
{
    if (list == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode == NVML_PROCESS_MODE_COMPUTE)
        return process_list(device, &list->numProcArrayEntries, list->procArray,
                            process_put_detail);
    return list->mode <= NVML_PROCESS_MODE_MPS ? process_none(device, &list->numProcArrayEntries)
                                               : NVML_ERROR_INVALID_ARGUMENT;
}

/* No load is kept per process: there are never samples newer than asked for. */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned *count, unsigned long long since)
{
    nvmlReturn_t result = process_none(device, count);

    (void)samples;
    (void)since;
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}
