/* Rule: an array takes the bytes of its elements, blocks of 4 x 4 or planes, times layers, faces or
 * slices, and all its mip levels; forms that the manual rules out are refused and take nothing.
 * Source: CUDA Driver API, cuArray3DCreate and cuMipmappedArrayCreate (formats, channels, extents);
 * Khronos Data Format Specification (bytes of BC blocks).
 */
#include "client.h"

#define MIB ((size_t)1 << 20)
#define SIDE ((size_t)2048)

static const struct {
    int format;
    unsigned channels, bits; /* per element, all planes together */
} formats[] = {
    {0x01, 1, 8},   {0x01, 2, 16}, {0x01, 4, 32},  {0x02, 1, 16},  {0x02, 4, 64}, {0x03, 1, 32},
    {0x03, 4, 128}, {0x08, 2, 16}, {0x09, 2, 32},  {0x0a, 4, 128}, {0x10, 1, 16}, {0x10, 4, 64},
    {0x20, 1, 32},  {0x20, 2, 64}, {0x20, 4, 128}, {0xc0, 1, 8},   {0xc1, 2, 16}, {0xc2, 4, 32},
    {0xc3, 1, 16},  {0xc4, 2, 32}, {0xc5, 4, 64},  {0xc6, 1, 8},   {0xc7, 2, 16}, {0xc8, 4, 32},
    {0xc9, 1, 16},  {0xca, 2, 32}, {0xcb, 4, 64},  {0x91, 4, 4},   {0x92, 4, 4},  {0x93, 4, 8},
    {0x94, 4, 8},   {0x95, 4, 8},  {0x96, 4, 8},   {0x97, 1, 4},   {0x98, 1, 4},  {0x99, 2, 8},
    {0x9a, 2, 8},   {0x9b, 3, 8},  {0x9c, 3, 8},   {0x9d, 4, 8},   {0x9e, 4, 8},  {0xb0, 3, 12},
    {0x9f, 3, 24},  {0xa1, 3, 24}, {0xa2, 3, 16},  {0xa3, 3, 32},  {0xa4, 3, 32}, {0xa5, 2, 16},
    {0xa6, 2, 32},  {0xa7, 2, 32}, {0xa8, 4, 32},  {0xa9, 4, 32},  {0xb1, 4, 64}, {0xb2, 3, 24},
    {0xb3, 3, 48},  {0xb4, 3, 24}, {0xb5, 3, 48},  {0x50, 4, 32},
};

static bool simulated;

static CUDA_ARRAY3D_DESCRIPTOR form_of(int format, unsigned channels, size_t width, size_t height,
                                       size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                     .Height = height,
                                     .Depth = depth,
                                     .Format = (CUarray_format)format,
                                     .NumChannels = channels,
                                     .Flags = flags};
}

/* The simulator's figure is exact; hardware may take up to an eighth and some steps more. */
static void check_taken(size_t before, size_t bytes, const char *what, int format)
{
    size_t taken = before - client_free_bytes();

    CHECK(taken >= bytes, "%s of format %#x: %zu bytes taken for %zu", what, (unsigned)format,
          taken, bytes);
    CHECK(taken <= (simulated ? bytes : bytes + bytes / 8 + 8 * MIB),
          "%s of format %#x: %zu bytes taken for %zu", what, (unsigned)format, taken, bytes);
}

static unsigned check_formats(void)
{
    unsigned known = 0;

    for (unsigned i = 0; i < sizeof formats / sizeof *formats; i++) {
        CUDA_ARRAY3D_DESCRIPTOR form =
            form_of(formats[i].format, formats[i].channels, SIDE, SIDE, 0, 0);
        size_t before = client_free_bytes();
        CUarray array;
        CUresult error = cuArray3DCreate(&array, &form);

        if (error && !simulated)
            continue; /* older drivers and devices lack some */
        CHECK_CU(error);
        known++;
        check_taken(before, SIDE * SIDE * formats[i].bits / 8, "an array", formats[i].format);
        CHECK_CU(cuArrayDestroy(array));
        CHECK(client_free_bytes() >= before || !simulated, "format %#x leaves something behind",
              (unsigned)formats[i].format);
    }
    return known;
}

static void check_shapes(void)
{
    static const struct {
        const char *name;
        size_t width, height, depth;
        unsigned flags;
        size_t elements;
    } shapes[] = {
        {"a row", 131072, 0, 0, 0, 131072},
        {"a box", 128, 128, 64, 0, 128 * 128 * 64},
        {"layers", 256, 256, 20, CUDA_ARRAY3D_LAYERED, 256 * 256 * 20},
        {"layers of rows", 4096, 0, 100, CUDA_ARRAY3D_LAYERED, 4096 * 100},
        {"a cube", 512, 512, 6, CUDA_ARRAY3D_CUBEMAP, 512 * 512 * 6},
        {"cubes", 256, 256, 18, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED, 256 * 256 * 18},
        {"a surface", 1024, 1024, 0, CUDA_ARRAY3D_SURFACE_LDST, 1024 * 1024},
        {"a gathered one", 1024, 1024, 0, CUDA_ARRAY3D_TEXTURE_GATHER, 1024 * 1024},
        {"depth values", 1024, 1024, 0, CUDA_ARRAY3D_DEPTH_TEXTURE, 1024 * 1024},
    };

    for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        CUDA_ARRAY3D_DESCRIPTOR form = form_of(0x20, 1, shapes[i].width, shapes[i].height,
                                               shapes[i].depth, shapes[i].flags),
                                found;
        size_t before = client_free_bytes();
        CUarray array;

        CHECK_CU(cuArray3DCreate(&array, &form));
        if (simulated || shapes[i].elements >= 8 * MIB)
            check_taken(before, shapes[i].elements * 4, shapes[i].name, 0x20);
        CHECK_CU(cuArray3DGetDescriptor(&found, array));
        CHECK(found.Depth == shapes[i].depth && found.Flags == shapes[i].flags, "%s: depth %zu",
              shapes[i].name, found.Depth);
        CHECK_CU(cuArrayDestroy(array));
    }
}

static void check_levels(void)
{
    CUDA_ARRAY3D_DESCRIPTOR form = form_of(0x20, 4, SIDE, SIDE, 0, 0), found;
    size_t before = client_free_bytes(), bytes = 0;
    CUmipmappedArray mipmap;
    CUarray level;

    for (size_t side = SIDE; side; side /= 2) /* short rows are padded: a hundred bytes or two */
        bytes += side * side * 16;
    CHECK_CU(cuMipmappedArrayCreate(&mipmap, &form, 100));
    CHECK(before - client_free_bytes() >= bytes, "all levels: %zu bytes taken for %zu",
          before - client_free_bytes(), bytes);
    CHECK(before - client_free_bytes() <= bytes + (simulated ? 8192 : bytes / 2 + 8 * MIB),
          "all levels: %zu bytes taken for %zu", before - client_free_bytes(), bytes);
    CHECK_CU(cuMipmappedArrayGetLevel(&level, mipmap, 11));
    CHECK_CU(cuArray3DGetDescriptor(&found, level));
    CHECK(found.Width == 1 && found.Height == 1, "the last level is %zu x %zu", found.Width,
          found.Height);
    EXPECT_CU(cuMipmappedArrayGetLevel(&level, mipmap, 12), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMipmappedArrayDestroy(mipmap));
    form = form_of(0x01, 4, 256, 256, 12, CUDA_ARRAY3D_LAYERED);
    CHECK_CU(cuMipmappedArrayCreate(&mipmap, &form, 4));
    CHECK_CU(cuMipmappedArrayGetLevel(&level, mipmap, 3));
    CHECK_CU(cuArray3DGetDescriptor(&found, level));
    CHECK(found.Width == 32 && found.Depth == 12, "the fourth level has %zu layers", found.Depth);
    CHECK_CU(cuMipmappedArrayDestroy(mipmap));
}

static void check_refused(void)
{
    CUDA_ARRAY3D_DESCRIPTOR wrong[] = {
        form_of(0x20, 1, 0, 16, 0, 0),
        form_of(0x20, 3, 16, 16, 0, 0),
        form_of(0x77, 1, 16, 16, 0, 0),
        form_of(0x20, 1, 16, 8, 6, CUDA_ARRAY3D_CUBEMAP),
        form_of(0x20, 1, 16, 16, 5, CUDA_ARRAY3D_CUBEMAP),
        form_of(0x20, 1, 16, 16, 7, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
        form_of(0x20, 1, 16, 16, 0, CUDA_ARRAY3D_LAYERED),
        form_of(0x20, 1, 16, 0, 16, 0),
        form_of(0x20, 1, 16, 0, 0, CUDA_ARRAY3D_TEXTURE_GATHER),
        form_of(0x20, 1, (size_t)1 << 20, 16, 0, 0),
    };
    size_t before = client_free_bytes();

    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CUarray array = (CUarray)1;
        CUresult error = cuArray3DCreate(&array, &wrong[i]);

        CHECK(error == CUDA_ERROR_INVALID_VALUE && array == (CUarray)1, "wrong form %u: %s", i,
              client_error_name(error));
    }
    CHECK(client_free_bytes() == before, "refused arrays took memory");
}

int main(void)
{
    struct client c;
    unsigned known;

    client_open(&c);
    simulated = client_symbol("simcudaHandedOut") != NULL;
    known = check_formats();
    check_shapes();
    check_levels();
    check_refused();
    client_pass("%u formats, and layers, cubes and levels, took what they must", known);
}
