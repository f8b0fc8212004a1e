/* Rule of the simulated driver: launches, records, queries and stream writes cost the host the time
 * that SIMCUDA_*_COST says. Skipped on hardware.
 * Source: tests/sim/README.md, settings; on hardware a launch costs 1.3 to 6 us (public figures).
 */
#include "client.h"
#include "trace.h"

#define CALLS 100

static uint64_t since(uint64_t *mark)
{
    uint64_t now = client_now(), gone = now - *mark;

    *mark = now;
    return gone;
}

int main(void)
{
    struct client c;
    CUstream stream;
    CUevent event;
    struct flag word;
    uint64_t mark, launches, records, queries, writes;

    client_setting("SIMCUDA_LAUNCH_COST", "50us");
    client_setting("SIMCUDA_RECORD_COST", "40us");
    client_setting("SIMCUDA_QUERY_COST", "30us");
    client_setting("SIMCUDA_WRITE_COST", "20us");
    client_open(&c);
    fclose(trace_open());
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    event = client_event(CU_EVENT_DISABLE_TIMING);
    word = client_flag();
    mark = client_now();
    for (int i = 0; i < CALLS; i++)
        client_noop(&c, stream);
    launches = since(&mark);
    for (int i = 0; i < CALLS; i++)
        CHECK_CU(cuEventRecord(event, stream));
    records = since(&mark);
    for (int i = 0; i < CALLS; i++)
        (void)cuEventQuery(event);
    queries = since(&mark);
    for (int i = 0; i < CALLS; i++)
        CHECK_CU(cuStreamWriteValue32(stream, word.device, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    writes = since(&mark);
    CHECK(launches >= CALLS * 50000, "%d launches took %.3f ms", CALLS, (double)launches / MS);
    CHECK(records >= CALLS * 40000, "%d records took %.3f ms", CALLS, (double)records / MS);
    CHECK(queries >= CALLS * 30000, "%d queries took %.3f ms", CALLS, (double)queries / MS);
    CHECK(writes >= CALLS * 20000, "%d writes took %.3f ms", CALLS, (double)writes / MS);
    CHECK_CU(cuStreamSynchronize(stream));
    client_pass("%d launches %.1f ms, records %.1f, queries %.1f, writes %.1f", CALLS,
                (double)launches / MS, (double)records / MS, (double)queries / MS,
                (double)writes / MS);
}
