/* Rule: a kernel launched with the programmatic-serialization attribute may begin before the one in
 * front of it in the stream has ended, if that one allows it; an event record between the two takes
 * the overlap away.
 * Source: CUDA Programming Guide, "Programmatic Dependent Launch and Synchronization".
 * The kernel lets its successor begin at once; on the simulated device SIMCUDA_OVERLAP says when.
 */
#include "client.h"

#define LENGTH (100 * MS)

static void launch(CUfunction function, CUstream stream, bool programmatic)
{
    uint64_t ns = LENGTH;
    void *arguments[] = {&ns};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .hStream = stream};

    attribute.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = programmatic ? 1 : 0;
    CHECK_CU(cuLaunchKernelEx(&config, function, arguments, NULL));
}

/* How long two kernels take, the second with or without the attribute, with or without an event. */
static uint64_t time_pair(CUfunction function, CUstream stream, bool programmatic, bool between)
{
    CUevent event = client_event(CU_EVENT_DEFAULT);
    uint64_t start = client_now();

    launch(function, stream, false);
    if (between)
        CHECK_CU(cuEventRecord(event, stream));
    launch(function, stream, programmatic);
    CHECK_CU(cuStreamSynchronize(stream));
    return client_now() - start;
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUfunction function;
    uint64_t plain, overlapped, parted;

    client_setting("SIMCUDA_CAPACITY", "128");
    client_setting("SIMCUDA_OVERLAP", "10s");
    client_open(&c);
    function = client_load_pdl(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    time_pair(function, stream, false, false);
    plain = time_pair(function, stream, false, false);
    overlapped = time_pair(function, stream, true, false);
    parted = time_pair(function, stream, true, true);
    CHECK(plain >= 2 * LENGTH - MS, "two kernels took only %.1f ms", (double)plain / MS);
    CHECK(overlapped < LENGTH * 17 / 10, "with the attribute they took %.1f ms",
          (double)overlapped / MS);
    CHECK(parted > LENGTH * 18 / 10, "with an event between they took only %.1f ms",
          (double)parted / MS);
    client_pass("two kernels of %llu ms: %.1f ms, with the attribute %.1f, with an event between "
                "%.1f", LENGTH / MS, (double)plain / MS, (double)overlapped / MS,
                (double)parted / MS);
}
