/* Rule of the simulated device: who asks an event again and again sees the end of the kernel in
 * front of it when it comes, never before, and its time is the end in the trace; the stream says
 * the same. The device need not be awake for that. Source: tests/sim/README.md, "How it works".
 * There is no trace on hardware (skipped).
 */
#include "client.h"
#include "trace.h"

#define KERNELS 30
#define LENGTH (3 * MS)
#define SEEN_SOON (30000ull)

static uint64_t late[KERNELS];

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUevent before, after;
    FILE *trace;
    struct trace_run runs[KERNELS * 64];
    uint64_t seen[KERNELS];
    float ms[KERNELS];

    client_open(&c);
    trace = trace_open();
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    before = client_event(CU_EVENT_DEFAULT);
    after = client_event(CU_EVENT_DEFAULT);
    for (int i = 0; i < KERNELS; i++) {
        CHECK_CU(cuEventRecord(before, stream));
        client_spin(&c, stream, LENGTH);
        CHECK_CU(cuEventRecord(after, stream));
        while (cuEventQuery(after) == CUDA_ERROR_NOT_READY)
            ;
        seen[i] = client_now();
        CHECK_CU(cuStreamQuery(stream));
        CHECK_CU(cuEventElapsedTime(&ms[i], before, after));
        CHECK_CU(cuEventQuery(after));
    }
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(trace_collect(trace, getpid(), "spin_ns", KERNELS, runs, KERNELS * 64) == KERNELS,
          "kernels that nobody competes with ran in pieces");
    for (int i = 0; i < KERNELS; i++) {
        CHECK(seen[i] >= runs[i].end, "the end of kernel %d was seen before it came", i);
        CHECK(ms[i] * 1e6 + 100 >= (double)(runs[i].end - runs[i].start),
              "kernel %d took %.0f ns, by its events %.0f ns", i,
              (double)(runs[i].end - runs[i].start), ms[i] * 1e6);
        late[i] = seen[i] - runs[i].end;
    }
    qsort(late, KERNELS, sizeof(*late), compare);
    CHECK(late[KERNELS / 4] < SEEN_SOON, "a quarter of the ends were seen within %llu ns only",
          (unsigned long long)late[KERNELS / 4]);
    client_pass("ends are seen within %llu ns (median)", (unsigned long long)late[KERNELS / 2]);
}
