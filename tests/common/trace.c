/* Reads the simulated device's trace; see trace.h.
 *
 * Reads a file that grows: a line without its newline is left for later. Holds nothing.
 */
#include "trace.h"

#include "client.h"

#include <inttypes.h>

#define LINE_MAX_BYTES 1024

FILE *trace_open(void)
{
    const char *path = client_trace();
    FILE *trace = path ? fopen(path, "r") : NULL;

    if (!trace)
        client_skip("no trace of a simulated device");
    return trace;
}

/* The next whole line, into line; false at the end of what has been written so far. */
static bool trace_line(FILE *trace, char *line)
{
    long at = ftell(trace);

    clearerr(trace);
    if (fgets(line, LINE_MAX_BYTES, trace) && strchr(line, '\n'))
        return true;
    CHECK(!fseek(trace, at, SEEK_SET), "the trace cannot be read again");
    return false;
}

static void trace_parse_run(const char *line, struct trace_run *run)
{
    char piece[16] = "";
    int count = sscanf(line,
                       "X\t%" SCNu64 "\t%" SCNu64 "\t%*d\t%*[^\t]\t%d\t%d\t%d\t%15[^\t]\t%63[^\t]"
                       "\t%" SCNu64 "\t%" SCNu64 "\t%15s",
                       &run->start, &run->end, &run->pid, &run->context, &run->stream, run->kind,
                       run->name, &run->submit, &run->seq, piece);

    CHECK(count == 10, "%d fields can be read of the trace's line: %s", count, line);
    run->piece = atoi(piece);
    run->last = strchr(piece, '$') != NULL;
}

bool trace_next_run(FILE *trace, struct trace_run *run)
{
    char line[LINE_MAX_BYTES];

    while (trace_line(trace, line)) {
        if (*line != 'X')
            continue;
        trace_parse_run(line, run);
        return true;
    }
    return false;
}

bool trace_next_event(FILE *trace, struct trace_event *event)
{
    char line[LINE_MAX_BYTES];

    while (trace_line(trace, line)) {
        if (*line != 'C')
            continue;
        CHECK(sscanf(line, "C\t%" SCNu64 "\t%*[^\t]\t%d\t%15s", &event->time, &event->pid,
                     event->what) == 3, "cannot read the trace's line: %s", line);
        return true;
    }
    return false;
}

unsigned trace_collect(FILE *trace, int pid, const char *name, unsigned wanted,
                       struct trace_run *runs, unsigned room)
{
    uint64_t end = client_now() + SOON;
    unsigned count = 0, finished = 0;
    struct trace_run run;

    while (finished < wanted) {
        if (!trace_next_run(trace, &run)) {
            CHECK(client_now() < end, "the trace has %u of %u runs of %s", finished, wanted, name);
            client_sleep(5 * MS);
        } else if (run.pid == pid && !strcmp(run.name, name)) {
            CHECK(count < room, "the trace has more than %u stretches of %s", room, name);
            runs[count++] = run;
            finished += run.last;
        }
    }
    return count;
}

uint64_t trace_await(FILE *trace, int pid, const char *what)
{
    uint64_t end = client_now() + SOON;
    struct trace_event event;

    for (;;) {
        if (!trace_next_event(trace, &event)) {
            CHECK(client_now() < end, "the trace has no '%s' of process %d", what, pid);
            client_sleep(5 * MS);
        } else if (event.pid == pid && !strcmp(event.what, what)) {
            return event.time;
        }
    }
}
