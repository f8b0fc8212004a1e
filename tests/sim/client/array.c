/*
 * Arrays and mipmapped arrays: linear device memory with a form, or a form alone into which the
 * program maps memory (sparse.c). Textures do not exist here; copies to and from arrays do.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <string.h>

#include "capture.h"
#include "core.h"

enum { ALIGN = 512, TILE_ALIGN = 65536, LAYERS = 2048 };
#define ARRAY_FLAGS \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | \
     CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT | \
     CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | 0x100 /* video coding */)

struct array *array_check(CUarray handle)
{
    return object_check(handle, OBJECT_ARRAY);
}

/* --- what is allowed: the table at cuArray3DCreate, with this device's limits --- */

static bool array_in(const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, size_t width, size_t height,
                     size_t depth)
{
    return form->Width <= width && form->Height <= height && form->Depth <= depth;
}

static bool array_layers_right(const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    bool layered = form->Flags & CUDA_ARRAY3D_LAYERED;

    if (!(form->Flags & CUDA_ARRAY3D_CUBEMAP))
        return form->Depth && array_in(form, 32768, 32768, LAYERS);
    return form->Width == form->Height && form->Depth && form->Depth % 6 == 0 &&
           array_in(form, 32768, 32768, layered ? LAYERS - 2 : 6);
}

static bool array_extents_right(const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    bool surface = form->Flags & CUDA_ARRAY3D_SURFACE_LDST;

    if (form->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))
        return array_layers_right(form);
    if (form->Flags & CUDA_ARRAY3D_TEXTURE_GATHER)
        return form->Height && array_in(form, 32768, 32768, 0);
    if (form->Depth)
        return form->Height && (array_in(form, 16384, 16384, 16384) ||
                                (!surface && array_in(form, 8192, 8192, 32768)));
    if (form->Height)
        return array_in(form, 131072, 65536, 0);
    return array_in(form, surface ? 32768 : 131072, 0, 0);
}

static bool array_flags_right(const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, const struct format *format)
{
    unsigned mapped = form->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);

    if (form->Flags & ~(unsigned)ARRAY_FLAGS)
        return false;
    if (format->planes > 1 && (form->Depth || !form->Height))
        return false;
    /* What can be mapped is 2D, 2D layered or 3D. */
    return !mapped || (form->Height && !(form->Flags & CUDA_ARRAY3D_CUBEMAP) &&
                       mapped != (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) &&
                       (format->planes == 1 || mapped != CUDA_ARRAY3D_SPARSE));
}

static CUresult array_measure(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    return form->Width && format_measure(array, form) && array_extents_right(form) &&
                   array_flags_right(form, array->format)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static bool array_is_mapped(const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    return form->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

/* --- beginning and end --- */

static CUresult array_enter(struct context **context, const void *out, const void *form)
{
    CUresult result = sim_enter(context);

    if (!result && capture_active())
        result = capture_check_unsafe();
    if (!result && (!out || !form))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* Memory, or the books of what the program will map. */
static CUresult array_back(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form,
                           uint64_t bytes, CUdeviceptr *address, struct sparse **sparse)
{
    if (!array_is_mapped(form))
        return memory_take(context, bytes, ALIGN, ALLOC_ARRAY, address);
    *sparse = sparse_new(context);
    return *sparse ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult array_create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    struct array *array;
    struct context *context;
    CUresult result = array_enter(&context, out, form);

    if (result)
        return result;
    array = object_new(OBJECT_ARRAY, sizeof(*array));
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->context = context;
    result = array_measure(array, form);
    if (!result)
        result = array_back(context, form, array->bytes, &array->address, &array->sparse);
    if (result) {
        object_end(array);
        return result;
    }
    array->own = !array->sparse;
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

static CUresult array_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUdevice device,
                                   const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, uint64_t bytes)
{
    if (!out || !(form->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    memset(out, 0, sizeof(*out));
    out->size = SIM_ALIGN(bytes, ALIGN);
    out->alignment = TILE_ALIGN;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                      CUarray array, CUdevice device)
{
    const struct array *a;

    ENTRY();
    if (sim_check())
        return sim_check();
    a = array_check(array);
    if (!a)
        return CUDA_ERROR_INVALID_HANDLE;
    return a->borrowed ? CUDA_ERROR_INVALID_VALUE
                       : array_requirements(memoryRequirements, device, &a->form, a->bytes);
}

static pthread_mutex_t plane_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. A plane follows its array, which may get its memory late. */
static struct array *array_plane(struct array *whole, unsigned index)
{
    struct array measured = {0}, *plane = whole->plane[index];

    if (!format_plane(whole, index, &measured))
        return NULL;
    if (plane) {
        plane->address = measured.address;
        return plane;
    }
    plane = object_new(OBJECT_ARRAY, sizeof(*plane));
    if (!plane)
        return NULL;
    measured.object = plane->object;
    memcpy((char *)plane + sizeof(plane->object), (char *)&measured + sizeof(measured.object),
           sizeof(measured) - sizeof(measured.object));
    whole->plane[index] = plane;
    return plane;
}

CUresult cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned planeIdx)
{
    struct array *array, *plane;

    ENTRY();
    if (sim_check())
        return sim_check();
    array = array_check(hArray);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pPlaneArray || array->format->planes < 2 || planeIdx >= array->format->planes)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&plane_lock);
    plane = array_plane(array, planeIdx);
    pthread_mutex_unlock(&plane_lock);
    if (!plane)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pPlaneArray = (CUarray)plane;
    return CUDA_SUCCESS;
}

static void array_end_planes(struct array *array)
{
    for (unsigned i = 0; i < 3; i++)
        if (array->plane[i])
            object_end(array->plane[i]);
}

/* What stood behind it goes when the context's work is done. */
static CUresult array_unback(struct context *context, bool own, CUdeviceptr address,
                             struct sparse *sparse)
{
    CUresult result;

    if (!atomic_load(&context->alive))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    result = context_wait(context);
    if (sparse)
        sparse_end(sparse);
    return result || !own ? result : memory_put(address);
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
    array_end_planes(array);
    object_end(array);
    return array_unback(array->context, array->own, array->address, array->sparse);
}

/* --- mipmapped --- */

static size_t array_halve(size_t n)
{
    return n > 1 ? n / 2 : n;
}

/* Layers and faces are as many in every level. */
static void array_next_level(CUDA_ARRAY3D_DESCRIPTOR_v2 *form)
{
    form->Width = array_halve(form->Width);
    form->Height = array_halve(form->Height);
    if (!(form->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        form->Depth = array_halve(form->Depth);
}

static unsigned array_levels(const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, unsigned wanted)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 level = *form;
    unsigned most = 1;

    if (level.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP))
        level.Depth = 1;
    for (; level.Width > 1 || level.Height > 1 || level.Depth > 1; most++)
        array_next_level(&level);
    if (most > ARRAY_LEVELS)
        most = ARRAY_LEVELS;
    return wanted < 1 ? 1 : wanted > most ? most : wanted;
}

/* The levels' places from the beginning of the memory on. */
static CUresult array_measure_levels(struct mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR_v2 *base,
                                     unsigned levels)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 form = *base;
    CUresult result = CUDA_SUCCESS;

    mipmap->levels = array_levels(base, levels);
    for (unsigned i = 0; i < mipmap->levels && !result; i++) {
        struct array *level = &mipmap->level[i];

        level->context = mipmap->context;
        level->borrowed = true;
        result = array_measure(level, &form);
        mipmap->bytes += SIM_ALIGN(level->bytes, ALIGN);
        array_next_level(&form);
    }
    return result;
}

void array_place_levels(struct mipmap *mipmap)
{
    uint64_t offset = 0;

    for (unsigned i = 0; i < mipmap->levels; i++) {
        struct array *level = &mipmap->level[i];

        level->address = mipmap->address ? mipmap->address + offset : 0;
        offset += SIM_ALIGN(level->bytes, ALIGN);
    }
}

static void array_publish_levels(struct mipmap *mipmap)
{
    array_place_levels(mipmap);
    for (unsigned i = 0; i < mipmap->levels; i++)
        atomic_store(&mipmap->level[i].object.kind, OBJECT_ARRAY);
}

static struct mipmap *array_new_mipmap(struct context *context,
                                       const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, unsigned levels,
                                       CUresult *result)
{
    struct mipmap *mipmap = object_new(OBJECT_MIPMAP, sizeof(*mipmap));

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!mipmap)
        return NULL;
    mipmap->context = context;
    *result = array_measure_levels(mipmap, form, levels);
    if (!*result)
        return mipmap;
    object_end(mipmap);
    return NULL;
}

CUresult array_mipmap_at(struct context *context, CUdeviceptr address, uint64_t room,
                         const CUDA_ARRAY3D_DESCRIPTOR_v2 *form, unsigned levels,
                         struct mipmap **out)
{
    CUresult result;
    struct mipmap *mipmap = array_new_mipmap(context, form, levels, &result);

    if (!mipmap)
        return result;
    if (array_is_mapped(form) || mipmap->bytes > room) {
        object_end(mipmap);
        return CUDA_ERROR_INVALID_VALUE;
    }
    mipmap->address = address;
    array_publish_levels(mipmap);
    *out = mipmap;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned numMipmapLevels)
{
    struct context *context;
    struct mipmap *mipmap;
    CUresult result;

    ENTRY();
    result = array_enter(&context, pHandle, pMipmappedArrayDesc);
    if (result)
        return result;
    mipmap = array_new_mipmap(context, pMipmappedArrayDesc, numMipmapLevels, &result);
    if (!mipmap)
        return result;
    result =
        array_back(context, pMipmappedArrayDesc, mipmap->bytes, &mipmap->address, &mipmap->sparse);
    if (result) {
        object_end(mipmap);
        return result;
    }
    mipmap->own = !mipmap->sparse;
    array_publish_levels(mipmap);
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

CUresult array_end_mipmap(struct mipmap *mipmap)
{
    for (unsigned i = 0; i < mipmap->levels; i++) {
        array_end_planes(&mipmap->level[i]);
        atomic_store(&mipmap->level[i].object.kind, 0);
    }
    object_end(mipmap);
    return array_unback(mipmap->context, mipmap->own, mipmap->address, mipmap->sparse);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct mipmap *mipmap;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (!result && capture_active())
        result = capture_check_unsafe();
    if (result)
        return result;
    mipmap = object_check(hMipmappedArray, OBJECT_MIPMAP);
    return mipmap ? array_end_mipmap(mipmap) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    const struct mipmap *m;

    ENTRY();
    if (sim_check())
        return sim_check();
    m = object_check(mipmap, OBJECT_MIPMAP);
    return m ? array_requirements(memoryRequirements, device, &m->level[0].form, m->bytes)
             : CUDA_ERROR_INVALID_HANDLE;
}
