/*
 * The binary formats' constants and headers, as far as the readers need them. Sources: the ELF
 * specification, <elf.h>, and what nvcc, ptxas and fatbinary of the public toolkit write.
 */
#ifndef SIM_CLIENT_IMAGE_FORMAT_H
#define SIM_CLIENT_IMAGE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_ELF_MAGIC 0x464c457fU
#define IMAGE_FATBIN_MAGIC 0xba55ed50U
#define IMAGE_WRAPPER_MAGIC 0x466243b1U

/* What __cudaRegisterFatBinary and cuModuleLoadFatBinary are given in host objects. */
struct image_wrapper {
    uint32_t magic;
    uint32_t version;
    const void *data;
    const void *other;
};

struct image_fatbin_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* of all entries */
};

/* Fields past these differ between versions; header_bytes tells where the payload starts. */
struct image_fatbin_entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
    uint32_t options;
    uint16_t minor;
    uint16_t major;
    uint32_t arch;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t zero;
    uint64_t plain_bytes; /* after decompression */
};

enum {
    IMAGE_KIND_PTX = 1,
    IMAGE_KIND_ELF = 2,
    IMAGE_FLAG_LZ4 = 0x2000,
    IMAGE_FLAG_ZSTD = 0x8000,
};

/* Tells whether all of a range may be read. */
bool image_mapped(const void *data, size_t size);

/* Sizes from the headers; 0 when they are broken. At least the first 24 bytes are mapped. */
size_t image_elf_size(const void *elf);
size_t image_fatbin_size(const void *fatbin);

/* Tells whether code for compute capability code runs on a device of arch: cubins within the major
 * version, PTX on anything newer. */
static inline int image_elf_fits(unsigned code, unsigned arch)
{
    return code / 10 == arch / 10 && code <= arch;
}

#endif
