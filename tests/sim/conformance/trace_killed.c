/* Rule of the simulated device: what a killed process has on the device goes on until its context
 * is torn down, SIMCUDA_TEARDOWN after its death, and not a moment longer.
 * Source: public measurements on hardware ("tens of milliseconds"); tests/sim/README.md. There is
 * no trace on hardware (skipped).
 */
#include "client.h"
#include "trace.h"

#include <signal.h>
#include <sys/wait.h>

static int victim_run(struct child *parent, void *arg)
{
    struct client c;

    (void)arg;
    client_open(&c);
    client_spin(&c, NULL, FOR_EVER);
    client_tell(parent, 1);
    client_hear(parent);
    return 1;
}

/* The end of the last stretch of the process's kernel. */
static uint64_t last_end(int pid)
{
    FILE *trace = trace_open();
    struct trace_run run;
    uint64_t end = 0;

    while (trace_next_run(trace, &run))
        if (run.pid == pid && !strcmp(run.name, "spin_ns"))
            end = run.end;
    fclose(trace);
    return end;
}

int main(void)
{
    struct child victim = client_fork(victim_run, NULL);
    struct client c;
    uint64_t killed, dead, gone, end;
    FILE *trace;

    client_open(&c);
    trace = trace_open();
    client_hear(&victim);
    client_sleep(100 * MS);
    killed = client_now();
    CHECK(!kill(victim.pid, SIGKILL), "kill failed");
    dead = trace_await(trace, victim.pid, "dead");
    gone = trace_await(trace, victim.pid, "torndown");
    client_sleep(100 * MS);
    end = last_end(victim.pid);
    client_join(&victim);
    CHECK(dead >= killed && dead < killed + 5 * SECOND,
          "the device noticed the death after %.3f ms", (double)(dead - killed) / MS);
    CHECK(gone > dead, "the context was torn down before the death");
    CHECK(end > killed && end <= gone, "the kernel ended %.3f ms after the kill, teardown came at "
          "%.3f", (double)(end - killed) / MS, (double)(gone - killed) / MS);
    client_pass("the kernel ran on for %.1f ms after the kill, until its context was torn down",
                (double)(end - killed) / MS);
}
