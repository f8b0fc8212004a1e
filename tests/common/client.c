/* The shared part of the CUDA client programs; see client.h.
 *
 * Keeps one list of the flags that a failing program raises. Everything else is the caller's.
 * Never catches a signal and never synchronises behind the program's back: the programs test what
 * exactly those calls do.
 */
#include "client.h"

#include "kernels_ptx.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>

#define FLAGS_MAX 64

static volatile uint32_t *client_flags[FLAGS_MAX];
static _Atomic unsigned client_flag_count;

static void client_print(const char *word, const char *format, va_list arguments)
{
    fflush(stdout);
    printf("%s: ", word);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
}

static void client_release_flags(void)
{
    for (unsigned i = 0; i < client_flag_count && i < FLAGS_MAX; i++)
        if (client_flags[i])
            *client_flags[i] = UINT32_MAX;
}

const char *client_error_name(CUresult error)
{
    const char *name = NULL;

    if (cuGetErrorName(error, &name) != CUDA_SUCCESS || !name)
        return "unknown error";
    return name;
}

void client_expect(CUresult got, CUresult wanted, const char *call, const char *file, int line)
{
    if (got != wanted)
        client_fail_at(file, line, call, "returned %d (%s), expected %d (%s)", (int)got,
                       client_error_name(got), (int)wanted, client_error_name(wanted));
}

void client_fail_at(const char *file, int line, const char *what, const char *format, ...)
{
    const char *base = strrchr(file, '/');
    va_list arguments;

    client_release_flags();
    printf("%s:%d: %s\n", base ? base + 1 : file, line, what);
    va_start(arguments, format);
    client_print("FAILED", format, arguments);
    va_end(arguments);
    /* Not exit(): the driver's own handlers could wait for a kernel that never ends. */
    _exit(1);
}

void client_pass(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    client_print("ok", format, arguments);
    va_end(arguments);
    exit(0);
}

void client_skip(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    client_print("skipped", format, arguments);
    va_end(arguments);
    _exit(77);
}

uint64_t client_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void client_sleep(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};

    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

void client_setting(const char *name, const char *value)
{
    CHECK(!setenv(name, value, 0), "setenv: %s", strerror(errno));
}

void client_init(struct client *c)
{
    CUresult error = cuInit(0);

    if (error == CUDA_ERROR_NO_DEVICE || error == CUDA_ERROR_STUB_LIBRARY)
        client_skip("no device: cuInit returns %s", client_error_name(error));
    CHECK_CU(error);
    CHECK_CU(cuDeviceGet(&c->device, 0));
}

void client_load(struct client *c)
{
    const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {
        {"noop", &c->noop},   {"spin_ns", &c->spin},  {"wait_flag", &c->wait}, {"set_u32", &c->set},
        {"add_u32", &c->add}, {"fill_u32", &c->fill}, {"fault", &c->fault},
    };

    CHECK_CU(cuModuleLoadData(&c->module, kernels_ptx));
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        CHECK_CU(cuModuleGetFunction(kernels[i].function, c->module, kernels[i].name));
}

void client_open(struct client *c)
{
    client_init(c);
    CHECK_CU(cuDevicePrimaryCtxRetain(&c->context, c->device));
    CHECK_CU(cuCtxSetCurrent(c->context));
    client_load(c);
}

void client_adopt(const struct client *c)
{
    CHECK_CU(cuCtxSetCurrent(c->context));
}

CUfunction client_load_pdl(const struct client *c)
{
    CUmodule module;
    CUfunction function;

    if (client_attribute(c, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9)
        client_skip("programmatic dependent launch needs compute capability 9.0");
    CHECK_CU(cuModuleLoadData(&module, pdl_ptx));
    CHECK_CU(cuModuleGetFunction(&function, module, "pdl_spin_ns"));
    return function;
}

void *client_symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

int client_attribute(const struct client *c, CUdevice_attribute attribute)
{
    int value = 0;

    CHECK_CU(cuDeviceGetAttribute(&value, attribute, c->device));
    return value;
}

struct handed_out client_handed_out(int device)
{
    typedef CUresult figures(int, unsigned long long *, unsigned long long *);
    figures *own, *whole;
    struct handed_out found = {0};

    *(void **)&own = client_symbol("simcudaHandedOut");
    *(void **)&whole = client_symbol("simcudaDeviceHandedOut");
    if (!own || !whole)
        client_skip("no simulated device whose books could be seen");
    CHECK_CU(own(device, &found.memory, &found.context));
    CHECK_CU(whole(device, &found.used, &found.orphaned));
    return found;
}

const char *client_trace(void)
{
    static char path[4096];
    const char *trace = getenv("SIMCUDA_TRACE"), *directory = getenv("SIMCUDA_DIR");

    if (trace)
        return trace;
    if (!directory)
        return NULL;
    snprintf(path, sizeof path, "%s/trace", directory);
    return path;
}

static void client_launch(CUfunction function, unsigned blocks, unsigned threads, CUstream stream,
                          void **arguments)
{
    CHECK_CU(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL));
}

void client_noop(const struct client *c, CUstream stream)
{
    client_launch(c->noop, 1, 1, stream, NULL);
}

void client_spin(const struct client *c, CUstream stream, uint64_t ns)
{
    void *arguments[] = {&ns};

    client_launch(c->spin, 1, 1, stream, arguments);
}

static void client_launch_word(CUfunction function, CUstream stream, CUdeviceptr word,
                               uint32_t value)
{
    void *arguments[] = {&word, &value};

    client_launch(function, 1, 1, stream, arguments);
}

void client_wait(const struct client *c, CUstream stream, CUdeviceptr flag, uint32_t value)
{
    client_launch_word(c->wait, stream, flag, value);
}

void client_set(const struct client *c, CUstream stream, CUdeviceptr word, uint32_t value)
{
    client_launch_word(c->set, stream, word, value);
}

void client_add(const struct client *c, CUstream stream, CUdeviceptr word, uint32_t value)
{
    client_launch_word(c->add, stream, word, value);
}

void client_fill(const struct client *c, CUstream stream, CUdeviceptr to, uint32_t value,
                 uint64_t count)
{
    void *arguments[] = {&to, &value, &count};

    client_launch(c->fill, 64, 128, stream, arguments);
}

void client_spin_wide(const struct client *c, CUstream stream, uint64_t ns)
{
    unsigned processors = (unsigned)client_attribute(c, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    unsigned threads =
        (unsigned)client_attribute(c, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    void *arguments[] = {&ns};

    client_launch(c->spin, processors * (threads / 512), 512, stream, arguments);
}

CUstream client_stream(unsigned flags)
{
    CUstream stream;

    CHECK_CU(cuStreamCreate(&stream, flags));
    return stream;
}

CUevent client_event(unsigned flags)
{
    CUevent event;

    CHECK_CU(cuEventCreate(&event, flags));
    return event;
}

CUevent client_mark(CUstream stream)
{
    CUevent event = client_event(CU_EVENT_DEFAULT);

    CHECK_CU(cuEventRecord(event, stream));
    return event;
}

size_t client_free_bytes(void)
{
    size_t left, total;

    CHECK_CU(cuMemGetInfo(&left, &total));
    CHECK(left <= total, "%zu of %zu bytes are free", left, total);
    return left;
}

CUdeviceptr client_alloc(size_t bytes)
{
    CUdeviceptr device;

    CHECK_CU(cuMemAlloc(&device, bytes));
    return device;
}

void *client_pinned(size_t bytes, CUdeviceptr *device)
{
    void *host;

    CHECK_CU(cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, bytes);
    CHECK_CU(cuMemHostGetDevicePointer(device, host, 0));
    return host;
}

struct flag client_flag(void)
{
    struct flag flag;
    unsigned i = client_flag_count++;

    flag.host = client_pinned(sizeof *flag.host, &flag.device);
    CHECK(i < FLAGS_MAX, "more than %d flags in one program", FLAGS_MAX);
    client_flags[i] = flag.host;
    return flag;
}

void client_raise(const struct flag *flag, uint32_t value)
{
    __atomic_store_n(flag->host, value, __ATOMIC_SEQ_CST);
}

/* By name, because the newer flavour that the header chooses is missing in drivers before 12.8. */
double client_elapsed_ms(CUevent start, CUevent end)
{
    CUresult (*elapsed)(float *, CUevent, CUevent);
    float ms = 0;

    *(void **)&elapsed = client_symbol("cuEventElapsedTime");
    CHECK(elapsed, "the driver has no cuEventElapsedTime");
    CHECK_CU(elapsed(&ms, start, end));
    return (double)ms;
}

bool client_event_within(CUevent event, uint64_t ns)
{
    uint64_t end = client_now() + ns;
    CUresult error;

    while ((error = cuEventQuery(event)) == CUDA_ERROR_NOT_READY && client_now() < end)
        client_sleep(MS / 5);
    if (error != CUDA_ERROR_NOT_READY)
        CHECK_CU(error);
    return error == CUDA_SUCCESS;
}

bool client_stream_within(CUstream stream, uint64_t ns)
{
    uint64_t end = client_now() + ns;
    CUresult error;

    while ((error = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && client_now() < end)
        client_sleep(MS / 5);
    if (error != CUDA_ERROR_NOT_READY)
        CHECK_CU(error);
    return error == CUDA_SUCCESS;
}

bool client_word_within(const volatile uint32_t *word, uint32_t value, uint64_t ns)
{
    uint64_t end = client_now() + ns;

    while (*word != value && client_now() < end)
        client_sleep(MS / 5);
    return *word == value;
}

pthread_t client_thread(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, arg);

    CHECK(!error, "pthread_create: %s", strerror(error));
    return thread;
}

void client_thread_join(pthread_t thread)
{
    int error = pthread_join(thread, NULL);

    CHECK(!error, "pthread_join: %s", strerror(error));
}

static void client_run_child(int (*body)(struct child *, void *), void *arg, struct child *parent)
{
    int status = body(parent, arg);

    fflush(stdout);
    exit(status);
}

struct child client_fork(int (*body)(struct child *parent, void *arg), void *arg)
{
    struct child child, parent = {.pid = getpid()};
    int down[2], up[2];

    CHECK(!pipe(down) && !pipe(up), "pipe: %s", strerror(errno));
    fflush(stdout);
    child.pid = fork();
    CHECK(child.pid >= 0, "fork: %s", strerror(errno));
    if (!child.pid) {
        close(down[1]);
        close(up[0]);
        parent.from = down[0];
        parent.to = up[1];
        client_run_child(body, arg, &parent);
    }
    close(down[0]);
    close(up[1]);
    child.to = down[1];
    child.from = up[0];
    return child;
}

void client_tell(const struct child *other, uint64_t word)
{
    ssize_t done = write(other->to, &word, sizeof word);

    CHECK(done == sizeof word, "write to process %d: %s", (int)other->pid, strerror(errno));
}

uint64_t client_hear(const struct child *other)
{
    struct pollfd look = {.fd = other->from, .events = POLLIN};
    uint64_t word = 0;
    int ready = poll(&look, 1, (int)(SOON / MS));

    CHECK(ready == 1, "process %d says nothing", (int)other->pid);
    CHECK(read(other->from, &word, sizeof word) == sizeof word, "process %d is gone",
          (int)other->pid);
    return word;
}

int client_join(const struct child *child)
{
    int status = 0;

    close(child->to);
    CHECK(waitpid(child->pid, &status, 0) == child->pid, "waitpid: %s", strerror(errno));
    close(child->from);
    return status;
}

void client_join_passed(const struct child *child)
{
    int status = client_join(child);

    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        client_skip("the child process skipped");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d ended with status %#x",
          (int)child->pid, (unsigned)status);
}
