/* Rule: a launch returns before its kernel has run; a synchronise returns after it; the events
 * around it tell about the time that the kernel took.
 * Source: CUDA Programming Guide, "Asynchronous Concurrent Execution" and "Events".
 */
#include "client.h"

#define LENGTH (200 * MS)

int main(void)
{
    struct client c;
    CUstream stream;
    CUevent start, end;
    uint64_t before, launched, done;
    double ms;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    start = client_event(CU_EVENT_DEFAULT);
    end = client_event(CU_EVENT_DEFAULT);
    client_spin(&c, stream, MS);
    CHECK_CU(cuStreamSynchronize(stream));

    before = client_now();
    CHECK_CU(cuEventRecord(start, stream));
    client_spin(&c, stream, LENGTH);
    CHECK_CU(cuEventRecord(end, stream));
    launched = client_now() - before;
    CHECK_CU(cuStreamSynchronize(stream));
    done = client_now() - before;
    ms = client_elapsed_ms(start, end);

    CHECK(launched < LENGTH / 2, "the launch took %.3f ms", (double)launched / MS);
    CHECK(done >= LENGTH - MS, "the synchronise returned after %.3f ms", (double)done / MS);
    CHECK(done < LENGTH + SECOND, "the synchronise returned after %.3f ms", (double)done / MS);
    CHECK(ms > (double)LENGTH / MS - 1 && ms < (double)done / MS + 1, "elapsed time %.3f ms", ms);
    client_pass("launch %.3f ms, kernel %.3f ms by events, %.3f ms to the synchronise",
                (double)launched / MS, ms, (double)done / MS);
}
