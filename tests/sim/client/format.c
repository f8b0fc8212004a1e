/*
 * The formats of arrays: how many bytes an element has, or a block of elements, or each plane of
 * a picture. From it follows what an array takes: in each plane rows of units (elements, or blocks
 * of 4 x 4), each row aligned to 32 bytes, times rows and slices; planes start at multiples of 512
 * bytes. Numbers instead of names where older headers lack the name. Any thread, no lock.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "core.h"

enum { PITCH = 32, PLANE = 512 };

#define PACKED(id, bytes) \
    { \
        id, 0, 1, 1, {{bytes, 0, 0}}, 0 \
    }
#define FIXED(id, channels, bytes) \
    { \
        id, channels, 1, 1, {{bytes, 0, 0}}, 0 \
    }
#define BLOCKS(id, channels, bytes) \
    { \
        id, channels, 4, 1, {{bytes, 0, 0}}, 0 \
    }
/* A plane of full size and one of pairs, smaller by these shifts. */
#define SEMI(id, bytes, x, y, of) \
    { \
        id, FORMAT_ANY, 1, 2, {{bytes, 0, 0}, {2 * bytes, x, y}}, of \
    }
#define PLANAR(id, bytes, of) \
    { \
        id, 3, 1, 3, {{bytes, 0, 0}, {bytes, 0, 0}, {bytes, 0, 0}}, of \
    }
enum { FORMAT_ANY = 255 };

static const struct format formats[] = {
    PACKED(CU_AD_FORMAT_UNSIGNED_INT8, 1),
    PACKED(CU_AD_FORMAT_UNSIGNED_INT16, 2),
    PACKED(CU_AD_FORMAT_UNSIGNED_INT32, 4),
    PACKED(CU_AD_FORMAT_SIGNED_INT8, 1),
    PACKED(CU_AD_FORMAT_SIGNED_INT16, 2),
    PACKED(CU_AD_FORMAT_SIGNED_INT32, 4),
    PACKED(CU_AD_FORMAT_HALF, 2),
    PACKED(CU_AD_FORMAT_FLOAT, 4),
    FIXED(CU_AD_FORMAT_UNORM_INT8X1, 1, 1),
    FIXED(CU_AD_FORMAT_UNORM_INT8X2, 2, 2),
    FIXED(CU_AD_FORMAT_UNORM_INT8X4, 4, 4),
    FIXED(CU_AD_FORMAT_UNORM_INT16X1, 1, 2),
    FIXED(CU_AD_FORMAT_UNORM_INT16X2, 2, 4),
    FIXED(CU_AD_FORMAT_UNORM_INT16X4, 4, 8),
    FIXED(CU_AD_FORMAT_SNORM_INT8X1, 1, 1),
    FIXED(CU_AD_FORMAT_SNORM_INT8X2, 2, 2),
    FIXED(CU_AD_FORMAT_SNORM_INT8X4, 4, 4),
    FIXED(CU_AD_FORMAT_SNORM_INT16X1, 1, 2),
    FIXED(CU_AD_FORMAT_SNORM_INT16X2, 2, 4),
    FIXED(CU_AD_FORMAT_SNORM_INT16X4, 4, 8),
    BLOCKS(CU_AD_FORMAT_BC1_UNORM, 4, 8),
    BLOCKS(CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 8),
    BLOCKS(CU_AD_FORMAT_BC2_UNORM, 4, 16),
    BLOCKS(CU_AD_FORMAT_BC2_UNORM_SRGB, 4, 16),
    BLOCKS(CU_AD_FORMAT_BC3_UNORM, 4, 16),
    BLOCKS(CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 16),
    BLOCKS(CU_AD_FORMAT_BC4_UNORM, 1, 8),
    BLOCKS(CU_AD_FORMAT_BC4_SNORM, 1, 8),
    BLOCKS(CU_AD_FORMAT_BC5_UNORM, 2, 16),
    BLOCKS(CU_AD_FORMAT_BC5_SNORM, 2, 16),
    BLOCKS(CU_AD_FORMAT_BC6H_UF16, 3, 16),
    BLOCKS(CU_AD_FORMAT_BC6H_SF16, 3, 16),
    BLOCKS(CU_AD_FORMAT_BC7_UNORM, 4, 16),
    BLOCKS(CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 16),
    SEMI(CU_AD_FORMAT_NV12, 1, 1, 1, CU_AD_FORMAT_UNSIGNED_INT8),
    SEMI(0x9f /* P010 */, 2, 1, 1, CU_AD_FORMAT_UNSIGNED_INT16),
    SEMI(0xa1 /* P016 */, 2, 1, 1, CU_AD_FORMAT_UNSIGNED_INT16),
    SEMI(0xa2 /* NV16 */, 1, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8),
    SEMI(0xa3 /* P210 */, 2, 1, 0, CU_AD_FORMAT_UNSIGNED_INT16),
    SEMI(0xa4 /* P216 */, 2, 1, 0, CU_AD_FORMAT_UNSIGNED_INT16),
    FIXED(0xa5 /* YUY2 */, 2, 2),
    FIXED(0xa6 /* Y210 */, 2, 4),
    FIXED(0xa7 /* Y216 */, 2, 4),
    FIXED(0xa8 /* AYUV */, 4, 4),
    FIXED(0xa9 /* Y410 */, FORMAT_ANY, 4),
    FIXED(0xb1 /* Y416 */, 4, 8),
    PLANAR(0xb2 /* Y444_PLANAR8 */, 1, CU_AD_FORMAT_UNSIGNED_INT8),
    PLANAR(0xb3 /* Y444_PLANAR10 */, 2, CU_AD_FORMAT_UNSIGNED_INT16),
    SEMI(0xb4 /* YUV444_8bit_SemiPlanar */, 1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8),
    SEMI(0xb5 /* YUV444_16bit_SemiPlanar */, 2, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16),
    FIXED(0x50 /* UNORM_INT_101010_2 */, 4, 4),
};

const struct format *format_find(unsigned id, unsigned channels)
{
    for (unsigned i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        const struct format *format = &formats[i];

        if (format->id != id)
            continue;
        if (format->channels == FORMAT_ANY)
            return channels >= 1 && channels <= 4 ? format : NULL;
        if (format->channels)
            return channels == format->channels ? format : NULL;
        return channels == 1 || channels == 2 || channels == 4 ? format : NULL;
    }
    return NULL;
}

uint64_t format_unit(const struct format *format, unsigned plane, unsigned channels)
{
    return format->plane[plane].bytes * (format->channels ? 1u : channels);
}

static uint64_t format_shrink(uint64_t n, unsigned shift)
{
    return (n + (UINT64_C(1) << shift) - 1) >> shift;
}

uint64_t format_bytes(const struct array *array)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < array->format->planes; i++) {
        uint64_t width = format_shrink(array->width, array->format->plane[i].shift_x);
        uint64_t rows = format_shrink(array->rows, array->format->plane[i].shift_y);
        uint64_t unit = format_unit(array->format, i, array->form.NumChannels);

        bytes = SIM_ALIGN(bytes, PLANE);
        bytes += SIM_ALIGN(width * unit, PITCH) * rows * array->slices;
    }
    return bytes;
}

bool format_measure(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    const struct format *format = format_find(form->Format, form->NumChannels);

    if (!format)
        return false;
    array->format = format;
    array->form = *form;
    array->element = format_unit(format, 0, form->NumChannels);
    array->width = (form->Width + format->block - 1) / format->block;
    array->rows = form->Height ? (form->Height + format->block - 1) / format->block : 1;
    array->slices = form->Depth ? form->Depth : 1;
    array->pitch = SIM_ALIGN(array->width * array->element, PITCH);
    array->bytes = format_bytes(array);
    return true;
}

bool format_plane(const struct array *whole, unsigned plane, struct array *out)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 form = whole->form;
    const struct format *format = whole->format;
    uint64_t offset = 0;

    for (unsigned i = 0; i < plane; i++) {
        struct array before;

        if (!format_plane(whole, i, &before))
            return false;
        offset = SIM_ALIGN(offset + before.bytes, PLANE);
    }
    form.Format = (CUarray_format)format->plane_format;
    form.NumChannels =
        format->plane[plane].bytes / (form.Format == CU_AD_FORMAT_UNSIGNED_INT8 ? 1u : 2u);
    form.Width = format_shrink(form.Width, format->plane[plane].shift_x);
    form.Height = format_shrink(form.Height, format->plane[plane].shift_y);
    out->context = whole->context;
    out->address = whole->address ? whole->address + offset : 0;
    out->borrowed = true;
    return format_measure(out, &form);
}
