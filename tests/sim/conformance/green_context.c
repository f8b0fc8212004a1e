/* Rule: the multiprocessors of a device can be split into equal parts and a rest; a green context
 * has a context handle of its own, shares the primary context's memory and kernels, and has
 * non-blocking streams of its own.
 * Source: CUDA Driver API, "Green Contexts", cuDevSmResourceSplitByCount, cuStreamGetGreenCtx.
 */
#include "client.h"

static struct client c;
static CUdevResource whole, parts[2], rest;

static void split(void)
{
    unsigned count = 0, most;

    CHECK_CU(cuDeviceGetDevResource(c.device, &whole, CU_DEV_RESOURCE_TYPE_SM));
    CHECK((int)whole.sm.smCount ==
              client_attribute(&c, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
          "the device has %u multiprocessors", whole.sm.smCount);
    CHECK_CU(cuDevSmResourceSplitByCount(NULL, &count, &whole, NULL, 0, 16));
    CHECK(count >= 1 && count <= whole.sm.smCount / 16, "%u parts of 16", count);
    most = count;
    count = 2;
    EXPECT_CU(cuDevSmResourceSplitByCount(parts, &count, &whole, &rest, 0, whole.sm.smCount + 1),
              CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuDevSmResourceSplitByCount(parts, &count, &whole, &rest, 0, 16));
    CHECK(count == (most < 2 ? most : 2), "%u parts", count);
    CHECK(parts[0].sm.smCount >= 16 && parts[0].sm.smCount % 2 == 0 &&
              count * parts[0].sm.smCount + rest.sm.smCount == whole.sm.smCount,
          "%u parts of %u and %u left", count, parts[0].sm.smCount, rest.sm.smCount);
}

static CUgreenCtx make(CUdevResource *resource)
{
    CUdevResourceDesc descriptor;
    CUgreenCtx green;

    CHECK_CU(cuDevResourceGenerateDesc(&descriptor, resource, 1));
    EXPECT_CU(cuGreenCtxCreate(&green, descriptor, c.device, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuGreenCtxCreate(&green, descriptor, c.device, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

/* What the streams that are made while the green context is current belong to. */
static void check_view(CUgreenCtx green, CUcontext view)
{
    CUgreenCtx of = NULL;
    CUcontext current;
    CUstream stream;

    CHECK(view != c.context, "the green context's handle is the primary context's");
    CHECK_CU(cuCtxPushCurrent(view));
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK(current == view, "another context is current than the one set");
    stream = client_stream(CU_STREAM_NON_BLOCKING);
    CHECK_CU(cuStreamGetGreenCtx(stream, &of));
    CHECK(of == green, "a stream made in the green context is not its own");
    of = NULL;
    CHECK_CU(cuStreamGetGreenCtx(NULL, &of));
    CHECK(of == green, "the default stream is not the green context's");
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuCtxPopCurrent(&current));
    CHECK(current == view, "another context came off the stack than was put there");
    CHECK_CU(cuStreamGetGreenCtx(NULL, &of));
    CHECK(!of, "the primary context's default stream is a green context's");
}

static void check_work(CUgreenCtx green, CUcontext view)
{
    CUdeviceptr device, word = client_alloc(4);
    uint32_t *seen = client_pinned(4, &device);
    CUgreenCtx of = NULL;
    CUcontext context;
    CUstream stream;
    unsigned flags;

    EXPECT_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0),
              CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CHECK_CU(cuStreamGetFlags(stream, &flags));
    CHECK(flags == CU_STREAM_NON_BLOCKING, "the stream's flags are %u", flags);
    CHECK_CU(cuStreamGetGreenCtx(stream, &of));
    CHECK_CU(cuStreamGetCtx(stream, &context));
    CHECK(of == green && context == view, "the stream does not know its green context");
    client_set(&c, stream, word, 7);
    CHECK_CU(cuMemcpyDtoHAsync(seen, word, 4, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK(*seen == 7, "the word is %u", *seen);
    CHECK_CU(cuStreamDestroy(stream));
}

int main(void)
{
    CUdevResource of;
    CUcontext view;
    CUgreenCtx green;

    client_open(&c);
    if (!client_symbol("cuGreenCtxStreamCreate"))
        client_skip("the driver has no streams of green contexts");
    split();
    green = make(&parts[0]);
    CHECK_CU(cuGreenCtxGetDevResource(green, &of, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(of.sm.smCount == parts[0].sm.smCount, "%u multiprocessors", of.sm.smCount);
    CHECK_CU(cuCtxFromGreenCtx(&view, green));
    CHECK_CU(cuCtxGetDevResource(view, &of, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(of.sm.smCount == parts[0].sm.smCount, "%u of them in its context", of.sm.smCount);
    CHECK_CU(cuCtxGetDevResource(c.context, &of, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(of.sm.smCount == whole.sm.smCount, "%u in the primary context", of.sm.smCount);
    check_view(green, view);
    check_work(green, view);
    CHECK_CU(cuGreenCtxDestroy(green));
    client_pass("%u multiprocessors split; work in a part saw the primary context's memory",
                whole.sm.smCount);
}
