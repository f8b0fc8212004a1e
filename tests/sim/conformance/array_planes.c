/* Rule: the planes of an NV12 picture are arrays over its memory: 8-bit ones of one channel and
 * full size, and of two channels and half the width and height; they take nothing and end with it.
 * Source: CUDA Driver API, cuArrayGetPlane.
 */
#include "client.h"

enum { WIDTH = 256, HEIGHT = 128 };

static void copy_plane(CUarray plane, uint8_t *bytes, size_t width, size_t height, bool in)
{
    CUDA_MEMCPY2D copy = {.WidthInBytes = width, .Height = height};

    copy.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    copy.dstMemoryType = in ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    copy.srcHost = copy.dstHost = bytes;
    copy.srcArray = copy.dstArray = plane;
    copy.srcPitch = copy.dstPitch = width;
    CHECK_CU(cuMemcpy2D(&copy));
}

static CUarray plane_of(CUarray picture, unsigned index, size_t width, size_t height,
                        unsigned channels)
{
    CUDA_ARRAY_DESCRIPTOR form;
    CUarray plane;

    CHECK_CU(cuArrayGetPlane(&plane, picture, index));
    CHECK_CU(cuArrayGetDescriptor(&form, plane));
    CHECK(form.Width == width && form.Height == height && form.NumChannels == channels &&
              form.Format == CU_AD_FORMAT_UNSIGNED_INT8,
          "plane %u is %zu x %zu of %u channels", index, form.Width, form.Height, form.NumChannels);
    return plane;
}

int main(void)
{
    static uint8_t bright[WIDTH * HEIGHT], colour[WIDTH * HEIGHT / 2], found[WIDTH * HEIGHT];
    CUDA_ARRAY3D_DESCRIPTOR form = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_NV12, .NumChannels = 3};
    CUDA_ARRAY_DESCRIPTOR plain = {
        .Width = 16, .Height = 16, .NumChannels = 1, .Format = CU_AD_FORMAT_FLOAT};
    CUarray picture, planes[2], other;
    size_t before, after, total;
    struct client c;

    client_open(&c);
    CHECK_CU(cuArray3DCreate(&picture, &form));
    CHECK_CU(cuMemGetInfo(&before, &total));
    planes[0] = plane_of(picture, 0, WIDTH, HEIGHT, 1);
    planes[1] = plane_of(picture, 1, WIDTH / 2, HEIGHT / 2, 2);
    CHECK_CU(cuMemGetInfo(&after, &total));
    CHECK(after == before, "planes take memory");
    memset(bright, 0x11, sizeof bright);
    memset(colour, 0x22, sizeof colour);
    copy_plane(planes[0], bright, WIDTH, HEIGHT, true);
    copy_plane(planes[1], colour, WIDTH, HEIGHT / 2, true);
    copy_plane(planes[0], found, WIDTH, HEIGHT, false);
    CHECK(!memcmp(found, bright, sizeof bright), "the first plane was overwritten");
    copy_plane(planes[1], found, WIDTH, HEIGHT / 2, false);
    CHECK(!memcmp(found, colour, sizeof colour), "the second plane holds something else");
    EXPECT_CU(cuArrayGetPlane(&other, picture, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuArrayDestroy(picture));
    CHECK_CU(cuArrayCreate(&picture, &plain));
    EXPECT_CU(cuArrayGetPlane(&other, picture, 0), CUDA_ERROR_INVALID_VALUE);
    client_pass("two planes over one picture's memory");
}
