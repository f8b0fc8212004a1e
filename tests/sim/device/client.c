/*
 * Clients: who is there, how each one's arena is mapped, how the device learns that one is gone.
 *
 * Death is told by the process descriptor. A hang-up of the socket alone is not death (programs
 * close descriptors they did not open): then the lock that the client's mapping of its arena holds
 * decides, and it is gone after an exec. Main thread only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device.h"

#define LOCK_EVERY UINT64_C(10000000)
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct client *clients[SIM_CLIENTS];
unsigned client_most;
struct device devices[SIM_DEVICES];

static struct client *client_free_slot(void)
{
    for (unsigned i = 0; i < SIM_CLIENTS; i++) {
        if (!clients[i])
            clients[i] = calloc(1, sizeof(**clients));
        if (clients[i] && !clients[i]->used) {
            memset(clients[i], 0, sizeof(**clients));
            clients[i]->slot = i;
            clients[i]->socket = clients[i]->pidfd = clients[i]->arena_fd = -1;
            return clients[i];
        }
    }
    return NULL;
}

/* Opens the client's arena anew, so that its own lock on it is not shared with this process. */
static int client_map(struct client *client, int passed)
{
    char path[40];
    struct stat st;
    int seals = fcntl(passed, F_GET_SEALS);

    snprintf(path, sizeof(path), "/proc/self/fd/%d", passed);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(passed, &st) ||
        (uint64_t)st.st_size != ARENA_BYTES)
        return -EINVAL;
    client->arena_fd = open(path, O_RDWR | O_CLOEXEC);
    if (client->arena_fd < 0)
        return -errno;
    client->base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        client->arena_fd, 0);
    if (client->base == MAP_FAILED) {
        client->base = NULL;
        return -errno;
    }
    client->arena = (struct arena *)client->base;
    return client->arena->magic == SIM_MAGIC ? 0 : -EINVAL;
}

static void client_identify(struct client *client)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    int pidfd = -1;
    socklen_t pidfd_size = sizeof(pidfd);

    if (!getsockopt(client->socket, SOL_SOCKET, SO_PEERCRED, &peer, &size))
        client->host_pid = peer.pid;
    if (!getsockopt(client->socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &pidfd_size))
        client->pidfd = pidfd;
    else if (peer.pid > 0)
        client->pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (client->pidfd >= 0)
        watch_add(client->pidfd, WATCH_PROCESS, client->slot);
}

static void client_name(struct client *client, const struct hello *hello)
{
    snprintf(client->tag, sizeof(client->tag), "%s", hello->tag);
    for (char *c = client->tag; *c; c++)
        if (*c <= ' ' || *c == 127)
            *c = '_';
    client->pid = hello->pid;
    client->arena_address = hello->arena;
}

static int client_welcome(int socket, const struct welcome *welcome)
{
    int fds[2] = {area_board_fd(), area_memory_fd()};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(fds))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)welcome, .iov_len = sizeof(*welcome)};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.room),
    };

    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(&control.header), fds, sizeof(fds));
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void client_close_descriptors(struct client *client)
{
    int *fds[] = {&client->socket, &client->pidfd, &client->arena_fd};

    for (unsigned i = 0; i < 3; i++)
        if (*fds[i] >= 0) {
            watch_remove(*fds[i]);
            close(*fds[i]);
            *fds[i] = -1;
        }
}

static void client_unmap(struct client *client)
{
    if (client->base)
        munmap(client->base, ARENA_BYTES);
    client->base = NULL;
    client->arena = NULL;
}

int client_join(int socket, const struct hello *hello, int passed)
{
    struct client *client = client_free_slot();
    struct welcome welcome = {.magic = SIM_MAGIC,
                              .version = SIM_VERSION,
                              .device_pid = (int)getpid(),
                              .memory_bytes =
                                  board->memory_stride * (settings.devices ? settings.devices : 1)};

    welcome.result = client ? client_map(client, passed) : -EUSERS;
    if (client)
        welcome.client = client->slot;
    if (!welcome.result)
        welcome.result = client_welcome(socket, &welcome);
    else
        client_welcome(socket, &welcome);
    if (welcome.result) {
        if (client) {
            client_unmap(client);
            client_close_descriptors(client);
        }
        return welcome.result;
    }
    client->used = true;
    client->socket = socket;
    client_name(client, hello);
    client_identify(client);
    watch_add(socket, WATCH_SOCKET, client->slot);
    if (client_most <= client->slot)
        client_most = client->slot + 1;
    trace_client(client, "join", device_now());
    return 0;
}

static void client_gone(struct client *client, const char *how)
{
    if (!client->used || client->dead_at)
        return;
    client->dead_at = device_refresh();
    client->lock_check = 0;
    client_close_descriptors(client);
    trace_client(client, how, client->dead_at);
}

void client_died(unsigned slot)
{
    client_gone(clients[slot], "dead");
}

void client_hung_up(unsigned slot)
{
    struct client *client = clients[slot];

    if (!client->used || client->dead_at || client->socket < 0)
        return;
    watch_remove(client->socket);
    close(client->socket);
    client->socket = -1;
    client->lock_check = device_now() + 1;
}

static bool client_executes(const struct client *client)
{
    for (unsigned i = 0; i < SIM_CONTEXTS; i++)
        if (client->contexts[i].alive && client->contexts[i].running)
            return true;
    return false;
}

void client_leave(struct client *client)
{
    client_gone(client, "leave");
    client->leaving = !client_executes(client);
}

/* What goes with a client: its own memory, and orphans that it was the last one to hold. */
static void client_forget_memory(struct client *client)
{
    uint64_t bytes[SIM_DEVICES], used[SIM_DEVICES];

    for (unsigned d = 0; d < settings.devices; d++) {
        bytes[d] = client->bytes[d];
        used[d] = devices[d].used;
    }
    pool_forget(client, -1);
    for (unsigned d = 0; d < settings.devices; d++)
        if (bytes[d] || devices[d].used != used[d])
            trace_memory(client, d, "teardown", bytes[d]);
}

/* Frees everything of a client; its place is for the next one. */
static void client_tear_down(struct client *client, uint64_t t)
{
    worker_settle();
    client->arena->host_head = client->host_tail; /* nobody calls host functions any more */
    for (unsigned i = 0; i < SIM_CONTEXTS; i++)
        if (client->contexts[i].alive)
            context_close(&client->contexts[i], t);
    client_forget_memory(client);
    call_forget(client);
    reach_forget(client);
    stream_forget(client);
    client_unmap(client);
    trace_client(client, "torndown", t);
    atomic_store(&board->bell[client->slot], 0);
    client->used = false;
}

static void client_check_lock(struct client *client, uint64_t now)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    client->lock_check = now + LOCK_EVERY;
    if (!fcntl(client->arena_fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK)
        client_gone(client, "dead");
}

uint64_t client_next(void)
{
    uint64_t next = UTIL_NEVER;

    for (unsigned i = 0; i < client_most; i++) {
        const struct client *client = clients[i];
        uint64_t at = UTIL_NEVER;

        if (!client->used)
            continue;
        if (client->dead_at)
            at = client->leaving ? 0 : client->dead_at + settings.teardown;
        else if (client->lock_check)
            at = client->lock_check;
        if (at < next)
            next = at;
    }
    return next;
}

void client_step(uint64_t now)
{
    for (unsigned i = 0; i < client_most; i++) {
        struct client *client = clients[i];

        if (!client->used)
            continue;
        if (client->dead_at && (client->leaving || client->dead_at + settings.teardown <= now))
            client_tear_down(client, now);
        else if (client->lock_check && client->lock_check <= now)
            client_check_lock(client, now);
    }
}

unsigned client_count(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < client_most; i++)
        n += clients[i]->used;
    return n;
}
