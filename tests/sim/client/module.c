/*
 * Modules: images loaded into a context, their functions and variables, and what they cost in
 * device memory. With lazy loading (the default, CUDA_MODULE_LOADING=EAGER ends it) a function's
 * code takes memory when it is first asked for. Any thread; one lock over all tables, taken before
 * any other.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture.h"
#include "names.h"
#include "sim.h"

#include "module.h"

enum {
    MODULE_STATIC_SHARED = 48 * 1024,
    MODULE_MAX_THREADS = 1024,
    MODULE_DEFAULT_REGISTERS = 32,
    MODULE_CUDA_13 = 13000,
    MODULE_CUDA_12 = 12000,
};

#define MODULE_STEP ((uint64_t)2 << 20) /* code memory of a context grows by so much */
#define MODULE_MOST_FILE ((off_t)1 << 31)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Code memory of each context, by its slot: what functions use of what was taken. */
static struct {
    uint64_t used;
    uint64_t taken;
} code[SIM_CONTEXTS];

void module_lock(void)
{
    pthread_mutex_lock(&lock);
}

void module_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static bool module_lazy(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");

    return mode == NULL || strcasecmp(mode, "EAGER") != 0;
}

/* The newest PTX that a driver's compiler reads: 13.0 brought 9.0, 12.9 8.8, 12.5 8.5, 11.8 7.8. */
static unsigned module_newest_ptx(void)
{
    unsigned version = (unsigned)names_driver_version();
    unsigned minor = version / 10 % 100;

    if (version >= MODULE_CUDA_13)
        return 90 + (version - MODULE_CUDA_13) / 10;
    if (version >= MODULE_CUDA_12)
        return 80 + (minor <= 5 ? minor : minor - 1);
    return 70 + minor;
}

CUresult module_read_image(const void *data, size_t size, struct image **image)
{
    struct context *context = context_current();
    CUresult result = image_load(data, size, device_arch(context ? context->device : 0), image);

    if (result == CUDA_SUCCESS && (*image)->ptx_version > module_newest_ptx()) {
        image_free(*image);
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    return result;
}

static CUresult module_read_descriptor(int file, struct image_bytes *bytes)
{
    struct stat status;
    ssize_t count;
    char *data;

    if (fstat(file, &status) != 0 || status.st_size <= 0 || status.st_size > MODULE_MOST_FILE)
        return CUDA_ERROR_INVALID_IMAGE;
    data = malloc((size_t)status.st_size + 1);
    if (data == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    count = pread(file, data, (size_t)status.st_size, 0);
    if (count <= 0) {
        free(data);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    data[count] = '\0';
    *bytes = (struct image_bytes){(unsigned char *)data, (size_t)count};
    return CUDA_SUCCESS;
}

CUresult module_read_bytes(const char *path, struct image_bytes *bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CUresult result;

    if (file < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    result = module_read_descriptor(file, bytes);
    close(file);
    return result;
}

CUresult module_read_file(const char *path, struct image **image)
{
    struct image_bytes bytes;
    CUresult result = module_read_bytes(path, &bytes);

    if (result != CUDA_SUCCESS)
        return result;
    result = module_read_image(bytes.at, bytes.size, image);
    free((void *)bytes.at);
    return result;
}

static void module_write_log(char *buffer, uintptr_t size, CUresult result)
{
    const char *name = "";

    if (buffer == NULL || size == 0)
        return;
    if (result != CUDA_SUCCESS)
        cuGetErrorName(result, &name);
    strncpy(buffer, name, size - 1);
    buffer[size - 1] = '\0';
}

static uintptr_t module_option(unsigned count, const CUjit_option *options, void **values,
                               CUjit_option wanted)
{
    for (unsigned i = 0; i < count; i++)
        if (options[i] == wanted)
            return (uintptr_t)values[i];
    return 0;
}

void module_answer_options(unsigned count, const CUjit_option *options, void **values,
                           CUresult result)
{
    for (unsigned i = 0; options != NULL && values != NULL && i < count; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER)
            module_write_log(
                values[i], module_option(count, options, values, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES),
                CUDA_SUCCESS);
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            module_write_log(
                values[i],
                module_option(count, options, values, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES), result);
    }
}

static void module_set_attributes(int *attributes, const struct image_function *from,
                                  const struct image *image)
{
    attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] =
        from->max_threads != 0 ? (int)from->max_threads : MODULE_MAX_THREADS;
    attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = (int)from->shared_bytes;
    attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = (int)from->local_bytes;
    attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] =
        from->registers != 0 ? (int)from->registers : MODULE_DEFAULT_REGISTERS;
    attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] =
        (int)(image->ptx_version != 0 ? image->ptx_version : image->binary_version);
    attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = (int)image->binary_version;
    attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
        from->shared_bytes < MODULE_STATIC_SHARED ? MODULE_STATIC_SHARED - (int)from->shared_bytes
                                                  : 0;
    attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
}

/* A function borrows its name and parameters from the image, which lives longer. */
struct function *module_new_function(const struct image_function *from, const struct image *image)
{
    struct function *function = object_new(OBJECT_FUNCTION, sizeof(*function));

    _Static_assert(sizeof(struct parameter) == sizeof(struct image_param), "one layout");
    if (function == NULL)
        return NULL;
    function->name = from->name;
    function->param_count = from->param_count;
    function->params = (struct parameter *)from->params;
    function->param_bytes = from->param_bytes;
    module_set_attributes(function->attributes, from, image);
    return function;
}

void module_end_function(struct function *function)
{
    if (function == NULL)
        return;
    free(function->legacy.params);
    function->legacy.params = NULL;
    object_end(function);
}

static CUresult module_take_code(struct context *context, uint64_t bytes)
{
    uint64_t need = code[context->slot].used + bytes;
    CUresult result;

    if (sim.code && need > code[context->slot].taken) {
        uint64_t grow = SIM_ALIGN(need - code[context->slot].taken, MODULE_STEP);

        result = memory_adjust(context, (int64_t)grow);
        if (result != CUDA_SUCCESS)
            return result;
        code[context->slot].taken += grow;
    }
    code[context->slot].used = need;
    return CUDA_SUCCESS;
}

static uint64_t module_code_bytes(const struct module *module, unsigned index)
{
    return module->image->functions[index].code_bytes + 1;
}

static CUresult module_load_place(struct module *module, unsigned index)
{
    CUresult result;

    if (module->places[index].loaded)
        return CUDA_SUCCESS;
    result = module_take_code(module->context, module_code_bytes(module, index));
    module->places[index].loaded = result == CUDA_SUCCESS;
    return result;
}

CUresult module_load_function(struct function *function)
{
    struct module_place *place = function->extra;
    CUresult result;

    module_lock();
    result = module_load_place(function->module, place->index);
    module_unlock();
    return result;
}

static CUresult module_open_functions(struct module *module)
{
    const struct image *image = module->image;

    module->functions = calloc(image->function_count + 1, sizeof(*module->functions));
    module->places = calloc(image->function_count + 1, sizeof(*module->places));
    if (module->functions == NULL || module->places == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < image->function_count; i++) {
        struct function *function = module_new_function(&image->functions[i], image);

        if (function == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        module->places[i] = (struct module_place){.index = i, .library = module->library};
        module->functions[i] = function;
        function->context = module->context;
        function->module = module;
        function->extra = &module->places[i];
    }
    return CUDA_SUCCESS;
}

/* One piece of device memory holds all variables of a module. */
static CUresult module_open_globals(struct module *module)
{
    const struct image *image = module->image;
    uint64_t bytes = 0;
    CUresult result;

    module->offsets = calloc(image->global_count + 1, sizeof(*module->offsets));
    if (module->offsets == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < image->global_count; i++) {
        uint64_t alignment = image->globals[i].alignment;

        module->offsets[i] = alignment > 1 ? SIM_ALIGN(bytes, alignment) : bytes;
        bytes = module->offsets[i] + image->globals[i].bytes;
    }
    if (bytes == 0)
        return CUDA_SUCCESS;
    result = memory_take(module->context, bytes, 256, ALLOC_MODULE, &module->globals);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < image->global_count; i++) {
        void *at = (void *)(uintptr_t)(module->globals + module->offsets[i]);

        if (image->globals[i].initial != NULL)
            memcpy(at, image->globals[i].initial, image->globals[i].bytes);
        else
            memset(at, 0, image->globals[i].bytes);
    }
    return CUDA_SUCCESS;
}

static CUresult module_load_eagerly(struct module *module)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < module->image->function_count && result == CUDA_SUCCESS; i++)
        result = module_load_place(module, i);
    return result;
}

static void module_free(struct module *module)
{
    for (unsigned i = 0; module->functions != NULL && i < module->image->function_count; i++) {
        if (module->places != NULL && module->places[i].loaded)
            code[module->context->slot].used -= module_code_bytes(module, i);
        module_end_function(module->functions[i]);
    }
    free(module->functions);
    free(module->places);
    free(module->offsets);
    if (module->library == NULL)
        image_free(module->image);
    object_end(module);
}

/* Under the lock. The image becomes the module's, on failure too, unless a library owns it. */
CUresult module_open(struct context *context, struct image *image, struct library *library,
                     struct module **out)
{
    struct module *module = object_new(OBJECT_MODULE, sizeof(*module));
    CUresult result;

    if (module == NULL) {
        if (library == NULL)
            image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->context = context;
    module->image = image;
    module->library = library;
    result = module_open_functions(module);
    if (result == CUDA_SUCCESS)
        result = module_open_globals(module);
    if (result == CUDA_SUCCESS && !module_lazy())
        result = module_load_eagerly(module);
    if (result != CUDA_SUCCESS) {
        if (module->globals != 0)
            memory_put(module->globals);
        module_free(module);
        return result;
    }
    module->next = context->modules;
    context->modules = module;
    *out = module;
    return CUDA_SUCCESS;
}

/* Under the lock. Code memory stays with the context, for the next module. */
void module_close(struct module *module)
{
    struct module **link = &module->context->modules;

    while (*link != NULL && *link != module)
        link = &(*link)->next;
    if (*link != NULL)
        *link = module->next;
    if (module->globals != 0)
        memory_put(module->globals);
    module_free(module);
}

void module_end_context(struct context *context)
{
    module_lock();
    library_end_context(context);
    while (context->modules != NULL)
        module_close(context->modules);
    if (code[context->slot].taken != 0)
        memory_adjust(context, -(int64_t)code[context->slot].taken);
    code[context->slot].taken = 0;
    code[context->slot].used = 0;
    module_unlock();
}

CUresult module_resolve_function(CUfunction handle, struct context *context, struct function **out)
{
    struct function *function = object_check(handle, OBJECT_FUNCTION);

    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (function->context == NULL)
        return library_find_function(context, function, out);
    *out = function;
    if (!((struct module_place *)function->extra)->loaded)
        return module_load_function(function);
    return CUDA_SUCCESS;
}

struct function *module_find_name(const struct module *module, const char *name)
{
    for (unsigned i = 0; i < module->image->function_count; i++)
        if (strcmp(module->image->functions[i].name, name) == 0)
            return module->functions[i];
    return NULL;
}

CUresult module_find_global(const struct module *module, const char *name, CUdeviceptr *address,
                            size_t *bytes)
{
    for (unsigned i = 0; i < module->image->global_count; i++) {
        if (strcmp(module->image->globals[i].name, name) != 0)
            continue;
        if (address != NULL)
            *address = module->globals + module->offsets[i];
        if (bytes != NULL)
            *bytes = module->image->globals[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* --- entry points ----------------------------------------------------------------------------- */

/* How loading begins: a context, and no capture that forbids it. */
static CUresult module_enter(struct context **context)
{
    CUresult result = sim_enter(context);

    return result == CUDA_SUCCESS ? capture_check_unsafe() : result;
}

static CUresult module_load(CUmodule *out, const void *data, unsigned count,
                            const CUjit_option *options, void **values)
{
    struct context *context;
    struct module *module;
    struct image *image;
    CUresult result = module_enter(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = module_read_image(data, 0, &image);
    module_answer_options(count, options, values, result);
    if (result != CUDA_SUCCESS)
        return result;
    module_lock();
    result = module_open(context, image, NULL, &module);
    module_unlock();
    if (result == CUDA_SUCCESS)
        *out = (CUmodule)module;
    return result;
}

CUresult cuModuleLoad(CUmodule *out, const char *path)
{
    struct context *context;
    struct module *module;
    struct image *image;
    CUresult result;

    ENTRY();
    result = module_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = module_read_file(path, &image);
    if (result != CUDA_SUCCESS)
        return result;
    module_lock();
    result = module_open(context, image, NULL, &module);
    module_unlock();
    if (result == CUDA_SUCCESS)
        *out = (CUmodule)module;
    return result;
}

CUresult cuModuleLoadData(CUmodule *out, const void *data)
{
    ENTRY();
    return module_load(out, data, 0, NULL, NULL);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *data, unsigned int count,
                            CUjit_option *options, void **values)
{
    ENTRY();
    if (count > 0 && (options == NULL || values == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return module_load(out, data, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule *out, const void *data)
{
    ENTRY();
    return module_load(out, data, 0, NULL, NULL);
}

/* How a call on a module begins. */
static CUresult module_check(CUmodule handle, struct module **module)
{
    struct context *context;
    CUresult result = sim_enter(&context);

    if (result != CUDA_SUCCESS)
        return result;
    *module = object_check(handle, OBJECT_MODULE);
    return *module == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule handle)
{
    struct context *current;
    struct module *module;
    CUresult result;

    ENTRY();
    result = module_check(handle, &module);
    if (result == CUDA_SUCCESS)
        result = module_enter(&current);
    if (result != CUDA_SUCCESS)
        return result;
    if (module->library != NULL)
        return CUDA_ERROR_NOT_PERMITTED;
    result = context_wait(module->context);
    module_lock();
    if (object_check(handle, OBJECT_MODULE) == module)
        module_close(module);
    module_unlock();
    return result;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    CUresult result;

    ENTRY();
    result = sim_check();
    if (result != CUDA_SUCCESS)
        return result;
    if (mode == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = module_lazy() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    struct function *function;
    struct module *module;
    CUresult result;

    ENTRY();
    result = module_check(handle, &module);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    function = module_find_name(module, name);
    if (function == NULL)
        return CUDA_ERROR_NOT_FOUND;
    result = module_load_function(function);
    if (result == CUDA_SUCCESS)
        *out = (CUfunction)function;
    return result;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
    struct module *module;
    CUresult result;

    ENTRY();
    result = module_check(handle, &module);
    if (result != CUDA_SUCCESS)
        return result;
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = module->image->function_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule handle)
{
    struct module *module;
    CUresult result;

    ENTRY();
    result = module_check(handle, &module);
    if (result != CUDA_SUCCESS)
        return result;
    if (functions == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && i < module->image->function_count; i++)
        functions[i] = (CUfunction)module->functions[i];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle,
                              const char *name)
{
    struct module *module;
    CUresult result;

    ENTRY();
    result = module_check(handle, &module);
    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL || (address == NULL && bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    return module_find_global(module, name, address, bytes);
}

/* The ABI of CUDA 3.1 and before: addresses of 32 bits, which these are not. */
CUresult cuModuleGetGlobal(CUdeviceptr_v1 *address, unsigned int *bytes, CUmodule handle,
                           const char *name)
{
    CUdeviceptr wide = 0;
    size_t size = 0;
    CUresult result;

    ENTRY();
    result = cuModuleGetGlobal_v2(&wide, &size, handle, name);
    if (result != CUDA_SUCCESS)
        return result;
    if (wide > UINT32_MAX || size > UINT32_MAX)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (address != NULL)
        *address = (CUdeviceptr_v1)wide;
    if (bytes != NULL)
        *bytes = (unsigned int)size;
    return CUDA_SUCCESS;
}

/* A CUfunction, or the CUkernel that may stand in its place. */
static CUresult function_check(CUfunction handle, struct function **function)
{
    CUresult result = sim_check();

    if (result != CUDA_SUCCESS)
        return result;
    *function = object_check(handle, OBJECT_FUNCTION);
    return *function == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *out, CUfunction handle)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = function_check(handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (function->module == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction handle)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = function_check(handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = function->name;
    return CUDA_SUCCESS;
}

static CUresult function_param(const struct function *function, size_t index, size_t *offset,
                               size_t *bytes)
{
    if (offset == NULL || index >= function->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = function->params[index].offset;
    if (bytes != NULL)
        *bytes = function->params[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *bytes)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = function_check(handle, &function);
    return result == CUDA_SUCCESS ? function_param(function, index, offset, bytes) : result;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t *offset, size_t *bytes)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = function_check((CUfunction)handle, &function);
    return result == CUDA_SUCCESS ? function_param(function, index, offset, bytes) : result;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction handle)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = function_check(handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    if (state == NULL || function->module == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *state = ((struct module_place *)function->extra)->loaded ? CU_FUNCTION_LOADING_STATE_LOADED
                                                              : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle)
{
    struct function *function;
    CUresult result;

    ENTRY();
    result = function_check(handle, &function);
    if (result != CUDA_SUCCESS)
        return result;
    return function->module == NULL ? CUDA_ERROR_INVALID_VALUE : module_load_function(function);
}
