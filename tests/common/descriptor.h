/* A file descriptor to another process, through a socket that both have: what CUDA's handles of
 * that kind travel as. Any thread; the caller keeps its own descriptor. */
#ifndef TESTS_DESCRIPTOR_H
#define TESTS_DESCRIPTOR_H

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

/* A message of one byte, with room for one descriptor beside it. */
struct descriptor_message {
    char byte;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    struct iovec iov;
    struct msghdr header;
};

static inline struct msghdr *descriptor_begin(struct descriptor_message *m)
{
    memset(m, 0, sizeof *m);
    m->iov = (struct iovec){.iov_base = &m->byte, .iov_len = 1};
    m->header = (struct msghdr){.msg_iov = &m->iov,
                                .msg_iovlen = 1,
                                .msg_control = m->room,
                                .msg_controllen = sizeof m->room};
    return &m->header;
}

/* False when it cannot be sent. */
static inline bool descriptor_send(int socket, int fd)
{
    struct descriptor_message m;
    struct msghdr *message = descriptor_begin(&m);
    struct cmsghdr *control = CMSG_FIRSTHDR(message);

    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    return sendmsg(socket, message, 0) == 1;
}

/* Waits for one; -1 when none came. */
static inline int descriptor_receive(int socket)
{
    struct descriptor_message m;
    struct msghdr *message = descriptor_begin(&m);
    int fd = -1;

    if (recvmsg(socket, message, 0) != 1)
        return -1;
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (control && control->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(control), sizeof fd);
    return fd;
}

#endif
