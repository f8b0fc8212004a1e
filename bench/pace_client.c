/* pace_client: a plain CUDA client with a pace of its own, for what clients do to one another.
 *
 * Prints "ready" once it has run a kernel, then obeys each line on its standard input and answers
 * with one line:
 *   steady SECONDS NS AHEAD          kernels of NS nanoseconds, never more than AHEAD queued: how
 *                                    many a second
 *   steps SECONDS NS                 one kernel, a synchronise, and again: how many a second, and
 *                                    how long the middle one of them took
 *   bursts SECONDS NS COUNT PAUSE    COUNT kernels, a synchronise, a pause of PAUSE nanoseconds,
 *                                    and again: when the first launch of each burst began
 *   polls SECONDS NS                 one kernel, then its event is asked without a pause, and
 *                                    again: when the end of each was seen
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, as in the simulated device's trace. One thread, one
 * stream. It must never name anything of cuslice: it runs bare as well.
 */
#include "client.h"

#define PACE_AHEAD_MAX 64u
#define PACE_TIMES_MAX 4096u /* further ones are not noted */

struct pace {
    struct client client;
    CUstream stream;
    CUevent end[PACE_AHEAD_MAX];
    uint64_t times[PACE_TIMES_MAX];
    unsigned noted;
};

static void pace_open(struct pace *pace)
{
    client_open(&pace->client);
    pace->stream = client_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < PACE_AHEAD_MAX; i++)
        pace->end[i] = client_event(CU_EVENT_DISABLE_TIMING);
    client_spin(&pace->client, pace->stream, 1000);
    CHECK_CU(cuStreamSynchronize(pace->stream));
}

static void pace_note(struct pace *pace)
{
    if (pace->noted < PACE_TIMES_MAX)
        pace->times[pace->noted++] = client_now();
}

static void pace_steady(struct pace *pace, uint64_t end, uint64_t ns, unsigned ahead)
{
    uint64_t begun = client_now();
    unsigned launched = 0;

    CHECK(ahead && ahead <= PACE_AHEAD_MAX, "so many cannot be queued: %u", ahead);
    for (; client_now() < end; launched++) {
        if (launched >= ahead)
            CHECK_CU(cuEventSynchronize(pace->end[launched % ahead]));
        client_spin(&pace->client, pace->stream, ns);
        CHECK_CU(cuEventRecord(pace->end[launched % ahead], pace->stream));
    }
    CHECK_CU(cuStreamSynchronize(pace->stream));
    printf("%.3f\n", launched * 1e9 / (double)(client_now() - begun));
}

static int pace_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void pace_steps(struct pace *pace, uint64_t end, uint64_t ns)
{
    uint64_t begun = client_now(), from = begun, now;
    unsigned ran = 0;

    do {
        client_spin(&pace->client, pace->stream, ns);
        CHECK_CU(cuStreamSynchronize(pace->stream));
        now = client_now();
        pace->times[ran++ % PACE_TIMES_MAX] = now - from;
        from = now;
    } while (now < end);
    unsigned kept = ran < PACE_TIMES_MAX ? ran : PACE_TIMES_MAX;
    qsort(pace->times, kept, sizeof *pace->times, pace_order);
    printf("%.3f %llu\n", ran * 1e9 / (double)(now - begun),
           (unsigned long long)pace->times[kept / 2]);
}

static void pace_print(const struct pace *pace)
{
    for (unsigned i = 0; i < pace->noted; i++)
        printf("%s%llu", i ? " " : "", (unsigned long long)pace->times[i]);
    putchar('\n');
}

static void pace_bursts(struct pace *pace, uint64_t end, uint64_t ns, unsigned count,
                        uint64_t pause_ns)
{
    while (client_now() < end) {
        pace_note(pace);
        for (unsigned i = 0; i < count; i++)
            client_spin(&pace->client, pace->stream, ns);
        CHECK_CU(cuStreamSynchronize(pace->stream));
        client_sleep(pause_ns);
    }
    pace_print(pace);
}

static void pace_polls(struct pace *pace, uint64_t end, uint64_t ns)
{
    while (client_now() < end) {
        CUresult rc;

        client_spin(&pace->client, pace->stream, ns);
        CHECK_CU(cuEventRecord(pace->end[0], pace->stream));
        while ((rc = cuEventQuery(pace->end[0])) == CUDA_ERROR_NOT_READY)
            ;
        CHECK_CU(rc);
        pace_note(pace);
    }
    pace_print(pace);
}

static void pace_obey(struct pace *pace, const char *line)
{
    unsigned long long ns, pause_ns;
    unsigned count;
    char way[16];
    double seconds;
    int words = sscanf(line, "%15s %lf %llu %u %llu", way, &seconds, &ns, &count, &pause_ns);

    CHECK(words >= 3 && seconds > 0 && seconds < 60, "cannot read: %s", line);
    uint64_t end = client_now() + (uint64_t)(seconds * SECOND);
    pace->noted = 0;
    alarm((unsigned)seconds + 60);
    if (!strcmp(way, "steady") && words == 4)
        pace_steady(pace, end, ns, count);
    else if (!strcmp(way, "steps"))
        pace_steps(pace, end, ns);
    else if (!strcmp(way, "bursts") && words == 5)
        pace_bursts(pace, end, ns, count, pause_ns);
    else if (!strcmp(way, "polls"))
        pace_polls(pace, end, ns);
    else
        CHECK(false, "cannot read: %s", line);
    fflush(stdout);
    alarm(0);
}

int main(void)
{
    static struct pace pace;
    char line[128];

    pace_open(&pace);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        pace_obey(&pace, line);
    return 0;
}
