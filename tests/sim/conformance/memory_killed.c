/* Rule: the memory of a killed process is not free at once but when the driver has torn its context
 * down, without anybody's help; a kernel that it had running then is gone too.
 * Source: public measurements on hardware (tens of milliseconds); NVIDIA documents no figure.
 */
#include "client.h"

#include <signal.h>
#include <sys/wait.h>

static int victim_run(struct child *parent, void *arg)
{
    struct client c;
    size_t bytes;

    (void)arg;
    client_open(&c);
    bytes = client_free_bytes() / 2;
    client_alloc(bytes);
    client_spin(&c, NULL, FOR_EVER);
    client_tell(parent, bytes);
    client_hear(parent);
    return 1;
}

int main(void)
{
    struct child victim = client_fork(victim_run, NULL);
    struct client c;
    size_t bytes = client_hear(&victim), held, left;
    uint64_t killed, back;
    int status;

    client_open(&c);
    held = client_free_bytes();
    CHECK(!kill(victim.pid, SIGKILL), "kill failed");
    killed = client_now();
    do {
        left = client_free_bytes();
        back = client_now() - killed;
    } while (left < held + bytes / 2 && back < 60 * SECOND);
    status = client_join(&victim);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the victim ended with %#x",
          (unsigned)status);
    CHECK(left >= held + bytes / 2, "the memory is not back after %llu s",
          (unsigned long long)(back / SECOND));
    client_noop(&c, NULL);
    CHECK(client_stream_within(NULL, SOON), "the dead process's kernel still runs");
    client_pass("%zu MiB came back %.1f ms after the kill", bytes >> 20, (double)back / MS);
}
