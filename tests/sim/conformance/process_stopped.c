/* Rule: a stopped process's queued work goes on: when it is continued the work is done.
 * Source: the device works off its queues by itself (CUDA Programming Guide, "Asynchronous
 * Concurrent Execution"); a job-control stop is no part of CUDA.
 */
#include "client.h"

#include <signal.h>
#include <sys/wait.h>

#define KERNELS 5
#define LENGTH (100 * MS)

static int sleeper_run(struct child *parent, void *arg)
{
    struct client c;
    CUstream stream;
    CUevent start, end;
    double ms;

    (void)arg;
    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    start = client_mark(stream);
    for (int i = 0; i < KERNELS; i++)
        client_spin(&c, stream, LENGTH);
    end = client_mark(stream);
    EXPECT_CU(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    client_tell(parent, 1);
    client_hear(parent);
    /* The first thing after the stop: had the work stood still this would say so. */
    CHECK_CU(cuEventQuery(end));
    ms = client_elapsed_ms(start, end);
    CHECK(ms < KERNELS * LENGTH / MS + 500, "the work took %.1f ms", ms);
    client_tell(parent, (uint64_t)ms);
    return 0;
}

int main(void)
{
    struct child sleeper = client_fork(sleeper_run, NULL);
    uint64_t ms;
    int status;

    client_hear(&sleeper);
    CHECK(!kill(sleeper.pid, SIGSTOP), "kill failed");
    CHECK(waitpid(sleeper.pid, &status, WUNTRACED) == sleeper.pid && WIFSTOPPED(status),
          "the process did not stop");
    client_sleep(KERNELS * LENGTH + SECOND);
    client_tell(&sleeper, 1);
    CHECK(!kill(sleeper.pid, SIGCONT), "kill failed");
    ms = client_hear(&sleeper);
    client_join_passed(&sleeper);
    client_pass("%d kernels of %llu ms ran within %llu ms while their process was stopped", KERNELS,
                LENGTH / MS, (unsigned long long)ms);
}
