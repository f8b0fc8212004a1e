/* Rule: a host function runs once, in stream order: after the work in front of it, before the work
 * behind it, on a thread that is not the caller's. Callbacks (cuStreamAddCallback) do likewise.
 * Source: CUDA Driver API, cuLaunchHostFunc, cuStreamAddCallback.
 */
#include "client.h"

struct visit {
    const volatile uint32_t *word;
    uint32_t seen;
    unsigned count;
    pthread_t thread;
    _Atomic bool done;
};

static void visit_make(void *arg)
{
    struct visit *v = arg;

    v->seen = *v->word;
    v->count++;
    v->thread = pthread_self();
    client_sleep(100 * MS);
    v->done = true;
}

static void CUDA_CB visit_callback(CUstream stream, CUresult status, void *arg)
{
    (void)stream;
    if (status == CUDA_SUCCESS)
        visit_make(arg);
}

static void check_visit(const struct visit *v, uint32_t expected, const char *name)
{
    CHECK(v->done && v->count == 1, "the %s ran %u times", name, v->count);
    CHECK(v->seen == expected, "the %s saw %u, expected %u", name, v->seen, expected);
    CHECK(!pthread_equal(v->thread, pthread_self()), "the %s ran on the caller's thread", name);
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUdeviceptr device;
    volatile uint32_t *word;
    struct visit function = {0}, callback = {0};
    struct flag flag;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    word = client_pinned(sizeof *word, &device);
    flag = client_flag();
    function.word = callback.word = word;
    client_wait(&c, stream, flag.device, 1);
    client_set(&c, stream, device, 1);
    CHECK_CU(cuLaunchHostFunc(stream, visit_make, &function));
    client_set(&c, stream, device, 2);
    CHECK_CU(cuStreamAddCallback(stream, visit_callback, &callback, 0));
    client_set(&c, stream, device, 3);
    client_sleep(WHILE);
    CHECK(!function.count, "the host function went past the kernel in front of it");
    client_raise(&flag, 1);
    client_sleep(50 * MS);
    CHECK(*word < 2 || function.done, "a kernel went past the host function");
    CHECK_CU(cuStreamSynchronize(stream));
    check_visit(&function, 1, "host function");
    check_visit(&callback, 2, "callback");
    CHECK(*word == 3, "the last kernel did not run");
    client_pass("a host function and a callback ran once each, in stream order");
}
