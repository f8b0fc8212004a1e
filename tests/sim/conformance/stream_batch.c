/* Rule: cuStreamBatchMemOp does its operations in one go and in order, waits included.
 * Source: CUDA Driver API, cuStreamBatchMemOp.
 */
#include "client.h"

int main(void)
{
    struct client c;
    CUstream stream;
    struct flag gate, word;
    CUstreamBatchMemOpParams operations[2] = {0};
    CUresult error;

    client_open(&c);
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    gate = client_flag();
    word = client_flag();
    operations[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    operations[0].waitValue.address = gate.device;
    operations[0].waitValue.value = 3;
    operations[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    operations[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[1].writeValue.address = word.device;
    operations[1].writeValue.value = 9;
    error = cuStreamBatchMemOp(stream, 2, operations, 0);
    if (error == CUDA_ERROR_NOT_SUPPORTED)
        client_skip("no stream memory operations here");
    CHECK_CU(error);
    CHECK(!client_word_within(word.host, 9, WHILE), "the write went past the wait");
    client_raise(&gate, 3);
    CHECK(client_word_within(word.host, 9, SOON), "the write does not come: %u", *word.host);
    CHECK_CU(cuStreamSynchronize(stream));
    client_pass("a wait and a write of one batch came in order");
}
