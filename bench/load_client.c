/* load_client MS AHEAD SECONDS [FILE [MIB KIND]]: keeps the device busy with kernels of so many
 * milliseconds each, never more than AHEAD of them queued, for so many seconds.
 *
 * Prints "ready", begins at the first line on its standard input, and prints the number of kernels
 * it ran. Without FILE it launches spin_ns, whose times the simulated device's trace has. With FILE
 * each kernel also notes the device's own clock at its start and end, and at the end a line
 * `start end` of nanoseconds for each goes into FILE: the trace that hardware lacks. FILE of "-" is
 * none. MIB: as much memory is held meanwhile, KIND of it: plain or managed. A plain CUDA client,
 * one thread, one stream.
 */
#include "client.h"

#define LOAD_AHEAD_MAX 64u
#define LOAD_STAMPS 200000u

/* stamp_ns(u64 ns, u64 *stamp): stays until it has run for ns, then stamp[0], stamp[1] = start, end
 * on the device's clock. A gap of more than half a millisecond between two looks is time in which
 * another process had the device. */
static const char load_stamp_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry stamp_ns(.param .u64 stamp_ns_ns, .param .u64 stamp_ns_stamp)\n"
    "{\n"
    "    .reg .u64 %ns, %stamp, %to, %start, %last, %now, %step, %ran;\n"
    "    .reg .pred %more, %counts;\n"
    "    ld.param.u64 %ns, [stamp_ns_ns];\n"
    "    ld.param.u64 %stamp, [stamp_ns_stamp];\n"
    "    cvta.to.global.u64 %to, %stamp;\n"
    "    mov.u64 %ran, 0;\n"
    "    mov.u64 %start, %globaltimer;\n"
    "    mov.u64 %last, %start;\n"
    "SPIN:\n"
    "    mov.u64 %now, %globaltimer;\n"
    "    sub.u64 %step, %now, %last;\n"
    "    mov.u64 %last, %now;\n"
    "    setp.lt.u64 %counts, %step, 500000;\n"
    "    @%counts add.u64 %ran, %ran, %step;\n"
    "    setp.lt.u64 %more, %ran, %ns;\n"
    "    @%more bra SPIN;\n"
    "    st.volatile.global.u64 [%to], %start;\n"
    "    st.volatile.global.u64 [%to+8], %now;\n"
    "    ret;\n"
    "}\n";

struct load {
    struct client client;
    CUstream stream;
    CUevent end[LOAD_AHEAD_MAX];
    uint64_t kernel_ns;
    unsigned ahead;
    unsigned launched;
    unsigned finished;
    const char *path;
    CUfunction stamp;
    volatile uint64_t *stamps; /* pairs */
    CUdeviceptr stamps_device;
};

static void load_open(struct load *load)
{
    CUmodule module;

    client_open(&load->client);
    load->stream = client_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < load->ahead; i++)
        load->end[i] = client_event(CU_EVENT_DISABLE_TIMING);
    if (!load->path)
        return;
    CHECK_CU(cuModuleLoadData(&module, load_stamp_ptx));
    CHECK_CU(cuModuleGetFunction(&load->stamp, module, "stamp_ns"));
    load->stamps = client_pinned(LOAD_STAMPS * 2 * sizeof *load->stamps, &load->stamps_device);
}

static void load_hold(const char *mib, const char *kind)
{
    size_t bytes = (size_t)atoi(mib) << 20;
    CUdeviceptr memory;

    CHECK_CU(strcmp(kind, "managed") ? cuMemAlloc(&memory, bytes)
                                     : cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
}

static void load_launch(struct load *load)
{
    CUdeviceptr to = load->stamps_device + (CUdeviceptr)load->launched * 2 * sizeof(uint64_t);
    void *arguments[] = {&load->kernel_ns, &to};

    if (!load->path)
        client_spin(&load->client, load->stream, load->kernel_ns);
    else
        CHECK_CU(cuLaunchKernel(load->stamp, 1, 1, 1, 1, 1, 1, 0, load->stream, arguments, NULL));
    CHECK_CU(cuEventRecord(load->end[load->launched++ % load->ahead], load->stream));
}

static void load_finish(struct load *load)
{
    CHECK_CU(cuEventSynchronize(load->end[load->finished++ % load->ahead]));
}

static void load_run(struct load *load, uint64_t ns)
{
    for (uint64_t end = client_now() + ns; client_now() < end;) {
        if (load->launched - load->finished == load->ahead)
            load_finish(load);
        CHECK(!load->path || load->launched < LOAD_STAMPS, "too many kernels to note");
        load_launch(load);
    }
    while (load->finished < load->launched)
        load_finish(load);
}

static void load_write(const struct load *load)
{
    FILE *file = fopen(load->path, "w");

    CHECK(file, "%s: cannot be written", load->path);
    for (unsigned i = 0; i < load->finished; i++) {
        CHECK(load->stamps[2 * i] < load->stamps[2 * i + 1], "kernel %u has noted no times", i);
        fprintf(file, "%llu %llu\n", (unsigned long long)load->stamps[2 * i],
                (unsigned long long)load->stamps[2 * i + 1]);
    }
    CHECK(!fclose(file), "%s: not all was written", load->path);
}

int main(int count, char **words)
{
    static struct load load;
    char line[16];

    if (count < 4) {
        fprintf(stderr, "usage: load_client MS AHEAD SECONDS [FILE [MIB KIND]]\n");
        return 2;
    }
    load.kernel_ns = (uint64_t)(atof(words[1]) * MS);
    load.ahead = (unsigned)atoi(words[2]);
    load.path = count > 4 && strcmp(words[4], "-") ? words[4] : NULL;
    CHECK(load.kernel_ns && load.ahead && load.ahead <= LOAD_AHEAD_MAX, "out of range");
    load_open(&load);
    if (count > 6)
        load_hold(words[5], words[6]);
    alarm((unsigned)atof(words[3]) + 60);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 0;
    load_run(&load, (uint64_t)(atof(words[3]) * SECOND));
    if (load.path)
        load_write(&load);
    printf("%u\n", load.finished);
    return 0;
}
