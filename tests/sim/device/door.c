/*
 * The door: the socket in the state directory at which clients ask to come in, and the lock file
 * that keeps the device's end and another device's beginning apart. Guests are connections that
 * have not said who they are. Main thread only; no operation on a guest's socket blocks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "device.h"

static int listener = -1;
static int directory = -1;

/* A socket's name has room for 107 bytes; the directory's may be longer. */
static void door_address(struct sockaddr_un *address)
{
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/socket", directory);
}

int door_open(void)
{
    struct sockaddr_un address;

    directory = open(settings.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (directory < 0 || listener < 0)
        return -errno;
    door_address(&address);
    unlinkat(directory, "socket", 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)))
        return -errno;
    fchmodat(directory, "socket", 0666, 0);
    if (listen(listener, 4096))
        return -errno;
    return watch_add(listener, WATCH_LISTEN, 0);
}

static bool door_let_in(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return errno == EINTR || errno == ECONNABORTED;
    if (watch_add(fd, WATCH_GUEST, (unsigned)fd))
        close(fd);
    return true;
}

/* Receives a guest's one packet and the descriptor that may come with it. */
static ssize_t door_hear(int fd, struct hello *hello, int *passed)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = hello, .iov_len = sizeof(*hello)};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c;

    *passed = -1;
    if (n < 0)
        return -errno;
    for (c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof(int)))
            memcpy(passed, CMSG_DATA(c), sizeof(int));
    return n;
}

static void door_guest(int fd)
{
    struct hello hello;
    int passed;
    ssize_t n = door_hear(fd, &hello, &passed);

    if (n == -EAGAIN || n == -EINTR)
        return;
    watch_remove(fd);
    hello.tag[SIM_TAG - 1] = 0;
    if (n == sizeof(hello) && hello.magic == SIM_MAGIC && hello.version == SIM_VERSION) {
        if (hello.kind == HELLO_JOIN && passed >= 0 && !client_join(fd, &hello, passed))
            fd = -1;
        else if (hello.kind == HELLO_STATUS)
            door_answer_status(fd);
    }
    if (passed >= 0)
        close(passed);
    if (fd >= 0)
        close(fd);
}

void door_event(const struct watch_event *event)
{
    if (event->kind == WATCH_GUEST)
        door_guest((int)event->index);
    else
        while (door_let_in())
            ;
}

bool door_close(void)
{
    int lock = openat(directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int fd;

    if (lock < 0)
        return errno == ENOENT; /* the directory is gone, and with it every way in */
    if (flock(lock, LOCK_EX | LOCK_NB)) {
        close(lock);
        return false;
    }
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        if (watch_add(fd, WATCH_GUEST, (unsigned)fd))
            close(fd);
        close(lock);
        return false;
    }
    unlinkat(directory, "socket", 0);
    return true;
}

static uint64_t door_running(const struct device *device, uint64_t now)
{
    const struct context *context = device->engine.loaded;
    uint64_t longest = 0;

    for (const struct item *i = context ? context->running : NULL; i; i = i->queue_next)
        if (i->since && now > i->since && now - i->since > longest)
            longest = now - i->since;
    return longest;
}

/* Execution in the last full second of tenths, in thousandths. */
static uint32_t door_busy(const struct device *device, uint64_t now)
{
    const uint64_t tenth = 100000000;
    uint64_t sum = door_running(device, now);

    for (uint64_t i = 0; i < 16; i++)
        if (device->busy_tenth[i] + 10 >= now / tenth)
            sum += device->busy[i];
    return sum > 1000000000 ? 1000 : (uint32_t)(sum / 1000000);
}

static unsigned door_clients(struct status_client *list)
{
    unsigned n = 0;

    for (unsigned i = 0; i < client_most; i++)
        for (unsigned d = 0; clients[i] && clients[i]->used && d < settings.devices; d++)
            if (clients[i]->bytes[d])
                list[n++] = (struct status_client){
                    .pid = clients[i]->pid,
                    .host_pid = clients[i]->host_pid,
                    .device = d,
                    .bytes = clients[i]->bytes[d],
                };
    return n;
}

void door_answer_status(int socket)
{
    struct status *status;
    uint64_t now = device_refresh();
    size_t most =
        sizeof(*status) + (size_t)client_most * settings.devices * sizeof(struct status_client);

    status = calloc(1, most);
    if (!status)
        return;
    status->magic = SIM_MAGIC;
    status->version = SIM_VERSION;
    status->devices = settings.devices;
    for (unsigned i = 0; i < settings.devices; i++) {
        status->device[i].total = devices[i].total;
        status->device[i].used = devices[i].used;
        status->device[i].busy_ns = devices[i].busy_sum + door_running(&devices[i], now);
        status->device[i].lost = atomic_load(&devices[i].shared->lost);
        status->device[i].busy_permille = door_busy(&devices[i], now);
    }
    status->clients = door_clients((struct status_client *)(status + 1));
    send(socket, status, sizeof(*status) + status->clients * sizeof(struct status_client),
         MSG_DONTWAIT | MSG_NOSIGNAL);
    free(status);
}
