/*
 * cuLink: collects PTX, cubins and fat binaries and hands them out as one packed image, which only
 * this library's loader reads. Host objects and archives need a linker and are refused. A link
 * state belongs to the thread that uses it, as the driver asks.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#include "module.h"

struct link {
    struct object object;
    struct image_bytes *parts; /* copies */
    unsigned count;
    void *complete;
    unsigned option_count; /* as given to cuLinkCreate; the buffers are the program's */
    CUjit_option *options;
    void **values;
};

static CUresult link_check(CUlinkState handle, struct link **link)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *link = object_check(handle, OBJECT_LINK);
    return *link == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static void link_free(struct link *link)
{
    for (unsigned i = 0; i < link->count; i++)
        free((void *)link->parts[i].at);
    free(link->parts);
    free(link->complete);
    free(link->options);
    free(link->values);
    object_end(link);
}

static CUresult link_create(unsigned count, const CUjit_option *options, void **values,
                            CUlinkState *out)
{
    struct context *context;
    struct link *link;
    CUresult result = sim_enter(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || (count > 0 && (options == NULL || values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    link = object_new(OBJECT_LINK, sizeof(*link));
    if (link == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link->options = calloc(count + 1, sizeof(*link->options));
    link->values = calloc(count + 1, sizeof(*link->values));
    if (link->options == NULL || link->values == NULL) {
        link_free(link);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    link->option_count = count;
    if (count > 0) {
        memcpy(link->options, options, count * sizeof(*options));
        memcpy(link->values, values, count * sizeof(*values));
    }
    module_answer_options(count, link->options, link->values, CUDA_SUCCESS);
    *out = (CUlinkState)link;
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out)
{
    ENTRY();
    return link_create(count, options, values, out);
}

CUresult cuLinkCreate(unsigned int count, CUjit_option *options, void **values, CUlinkState *out)
{
    ENTRY();
    return link_create(count, options, values, out);
}

/* The bytes become the link's. They end in a NUL that size does not count. */
static CUresult link_add(struct link *link, char *data, size_t size)
{
    struct image_bytes *parts;
    struct image *image;
    CUresult result = module_read_image(data, size, &image);

    if (result != CUDA_SUCCESS) {
        module_answer_options(link->option_count, link->options, link->values, result);
        free(data);
        return result;
    }
    image_free(image);
    parts = realloc(link->parts, (link->count + 1) * sizeof(*parts));
    if (parts == NULL) {
        free(data);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    parts[link->count] = (struct image_bytes){(unsigned char *)data, size};
    link->parts = parts;
    link->count++;
    return CUDA_SUCCESS;
}

static CUresult link_check_kind(CUjitInputType kind)
{
    if (kind == CU_JIT_INPUT_CUBIN || kind == CU_JIT_INPUT_PTX || kind == CU_JIT_INPUT_FATBINARY)
        return CUDA_SUCCESS;
    if (kind == CU_JIT_INPUT_OBJECT || kind == CU_JIT_INPUT_LIBRARY || kind == CU_JIT_INPUT_NVVM) {
        sim_log("cuLinkAddData: input of kind %d is not implemented", (int)kind);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult link_add_data(CUlinkState handle, CUjitInputType kind, const void *data,
                              size_t size)
{
    struct link *link;
    char *copy;
    CUresult result = link_check(handle, &link);

    if (result == CUDA_SUCCESS)
        result = link_check_kind(kind);
    if (result != CUDA_SUCCESS)
        return result;
    if (data == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (link->complete != NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    copy = malloc(size + 1);
    if (copy == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, data, size);
    copy[size] = '\0';
    return link_add(link, copy, size);
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType kind, void *data, size_t size,
                          const char *name, unsigned int count, CUjit_option *options,
                          void **values)
{
    ENTRY();
    (void)name;
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return link_add_data(handle, kind, data, size);
}

CUresult cuLinkAddData(CUlinkState handle, CUjitInputType kind, void *data, size_t size,
                       const char *name, unsigned int count, CUjit_option *options, void **values)
{
    ENTRY();
    (void)name;
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return link_add_data(handle, kind, data, size);
}

static CUresult link_add_file(CUlinkState handle, CUjitInputType kind, const char *path)
{
    struct image_bytes file;
    CUresult result;

    if (path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = module_read_bytes(path, &file);
    if (result != CUDA_SUCCESS)
        return result;
    result = link_add_data(handle, kind, file.at, file.size);
    free((void *)file.at);
    return result;
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType kind, const char *path,
                          unsigned int count, CUjit_option *options, void **values)
{
    ENTRY();
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return link_add_file(handle, kind, path);
}

CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType kind, const char *path,
                       unsigned int count, CUjit_option *options, void **values)
{
    ENTRY();
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return link_add_file(handle, kind, path);
}

CUresult cuLinkComplete(CUlinkState handle, void **out, size_t *size)
{
    struct link *link;
    CUresult result;
    size_t bytes;

    ENTRY();
    result = link_check(handle, &link);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || size == NULL || link->count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    free(link->complete);
    link->complete = image_pack(link->parts, link->count, &bytes);
    if (link->complete == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = link->complete;
    *size = bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState handle)
{
    struct link *link;
    CUresult result;

    ENTRY();
    result = link_check(handle, &link);
    if (result == CUDA_SUCCESS)
        link_free(link);
    return result;
}
