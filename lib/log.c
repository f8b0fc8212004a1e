/*
 * log: formats on the stack and writes once.
 * Owns log_threshold and the name of the log file. Any thread may write; only start-up opens.
 * Must never allocate, lock, change errno, or fail loudly: a line that cannot be written is lost,
 * and a log file that cannot be opened sends its lines to stderr instead.
 */
#include "log.h"
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Atomic int log_threshold = LOG_WARN;

/* Absolute, since the program may change its directory; "" is stderr. */
static char log_file[PATH_MAX];

static __thread bool log_hushed;

static const char *const log_level_text[] = {"error", "warn", "info", "debug"};

/* Makes the name absolute; a name too long to be one is left to fail at the first line. */
static void log_name(const char *file)
{
    char directory[PATH_MAX];

    if (!file || !*file)
        log_file[0] = '\0';
    else if (file[0] == '/' || !getcwd(directory, sizeof(directory)))
        snprintf(log_file, sizeof(log_file), "%s", file);
    else if (snprintf(log_file, sizeof(log_file), "%s/%s", directory, file) >=
             (int)sizeof(log_file))
        log_file[0] = '\0';
}

void log_open(enum log_level level, const char *file)
{
    int saved = errno;

    if (log_hushed)
        return;
    log_name(file);
    atomic_store_explicit(&log_threshold, (int)level, memory_order_relaxed);
    errno = saved;
}

void log_hush(bool hush)
{
    log_hushed = hush;
}

/* Control characters would break a line in two, or forge one. */
static void log_clean(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = '?';
    }
}

/* Appends, cutting at `size`; keeps the terminating zero in place. */
static size_t log_append(char *line, size_t used, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(line + used, size - used, format, args);

    if (n < 0)
        return used;
    if ((size_t)n < size - used)
        return used + (size_t)n;
    memcpy(line + size - 4, "...", 4);
    return size - 1;
}

static size_t log_format(char *line, size_t size, enum log_level level, const char *id,
                         const char *format, va_list args)
{
    char tail[64];
    int tail_length = snprintf(tail, sizeof(tail), " [%.60s]\n", id);
    size_t limit = size - (size_t)tail_length;
    int head = snprintf(line, limit, "cuslice[%d] %s: ", (int)getpid(), log_level_text[level]);
    size_t used = log_append(line, (size_t)head, limit, format, args);

    log_clean(line + head, used - (size_t)head);
    memcpy(line + used, tail, (size_t)tail_length);
    return used + (size_t)tail_length;
}

/* The log file, or -1 when lines go to stderr. */
static int log_destination(void)
{
    if (!log_file[0])
        return -1;
    return open(log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
}

/* Writes without the SIGPIPE that a closed stderr would send to a program that may never write
 * there itself: the signal is blocked, and taken back if this write raised it. */
static void log_put(int fd, const char *line, size_t length)
{
    sigset_t pipe_signal, before, pending;
    ssize_t written;
    bool pending_before;

    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    sigpending(&pending);
    pending_before = sigismember(&pending, SIGPIPE) == 1;
    do {
        written = write(fd, line, length);
    } while (written < 0 && errno == EINTR);
    if (written < 0 && errno == EPIPE && !pending_before)
        sigtimedwait(&pipe_signal, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void log_write(enum log_level level, const char *id, const char *format, ...)
{
    int saved = errno;
    char line[LOG_LINE_MAX];
    va_list args;
    size_t length;
    int fd;

    if (log_hushed)
        return;
    fd = log_destination();
    errno = saved; /* a %m in the format is the caller's errno, not the log file's */
    va_start(args, format);
    length = log_format(line, sizeof(line), level, id, format, args);
    va_end(args);
    log_put(fd < 0 ? STDERR_FILENO : fd, line, length);
    if (fd >= 0)
        close(fd);
    errno = saved;
}

bool log_every(struct log_rate *rate, uint64_t interval_ns, unsigned *suppressed)
{
    uint64_t now = clock_now();
    uint64_t next = atomic_load_explicit(&rate->next_ns, memory_order_relaxed);

    if (now < next || !atomic_compare_exchange_strong(&rate->next_ns, &next, now + interval_ns)) {
        atomic_fetch_add_explicit(&rate->held_back, 1, memory_order_relaxed);
        return false;
    }
    *suppressed = atomic_exchange_explicit(&rate->held_back, 0, memory_order_relaxed);
    return true;
}
