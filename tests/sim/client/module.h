/*
 * Loaded code as the other client files see it: which function a launch means, and what happens to
 * modules when their context ends. One lock of its own, outermost of all: never call these while
 * holding sim.lock or a context's lock.
 */
#ifndef SIM_CLIENT_MODULE_H
#define SIM_CLIENT_MODULE_H

#include <stdbool.h>

#include <cuda.h>

#include "image.h"

struct context;
struct function;
struct library;

/* A function's place in the image it came from; function->extra points to it. */
struct module_place {
    unsigned index;
    bool loaded;             /* its code takes device memory */
    struct library *library; /* of a CUkernel, and of what it became in a context */
};

/* A module: an image in a context. */
struct module {
    struct object object;
    struct context *context;
    struct image *image;
    struct library *library; /* owns the image when not NULL */
    struct function **functions;
    struct module_place *places;
    CUdeviceptr globals; /* device memory of all its variables, 0 if it has none */
    uint64_t *offsets;   /* of each variable in it */
    struct module *next; /* of its context */
};

/* The function that a CUfunction or CUkernel handle names in a context, its code loaded (which may
 * take device memory). INVALID_HANDLE for anything else. A CUfunction costs two loads. */
CUresult module_resolve_function(CUfunction handle, struct context *context,
                                 struct function **function);

/* Ends all modules of a context that is being destroyed; their handles become invalid. */
void module_end_context(struct context *context);

/* For library.c and link.c. */
CUresult module_open(struct context *context, struct image *image, struct library *library,
                     struct module **module);
void module_close(struct module *module);
CUresult module_load_function(struct function *function);
struct function *module_find_name(const struct module *module, const char *name);
CUresult module_find_global(const struct module *module, const char *name, CUdeviceptr *address,
                            size_t *bytes);
struct function *module_new_function(const struct image_function *from, const struct image *image);
void module_end_function(struct function *function);
CUresult module_read_image(const void *data, size_t size, struct image **image);
/* A file and a NUL behind it; the caller frees .at. */
CUresult module_read_bytes(const char *path, struct image_bytes *bytes);
CUresult module_read_file(const char *path, struct image **image);
void module_lock(void);
void module_unlock(void);

/* Clears the log buffers that JIT options carry, as for a build without messages; on failure the
 * error log tells which. */
void module_answer_options(unsigned count, const CUjit_option *options, void **values,
                           CUresult result);

/* The function that a CUkernel becomes in a context (library.c). */
CUresult library_find_function(struct context *context, struct function *kernel,
                               struct function **function);
/* Forgets the modules that libraries have in a context (library.c). */
void library_end_context(struct context *context);

#endif
