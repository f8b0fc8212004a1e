/*
 * The watcher thread: waits for descriptors and hands what happened to the main thread, which has
 * nothing but a futex to sleep on. It sees a batch through before it looks again, so nothing is
 * told twice and nothing is touched from two threads.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "device.h"

enum { BATCH = 64 };

static int watch_fd = -1;
static struct epoll_event batch[BATCH];
static unsigned batch_count;
static _Atomic uint32_t full; /* 1: the batch is the main thread's */

static void *watch_run(void *unused)
{
    (void)unused;
    for (;;) {
        int n = epoll_wait(watch_fd, batch, BATCH, -1);

        if (n <= 0)
            continue;
        batch_count = (unsigned)n;
        atomic_store(&full, 1);
        main_wake();
        while (atomic_load(&full))
            util_futex_wait(&full, 1, UTIL_NEVER);
    }
    return NULL;
}

int watch_start(void)
{
    pthread_t thread;

    watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch_fd < 0)
        return -errno;
    return -pthread_create(&thread, NULL, watch_run, NULL);
}

int watch_add(int fd, enum watch_kind kind, unsigned index)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLRDHUP,
        .data.u64 = (uint64_t)kind << 32 | index,
    };

    return epoll_ctl(watch_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void watch_remove(int fd)
{
    epoll_ctl(watch_fd, EPOLL_CTL_DEL, fd, NULL);
}

bool watch_pending(void)
{
    return atomic_load(&full);
}

unsigned watch_take(struct watch_event *events, unsigned most)
{
    unsigned n = 0;

    if (!atomic_load(&full))
        return 0;
    for (; n < batch_count && n < most; n++) {
        events[n].kind = (enum watch_kind)(batch[n].data.u64 >> 32);
        events[n].index = (unsigned)batch[n].data.u64;
    }
    return n;
}

void watch_done(void)
{
    atomic_store(&full, 0);
    util_futex_wake(&full, 1);
}
