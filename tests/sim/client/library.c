/*
 * Libraries and their kernels: images loaded for all contexts, which become modules in a context
 * when something of them is used there. Any thread; module.c's lock guards the tables.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#include "module.h"

struct library {
    struct object object;
    struct image *image;
    struct function **kernels; /* handed out as CUkernel: functions without a context */
    struct module_place *places;
    struct module *instances[SIM_CONTEXTS]; /* by context slot */
    struct library *next;
};

static struct library *libraries;

static void library_free(struct library *library)
{
    for (unsigned i = 0; library->kernels != NULL && i < library->image->function_count; i++)
        module_end_function(library->kernels[i]);
    free(library->kernels);
    free(library->places);
    image_free(library->image);
    object_end(library);
}

/* The image becomes the library's, on failure too. */
static CUresult library_open(struct image *image, struct library **out)
{
    struct library *library = object_new(OBJECT_LIBRARY, sizeof(*library));

    if (library == NULL) {
        image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->image = image;
    library->kernels = calloc(image->function_count + 1, sizeof(*library->kernels));
    library->places = calloc(image->function_count + 1, sizeof(*library->places));
    for (unsigned i = 0; library->kernels != NULL && i < image->function_count; i++) {
        struct function *kernel = module_new_function(&image->functions[i], image);

        library->kernels[i] = kernel;
        if (kernel == NULL || library->places == NULL) {
            library_free(library);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        library->places[i] = (struct module_place){.index = i, .library = library};
        kernel->extra = &library->places[i];
    }
    if (library->kernels == NULL || library->places == NULL) {
        library_free(library);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = library;
    return CUDA_SUCCESS;
}

/* Under the lock: the library's module in a context, loaded there on first use. */
static CUresult library_find_module(struct library *library, struct context *context,
                                    struct module **out)
{
    struct module **instance = &library->instances[context->slot];
    CUresult result = CUDA_SUCCESS;

    if (*instance == NULL) {
        result = module_open(context, library->image, library, instance);
        for (unsigned i = 0; *instance != NULL && i < library->image->function_count; i++)
            memcpy((*instance)->functions[i]->attributes, library->kernels[i]->attributes,
                   sizeof(library->kernels[i]->attributes));
    }
    *out = *instance;
    return result;
}

CUresult library_find_function(struct context *context, struct function *kernel,
                               struct function **function)
{
    struct module_place *place = kernel->extra;
    struct module *module = NULL;
    bool loaded = false;
    CUresult result;

    module_lock();
    result = library_find_module(place->library, context, &module);
    if (result == CUDA_SUCCESS) {
        *function = module->functions[place->index];
        loaded = module->places[place->index].loaded;
    }
    module_unlock();
    return result != CUDA_SUCCESS || loaded ? result : module_load_function(*function);
}

void library_end_context(struct context *context)
{
    for (struct library *library = libraries; library != NULL; library = library->next)
        library->instances[context->slot] = NULL;
}

static CUresult library_enter(struct image *image, CUlibrary *out)
{
    struct library *library;
    CUresult result = library_open(image, &library);

    if (result != CUDA_SUCCESS)
        return result;
    module_lock();
    library->next = libraries;
    libraries = library;
    module_unlock();
    *out = (CUlibrary)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *out, const void *data, CUjit_option *options, void **values,
                           unsigned int count, CUlibraryOption *library_options,
                           void **library_values, unsigned int library_count)
{
    struct image *image;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || data == NULL || (count > 0 && (options == NULL || values == NULL)) ||
        (library_count > 0 && (library_options == NULL || library_values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    result = module_read_image(data, 0, &image);
    module_answer_options(count, options, values, result);
    return result == CUDA_SUCCESS ? library_enter(image, out) : result;
}

CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *path, CUjit_option *options,
                               void **values, unsigned int count, CUlibraryOption *library_options,
                               void **library_values, unsigned int library_count)
{
    struct image *image;
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || path == NULL || (count > 0 && (options == NULL || values == NULL)) ||
        (library_count > 0 && (library_options == NULL || library_values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    result = module_read_file(path, &image);
    module_answer_options(count, options, values, result);
    return result == CUDA_SUCCESS ? library_enter(image, out) : result;
}

static CUresult library_check(CUlibrary handle, struct library **library)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *library = object_check(handle, OBJECT_LIBRARY);
    return *library == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* Waits for what still runs in the contexts that use a library, then closes its modules. */
CUresult cuLibraryUnload(CUlibrary handle)
{
    struct library *library;
    struct library **link = &libraries;
    CUresult result;

    ENTRY();
    result = library_check(handle, &library);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < SIM_CONTEXTS; i++)
        if (library->instances[i] != NULL)
            result = context_wait(library->instances[i]->context);
    module_lock();
    while (*link != NULL && *link != library)
        link = &(*link)->next;
    if (*link != NULL) {
        *link = library->next;
        for (unsigned i = 0; i < SIM_CONTEXTS; i++)
            if (library->instances[i] != NULL)
                module_close(library->instances[i]);
        library_free(library);
    }
    module_unlock();
    return result;
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary handle, const char *name)
{
    struct library *library;
    CUresult result;

    ENTRY();
    result = library_check(handle, &library);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < library->image->function_count; i++) {
        if (strcmp(library->image->functions[i].name, name) != 0)
            continue;
        *out = (CUkernel)library->kernels[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary handle)
{
    struct library *library;
    CUresult result;

    ENTRY();
    result = library_check(handle, &library);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = library->image->function_count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary handle)
{
    struct library *library;
    CUresult result;

    ENTRY();
    result = library_check(handle, &library);
    if (result != CUDA_SUCCESS)
        return result;
    if (kernels == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && i < library->image->function_count; i++)
        kernels[i] = (CUkernel)library->kernels[i];
    return CUDA_SUCCESS;
}

/* The library's module in the current context. */
static CUresult library_current(CUlibrary handle, struct module **module)
{
    struct context *context;
    struct library *library;
    CUresult result = library_check(handle, &library);

    if (result == CUDA_SUCCESS)
        result = sim_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    module_lock();
    result = library_find_module(library, context, module);
    module_unlock();
    return result;
}

CUresult cuLibraryGetModule(CUmodule *out, CUlibrary handle)
{
    struct module *module;
    CUresult result;

    ENTRY();
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = library_current(handle, &module);
    if (result == CUDA_SUCCESS)
        *out = (CUmodule)module;
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary handle, const char *name)
{
    struct module *module;
    CUresult result;

    ENTRY();
    if (name == NULL || (address == NULL && bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    result = library_current(handle, &module);
    return result == CUDA_SUCCESS ? module_find_global(module, name, address, bytes) : result;
}

/* Managed variables are visible without a context; here they live in the current one's module. */
CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary handle,
                             const char *name)
{
    struct module *module;
    CUresult result;

    ENTRY();
    if (name == NULL || (address == NULL && bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    result = library_current(handle, &module);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < module->image->global_count; i++)
        if (strcmp(module->image->globals[i].name, name) == 0 && module->image->globals[i].managed)
            return module_find_global(module, name, address, bytes);
    return CUDA_ERROR_NOT_FOUND;
}

/* Images with unified functions need a toolchain nobody has here: no library contains one. */
CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary handle, const char *name)
{
    struct library *library;
    CUresult result;

    ENTRY();
    result = library_check(handle, &library);
    if (result != CUDA_SUCCESS)
        return result;
    return function == NULL || name == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
}

static CUresult kernel_check(CUkernel handle, struct function **kernel)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *kernel = object_check(handle, OBJECT_FUNCTION);
    return *kernel == NULL || (*kernel)->context != NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel handle)
{
    struct function *function;
    struct function *kernel;
    struct context *context;
    CUresult result;

    ENTRY();
    result = kernel_check(handle, &kernel);
    if (result == CUDA_SUCCESS)
        result = sim_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = library_find_function(context, kernel, &function);
    if (result == CUDA_SUCCESS)
        *out = (CUfunction)function;
    return result;
}

#if CUDA_VERSION >= 12050 /* an older header has no prototype for it */
CUresult cuKernelGetLibrary(CUlibrary *out, CUkernel handle)
{
    struct function *kernel;
    CUresult result;

    ENTRY();
    result = kernel_check(handle, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUlibrary)((struct module_place *)kernel->extra)->library;
    return CUDA_SUCCESS;
}
#endif

CUresult cuKernelGetName(const char **name, CUkernel handle)
{
    struct function *kernel;
    CUresult result;

    ENTRY();
    result = kernel_check(handle, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = kernel->name;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice device)
{
    struct function *kernel;
    CUresult result;

    ENTRY();
    result = kernel_check(handle, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    *value = kernel->attributes[attribute];
    return CUDA_SUCCESS;
}

/* The first eight attributes describe the code and cannot be set. */
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice device)
{
    struct module_place *place;
    struct function *kernel;
    CUresult result;

    ENTRY();
    result = kernel_check(handle, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if ((unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX ||
        attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    place = kernel->extra;
    module_lock();
    kernel->attributes[attribute] = value;
    for (unsigned i = 0; i < SIM_CONTEXTS; i++)
        if (place->library->instances[i] != NULL)
            place->library->instances[i]->functions[place->index]->attributes[attribute] = value;
    module_unlock();
    return CUDA_SUCCESS;
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device)
{
    struct function *kernel;
    CUresult result;

    ENTRY();
    result = kernel_check(handle, &kernel);
    if (result != CUDA_SUCCESS)
        return result;
    if (device < 0 || (unsigned)device >= sim.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    return (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
