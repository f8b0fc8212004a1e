/*
 * The trace: what ran when for whom, written by the device alone. Lines are gathered and written in
 * one go at the latest 20 ms after they happened. Runs in the main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

enum { BUFFER = 256 * 1024, LINE = 1024 };
#define FLUSH_AFTER UINT64_C(10000000)

static int trace_fd = -1;
static char buffer[BUFFER];
static size_t used;
static uint64_t oldest;

int trace_open(void)
{
    trace_fd = open(settings.trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return trace_fd < 0 ? -errno : 0;
}

void trace_flush(void)
{
    size_t done = 0;

    while (done < used) {
        ssize_t n = write(trace_fd, buffer + done, used - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    used = 0;
    oldest = 0;
}

uint64_t trace_due(void)
{
    return used ? oldest + FLUSH_AFTER : UTIL_NEVER;
}

__attribute__((format(printf, 1, 2))) static void trace_line(const char *format, ...)
{
    va_list args;
    int n;

    if (BUFFER - used < LINE)
        trace_flush();
    va_start(args, format);
    n = vsnprintf(buffer + used, BUFFER - used, format, args);
    va_end(args);
    if (n <= 0 || (size_t)n >= BUFFER - used)
        return;
    if (!used)
        oldest = device_now();
    used += (size_t)n;
}

static const char *trace_tag(const struct client *client)
{
    return client->tag[0] ? client->tag : "-";
}

static const char *trace_kind(const struct item *item)
{
    static const char *const copies[] = {"dtod", "htod", "dtoh", "htoh"};

    switch (item->c.kind) {
    case COMMAND_KERNEL:
        return "kernel";
    case COMMAND_MEMSET:
        return "memset";
    case COMMAND_COPY:
        return copies[item->c.copy.direction & 3];
    case COMMAND_HOST:
        return "hostfn";
    default:
        return "other";
    }
}

static void trace_busy(struct device *device, uint64_t start, uint64_t end)
{
    const uint64_t tenth = 100000000;

    device->busy_sum += end - start;
    atomic_store_explicit(&device->shared->busy_ns, device->busy_sum, memory_order_relaxed);
    while (start < end) {
        uint64_t index = start / tenth;
        uint64_t stop = (index + 1) * tenth < end ? (index + 1) * tenth : end;

        if (device->busy_tenth[index % 16] != index) {
            device->busy_tenth[index % 16] = index;
            device->busy[index % 16] = 0;
        }
        device->busy[index % 16] += stop - start;
        start = stop;
    }
}

static void trace_run(const struct item *item, const char *kind, const char *name, uint64_t start,
                      uint64_t end, uint64_t submit, unsigned piece, bool last)
{
    const struct stream *stream = item->stream;
    const struct client *client = stream->client;

    trace_line(
        "X\t%" PRIu64 "\t%" PRIu64 "\t%u\t%s\t%d\t%u\t%u\t%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%u%s\n",
        start, end, stream->context->device, trace_tag(client), client->pid, stream->context->slot,
        stream->slot, kind, name, submit, item->c.seq, piece, last ? "$" : "");
}

/* A graph is one record as long as its nodes follow each other without a gap. */
static void trace_graph(struct item *item, uint64_t start, uint64_t end)
{
    struct stream *stream = item->stream;

    if (stream->graph.open && start != stream->graph.end) {
        trace_run(item, "graph", "graph", stream->graph.start, stream->graph.end,
                  stream->graph.submit, stream->graph.piece++, false);
        stream->graph.start = start;
    } else if (!stream->graph.open) {
        stream->graph.open = true;
        stream->graph.piece = 0;
        stream->graph.start = start;
        stream->graph.submit = item->c.stamp;
    }
    stream->graph.end = end;
}

void trace_graph_end(struct stream *stream, const struct item *item, uint64_t t)
{
    if (!stream->graph.open) {
        stream->graph.start = stream->graph.end = t;
        stream->graph.submit = item->c.stamp;
        stream->graph.piece = 0;
    }
    trace_run(item, "graph", "graph", stream->graph.start, stream->graph.end, stream->graph.submit,
              stream->graph.piece, true);
    stream->graph.open = false;
}

void trace_stretch(struct item *item, uint64_t start, uint64_t end, bool last)
{
    bool compute = item->c.kind == COMMAND_KERNEL || item->c.kind == COMMAND_MEMSET ||
                   (item->c.kind == COMMAND_COPY && item->c.copy.direction == COPY_DTOD);

    if (compute)
        trace_busy(&devices[item->stream->context->device], start, end);
    if (item->c.flags & COMMAND_IN_GRAPH) {
        if (item->c.kind != COMMAND_HOST)
            trace_graph(item, start, end);
        return;
    }
    trace_run(item, trace_kind(item), item->kernel ? item->kernel->name : "-", start, end,
              item->c.stamp, item->piece++, last);
}

/* NULL: nobody's memory, an orphan's. */
void trace_memory(const struct client *client, unsigned device, const char *what, uint64_t bytes)
{
    static const struct client nobody;
    const struct client *c = client ? client : &nobody;
    uint64_t overhead = c->overhead[device];

    trace_line("M\t%" PRIu64 "\t%u\t%s\t%d\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
               "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n",
               device_now(), device, trace_tag(c), c->pid, what, bytes, c->bytes[device],
               devices[device].used, c->bytes[device] - overhead, overhead,
               devices[device].orphaned, c->managed[device]);
}

void trace_page(const struct context *context, uint64_t start, uint64_t end, uint64_t bytes)
{
    trace_line("X\t%" PRIu64 "\t%" PRIu64 "\t%u\t%s\t%d\t%u\t0\tpage\t%" PRIu64 "\t%" PRIu64
               "\t0\t0$\n",
               start, end, context->device, trace_tag(context->client), context->client->pid,
               context->slot, bytes, start);
}

void trace_client(const struct client *client, const char *what, uint64_t t)
{
    trace_line("C\t%" PRIu64 "\t%s\t%d\t%s\n", t, trace_tag(client), client->pid, what);
}

void trace_fault(const struct client *client, unsigned device, const char *name, uint32_t error,
                 uint64_t t)
{
    trace_line("F\t%" PRIu64 "\t%u\t%s\t%d\t%s\t%u\n", t, device, trace_tag(client), client->pid,
               name, error);
}
