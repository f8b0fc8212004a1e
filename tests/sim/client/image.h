/*
 * What a loadable image contains: functions with their parameters, and variables. Reads PTX text,
 * cubins, fat binaries and what cuLinkComplete made here; never executes or trusts any of it: every
 * offset, count and name is checked against the image's own bounds.
 */
#ifndef SIM_CLIENT_IMAGE_H
#define SIM_CLIENT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

struct image_param {
    uint32_t offset;
    uint32_t bytes;
};

struct image_function {
    char *name;
    struct image_param *params;
    unsigned param_count;
    uint32_t param_bytes;
    uint32_t shared_bytes; /* static */
    uint32_t local_bytes;
    uint32_t registers;
    uint32_t max_threads; /* 0: the device's limit */
    uint32_t code_bytes;
};

struct image_global {
    char *name;
    uint64_t bytes;
    uint64_t alignment;
    void *initial; /* bytes long, or NULL for zeros */
    bool constant;
    bool managed;
};

struct image {
    struct image_function *functions;
    unsigned function_count;
    struct image_global *globals;
    unsigned global_count;
    bool heap, fifo;         /* calls malloc or free, printf, of the device */
    unsigned ptx_version;    /* 10 * major + minor, 0 for a cubin without that note */
    unsigned binary_version; /* 10 * major + minor of the compute capability */
};

struct image_bytes {
    const unsigned char *at;
    size_t size;
};

/* Parses an image for a device of compute capability arch (10 * major + minor). size 0: unknown, as
 * in cuModuleLoadData; an image's own header or its final NUL then tells. On success the caller
 * owns *out and gives it to image_free. Errors are those of cuModuleLoadData. */
CUresult image_load(const void *data, size_t size, unsigned arch, struct image **out);
void image_free(struct image *image);

/* Tells how many bytes an image of unknown size has; 0 if it is none. */
size_t image_size(const void *data);

/* The readers of single formats; they add to image, which image_load made and frees on failure. */
CUresult image_read_ptx(struct image *image, struct image_bytes text, unsigned arch);
CUresult image_read_elf(struct image *image, struct image_bytes elf, unsigned arch);
CUresult image_read_fatbin(struct image *image, struct image_bytes fatbin, unsigned arch);
bool image_is_ptx(struct image_bytes text);

/* New zeroed elements at the end of an image's or a function's lists; NULL when out of memory. */
struct image_function *image_add_function(struct image *image, const char *name, size_t length);
struct image_global *image_add_global(struct image *image, const char *name, size_t length);
struct image_param *image_add_param(struct image_function *function);

/* Packs several images into one that image_load reads as their union. NULL when out of memory. */
void *image_pack(const struct image_bytes *parts, unsigned count, size_t *size);

#endif
