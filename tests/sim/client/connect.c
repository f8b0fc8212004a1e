/*
 * The way to the device process: the socket in the state directory, and the start of a device where
 * there is none. Two hundred programs may do this at once: the lock file lets one of them start it.
 * Runs once per process, in cuInit. It must leave nothing behind in the program but one descriptor,
 * closed on exec.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

#define PATIENCE UINT64_C(20000000000)
enum { PATH_ROOM = 4352 };

extern char **environ;

static int connect_socket(int directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket", directory);
    while (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        int error = -errno;

        if (error == -EINTR)
            continue;
        close(fd);
        return error;
    }
    return fd;
}

static int connect_say(int fd, const struct hello *hello, int arena)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)hello, .iov_len = sizeof(*hello)};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.room),
    };
    ssize_t n;

    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &arena, sizeof(arena));
    do
        n = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static int connect_hear(int fd, struct connection *connection)
{
    int fds[2] = {-1, -1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(fds))];
    } control;
    struct iovec iov = {.iov_base = &connection->welcome, .iov_len = sizeof(connection->welcome)};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    struct timeval limit = {.tv_sec = 20};
    struct cmsghdr *c;
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    do
        n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof(fds)))
        memcpy(fds, CMSG_DATA(c), sizeof(fds));
    connection->board = fds[0];
    connection->memory = fds[1];
    if (n != (ssize_t)sizeof(connection->welcome) || fds[1] < 0)
        return -ECONNRESET;
    return connection->welcome.version == SIM_VERSION ? connection->welcome.result : -EPROTO;
}

static int connect_join(int directory, int arena, const void *address,
                        struct connection *connection)
{
    struct hello hello = {
        .magic = SIM_MAGIC,
        .version = SIM_VERSION,
        .kind = HELLO_JOIN,
        .pid = (int32_t)getpid(),
        .arena = (uint64_t)(uintptr_t)address,
    };
    const char *tag = getenv("SIMCUDA_TAG");
    int fd = connect_socket(directory);
    int error;

    if (fd < 0)
        return fd;
    snprintf(hello.tag, sizeof(hello.tag), "%s", tag ? tag : "");
    error = connect_say(fd, &hello, arena);
    if (!error)
        error = connect_hear(fd, connection);
    if (error) {
        close(fd);
        return error == -EPIPE ? -ECONNRESET : error;
    }
    connection->socket = fd;
    return 0;
}

/* The device is no guest of a preload: what would load itself into it stays behind. */
static bool connect_keeps(const char *variable)
{
    return strncmp(variable, "LD_PRELOAD=", 11) && strncmp(variable, "LD_AUDIT=", 9) &&
           strncmp(variable, "CUSLICE_", 8);
}

static char **connect_environment(void)
{
    size_t count = 0, kept = 0;
    char **copy;

    while (environ[count])
        count++;
    copy = calloc(count + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < count; i++)
        if (connect_keeps(environ[i]))
            copy[kept++] = environ[i];
    return copy;
}

/* The device's program lies beside this library. Found when the library is loaded: its name may be
 * relative to a directory that the program leaves. */
static char connect_program[PATH_ROOM];

__attribute__((constructor)) static void connect_find_program(void)
{
    char path[PATH_MAX];
    Dl_info info;
    char *slash;

    if (!dladdr((void *)&sim, &info) || !realpath(info.dli_fname, path))
        return;
    slash = strrchr(path, '/');
    *slash = 0;
    snprintf(connect_program, sizeof(connect_program), "%s/simcuda-device", path);
}

static int connect_spawn(int ready, char **environment)
{
    const char *log = getenv("SIMCUDA_LOG_FILE");
    char number[16];
    char *argv[] = {(char *)(uintptr_t) "simcuda-device", number, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int error;

    snprintf(number, sizeof(number), "%d", ready);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addopen(&actions, 2, log && *log ? log : "/dev/null",
                                     O_WRONLY | O_APPEND | O_CREAT, 0666);
    error = posix_spawn(&pid, connect_program, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return -error;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* Starts the device and waits until it listens. The pipe's writing end is the one descriptor that
 * it inherits on purpose. */
static int connect_start_device(void)
{
    char **environment = connect_environment();
    int ends[2] = {-1, -1};
    int error = environment ? 0 : -ENOMEM;
    char byte = 'e';
    ssize_t n = 0;

    if (!error && pipe2(ends, O_CLOEXEC))
        error = -errno;
    if (!error) {
        fcntl(ends[1], F_SETFD, 0);
        error = connect_spawn(ends[1], environment);
        close(ends[1]);
    }
    if (!error) {
        do
            n = read(ends[0], &byte, 1);
        while (n < 0 && errno == EINTR);
        if (n != 1 || byte != 'r')
            error = -ENODEV;
    }
    if (ends[0] >= 0)
        close(ends[0]);
    free(environment);
    return error;
}

static int connect_lock(int directory, uint64_t until)
{
    int lock = openat(directory, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (lock < 0)
        return -errno;
    while (flock(lock, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            int error = -errno;

            close(lock);
            return error;
        }
        if (util_now() > until) {
            close(lock);
            return -ETIMEDOUT;
        }
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return lock;
}

static int connect_ensure_device(int directory, uint64_t until)
{
    int lock = connect_lock(directory, until);
    int error = 0;
    int probe;

    if (lock < 0)
        return lock;
    probe = connect_socket(directory);
    if (probe >= 0)
        close(probe);
    else
        error = connect_start_device();
    close(lock);
    return error;
}

int connect_device(int arena, const void *arena_address, struct connection *connection)
{
    char path[PATH_ROOM];
    uint64_t until = util_now() + PATIENCE;
    int error = util_directory(path, sizeof(path));
    int directory;

    if (error)
        return error;
    mkdir(path, 0777);
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    for (;;) {
        error = connect_join(directory, arena, arena_address, connection);
        if (error == -ENOENT || error == -ECONNREFUSED)
            error = connect_ensure_device(directory, until);
        else if (error != -ECONNRESET)
            break;
        if ((error && error != -ECONNRESET) || util_now() > until)
            break;
    }
    close(directory);
    return error;
}
