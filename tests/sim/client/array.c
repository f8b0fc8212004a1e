/*
 * Arrays and mipmapped arrays: linear device memory with a form. Textures do not exist here; copies
 * to and from arrays do.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>

#include "capture.h"
#include "core.h"

enum { PITCH = 32, LEVELS = 17 };

struct mipmap {
    struct object object;
    CUdeviceptr address;
    unsigned levels;
    struct array level[LEVELS];
};

struct array *array_check(CUarray handle)
{
    return object_check(handle, OBJECT_ARRAY);
}

static uint64_t array_element(CUarray_format format, unsigned channels)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return channels * 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return channels * 4;
    default:
        return 0;
    }
}

/* Fills in the form's consequences. */
static CUresult array_measure(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    array->form = *form;
    array->element = array_element(form->Format, form->NumChannels);
    array->rows = form->Height ? form->Height : 1;
    array->slices = form->Depth ? form->Depth : 1;
    array->width = form->Width;
    if (!form->Width || !array->element || (form->NumChannels & (form->NumChannels - 1)) ||
        form->NumChannels > 4 || form->Width > 131072 || array->rows > 65536 ||
        array->slices > 16384)
        return CUDA_ERROR_INVALID_VALUE;
    array->pitch = SIM_ALIGN(form->Width * array->element, PITCH);
    return CUDA_SUCCESS;
}

static uint64_t array_bytes(const struct array *array)
{
    return array->pitch * array->rows * array->slices;
}

static CUresult array_enter(struct context **context, const void *out, const void *form)
{
    CUresult result = sim_enter(context);

    if (!result && capture_active())
        result = capture_check_unsafe();
    if (!result && (!out || !form))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

static CUresult array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    struct array measured = {0}, *array;
    CUdeviceptr address;
    CUresult result = array_enter(&measured.context, out, form);

    if (!result)
        result = array_measure(&measured, form);
    if (!result)
        result = memory_take(measured.context, array_bytes(&measured), 512, ALLOC_ARRAY, &address);
    if (result)
        return result;
    array = object_new(OBJECT_ARRAY, sizeof(*array));
    if (!array) {
        memory_put(address);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    measured.object = array->object;
    memcpy((char *)array + sizeof(array->object), (char *)&measured + sizeof(measured.object),
           sizeof(measured) - sizeof(measured.object));
    array->address = address;
    *out = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 form = {0};

    ENTRY();
    if (pAllocateArray) {
        form.Width = pAllocateArray->Width;
        form.Height = pAllocateArray->Height;
        form.Format = pAllocateArray->Format;
        form.NumChannels = pAllocateArray->NumChannels;
    }
    return array_create(pHandle, pAllocateArray ? &form : NULL);
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    ENTRY();
    return array_create(pHandle, pAllocateArray);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    const struct array *array;

    ENTRY();
    if (sim_check())
        return sim_check();
    array = array_check(hArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    pArrayDescriptor->Width = array->form.Width;
    pArrayDescriptor->Height = array->form.Height;
    pArrayDescriptor->Format = array->form.Format;
    pArrayDescriptor->NumChannels = array->form.NumChannels;
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    const struct array *array;

    ENTRY();
    if (sim_check())
        return sim_check();
    array = array_check(hArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = array->form;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                      CUarray array, CUdevice device)
{
    const struct array *a;

    ENTRY();
    (void)device;
    if (sim_check())
        return sim_check();
    a = array_check(array);
    if (!a)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!memoryRequirements)
        return CUDA_ERROR_INVALID_VALUE;
    memset(memoryRequirements, 0, sizeof(*memoryRequirements));
    memoryRequirements->size = array_bytes(a);
    memoryRequirements->alignment = 512;
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray hArray)
{
    struct array *array;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (result)
        return result;
    array = array_check(hArray);
    if (!array || array->borrowed)
        return CUDA_ERROR_INVALID_HANDLE;
    object_end(array);
    if (!atomic_load(&array->context->alive))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    result = context_wait(array->context);
    return result ? result : memory_put(array->address);
}

/* --- mipmapped --- */

static size_t array_halve(size_t n)
{
    return n > 1 ? n / 2 : n;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned numMipmapLevels)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 form;
    struct context *context;
    struct mipmap *mipmap;
    uint64_t bytes = 0;
    CUresult result;

    ENTRY();
    result = array_enter(&context, pHandle, pMipmappedArrayDesc);
    if (result)
        return result;
    mipmap = object_new(OBJECT_MIPMAP, sizeof(*mipmap));
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    form = *pMipmappedArrayDesc;
    mipmap->levels = numMipmapLevels < LEVELS ? numMipmapLevels : LEVELS;
    for (unsigned i = 0; i < mipmap->levels && !result; i++) {
        struct array *level = &mipmap->level[i];

        level->context = context;
        level->borrowed = true;
        level->address = bytes;
        result = array_measure(level, &form);
        bytes += SIM_ALIGN(array_bytes(level), 512);
        form.Width = array_halve(form.Width);
        form.Height = array_halve(form.Height);
        form.Depth = array_halve(form.Depth);
    }
    if (!result)
        result = bytes ? memory_take(context, bytes, 512, ALLOC_ARRAY, &mipmap->address)
                       : CUDA_ERROR_INVALID_VALUE;
    if (result) {
        object_end(mipmap);
        return result;
    }
    for (unsigned i = 0; i < mipmap->levels; i++) {
        mipmap->level[i].address += mipmap->address;
        atomic_store(&mipmap->level[i].object.kind, OBJECT_ARRAY);
    }
    *pHandle = (CUmipmappedArray)mipmap;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned level)
{
    struct mipmap *mipmap;

    ENTRY();
    if (sim_check())
        return sim_check();
    mipmap = object_check(hMipmappedArray, OBJECT_MIPMAP);
    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pLevelArray || level >= mipmap->levels)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = (CUarray)&mipmap->level[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct context *context;
    struct mipmap *mipmap;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (result)
        return result;
    mipmap = object_check(hMipmappedArray, OBJECT_MIPMAP);
    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    context = mipmap->level[0].context;
    for (unsigned i = 0; i < mipmap->levels; i++)
        atomic_store(&mipmap->level[i].object.kind, 0);
    object_end(mipmap);
    if (!atomic_load(&context->alive))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    result = context_wait(context);
    return result ? result : memory_put(mipmap->address);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    const struct mipmap *m;

    ENTRY();
    (void)device;
    if (sim_check())
        return sim_check();
    m = object_check(mipmap, OBJECT_MIPMAP);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!memoryRequirements)
        return CUDA_ERROR_INVALID_VALUE;
    memset(memoryRequirements, 0, sizeof(*memoryRequirements));
    for (unsigned i = 0; i < m->levels; i++)
        memoryRequirements->size += SIM_ALIGN(array_bytes(&m->level[i]), 512);
    memoryRequirements->alignment = 512;
    return CUDA_SUCCESS;
}
