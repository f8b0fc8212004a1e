/* Rule of the simulated device: managed memory may exceed the device's; it comes when a kernel of
 * its process runs, which costs time (SIMCUDA_PAGE_RATE) and shows in the trace as `page`; other
 * processes' pages go, least recently wanted first, and so they do for memory that must be there.
 * Source: CUDA Programming Guide, "Unified Memory" (oversubscription, concurrent managed access,
 * cuMemPrefetchAsync); pages are counted, not told apart, which is this simulator's simplification.
 */
#include "client.h"
#include "trace.h"

#define MIB ((size_t)1 << 20)
#define DEVICE (1024 * MIB)

struct managed {
    unsigned long long allocated, resident;
};

static struct managed managed_of(const struct client *c)
{
    CUresult (*ask)(int, unsigned long long *, unsigned long long *);
    struct managed found;

    *(void **)&ask = client_symbol("simcudaManaged");
    if (!ask)
        client_skip("no simulated device whose pages could be counted");
    CHECK_CU(ask(c->device, &found.allocated, &found.resident));
    return found;
}

static CUdeviceptr managed_alloc(size_t bytes)
{
    CUdeviceptr memory;

    CHECK_CU(cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL));
    return memory;
}

static void expect_managed(const struct client *c, size_t allocated, size_t resident,
                           const char *when)
{
    struct managed found = managed_of(c);

    CHECK(found.allocated == allocated && found.resident == resident,
          "%s: %llu MiB allocated, %llu MiB on the device", when, found.allocated / MIB,
          found.resident / MIB);
}

static int other_run(struct child *parent, void *arg)
{
    struct client c;

    (void)arg;
    client_open(&c);
    managed_alloc(500 * MIB);
    client_tell(parent, 1);
    while (client_hear(parent)) { /* one kernel for each word, until 0 */
        client_noop(&c, NULL);
        CHECK_CU(cuCtxSynchronize());
        client_tell(parent, managed_of(&c).resident / MIB);
    }
    return 0;
}

static void check_evicted(const struct client *c, struct child *other)
{
    uint64_t theirs;

    client_tell(other, 1);
    theirs = client_hear(other);
    CHECK(theirs == 500, "the other process has %d MiB on the device", (int)theirs);
    CHECK(managed_of(c).resident < 500 * MIB, "nothing was pushed out");
    client_noop(c, NULL);
    CHECK_CU(cuCtxSynchronize());
    expect_managed(c, 500 * MIB, 500 * MIB, "a kernel after the other's");
}

/* Memory that must be there pushes pages out, and only what is left of the device refuses. */
static void check_plain(const struct client *c)
{
    size_t before = client_handed_out(c->device).memory;
    CUdeviceptr plain = client_alloc(700 * MIB);

    CHECK(client_handed_out(c->device).memory < before + 700 * MIB, "no page went");
    EXPECT_CU(cuMemAlloc(&(CUdeviceptr){0}, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_CU(cuMemFree(plain));
}

/* 700 of 1,024 MiB at 100 GB/s, less what was there already. */
static void check_time(const struct client *c, FILE *trace)
{
    CUdeviceptr memory = managed_alloc(200 * MIB);
    uint64_t end = client_now() + SOON, moved = 0;
    struct trace_run run = {0};

    while (trace_next_run(trace, &run))
        ;
    client_noop(c, NULL);
    CHECK_CU(cuCtxSynchronize());
    expect_managed(c, 700 * MIB, 700 * MIB, "a further allocation");
    while (!trace_next_run(trace, &run) || strcmp(run.kind, "page") != 0 || run.pid != getpid()) {
        CHECK(client_now() < end, "the trace has no page record");
        client_sleep(MS);
    }
    moved = strtoull(run.name, NULL, 10);
    CHECK(moved >= 200 * MIB && run.end - run.start >= moved / 100, "%llu bytes in %llu ns",
          (unsigned long long)moved, (unsigned long long)(run.end - run.start));
    CHECK_CU(cuMemFree(memory));
}

static void check_prefetch(const struct client *c)
{
    CUdeviceptr memory = managed_alloc(100 * MIB);
    struct managed before = managed_of(c);
    CUresult (*prefetch)(CUdeviceptr, size_t, CUdevice, CUstream);

    *(void **)&prefetch = client_symbol("cuMemPrefetchAsync");
    CHECK(prefetch, "the driver has no cuMemPrefetchAsync");
    CHECK_CU(prefetch(memory, 100 * MIB, c->device, NULL));
    CHECK_CU(cuCtxSynchronize());
    CHECK(managed_of(c).resident == before.resident + 100 * MIB, "%llu MiB after a prefetch",
          managed_of(c).resident / MIB);
    CHECK_CU(prefetch(memory, 100 * MIB, CU_DEVICE_CPU, NULL));
    CHECK_CU(cuCtxSynchronize());
    CHECK(managed_of(c).resident == before.resident, "%llu MiB after one to the host",
          managed_of(c).resident / MIB);
    CHECK_CU(cuMemFree(memory));
}

/* A process that pages for each of its kernels keeps nobody from the device, nor itself. */
static void check_others(const struct client *c, struct child *other)
{
    uint64_t start = client_now(), theirs;

    for (unsigned i = 0; i < 40; i++) /* some 30 ms of paging each */
        client_noop(c, NULL);
    client_tell(other, 1);
    client_hear(other);
    theirs = client_now() - start;
    CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY, "the other's kernel took %llu ms, all of it",
          (unsigned long long)(theirs / MS));
    CHECK_CU(cuCtxSynchronize());
}

int main(void)
{
    CUdeviceptr first, second;
    struct client c;
    struct child other;
    FILE *trace;

    client_setting("SIMCUDA_MEMORY", "1Gi");
    client_setting("SIMCUDA_CONTEXT_BYTES", "32Mi");
    client_setting("SIMCUDA_PAGE_RATE", "100G");
    other = client_fork(other_run, NULL);
    client_hear(&other);
    client_open(&c);
    trace = trace_open();
    managed_of(&c);
    if (!client_attribute(&c, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS))
        client_skip("managed memory does not move here");
    first = managed_alloc(500 * MIB);
    expect_managed(&c, 500 * MIB, 0, "allocated");
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    expect_managed(&c, 500 * MIB, 500 * MIB, "after a kernel");
    check_evicted(&c, &other);
    check_plain(&c);
    check_time(&c, trace);
    check_prefetch(&c);
    second = managed_alloc(2000 * MIB);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    check_others(&c, &other);
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSynchronize());
    CHECK(managed_of(&c).resident <= DEVICE && managed_of(&c).resident > DEVICE / 2,
          "2,500 MiB: %llu MiB on the device", managed_of(&c).resident / MIB);
    CHECK_CU(cuMemFree(second));
    CHECK_CU(cuMemFree(first));
    expect_managed(&c, 0, 0, "freed");
    client_tell(&other, 0);
    client_join_passed(&other);
    client_pass("pages came with kernels, in time, and went for others");
}
