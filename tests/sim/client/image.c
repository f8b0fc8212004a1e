/*
 * Images as a whole: telling the formats apart, their sizes, packed images of cuLink, and the lists
 * that the readers of single formats (image_ptx.c, image_elf.c, image_fatbin.c) fill. Pure
 * functions on memory; any thread, no lock, no driver state.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"
#include "image_format.h"

enum { IMAGE_LOOK_PAGES = 1024, IMAGE_STEP = 16, IMAGE_LEAST_BYTES = 24 };

#define IMAGE_MOST_BYTES ((size_t)1 << 32)
#define IMAGE_PACK_MAGIC 0x4b4e494c4d495301ULL

/* Header of a packed image; the parts follow, each a 64-bit size and its bytes padded to 8. */
struct image_pack_header {
    uint64_t magic;
    uint64_t bytes; /* of the whole */
    uint64_t count;
};

/* Grows a list in steps, so that element n may be written; the lists are short-lived and small. */
static void *image_grow(void *list, unsigned count, size_t element)
{
    char *grown;

    if (count % IMAGE_STEP != 0)
        return list;
    grown = realloc(list, (count + (size_t)IMAGE_STEP) * element);
    if (grown != NULL)
        memset(grown + count * element, 0, IMAGE_STEP * element);
    return grown;
}

struct image_function *image_add_function(struct image *image, const char *name, size_t length)
{
    char *copy = strndup(name, length);
    struct image_function *grown;

    if (copy == NULL)
        return NULL;
    grown = image_grow(image->functions, image->function_count, sizeof(*grown));
    if (grown == NULL) {
        free(copy);
        return NULL;
    }
    image->functions = grown;
    grown[image->function_count].name = copy;
    return &grown[image->function_count++];
}

struct image_global *image_add_global(struct image *image, const char *name, size_t length)
{
    char *copy = strndup(name, length);
    struct image_global *grown;

    if (copy == NULL)
        return NULL;
    grown = image_grow(image->globals, image->global_count, sizeof(*grown));
    if (grown == NULL) {
        free(copy);
        return NULL;
    }
    image->globals = grown;
    grown[image->global_count].name = copy;
    return &grown[image->global_count++];
}

struct image_param *image_add_param(struct image_function *function)
{
    struct image_param *grown;

    grown = image_grow(function->params, function->param_count, sizeof(*grown));
    if (grown == NULL)
        return NULL;
    function->params = grown;
    return &grown[function->param_count++];
}

void image_free(struct image *image)
{
    if (image == NULL)
        return;
    for (unsigned i = 0; i < image->function_count; i++) {
        free(image->functions[i].name);
        free(image->functions[i].params);
    }
    for (unsigned i = 0; i < image->global_count; i++) {
        free(image->globals[i].name);
        free(image->globals[i].initial);
    }
    free(image->functions);
    free(image->globals);
    free(image);
}

/* A header that promises more than is mapped would kill the caller: ask the kernel first. */
bool image_mapped(const void *data, size_t size)
{
    unsigned char present[IMAGE_LOOK_PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)data & ~(page - 1);
    uintptr_t end = (uintptr_t)data + size;

    if (size > IMAGE_MOST_BYTES || end < start)
        return false;
    while (start < end) {
        size_t length = end - start;

        if (length > IMAGE_LOOK_PAGES * page)
            length = IMAGE_LOOK_PAGES * page;
        if (mincore((void *)start, length, present) != 0)
            return false;
        start += length;
    }
    return true;
}

static bool image_is_binary(uint32_t magic)
{
    return magic == IMAGE_ELF_MAGIC || magic == IMAGE_FATBIN_MAGIC ||
           magic == IMAGE_WRAPPER_MAGIC || magic == (uint32_t)IMAGE_PACK_MAGIC;
}

size_t image_size(const void *data)
{
    const struct image_pack_header *pack = data;
    uint32_t magic = 0;
    size_t size = 0;

    memcpy(&magic, data, strnlen(data, sizeof(magic)));
    if (!image_is_binary(magic))
        return strlen(data);
    if (!image_mapped(data, IMAGE_LEAST_BYTES))
        return 0;
    if (magic == IMAGE_ELF_MAGIC)
        size = image_elf_size(data);
    else if (magic == IMAGE_FATBIN_MAGIC)
        size = image_fatbin_size(data);
    else if (magic == IMAGE_WRAPPER_MAGIC)
        return sizeof(struct image_wrapper);
    else if (pack->magic == IMAGE_PACK_MAGIC)
        size = pack->bytes;
    return image_mapped(data, size) ? size : 0;
}

static CUresult image_read(struct image *image, struct image_bytes bytes, unsigned arch);

static CUresult image_read_pack(struct image *image, struct image_bytes pack, unsigned arch)
{
    struct image_pack_header header;
    size_t at = sizeof(header);

    if (pack.size < sizeof(header))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, pack.at, sizeof(header));
    for (uint64_t i = 0; i < header.count; i++) {
        uint64_t size;
        CUresult result;

        if (pack.size - at < sizeof(size))
            return CUDA_ERROR_INVALID_IMAGE;
        memcpy(&size, pack.at + at, sizeof(size));
        at += sizeof(size);
        if (size > pack.size - at || size == 0)
            return CUDA_ERROR_INVALID_IMAGE;
        result = image_read(image, (struct image_bytes){pack.at + at, size}, arch);
        if (result != CUDA_SUCCESS)
            return result;
        at += (size + 7) & ~(uint64_t)7;
        if (at > pack.size)
            return CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_SUCCESS;
}

static CUresult image_read_wrapper(struct image *image, struct image_bytes bytes, unsigned arch)
{
    struct image_wrapper wrapper;
    size_t size;

    if (bytes.size < sizeof(wrapper))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&wrapper, bytes.at, sizeof(wrapper));
    if (wrapper.data == NULL || !image_mapped(wrapper.data, sizeof(uint64_t)))
        return CUDA_ERROR_INVALID_IMAGE;
    size = image_size(wrapper.data);
    if (size == 0 || *(const uint32_t *)wrapper.data == IMAGE_WRAPPER_MAGIC)
        return CUDA_ERROR_INVALID_IMAGE;
    return image_read(image, (struct image_bytes){wrapper.data, size}, arch);
}

static CUresult image_read(struct image *image, struct image_bytes bytes, unsigned arch)
{
    uint32_t magic = 0;

    memcpy(&magic, bytes.at, bytes.size < sizeof(magic) ? bytes.size : sizeof(magic));
    switch (magic) {
    case IMAGE_ELF_MAGIC:
        return image_read_elf(image, bytes, arch);
    case IMAGE_FATBIN_MAGIC:
        return image_read_fatbin(image, bytes, arch);
    case IMAGE_WRAPPER_MAGIC:
        return image_read_wrapper(image, bytes, arch);
    case (uint32_t)IMAGE_PACK_MAGIC:
        return image_read_pack(image, bytes, arch);
    default:
        return image_is_ptx(bytes) ? image_read_ptx(image, bytes, arch) : CUDA_ERROR_INVALID_IMAGE;
    }
}

CUresult image_load(const void *data, size_t size, unsigned arch, struct image **out)
{
    struct image *image;
    CUresult result;

    if (size == 0)
        size = image_size(data);
    if (size == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    image = calloc(1, sizeof(*image));
    if (image == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = image_read(image, (struct image_bytes){data, size}, arch);
    if (result == CUDA_SUCCESS)
        *out = image;
    else
        image_free(image);
    return result;
}

void *image_pack(const struct image_bytes *parts, unsigned count, size_t *size)
{
    struct image_pack_header header = {IMAGE_PACK_MAGIC, sizeof(header), count};
    unsigned char *pack;
    size_t at = sizeof(header);

    for (unsigned i = 0; i < count; i++)
        header.bytes += sizeof(uint64_t) + ((parts[i].size + 7) & ~(size_t)7);
    pack = calloc(1, header.bytes);
    if (pack == NULL)
        return NULL;
    memcpy(pack, &header, sizeof(header));
    for (unsigned i = 0; i < count; i++) {
        uint64_t bytes = parts[i].size;

        memcpy(pack + at, &bytes, sizeof(bytes));
        memcpy(pack + at + sizeof(bytes), parts[i].at, bytes);
        at += sizeof(bytes) + ((bytes + 7) & ~(uint64_t)7);
    }
    *size = header.bytes;
    return pack;
}
