/*
 * bindings: goes over the relocations of loaded objects (see bindings.h). It changes only words
 * that hold a function of hooks.def or nvml.def, or that are still to be bound to one; words bound
 * to anybody else stay. The loader's lock is held meanwhile, so no object goes away.
 */
#include "bindings.h"

#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "resolve.h"

#ifdef __x86_64__
#define BINDINGS_CALL R_X86_64_JUMP_SLOT
#define BINDINGS_ADDRESS R_X86_64_GLOB_DAT
#define BINDINGS_DATA R_X86_64_64
#else
#define BINDINGS_CALL R_AARCH64_JUMP_SLOT
#define BINDINGS_ADDRESS R_AARCH64_GLOB_DAT
#define BINDINGS_DATA R_AARCH64_ABS64
#endif

/* One object's relocations. */
struct bindings {
    const struct dl_phdr_info *object;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * calls, *others;
    size_t calls_bytes, others_bytes;
};

static const void *bindings_place(const struct dl_phdr_info *object, ElfW(Addr) value)
{
    return (const void *)(value < object->dlpi_addr ? object->dlpi_addr + value : value);
}

static bool bindings_open(struct bindings *bindings, const struct dl_phdr_info *object)
{
    const ElfW(Dyn) *d = NULL;
    *bindings = (struct bindings){.object = object};
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            d = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; d && d->d_tag != DT_NULL; d++) {
        const void *place = bindings_place(object, d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            bindings->symbols = place;
        else if (d->d_tag == DT_STRTAB)
            bindings->names = place;
        else if (d->d_tag == DT_JMPREL)
            bindings->calls = place;
        else if (d->d_tag == DT_RELA)
            bindings->others = place;
        else if (d->d_tag == DT_PLTRELSZ)
            bindings->calls_bytes = d->d_un.d_val;
        else if (d->d_tag == DT_RELASZ)
            bindings->others_bytes = d->d_un.d_val;
    }
    return bindings->symbols && bindings->names;
}

static bool bindings_in(const struct dl_phdr_info *object, const void *address)
{
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD &&
            (uintptr_t)address - (object->dlpi_addr + object->dlpi_phdr[i].p_vaddr) <
                object->dlpi_phdr[i].p_memsz)
            return true;
    return false;
}

/* Whether the loader has made the word read-only after binding it. */
static bool bindings_sealed(const struct dl_phdr_info *object, const void *word)
{
    for (unsigned i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_GNU_RELRO &&
            (uintptr_t)word - (object->dlpi_addr + object->dlpi_phdr[i].p_vaddr) <
                object->dlpi_phdr[i].p_memsz)
            return true;
    return false;
}

static void bindings_write(const struct dl_phdr_info *object, void **word, void *function)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)word & ~(page - 1));
    bool sealed = bindings_sealed(object, word);
    if (sealed && mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return;
    __atomic_store_n(word, function, __ATOMIC_RELEASE);
    if (sealed)
        mprotect(start, page, PROT_READ);
}

static void bindings_redirect_one(const struct bindings *bindings, const ElfW(Rela) * relocation)
{
    unsigned long type = ELF64_R_TYPE(relocation->r_info);
    if (type != BINDINGS_CALL && type != BINDINGS_ADDRESS && type != BINDINGS_DATA)
        return;
    const ElfW(Sym) *symbol = &bindings->symbols[ELF64_R_SYM(relocation->r_info)];
    const char *name = bindings->names + symbol->st_name;
    void **word = (void **)(bindings->object->dlpi_addr + relocation->r_offset);
    if (symbol->st_shndx != SHN_UNDEF ||
        !(resolve_is_driver_name(name) || resolve_is_nvml_name(name)))
        return;
    void *hook = resolve_swap(*word);
    if (hook == *word && type == BINDINGS_CALL && bindings_in(bindings->object, *word))
        hook = resolve_hook(name);
    if (hook && hook != *word)
        bindings_write(bindings->object, word, hook);
}

static void bindings_redirect_all(const struct bindings *bindings, const ElfW(Rela) * relocations,
                                  size_t bytes)
{
    for (size_t i = 0; relocations && i < bytes / sizeof *relocations; i++)
        bindings_redirect_one(bindings, &relocations[i]);
}

static int bindings_look(struct dl_phdr_info *object, size_t size, void *arg)
{
    struct bindings bindings;
    (void)size;
    (void)arg;
    if (bindings_in(object, (const void *)(size_t)bindings_redirect) ||
        !bindings_open(&bindings, object))
        return 0;
    bindings_redirect_all(&bindings, bindings.calls, bindings.calls_bytes);
    bindings_redirect_all(&bindings, bindings.others, bindings.others_bytes);
    return 0;
}

void bindings_redirect(void)
{
    dl_iterate_phdr(bindings_look, NULL);
}
