/*
 * What a program maps into arrays that have no memory of their own: tiles of 64 KiB into sparse
 * ones, one piece into those of deferred mapping. The memory is that of the handles (tile pools),
 * which live as long as anything is mapped. Here a mapping changes when the call is made: an unmap
 * waits for the stream's work first. Tiles are kept account of, their bytes cannot be copied.
 * One lock for all arrays, taken before vmm.c's.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { TILE = 65536, BUCKETS = 256, TAIL = 255 };

struct tile {
    struct tile *next;
    uint32_t level, layer; /* level TAIL: of the mip tail, x is the piece of it */
    uint32_t x, y, z;      /* in tiles */
    struct physical *physical;
};

struct sparse {
    struct sparse *next;
    const struct context *context;
    struct physical *whole; /* deferred mapping */
    struct tile *buckets[BUCKETS];
};

/* One of the two kinds, as far as mapping goes. */
struct target {
    struct sparse *sparse;
    struct context *context;
    struct array *array;
    struct mipmap *mipmap;
    const struct array *level; /* the first */
    unsigned levels;
    uint64_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sparse *sparses;

struct sparse *sparse_new(struct context *context)
{
    struct sparse *sparse = calloc(1, sizeof(*sparse));

    if (!sparse)
        return NULL;
    sparse->context = context;
    pthread_mutex_lock(&lock);
    sparse->next = sparses;
    sparses = sparse;
    pthread_mutex_unlock(&lock);
    return sparse;
}

/* Under the lock. */
static void sparse_empty(struct sparse *sparse)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        while (sparse->buckets[i]) {
            struct tile *tile = sparse->buckets[i];

            sparse->buckets[i] = tile->next;
            physical_unmap(tile->physical);
            free(tile);
        }
    if (sparse->whole)
        physical_unmap(sparse->whole);
    sparse->whole = NULL;
}

void sparse_end(struct sparse *sparse)
{
    struct sparse **at = &sparses;

    pthread_mutex_lock(&lock);
    while (*at != sparse)
        at = &(*at)->next;
    *at = sparse->next;
    sparse_empty(sparse);
    pthread_mutex_unlock(&lock);
    free(sparse);
}

/* The arrays' handles stay as stale as those of other arrays do. */
void sparse_end_context(const struct context *context)
{
    pthread_mutex_lock(&lock);
    for (struct sparse **at = &sparses; *at;) {
        struct sparse *sparse = *at;

        if (sparse->context != context) {
            at = &sparse->next;
            continue;
        }
        *at = sparse->next;
        sparse_empty(sparse);
        free(sparse);
    }
    pthread_mutex_unlock(&lock);
}

/* --- tiles --- */

/* The usual shapes of 64 KiB, by the bytes of an element or block. */
static void tile_shape(const struct array *level, unsigned extent[3])
{
    static const unsigned flat[][2] = {{256, 256}, {256, 128}, {128, 128}, {128, 64}, {64, 64}};
    static const unsigned deep[][3] = {
        {64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
    bool solid = level->form.Depth && !(level->form.Flags & CUDA_ARRAY3D_LAYERED);
    unsigned size = 0, block = level->format->block;

    while (size < 4 && UINT64_C(1) << size < level->element)
        size++;
    extent[0] = (solid ? deep[size][0] : flat[size][0]) * block;
    extent[1] = (solid ? deep[size][1] : flat[size][1]) * block;
    extent[2] = solid ? deep[size][2] : 1;
}

static bool tile_fits(const struct array *level, const unsigned extent[3])
{
    bool layered = level->form.Flags & CUDA_ARRAY3D_LAYERED;

    return level->form.Width >= extent[0] && level->form.Height >= extent[1] &&
           (layered || level->slices >= extent[2]);
}

/* The first level that is smaller than a tile in some direction; `levels`: there is none. */
static unsigned tile_tail_level(const struct target *target)
{
    unsigned extent[3], i = 0;

    tile_shape(target->level, extent);
    while (i < target->levels && tile_fits(&target->level[i], extent))
        i++;
    return i;
}

static unsigned tile_layers(const struct target *target)
{
    return target->level->form.Flags & CUDA_ARRAY3D_LAYERED ? (unsigned)target->level->slices : 1;
}

/* Of one layer. */
static uint64_t tile_tail_bytes(const struct target *target)
{
    uint64_t bytes = 0;

    for (unsigned i = tile_tail_level(target); i < target->levels; i++)
        bytes += target->level[i].bytes / tile_layers(target);
    return SIM_ALIGN(bytes, TILE);
}

static struct tile **tile_place(struct sparse *sparse, const struct tile *key)
{
    uint32_t hash = ((key->level * 31 + key->layer) * 31 + key->z) * 31;
    struct tile **at = &sparse->buckets[(hash + key->y * 17 + key->x) % BUCKETS];

    while (*at && ((*at)->level != key->level || (*at)->layer != key->layer || (*at)->x != key->x ||
                   (*at)->y != key->y || (*at)->z != key->z))
        at = &(*at)->next;
    return at;
}

/* Puts memory behind a tile, or takes it away (NULL); what was there before is let go. */
static CUresult tile_set(struct sparse *sparse, const struct tile *key, struct physical *physical)
{
    struct tile **at = tile_place(sparse, key), *tile = *at;

    if (tile) {
        physical_unmap(tile->physical);
        tile->physical = physical;
        if (!physical) {
            *at = tile->next;
            free(tile);
        }
        return CUDA_SUCCESS;
    }
    if (!physical)
        return CUDA_SUCCESS;
    tile = malloc(sizeof(*tile));
    if (!tile)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *tile = *key;
    tile->next = NULL;
    tile->physical = physical;
    *at = tile;
    return CUDA_SUCCESS;
}

/* --- mapping --- */

static bool target_find(const CUarrayMapInfo *info, struct target *target)
{
    memset(target, 0, sizeof(*target));
    if (info->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        target->array = array_check(info->resource.array);
        if (!target->array || target->array->borrowed)
            return false;
        target->level = target->array;
        target->levels = 1;
        target->sparse = target->array->sparse;
        target->context = target->array->context;
        target->bytes = target->array->bytes;
    } else if (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        target->mipmap = object_check(info->resource.mipmap, OBJECT_MIPMAP);
        if (!target->mipmap)
            return false;
        target->level = target->mipmap->level;
        target->levels = target->mipmap->levels;
        target->sparse = target->mipmap->sparse;
        target->context = target->mipmap->context;
        target->bytes = target->mipmap->bytes;
    }
    return target->sparse && atomic_load(&target->context->alive);
}

static bool map_span(unsigned offset, unsigned extent, uint64_t size, unsigned tile)
{
    uint64_t end = (uint64_t)offset + extent;

    return offset % tile == 0 && extent && (end % tile == 0 || end == size) &&
           end <= SIM_ALIGN(size, tile);
}

/* How many bytes of tiles a request is about; 0: it is wrong. */
static uint64_t map_level_bytes(const struct target *target, const CUarrayMapInfo *info)
{
    unsigned tile[3], level = info->subresource.sparseLevel.level;
    const struct array *a;
    uint64_t depth;

    if (level >= target->levels || level >= tile_tail_level(target) ||
        info->subresource.sparseLevel.layer >= tile_layers(target))
        return 0;
    a = &target->level[level];
    tile_shape(target->level, tile);
    depth = tile[2] == 1 ? 1 : a->slices;
    if (!map_span(info->subresource.sparseLevel.offsetX, info->subresource.sparseLevel.extentWidth,
                  a->form.Width, tile[0]) ||
        !map_span(info->subresource.sparseLevel.offsetY, info->subresource.sparseLevel.extentHeight,
                  a->form.Height, tile[1]) ||
        !map_span(info->subresource.sparseLevel.offsetZ, info->subresource.sparseLevel.extentDepth,
                  depth, tile[2]))
        return 0;
    return SIM_ALIGN(info->subresource.sparseLevel.extentWidth, tile[0]) / tile[0] *
           (SIM_ALIGN(info->subresource.sparseLevel.extentHeight, tile[1]) / tile[1]) *
           (SIM_ALIGN(info->subresource.sparseLevel.extentDepth, tile[2]) / tile[2]) * TILE;
}

static uint64_t map_tail_bytes(const struct target *target, const CUarrayMapInfo *info)
{
    uint64_t size = tile_tail_bytes(target), offset = info->subresource.miptail.offset;

    if (info->subresource.miptail.layer >= tile_layers(target) || offset % TILE ||
        info->subresource.miptail.size % TILE || offset > size ||
        info->subresource.miptail.size > size - offset)
        return 0;
    return info->subresource.miptail.size;
}

static bool map_is_deferred(const struct target *target)
{
    return target->level->form.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING;
}

static uint64_t map_bytes(const struct target *target, const CUarrayMapInfo *info)
{
    if (map_is_deferred(target))
        return target->bytes;
    return info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL
               ? map_level_bytes(target, info)
           : info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL
               ? map_tail_bytes(target, info)
               : 0;
}

/* One more mapping of the request's memory for each tile; NULL for an unmapping. */
static struct physical *map_hold(const CUarrayMapInfo *info, unsigned device)
{
    CUdeviceptr ignored;

    return info->memOperationType == CU_MEM_OPERATION_TYPE_MAP
               ? physical_map(info->memHandle.memHandle, device, 0, 0, &ignored)
               : NULL;
}

static CUresult map_tiles(const struct target *target, const CUarrayMapInfo *info)
{
    const unsigned device = target->context->device;
    struct tile key = {.layer = info->subresource.sparseLevel.layer,
                       .level = info->subresource.sparseLevel.level};
    unsigned tile[3], to[3];
    CUresult result = CUDA_SUCCESS;

    tile_shape(target->level, tile);
    to[0] = info->subresource.sparseLevel.offsetX + info->subresource.sparseLevel.extentWidth;
    to[1] = info->subresource.sparseLevel.offsetY + info->subresource.sparseLevel.extentHeight;
    to[2] = info->subresource.sparseLevel.offsetZ + info->subresource.sparseLevel.extentDepth;
    for (unsigned z = info->subresource.sparseLevel.offsetZ; z < to[2]; z += tile[2])
        for (unsigned y = info->subresource.sparseLevel.offsetY; y < to[1]; y += tile[1])
            for (unsigned x = info->subresource.sparseLevel.offsetX; x < to[0] && !result;
                 x += tile[0]) {
                key.x = x / tile[0];
                key.y = y / tile[1];
                key.z = z / tile[2];
                result = tile_set(target->sparse, &key, map_hold(info, device));
            }
    return result;
}

static CUresult map_tail(const struct target *target, const CUarrayMapInfo *info)
{
    struct tile key = {.level = TAIL, .layer = info->subresource.miptail.layer};
    uint64_t from = info->subresource.miptail.offset / TILE;
    uint64_t to = from + info->subresource.miptail.size / TILE;
    CUresult result = CUDA_SUCCESS;

    for (uint64_t i = from; i < to && !result; i++) {
        key.x = (uint32_t)i;
        result = tile_set(target->sparse, &key, map_hold(info, target->context->device));
    }
    return result;
}

/* All of the array at once, where its bytes then are. */
static CUresult map_whole(const struct target *target, const CUarrayMapInfo *info)
{
    struct sparse *sparse = target->sparse;
    CUdeviceptr address = 0;
    struct physical *physical = NULL;

    if (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP)
        physical = physical_map(info->memHandle.memHandle, target->context->device, info->offset,
                                target->bytes, &address);
    if (sparse->whole)
        physical_unmap(sparse->whole);
    sparse->whole = physical;
    if (target->array) {
        target->array->address = address;
    } else {
        target->mipmap->address = address;
        array_place_levels(target->mipmap);
    }
    return CUDA_SUCCESS;
}

static CUresult map_check(const struct stream *stream, const CUarrayMapInfo *info,
                          struct target *target)
{
    unsigned device = stream->context->device;
    CUdeviceptr address;
    struct physical *physical;
    uint64_t bytes;

    if (!target_find(info, target) || info->flags || info->reserved[0] || info->reserved[1] ||
        info->deviceBitMask != 1u << device || target->context->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    bytes = map_bytes(target, info);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
        return info->memHandle.memHandle ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP ||
        info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC || info->offset % TILE)
        return CUDA_ERROR_INVALID_VALUE;
    physical = physical_map(info->memHandle.memHandle, device, info->offset, bytes, &address);
    return physical ? physical_unmap(physical) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map_one(const struct target *target, const CUarrayMapInfo *info)
{
    if (map_is_deferred(target))
        return map_whole(target, info);
    return info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL
               ? map_tail(target, info)
               : map_tiles(target, info);
}

/* Checks all requests before it changes anything. */
static CUresult map_list(const CUarrayMapInfo *list, unsigned count, CUstream handle)
{
    struct stream *stream;
    struct target target;
    CUresult result = stream_find(handle, &stream);

    if (!result && atomic_load(&stream->capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!result && (!list || !count))
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && !result; i++)
        result = map_check(stream, &list[i], &target);
    if (!result)
        result = stream_wait(stream, stream_last(stream));
    if (result)
        return result;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < count && !result; i++)
        result =
            target_find(&list[i], &target) ? map_one(&target, &list[i]) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned count, CUstream hStream)
{
    ENTRY();
    return map_list(mapInfoList, count, hStream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned count, CUstream hStream)
{
    ENTRY();
    return map_list(mapInfoList, count, PER_THREAD(hStream));
}

/* --- properties --- */

static CUresult sparse_properties(const struct target *target, CUDA_ARRAY_SPARSE_PROPERTIES *out)
{
    unsigned extent[3];

    if (!out || !(target->level->form.Flags & CUDA_ARRAY3D_SPARSE))
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof(*out));
    tile_shape(target->level, extent);
    out->tileExtent.width = extent[0];
    out->tileExtent.height = extent[1];
    out->tileExtent.depth = extent[2];
    out->miptailFirstLevel = target->mipmap ? tile_tail_level(target) : 0;
    out->miptailSize = tile_tail_bytes(target);
    if (target->array && out->miptailSize)
        out->flags = CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUarray array)
{
    struct target target = {.levels = 1};

    ENTRY();
    if (sim_check())
        return sim_check();
    target.level = target.array = array_check(array);
    if (!target.array)
        return CUDA_ERROR_INVALID_HANDLE;
    return target.array->borrowed ? CUDA_ERROR_INVALID_VALUE
                                  : sparse_properties(&target, sparseProperties);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties,
                                             CUmipmappedArray mipmap)
{
    struct target target = {0};

    ENTRY();
    if (sim_check())
        return sim_check();
    target.mipmap = object_check(mipmap, OBJECT_MIPMAP);
    if (!target.mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    target.level = target.mipmap->level;
    target.levels = target.mipmap->levels;
    return sparse_properties(&target, sparseProperties);
}
