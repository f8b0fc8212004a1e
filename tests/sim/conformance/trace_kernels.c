/* Rule of the simulated device: the trace tells of every kernel that ran: whose it was, its name,
 * when it was handed over, when it began and ended. Times are computed, so a kernel takes exactly
 * its length, and the next of its stream begins when it ends.
 * Source: tests/sim/README.md, "Trace". There is no trace on hardware (skipped).
 */
#include "client.h"
#include "trace.h"

#define KERNELS 8
#define LENGTH (20 * MS)
#define ERROR (100000ull)

int main(void)
{
    struct client c;
    CUstream stream;
    FILE *trace;
    struct trace_run runs[KERNELS * 64];
    uint64_t before, after;

    client_open(&c);
    trace = trace_open();
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    before = client_now();
    for (int i = 0; i < KERNELS; i++)
        client_spin(&c, stream, LENGTH);
    CHECK_CU(cuStreamSynchronize(stream));
    after = client_now();
    CHECK(trace_collect(trace, getpid(), "spin_ns", KERNELS, runs, KERNELS * 64) == KERNELS,
          "kernels that nobody competes with ran in pieces");
    for (int i = 0; i < KERNELS; i++) {
        uint64_t length = runs[i].end - runs[i].start;

        CHECK(!strcmp(runs[i].kind, "kernel"), "the kind is %s", runs[i].kind);
        CHECK(length >= LENGTH && length <= LENGTH + ERROR, "kernel %d took %llu ns", i,
              (unsigned long long)length);
        CHECK(runs[i].submit >= before && runs[i].submit <= runs[i].start,
              "kernel %d began before it was handed over", i);
        CHECK(runs[i].end <= after, "kernel %d ended after the synchronise returned", i);
        if (i)
            CHECK(runs[i].start >= runs[i - 1].end && runs[i].start <= runs[i - 1].end + ERROR,
                  "kernel %d began %lld ns after the end of the one in front of it", i,
                  (long long)(runs[i].start - runs[i - 1].end));
    }
    client_pass("%d kernels of 20 ms back to back in the trace", KERNELS);
}
