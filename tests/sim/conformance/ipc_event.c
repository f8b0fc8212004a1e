/* Rule: an interprocess event recorded by one process holds a stream of another until its work is
 * done.
 * Source: CUDA Driver API, cuIpcGetEventHandle, cuIpcOpenEventHandle.
 */
#include "client.h"

static int owner_run(struct child *parent, void *arg)
{
    struct client c;
    CUstream stream;
    CUevent event;
    CUipcEventHandle handle;
    struct flag flag;

    (void)arg;
    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    event = client_event(CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    flag = client_flag();
    CHECK_CU(cuIpcGetEventHandle(&handle, event));
    client_wait(&c, stream, flag.device, 1);
    CHECK_CU(cuEventRecord(event, stream));
    for (size_t i = 0; i < sizeof handle; i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, handle.reserved + i, sizeof word);
        client_tell(parent, word);
    }
    client_hear(parent);
    client_raise(&flag, 1);
    CHECK_CU(cuStreamSynchronize(stream));
    client_hear(parent);
    return 0;
}

int main(void)
{
    struct child owner = client_fork(owner_run, NULL);
    struct client c;
    CUipcEventHandle handle;
    CUstream stream;
    CUevent theirs, done;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    done = client_event(CU_EVENT_DISABLE_TIMING);
    for (size_t i = 0; i < sizeof handle; i += sizeof(uint64_t)) {
        uint64_t word = client_hear(&owner);

        memcpy(handle.reserved + i, &word, sizeof word);
    }
    CHECK_CU(cuIpcOpenEventHandle(&theirs, handle));
    CHECK_CU(cuStreamWaitEvent(stream, theirs, 0));
    client_noop(&c, stream);
    CHECK_CU(cuEventRecord(done, stream));
    CHECK(!client_event_within(done, WHILE), "the stream did not wait for the other process");
    EXPECT_CU(cuEventQuery(theirs), CUDA_ERROR_NOT_READY);
    client_tell(&owner, 1);
    CHECK(client_event_within(done, SOON), "the other process's event does not come through");
    CHECK_CU(cuEventQuery(theirs));
    CHECK_CU(cuEventDestroy(theirs));
    client_tell(&owner, 1);
    client_join_passed(&owner);
    client_pass("a stream waited for an event of another process");
}
