/*
 * Reads cubins: the ELF files that ptxas and NVRTC write. Kernels are the function symbols marked
 * as entries, their parameters stand in .nv.info.<kernel>, variables in .nv.global, .nv.global.init
 * and .nv.constant3. Pure functions on memory; everything is checked against the file's bounds.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "image_format.h"

enum {
    CUBIN_MACHINE = 190,
    CUBIN_ABI_ARCH_HIGH =
        8,                /* from this ABI version the architecture is in the flags' second byte */
    CUBIN_ENTRY = 0x10,   /* st_other of a kernel */
    CUBIN_MANAGED = 0x04, /* st_other of a managed variable */

    INFO_BYTES = 4, /* format of an attribute that is followed by its length */
    INFO_HALF = 3,  /* format of one whose value is in the second half-word */
    INFO_MAX_THREADS = 0x05,
    INFO_FRAME_SIZE = 0x11,
    INFO_PARAM = 0x17,
    INFO_PARAM_BYTES = 0x19,
    INFO_REGISTERS = 0x2f,
    INFO_PARAM_V2 = 0x45,
};

struct elf_reader {
    struct image_bytes file;
    Elf64_Ehdr header;
    struct image_bytes names; /* of sections */
    struct image_bytes symbols;
    struct image_bytes strings; /* of symbols */
};

struct elf_info {
    unsigned attribute;
    unsigned half; /* the value of an INFO_HALF attribute */
    struct image_bytes value;
};

static bool elf_section(const struct elf_reader *r, unsigned index, Elf64_Shdr *section)
{
    if (index >= r->header.e_shnum)
        return false;
    memcpy(section, r->file.at + r->header.e_shoff + index * sizeof(*section), sizeof(*section));
    return true;
}

static bool elf_bytes(const struct elf_reader *r, const Elf64_Shdr *section,
                      struct image_bytes *bytes)
{
    if (section->sh_type == SHT_NOBITS || section->sh_offset > r->file.size ||
        section->sh_size > r->file.size - section->sh_offset)
        return false;
    bytes->at = r->file.at + section->sh_offset;
    bytes->size = section->sh_size;
    return true;
}

/* A name that ends within its table, or NULL. */
static const char *elf_text(struct image_bytes table, uint64_t offset)
{
    if (offset >= table.size || memchr(table.at + offset, '\0', table.size - offset) == NULL)
        return NULL;
    return (const char *)table.at + offset;
}

static bool elf_find(const struct elf_reader *r, const char *prefix, const char *name,
                     Elf64_Shdr *section)
{
    size_t length = strlen(prefix);

    for (unsigned i = 0; elf_section(r, i, section); i++) {
        const char *text = elf_text(r->names, section->sh_name);

        if (text != NULL && strncmp(text, prefix, length) == 0 && strcmp(text + length, name) == 0)
            return true;
    }
    return false;
}

static bool elf_open(struct elf_reader *r, struct image_bytes file)
{
    Elf64_Shdr section;

    memset(r, 0, sizeof(*r));
    r->file = file;
    if (file.size < sizeof(r->header))
        return false;
    memcpy(&r->header, file.at, sizeof(r->header));
    if (r->header.e_ident[EI_CLASS] != ELFCLASS64 || r->header.e_ident[EI_DATA] != ELFDATA2LSB ||
        r->header.e_machine != CUBIN_MACHINE || r->header.e_shentsize != sizeof(Elf64_Shdr) ||
        r->header.e_shoff > file.size ||
        r->header.e_shnum > (file.size - r->header.e_shoff) / sizeof(Elf64_Shdr))
        return false;
    if (!elf_section(r, r->header.e_shstrndx, &section) || !elf_bytes(r, &section, &r->names))
        return false;
    for (unsigned i = 0; elf_section(r, i, &section); i++) {
        if (section.sh_type != SHT_SYMTAB)
            continue;
        return elf_bytes(r, &section, &r->symbols) && elf_section(r, section.sh_link, &section) &&
               elf_bytes(r, &section, &r->strings);
    }
    return false;
}

static bool elf_symbol(const struct elf_reader *r, size_t index, Elf64_Sym *symbol)
{
    if (index >= r->symbols.size / sizeof(*symbol))
        return false;
    memcpy(symbol, r->symbols.at + index * sizeof(*symbol), sizeof(*symbol));
    return true;
}

/* Takes the next attribute off the front of a .nv.info section; false at its end. */
static bool info_next(struct image_bytes *info, struct elf_info *item)
{
    const unsigned char *at = info->at;
    size_t length = 4;

    if (info->size < length)
        return false;
    item->attribute = at[1];
    item->half = at[2] | (unsigned)at[3] << 8;
    item->value = (struct image_bytes){at + 4, 0};
    if (at[0] == INFO_BYTES) {
        item->value.size = item->half;
        length += item->half;
        if (length > info->size)
            return false;
    }
    info->at += length;
    info->size -= length;
    return true;
}

static uint32_t info_word(const struct elf_info *item, size_t index)
{
    uint32_t word = 0;

    if ((index + 1) * sizeof(word) <= item->value.size)
        memcpy(&word, item->value.at + index * sizeof(word), sizeof(word));
    return word;
}

/* Index, then ordinal and offset as half-words, then a word with the size in its upper 14 bits; the
 * second version, for kernels with more than that, has it in the lower 16. The attributes come last
 * parameter first. */
static bool info_read_param(struct image_function *f, const struct elf_info *item)
{
    unsigned ordinal = info_word(item, 1) & 0xffff;
    uint32_t last = info_word(item, 2);

    if (item->value.size < 12)
        return false;
    while (f->param_count <= ordinal)
        if (image_add_param(f) == NULL)
            return false;
    f->params[ordinal].offset = info_word(item, 1) >> 16;
    f->params[ordinal].bytes = item->attribute == INFO_PARAM ? last >> 18 : last & 0xffff;
    return true;
}

static bool info_read_threads(struct image_function *f, const struct elf_info *item)
{
    uint64_t product = (uint64_t)info_word(item, 0) * info_word(item, 1) * info_word(item, 2);

    f->max_threads = product <= UINT16_MAX ? (uint32_t)product : 0;
    return true;
}

static bool elf_read_info(const struct elf_reader *r, struct image_function *f)
{
    struct image_bytes info;
    struct elf_info item;
    Elf64_Shdr section;

    if (!elf_find(r, ".nv.info.", f->name, &section))
        return true;
    if (!elf_bytes(r, &section, &info))
        return false;
    while (info_next(&info, &item)) {
        bool good = true;

        if (item.attribute == INFO_PARAM || item.attribute == INFO_PARAM_V2)
            good = info_read_param(f, &item);
        else if (item.attribute == INFO_PARAM_BYTES)
            f->param_bytes = item.half;
        else if (item.attribute == INFO_MAX_THREADS)
            good = info_read_threads(f, &item);
        if (!good)
            return false;
    }
    return info.size == 0;
}

static bool elf_add_function(struct image *image, const struct elf_reader *r, const char *name,
                             const Elf64_Sym *symbol)
{
    struct image_function *f = image_add_function(image, name, strlen(name));
    Elf64_Shdr section;

    if (f == NULL)
        return false;
    f->code_bytes = (uint32_t)symbol->st_size;
    if (elf_find(r, ".nv.shared.", name, &section))
        f->shared_bytes = (uint32_t)section.sh_size;
    return elf_read_info(r, f);
}

static bool elf_copy_initial(const struct elf_reader *r, const Elf64_Shdr *section,
                             const Elf64_Sym *symbol, struct image_global *g)
{
    struct image_bytes bytes;

    if (section->sh_type == SHT_NOBITS)
        return true;
    if (!elf_bytes(r, section, &bytes) || symbol->st_value > bytes.size ||
        symbol->st_size > bytes.size - symbol->st_value)
        return false;
    g->initial = malloc(symbol->st_size);
    if (g->initial == NULL)
        return false;
    memcpy(g->initial, bytes.at + symbol->st_value, symbol->st_size);
    return true;
}

static bool elf_add_global(struct image *image, const struct elf_reader *r, const char *name,
                           const Elf64_Sym *symbol)
{
    struct image_global *g;
    Elf64_Shdr section;
    const char *place;

    if (!elf_section(r, symbol->st_shndx, &section) || symbol->st_size == 0)
        return true;
    place = elf_text(r->names, section.sh_name);
    if (place == NULL ||
        (strncmp(place, ".nv.global", 10) != 0 && strcmp(place, ".nv.constant3") != 0))
        return true;
    g = image_add_global(image, name, strlen(name));
    if (g == NULL)
        return false;
    g->bytes = symbol->st_size;
    g->alignment = section.sh_addralign;
    g->constant = strcmp(place, ".nv.constant3") == 0;
    g->managed = (symbol->st_other & CUBIN_MANAGED) != 0;
    return elf_copy_initial(r, &section, symbol, g);
}

static bool elf_read_symbols(struct image *image, const struct elf_reader *r)
{
    Elf64_Sym symbol;

    for (size_t i = 0; elf_symbol(r, i, &symbol); i++) {
        const char *name = elf_text(r->strings, symbol.st_name);
        unsigned type = ELF64_ST_TYPE(symbol.st_info);

        if (name == NULL)
            return false;
        if (symbol.st_shndx == SHN_UNDEF) {
            image->heap |= !strcmp(name, "malloc") || !strcmp(name, "free");
            image->fifo |= !strcmp(name, "vprintf");
        }
        if (symbol.st_shndx == SHN_UNDEF || name[0] == '\0')
            continue;
        if (type == STT_FUNC && (symbol.st_other & CUBIN_ENTRY) != 0 &&
            !elf_add_function(image, r, name, &symbol))
            return false;
        if (type == STT_OBJECT && !elf_add_global(image, r, name, &symbol))
            return false;
    }
    return true;
}

static struct image_function *elf_function(struct image *image, const struct elf_reader *r,
                                           uint32_t index)
{
    const char *name;
    Elf64_Sym symbol;

    if (!elf_symbol(r, index, &symbol))
        return NULL;
    name = elf_text(r->strings, symbol.st_name);
    for (unsigned i = 0; name != NULL && i < image->function_count; i++)
        if (strcmp(image->functions[i].name, name) == 0)
            return &image->functions[i];
    return NULL;
}

/* Register counts and stack frames stand in the common .nv.info, by symbol. */
static void elf_read_common(struct image *image, const struct elf_reader *r)
{
    struct image_bytes info;
    struct elf_info item;
    Elf64_Shdr section;

    if (!elf_find(r, ".nv.info", "", &section) || !elf_bytes(r, &section, &info))
        return;
    while (info_next(&info, &item)) {
        struct image_function *f = NULL;

        if (item.value.size >= 8)
            f = elf_function(image, r, info_word(&item, 0));
        if (f != NULL && item.attribute == INFO_REGISTERS)
            f->registers = info_word(&item, 1);
        else if (f != NULL && item.attribute == INFO_FRAME_SIZE)
            f->local_bytes = info_word(&item, 1);
    }
}

size_t image_elf_size(const void *elf)
{
    Elf64_Ehdr header;
    uint64_t size;

    if (!image_mapped(elf, sizeof(header)))
        return 0;
    memcpy(&header, elf, sizeof(header));
    size = header.e_shoff + (uint64_t)header.e_shnum * sizeof(Elf64_Shdr);
    if (header.e_shoff > UINT32_MAX || !image_mapped(elf, size))
        return 0;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;

        memcpy(&section, (const char *)elf + header.e_shoff + i * sizeof(section), sizeof(section));
        if (section.sh_offset > UINT32_MAX || section.sh_size > UINT32_MAX)
            return 0;
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > size)
            size = section.sh_offset + section.sh_size;
    }
    if (header.e_phoff <= UINT32_MAX &&
        header.e_phoff + (uint64_t)header.e_phnum * header.e_phentsize > size)
        size = header.e_phoff + (uint64_t)header.e_phnum * header.e_phentsize;
    return size;
}

CUresult image_read_elf(struct image *image, struct image_bytes elf, unsigned arch)
{
    struct elf_reader r;
    unsigned code;

    if (!elf_open(&r, elf))
        return CUDA_ERROR_INVALID_IMAGE;
    code = r.header.e_ident[EI_ABIVERSION] >= CUBIN_ABI_ARCH_HIGH ? r.header.e_flags >> 8 & 0xff
                                                                  : r.header.e_flags & 0xff;
    if (!image_elf_fits(code, arch))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    image->binary_version = code;
    if (!elf_read_symbols(image, &r))
        return CUDA_ERROR_INVALID_IMAGE;
    elf_read_common(image, &r);
    return CUDA_SUCCESS;
}
