/* Rule of the simulated device: what it has handed out to a process is told at once, memory that
 * calls asked for apart from what contexts cost; memory whose maker is gone while an importer holds
 * it is an orphan, in use and in nobody's figure; the trace's M records say the same.
 * Source: tests/sim/README.md, "Trace".
 */
#include "client.h"
#include "trace.h"

#include <inttypes.h>

#define BYTES ((size_t)64 << 20)

static int maker_run(struct child *parent, void *arg)
{
    struct client c;
    CUipcMemHandle handle;
    uint64_t words[sizeof handle / sizeof(uint64_t)];
    CUdeviceptr memory;

    (void)arg;
    client_open(&c);
    memory = client_alloc(BYTES);
    CHECK_CU(cuIpcGetMemHandle(&handle, memory));
    memcpy(words, &handle, sizeof handle);
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        client_tell(parent, words[i]);
    client_hear(parent);
    CHECK_CU(cuMemFree(memory));
    return 0;
}

static CUipcMemHandle hear_handle(const struct child *maker)
{
    CUipcMemHandle handle;
    uint64_t words[sizeof handle / sizeof(uint64_t)];

    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = client_hear(maker);
    memcpy(&handle, words, sizeof handle);
    return handle;
}

static void check_own(const struct client *c, struct handed_out base)
{
    struct handed_out now;
    CUdeviceptr memory;
    CUcontext second;
    CUresult (*create)(CUcontext *, unsigned, CUdevice);

    CHECK(!base.memory && base.context, "a new context has %llu bytes of memory, costs %llu",
          base.memory, base.context);
    memory = client_alloc(BYTES);
    now = client_handed_out(c->device);
    CHECK(now.memory == BYTES && now.context == base.context,
          "allocated %zu: memory %llu, cost %llu", BYTES, now.memory, now.context);
    *(void **)&create = client_symbol("cuCtxCreate_v2");
    CHECK(create, "the driver has no cuCtxCreate_v2");
    CHECK_CU(create(&second, 0, c->device));
    now = client_handed_out(c->device);
    CHECK(now.memory == BYTES && now.context > base.context, "two contexts: memory %llu, cost %llu",
          now.memory, now.context);
    CHECK_CU(cuCtxDestroy(second));
    CHECK_CU(cuMemFree(memory));
    now = client_handed_out(c->device);
    CHECK(!now.memory && now.context == base.context, "in the end: memory %llu, cost %llu",
          now.memory, now.context);
}

static void check_orphan(const struct client *c, struct child *maker)
{
    CUipcMemHandle handle = hear_handle(maker);
    struct handed_out now;
    CUdeviceptr memory;

    CHECK_CU(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    now = client_handed_out(c->device);
    CHECK(!now.memory && !now.orphaned, "imported: memory %llu, orphans %llu", now.memory,
          now.orphaned);
    client_tell(maker, 1);
    client_join_passed(maker);
    now = client_handed_out(c->device);
    CHECK(!now.memory && now.orphaned == BYTES, "its maker gone: memory %llu, orphans %llu",
          now.memory, now.orphaned);
    CHECK_CU(cuIpcCloseMemHandle(memory));
    now = client_handed_out(c->device);
    CHECK(!now.orphaned, "let go: orphans %llu", now.orphaned);
}

/* The last M record says what the device answers. */
static void check_trace(const struct client *c, FILE *trace)
{
    struct handed_out now = client_handed_out(c->device), last = {0};
    uint64_t end = client_now() + SOON;
    char line[1024];

    do {
        CHECK(client_now() < end, "the trace says memory %llu, cost %llu, orphans %llu",
              last.memory, last.context, last.orphaned);
        client_sleep(5 * MS);
        clearerr(trace);
        while (fgets(line, sizeof line, trace))
            if (*line == 'M')
                CHECK(sscanf(line,
                             "M\t%*u\t%*u\t%*[^\t]\t%*d\t%*[^\t]\t%*u\t%*u\t%llu\t%llu\t%llu\t%llu",
                             &last.used, &last.memory, &last.context, &last.orphaned) == 4,
                      "cannot read the trace's line: %s", line);
    } while (memcmp(&last, &now, sizeof now) != 0);
}

int main(void)
{
    struct child maker = client_fork(maker_run, NULL);
    struct client c;
    uint64_t start;
    FILE *trace;

    client_open(&c);
    trace = trace_open();
    check_orphan(&c, &maker);
    check_own(&c, client_handed_out(c.device));
    start = client_now();
    for (unsigned i = 0; i < 1000; i++)
        client_handed_out(c.device);
    start = client_now() - start;
    check_trace(&c, trace);
    client_pass("asked and traced figures agree; a question takes %.1f us", (double)start / 2e6);
}
