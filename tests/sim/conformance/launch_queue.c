/* Rule: the launch queue is about 1,000 deep. Behind a kernel that does not end, so many further
 * launches return at once and the next one blocks until there is room.
 * Source: public measurements on hardware ("the launch queue holds 1,024 entries"); the
 * Programming Guide says only that a launch may block.
 */
#include "client.h"

#define LAUNCHES 8192
#define LEAST 256
#define MOST 4096

struct launcher {
    struct client *client;
    CUstream stream;
    _Atomic unsigned launched;
};

static void *launcher_run(void *arg)
{
    struct launcher *l = arg;

    client_adopt(l->client);
    for (unsigned i = 0; i < LAUNCHES; i++) {
        client_noop(l->client, l->stream);
        l->launched++;
    }
    return NULL;
}

/* The count at which the launcher stands still for half a second. */
static unsigned launcher_depth(const struct launcher *l)
{
    unsigned seen = 0;
    uint64_t since = client_now();

    while (client_now() - since < SECOND / 2) {
        if (l->launched != seen) {
            seen = l->launched;
            since = client_now();
        }
        client_sleep(MS);
    }
    return seen;
}

int main(void)
{
    struct client c;
    struct launcher launcher = {.client = &c};
    struct flag flag;
    pthread_t thread;
    unsigned depth;

    client_open(&c);
    launcher.stream = client_stream(CU_STREAM_NON_BLOCKING);
    flag = client_flag();
    client_noop(&c, launcher.stream);
    CHECK_CU(cuStreamSynchronize(launcher.stream));
    client_wait(&c, launcher.stream, flag.device, 1);
    thread = client_thread(launcher_run, &launcher);
    depth = launcher_depth(&launcher);
    CHECK(depth < LAUNCHES, "%u launches went behind a kernel that does not end", depth);
    client_raise(&flag, 1);
    client_thread_join(thread);
    CHECK_CU(cuStreamSynchronize(launcher.stream));
    CHECK(depth >= LEAST && depth <= MOST, "the queue took %u launches", depth);
    client_pass("the queue took %u launches, the next blocked until there was room", depth);
}
