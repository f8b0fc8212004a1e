/* A CUDA program like any other: driver API, no header or call of cuslice's, nothing to configure.
 *
 * Allocates some memory, then keeps the GPU busy with short kernels, a few at a time, until its
 * standard input ends or its time is up. On the way it may ask for more memory than its cap allows.
 * What happens to it is told on standard output, one fact a line, for people and for the demo:
 *   device NAME / total BYTES / kernels COUNT / refused BYTES USED ERROR / allowed BYTES / done
 * COUNT
 */
#include <cuda.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* spin_ns(u64 ns): occupies the GPU that long by its own clock. */
static const char kernel_text[] = ".version 6.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".visible .entry spin_ns(.param .u64 spin_ns_ns)\n"
                                  "{\n"
                                  "    .reg .u64 %ns, %start, %now, %gone;\n"
                                  "    .reg .pred %more;\n"
                                  "    ld.param.u64 %ns, [spin_ns_ns];\n"
                                  "    mov.u64 %start, %globaltimer;\n"
                                  "AGAIN:\n"
                                  "    mov.u64 %now, %globaltimer;\n"
                                  "    sub.u64 %gone, %now, %start;\n"
                                  "    setp.lt.u64 %more, %gone, %ns;\n"
                                  "    @%more bra AGAIN;\n"
                                  "    ret;\n"
                                  "}\n";

enum { BATCH = 4, TELL_MS = 100 };

struct plan {
    uint64_t memory;
    uint64_t kernel_ns;
    uint64_t run_ms;
    uint64_t more; /* bytes to ask for later; 0: none */
    uint64_t more_at_ms;
};

static void check(CUresult result, const char *what)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "demo_client: %s: %s (%d)\n", what, name ? name : "unknown error", result);
    exit(1);
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Standard input is what ties this program to who started it: its end is the end. */
static int told_to_end(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte[64];

    if (poll(&input, 1, 0) <= 0)
        return 0;
    return read(STDIN_FILENO, byte, sizeof(byte)) == 0;
}

static CUfunction start(const struct plan *plan, CUcontext *context, CUdeviceptr *memory)
{
    char name[128] = "";
    size_t left, total;
    CUdevice device;
    CUmodule module;
    CUfunction kernel;

    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
    tell("device %s\n", name);
    check(cuDevicePrimaryCtxRetain(context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(*context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, kernel_text), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, "spin_ns"), "cuModuleGetFunction");
    check(cuMemAlloc(memory, plan->memory), "cuMemAlloc");
    check(cuMemGetInfo(&left, &total), "cuMemGetInfo");
    tell("total %zu\n", total);
    return kernel;
}

static void ask_for_more(const struct plan *plan)
{
    const char *name = "unknown error";
    CUdeviceptr memory;
    CUresult result = cuMemAlloc(&memory, plan->more);

    if (result == CUDA_SUCCESS) {
        tell("allowed %llu\n", (unsigned long long)plan->more);
        check(cuMemFree(memory), "cuMemFree");
        return;
    }
    cuGetErrorName(result, &name);
    tell("refused %llu %llu %s\n", (unsigned long long)plan->more, (unsigned long long)plan->memory,
         name);
}

static void run(const struct plan *plan, CUfunction kernel)
{
    uint64_t begin = now_ms(), told = begin;
    uint64_t ns = plan->kernel_ns;
    void *parameters[] = {&ns};
    unsigned long long kernels = 0;
    int asked = plan->more == 0;
    CUstream stream;

    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    while (!told_to_end() && now_ms() - begin < plan->run_ms) {
        for (int i = 0; i < BATCH; i++)
            check(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL),
                  "cuLaunchKernel");
        check(cuStreamSynchronize(stream), "cuStreamSynchronize");
        kernels += BATCH;
        if (!asked && now_ms() - begin >= plan->more_at_ms) {
            ask_for_more(plan);
            asked = 1;
        }
        if (now_ms() - told >= TELL_MS) {
            told = now_ms();
            tell("kernels %llu\n", kernels);
        }
    }
    check(cuStreamDestroy(stream), "cuStreamDestroy");
    tell("done %llu\n", kernels);
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end) {
        fprintf(stderr, "demo_client: '%s' is not a number\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    struct plan plan = {0};
    CUcontext context;
    CUdeviceptr memory;
    CUdevice device;

    if (argc != 4 && argc != 6) {
        fputs("usage: demo_client MEMORY_MIB KERNEL_US RUN_MS [MORE_MIB MORE_AT_MS]\n", stderr);
        return 2;
    }
    plan.memory = number(argv[1]) << 20;
    plan.kernel_ns = number(argv[2]) * 1000;
    plan.run_ms = number(argv[3]);
    if (argc == 6) {
        plan.more = number(argv[4]) << 20;
        plan.more_at_ms = number(argv[5]);
    }
    run(&plan, start(&plan, &context, &memory));
    check(cuMemFree(memory), "cuMemFree");
    check(cuCtxGetDevice(&device), "cuCtxGetDevice");
    check(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
    return 0;
}
