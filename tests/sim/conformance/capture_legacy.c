/* Rule: work put into the legacy stream while a blocking stream of the context captures fails with
 * 906 and invalidates that capture; while only non-blocking streams capture it is allowed.
 * Source: CUDA Programming Guide, "Prohibited and Unhandled Operations" (legacy stream); error
 * CUDA_ERROR_STREAM_CAPTURE_IMPLICIT.
 */
#include "client.h"

static CUresult capture_beside_legacy(const struct client *c, unsigned flags, CUresult *launch)
{
    CUstream stream = client_stream(flags);
    CUgraph graph = NULL;
    CUresult end;

    CHECK_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    client_noop(c, stream);
    *launch = cuLaunchKernel(c->noop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    end = cuStreamEndCapture(stream, &graph);
    CHECK(!graph == (end != CUDA_SUCCESS), "the capture ended with %s and %s graph",
          client_error_name(end), graph ? "a" : "no");
    CHECK_CU(cuStreamDestroy(stream));
    return end;
}

int main(void)
{
    struct client c;
    CUresult launch, end;

    client_open(&c);
    end = capture_beside_legacy(&c, CU_STREAM_DEFAULT, &launch);
    EXPECT_CU(launch, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT_CU(end, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end = capture_beside_legacy(&c, CU_STREAM_NON_BLOCKING, &launch);
    CHECK_CU(launch);
    CHECK_CU(end);
    CHECK_CU(cuCtxSynchronize());
    client_pass("a launch in the legacy stream broke a blocking stream's capture only");
}
