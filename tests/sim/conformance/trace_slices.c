/* Rule of the simulated device: kernels of two contexts that compete run in slices (SIMCUDA_SLICE)
 * that never overlap, a switch apart (SIMCUDA_SWITCH), and each gets half of the time.
 * Source: published figures (slice about 2 ms, switch 50 to 200 us; no official ones);
 * tests/sim/README.md. There is no trace on hardware (skipped).
 */
#include "client.h"
#include "trace.h"

#define LENGTH (200 * MS)
#define ROOM 512

static int worker_run(struct child *parent, void *arg)
{
    struct client c;

    (void)arg;
    client_open(&c);
    client_tell(parent, 1);
    client_hear(parent);
    client_spin(&c, NULL, LENGTH);
    CHECK_CU(cuCtxSynchronize());
    return 0;
}

static uint64_t sum_of(const struct trace_run *runs, unsigned count)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < count; i++)
        sum += runs[i].end - runs[i].start;
    return sum;
}

static void check_apart(const struct trace_run *a, unsigned as, const struct trace_run *b,
                        unsigned bs)
{
    for (unsigned i = 0; i < as; i++)
        for (unsigned j = 0; j < bs; j++)
            CHECK(a[i].end <= b[j].start || b[j].end <= a[i].start,
                  "stretches %u and %u of two contexts overlap", i, j);
}

int main(void)
{
    struct child workers[2] = {client_fork(worker_run, NULL), client_fork(worker_run, NULL)};
    static struct trace_run runs[2][ROOM];
    unsigned count[2];

    for (int i = 0; i < 2; i++)
        client_hear(&workers[i]);
    fclose(trace_open());
    for (int i = 0; i < 2; i++)
        client_tell(&workers[i], 1);
    for (int i = 0; i < 2; i++) {
        FILE *trace = trace_open();

        client_join_passed(&workers[i]);
        count[i] = trace_collect(trace, workers[i].pid, "spin_ns", 1, runs[i], ROOM);
        CHECK(sum_of(runs[i], count[i]) >= LENGTH - MS &&
              sum_of(runs[i], count[i]) <= LENGTH + 2 * MS, "the kernel took %.3f ms in %u pieces",
              (double)sum_of(runs[i], count[i]) / MS, count[i]);
    }
    CHECK(count[0] > 10 && count[1] > 10, "only %u and %u pieces", count[0], count[1]);
    check_apart(runs[0], count[0], runs[1], count[1]);
    client_pass("two kernels of 200 ms ran in %u and %u slices, none at the same time", count[0],
                count[1]);
}
