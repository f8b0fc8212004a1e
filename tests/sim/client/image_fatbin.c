/*
 * Fat binaries: a container of cubins and PTX for several architectures, of which the best for the
 * device is read. Payloads compressed with LZ4 are unpacked here; those compressed with Zstandard
 * (nvcc's default for PTX) are passed over as if they were not there. Pure functions on memory.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "image_format.h"

enum { LZ4_LEAST_MATCH = 4, LZ4_LONG = 15, LZ4_MORE = 255 };

#define IMAGE_MOST_PLAIN ((uint64_t)1 << 30)

struct image_choice {
    struct image_fatbin_entry entry;
    struct image_bytes payload;
    unsigned rank; /* 0: nothing found */
};

size_t image_fatbin_size(const void *fatbin)
{
    struct image_fatbin_header header;

    memcpy(&header, fatbin, sizeof(header));
    if (header.header_bytes < sizeof(header) || header.bytes > UINT32_MAX)
        return 0;
    return header.header_bytes + header.bytes;
}

/* The length fields of an LZ4 sequence go on in bytes of 255. Returns false past the end. */
static bool lz4_read_length(struct image_bytes *in, size_t *length)
{
    unsigned char more;

    if (*length != LZ4_LONG)
        return true;
    do {
        if (in->size == 0)
            return false;
        more = *in->at;
        in->at++;
        in->size--;
        *length += more;
    } while (more == LZ4_MORE);
    return true;
}

static bool lz4_copy_literals(struct image_bytes *in, unsigned char *out, size_t room,
                              size_t length)
{
    if (length > in->size || length > room)
        return false;
    memcpy(out, in->at, length);
    in->at += length;
    in->size -= length;
    return true;
}

/* Unpacks one LZ4 block of a known plain size. */
static bool lz4_unpack(struct image_bytes in, unsigned char *out, size_t size)
{
    size_t at = 0;

    while (in.size > 0) {
        unsigned char token = *in.at;
        size_t literals = token >> 4;
        size_t match = token & LZ4_LONG;
        size_t offset;

        in.at++;
        in.size--;
        if (!lz4_read_length(&in, &literals) ||
            !lz4_copy_literals(&in, out + at, size - at, literals))
            return false;
        at += literals;
        if (in.size == 0)
            break;
        if (in.size < 2)
            return false;
        offset = in.at[0] | (size_t)in.at[1] << 8;
        in.at += 2;
        in.size -= 2;
        if (!lz4_read_length(&in, &match))
            return false;
        match += LZ4_LEAST_MATCH;
        if (offset == 0 || offset > at || match > size - at)
            return false;
        for (; match > 0; match--, at++)
            out[at] = out[at - offset];
    }
    return at == size;
}

/* A cubin beats PTX, then the newest that still fits wins. */
static unsigned image_rank(const struct image_fatbin_entry *entry, unsigned arch)
{
    if ((entry->flags & IMAGE_FLAG_ZSTD) != 0)
        return 0;
    if (entry->kind == IMAGE_KIND_ELF && image_elf_fits(entry->arch, arch))
        return 1000 + entry->arch;
    if (entry->kind == IMAGE_KIND_PTX && entry->arch <= arch)
        return entry->arch;
    return 0;
}

/* Looks at the entry at *at and moves on; false when the container is broken. */
static bool image_next_entry(struct image_bytes fatbin, size_t *at, unsigned arch,
                             struct image_choice *best)
{
    struct image_fatbin_entry entry;
    size_t left = fatbin.size - *at;
    unsigned rank;

    if (left < sizeof(entry))
        return false;
    memcpy(&entry, fatbin.at + *at, sizeof(entry));
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes > left ||
        entry.bytes > left - entry.header_bytes || entry.compressed_bytes > entry.bytes)
        return false;
    rank = image_rank(&entry, arch);
    if (rank > best->rank) {
        best->rank = rank;
        best->entry = entry;
        best->payload.at = fatbin.at + *at + entry.header_bytes;
        best->payload.size = entry.bytes;
    }
    *at += entry.header_bytes + entry.bytes;
    return true;
}

static CUresult image_read_payload(struct image *image, const struct image_choice *choice,
                                   struct image_bytes plain, unsigned arch)
{
    if (plain.size == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    if (choice->entry.kind == IMAGE_KIND_ELF)
        return image_read_elf(image, plain, arch);
    return image_read_ptx(image, plain, arch);
}

static CUresult image_read_choice(struct image *image, const struct image_choice *choice,
                                  unsigned arch)
{
    struct image_bytes packed = choice->payload;
    struct image_bytes plain = {NULL, choice->entry.plain_bytes};
    unsigned char *unpacked;
    CUresult result = CUDA_ERROR_INVALID_IMAGE;

    if ((choice->entry.flags & IMAGE_FLAG_LZ4) == 0)
        return image_read_payload(image, choice, choice->payload, arch);
    if (plain.size == 0 || plain.size > IMAGE_MOST_PLAIN)
        return CUDA_ERROR_INVALID_IMAGE;
    unpacked = malloc(plain.size);
    if (unpacked == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    packed.size = choice->entry.compressed_bytes;
    plain.at = unpacked;
    if (lz4_unpack(packed, unpacked, plain.size))
        result = image_read_payload(image, choice, plain, arch);
    free(unpacked);
    return result;
}

CUresult image_read_fatbin(struct image *image, struct image_bytes fatbin, unsigned arch)
{
    struct image_choice best = {.rank = 0};
    struct image_fatbin_header header;
    size_t at;

    if (fatbin.size < sizeof(header))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, fatbin.at, sizeof(header));
    if (header.header_bytes < sizeof(header) || header.header_bytes > fatbin.size ||
        header.bytes > fatbin.size - header.header_bytes)
        return CUDA_ERROR_INVALID_IMAGE;
    fatbin.size = header.header_bytes + header.bytes;
    for (at = header.header_bytes; at < fatbin.size;)
        if (!image_next_entry(fatbin, &at, arch, &best))
            return CUDA_ERROR_INVALID_IMAGE;
    return best.rank == 0 ? CUDA_ERROR_NO_BINARY_FOR_GPU : image_read_choice(image, &best, arch);
}
