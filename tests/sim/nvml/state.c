/*
 * The management library's view of the devices: one question to the device process per call, over
 * its socket, answered in one packet. Any thread; keeps nothing between calls but the count of
 * inits.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "state.h"
#include "util.h"

enum {
    STATE_TIMEOUT = 2, /* seconds */
    STATE_MOST_CLIENTS = SIM_CLIENTS * SIM_DEVICES,
    STATE_PATH = 4096,
};

#define STATE_MEMORY (UINT64_C(8) << 30)

static _Atomic int opened;

/* Handles are addresses in here: nothing else can be one. */
static char handles[SIM_DEVICES];

nvmlReturn_t state_open(void)
{
    atomic_fetch_add(&opened, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t state_close(void)
{
    int count = atomic_load(&opened);

    while (count > 0 && !atomic_compare_exchange_weak(&opened, &count, count - 1))
        ;
    return count > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t state_check(void)
{
    return atomic_load(&opened) > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlDevice_t state_handle(unsigned index)
{
    return (nvmlDevice_t)(void *)&handles[index];
}

nvmlReturn_t state_index(nvmlDevice_t device, unsigned *index)
{
    const char *at = (const char *)device;

    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    if (at < handles || at >= handles + SIM_DEVICES)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = (unsigned)(at - handles);
    return NVML_SUCCESS;
}

/* The socket's name by way of the directory's descriptor: the directory's own may be too long. */
static int state_connect(void)
{
    struct timeval limit = {.tv_sec = STATE_TIMEOUT};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[STATE_PATH];
    int directory;
    int fd;

    if (util_directory(path, sizeof(path)) != 0)
        return -1;
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -1;
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", directory);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
            close(fd);
            fd = -1;
        }
    }
    close(directory);
    return fd;
}

/* 0: answered; -1: nobody there; -ETIMEDOUT, -EPROTO: somebody there, without a good answer. */
static int state_ask(struct status *answer, size_t size, size_t *got)
{
    struct hello hello = {.magic = SIM_MAGIC, .version = SIM_VERSION, .kind = HELLO_STATUS};
    int fd = state_connect();
    ssize_t count;

    if (fd < 0)
        return -1;
    hello.pid = (int32_t)getpid();
    count = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
    if (count == (ssize_t)sizeof(hello))
        count = recv(fd, answer, size, 0);
    close(fd);
    if (count < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? -ETIMEDOUT : -1;
    if (count == 0)
        return -1;
    *got = (size_t)count;
    if (*got < sizeof(*answer) || answer->magic != SIM_MAGIC || answer->version != SIM_VERSION ||
        answer->devices > SIM_DEVICES)
        return -EPROTO;
    return 0;
}

static void state_fill_idle(struct status *status)
{
    memset(status, 0, sizeof(*status));
    status->devices = (uint32_t)util_env_number("SIMCUDA_DEVICES", 1, SIM_DEVICES);
    for (unsigned i = 0; i < status->devices; i++)
        status->device[i].total = util_env_size("SIMCUDA_MEMORY", STATE_MEMORY);
}

nvmlReturn_t state_get(struct state *state)
{
    size_t room = sizeof(struct status) + STATE_MOST_CLIENTS * sizeof(struct status_client);
    struct status *answer;
    size_t got = 0;
    int error;

    memset(state, 0, sizeof(*state));
    if (state_check() != NVML_SUCCESS)
        return NVML_ERROR_UNINITIALIZED;
    answer = malloc(room);
    if (answer == NULL)
        return NVML_ERROR_MEMORY;
    error = state_ask(answer, room, &got);
    if (error == 0) {
        size_t fit = (got - sizeof(*answer)) / sizeof(*state->clients);

        state->status = *answer;
        if (state->status.clients > fit)
            state->status.clients = (uint32_t)fit;
        memmove(answer, answer + 1, state->status.clients * sizeof(*state->clients));
        state->clients = (struct status_client *)(void *)answer;
        return NVML_SUCCESS;
    }
    free(answer);
    if (error != -1)
        return error == -ETIMEDOUT ? NVML_ERROR_TIMEOUT : NVML_ERROR_UNKNOWN;
    state_fill_idle(&state->status);
    return NVML_SUCCESS;
}

void state_put(struct state *state)
{
    free(state->clients);
    state->clients = NULL;
}

unsigned state_devices(void)
{
    struct state state;
    unsigned count;

    if (state_get(&state) != NVML_SUCCESS)
        return 0;
    count = state.status.devices;
    state_put(&state);
    return count;
}

nvmlReturn_t state_get_device(nvmlDevice_t device, struct state *state, unsigned *index)
{
    nvmlReturn_t result = state_index(device, index);

    memset(state, 0, sizeof(*state));
    if (result == NVML_SUCCESS)
        result = state_get(state);
    if (result == NVML_SUCCESS && *index >= state->status.devices)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && state->status.device[*index].lost != 0)
        result = NVML_ERROR_GPU_IS_LOST;
    if (result != NVML_SUCCESS)
        state_put(state);
    return result;
}
