/*
 * arrays: see arrays.h. Must never leave an array of its own behind, nor ask the driver in a
 * process that is not attached.
 */
#include "arrays.h"

#include "gate.h"
#include "real.h"

/* What rows of the estimate are multiples of: the texture pitch alignment that devices report. */
#define ARRAYS_PITCH 32u
/* Formats by their numbers: cuda.h has got them over the years. */
#define ARRAYS_FIRST_BLOCK 0x91 /* BC1_UNORM .. BC7_UNORM_SRGB */
#define ARRAYS_LAST_BLOCK 0x9d
#define ARRAYS_NO_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* Elements a row and bytes an element (of all its channels); block-compressed formats have rows of
 * blocks. `halves` of it are there for all planes together. */
struct arrays_format {
    unsigned bytes;
    unsigned block;  /* texels on a block's side; 1 for what is not compressed */
    unsigned halves; /* planes' samples per texel, in halves; 2 for what has one plane */
};

static struct arrays_format arrays_planes(unsigned bytes, unsigned halves)
{
    return (struct arrays_format){bytes, 1, halves};
}

/* Video formats: 4:2:0 has half as many samples again as texels, 4:2:2 twice, 4:4:4 three times. */
static struct arrays_format arrays_video(unsigned format)
{
    switch (format) {
    case 0xb0: /* NV12 */
        return arrays_planes(1, 3);
    case 0x9f: /* P010 */
    case 0xa1: /* P016 */
        return arrays_planes(2, 3);
    case 0xa2: /* NV16 */
    case 0xa5: /* YUY2, packed */
        return arrays_planes(1, 4);
    case 0xa3: /* P210 */
    case 0xa4: /* P216 */
    case 0xa6: /* Y210 */
    case 0xa7: /* Y216 */
        return arrays_planes(2, 4);
    case 0xa8: /* AYUV */
    case 0xa9: /* Y410 */
        return arrays_planes(4, 2);
    case 0xb1: /* Y416 */
        return arrays_planes(8, 2);
    case 0xb2: /* Y444_PLANAR8 */
    case 0xb4: /* YUV444_8bit_SemiPlanar */
        return arrays_planes(1, 6);
    case 0xb3: /* Y444_PLANAR10 */
    case 0xb5: /* YUV444_16bit_SemiPlanar */
        return arrays_planes(2, 6);
    default: /* not known: as much as the widest of all takes */
        return arrays_planes(16, 2);
    }
}

static struct arrays_format arrays_format(unsigned format, unsigned channels)
{
    static const unsigned char width[16] = {[1] = 1, [2] = 2, [3] = 4, [8] = 1, [9] = 2, [10] = 4};
    if (format < 16 && width[format])
        return arrays_planes(width[format] * channels, 2);
    if (format == 0x10 || format == 0x20) /* half, float */
        return arrays_planes((format == 0x10 ? 2 : 4) * channels, 2);
    if (format >= 0xc0 && format <= 0xcb) /* [US]NORM_INT{8,16}X{1,2,4} */
        return arrays_planes(
            (format - 0xc0) % 6 < 3 ? 1u << (format - 0xc0) % 3 : 2u << (format - 0xc0) % 3, 2);
    if (format == 0x50) /* UNORM_INT_101010_2 */
        return arrays_planes(4, 2);
    if (format >= ARRAYS_FIRST_BLOCK && format <= ARRAYS_LAST_BLOCK) /* BC1 and BC4 have 8 bytes */
        return (struct arrays_format){format <= 0x92 || format == 0x97 || format == 0x98 ? 8 : 16,
                                      4, 2};
    return arrays_video(format);
}

static uint64_t arrays_multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > UINT64_MAX / 2 ? UINT64_MAX / 2
                                                                              : product;
}

static uint64_t arrays_level(struct arrays_format format, uint64_t width, uint64_t height,
                             uint64_t depth)
{
    uint64_t columns = (width + format.block - 1) / format.block;
    uint64_t rows = (height + format.block - 1) / format.block;
    uint64_t pitch = arrays_multiply(columns, format.bytes);
    pitch = (pitch + ARRAYS_PITCH - 1) / ARRAYS_PITCH * ARRAYS_PITCH;
    return arrays_multiply(arrays_multiply(pitch, (rows * format.halves + 1) / 2), depth);
}

static uint64_t arrays_half(uint64_t length)
{
    return length > 1 ? length / 2 : length;
}

uint64_t arrays_estimate(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    struct arrays_format format = arrays_format((unsigned)array->Format, array->NumChannels);
    bool layers = array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t width = array->Width, bytes = 0;
    uint64_t height = array->Height ? array->Height : 1, depth = array->Depth ? array->Depth : 1;
    for (unsigned i = 0; i < levels && i < 64 && bytes < UINT64_MAX / 2; i++) {
        bytes += arrays_level(format, width, height, depth);
        width = arrays_half(width);
        height = arrays_half(height);
        depth = layers ? depth : arrays_half(depth);
    }
    return bytes < UINT64_MAX / 2 ? bytes : UINT64_MAX / 2;
}

/* Whether the current device has arrays whose memory is mapped later. */
static bool arrays_deferred(CUdevice *device)
{
    int yes = 0;
    return REAL_HAS(cuMipmappedArrayGetMemoryRequirements) &&
           real.cuCtxGetDevice(device) == CUDA_SUCCESS &&
           real.cuDeviceGetAttribute(&yes,
                                     CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
                                     *device) == CUDA_SUCCESS &&
           yes;
}

/* The driver's own answer, of an array like it without memory; 0 when it has none. */
static uint64_t arrays_ask(const CUDA_ARRAY3D_DESCRIPTOR *form, CUdevice device)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS answer = {0};
    CUarray array;
    if (real.cuArray3DCreate_v2(&array, form) != CUDA_SUCCESS)
        return 0;
    CUresult rc = real.cuArrayGetMemoryRequirements(&answer, array, device);
    real.cuArrayDestroy(array);
    return rc == CUDA_SUCCESS ? answer.size : 0;
}

static uint64_t arrays_ask_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned levels,
                                  CUdevice device)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS answer = {0};
    CUmipmappedArray array;
    if (real.cuMipmappedArrayCreate(&array, form, levels) != CUDA_SUCCESS)
        return 0;
    CUresult rc = real.cuMipmappedArrayGetMemoryRequirements(&answer, array, device);
    real.cuMipmappedArrayDestroy(array);
    return rc == CUDA_SUCCESS ? answer.size : 0;
}

static uint64_t arrays_count(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels, bool mipmap)
{
    CUdevice device;
    uint64_t bytes = 0;
    if (!array || !guest_attached() || array->Flags & ARRAYS_NO_MEMORY)
        return 0;
    CUDA_ARRAY3D_DESCRIPTOR form = *array;
    form.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    if (arrays_deferred(&device))
        bytes = mipmap ? arrays_ask_mipmap(&form, levels, device) : arrays_ask(&form, device);
    return bytes ? bytes : arrays_estimate(array, levels);
}

uint64_t arrays_bytes_3d(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    return arrays_count(array, 1, false);
}

uint64_t arrays_bytes_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    return arrays_count(array, levels, true);
}

/* What the descriptors of all kinds and versions have, and what one has besides. */
#define ARRAYS_FORM(array, ...) \
    &(CUDA_ARRAY3D_DESCRIPTOR) \
    { \
        .Width = (array)->Width, .Height = (array)->Height, .Format = (array)->Format, \
        .NumChannels = (array)->NumChannels, __VA_ARGS__ \
    }

uint64_t arrays_bytes(const CUDA_ARRAY_DESCRIPTOR *array)
{
    return array ? arrays_bytes_3d(ARRAYS_FORM(array, )) : 0;
}

uint64_t arrays_bytes_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *array)
{
    return array ? arrays_bytes_3d(ARRAYS_FORM(array, )) : 0;
}

uint64_t arrays_bytes_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *array)
{
    return array ? arrays_bytes_3d(ARRAYS_FORM(array, .Depth = array->Depth, .Flags = array->Flags))
                 : 0;
}
