/*
 * How a program finds the driver's entries: cuGetProcAddress in both its forms, the refusal of
 * every export table, the answer of symbols without implementation, and a driver older than the
 * headers (SIMCUDA_DRIVER_VERSION), whose newer names neither cuGetProcAddress nor dlsym finds.
 * Runs on any thread before and after cuInit; takes no lock. It must never offer a private table.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>

#include "names.h"
#include "procs.h"

enum { RESOLVE_PTDS = 2, RESOLVE_LINE = 128 };

struct resolve_symbols {
    ElfW(Sym) * table;
    const char *names;
    size_t count;
};

/* Index of the first row of a name, or procs_count. */
static unsigned resolve_find(const char *name)
{
    unsigned low = 0;
    unsigned high = procs_count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (strcmp(procs[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < procs_count && strcmp(procs[low].name, name) == 0 ? low : procs_count;
}

static bool resolve_known(unsigned first)
{
    unsigned driver = (unsigned)names_driver_version();

    for (unsigned i = first; i < procs_count && strcmp(procs[i].name, procs[first].name) == 0; i++)
        if (procs[i].since <= driver)
            return true;
    return false;
}

/* The newest ABI of a name that is not newer than asked; per-thread flavours only on request, and
 * before legacy ones. */
static const struct proc *resolve_choose(unsigned first, unsigned version, bool per_thread)
{
    const struct proc *best = NULL;

    for (unsigned i = first; i < procs_count && strcmp(procs[i].name, procs[first].name) == 0; i++)
        if (procs[i].since <= version && (per_thread || !procs[i].per_thread))
            best = &procs[i];
    return best;
}

/* A jump to each row's function; NULL when there is no memory. */
static unsigned char *resolve_make_entries(void)
{
#ifdef __x86_64__
    static const unsigned char jump[8] = {0xff, 0x25, 2, 0, 0, 0, 0x0f, 0x0b};
#else
    static const unsigned int jump[2] = {0x58000050, 0xd61f0200};
#endif
    size_t bytes = (size_t)procs_count * 16;
    unsigned char *made =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (made == MAP_FAILED)
        return NULL;
    for (unsigned i = 0; i < procs_count; i++) {
        memcpy(made + (size_t)i * 16, jump, 8);
        memcpy(made + (size_t)i * 16 + 8, &procs[i].address, 8);
    }
    mprotect(made, bytes, PROT_READ | PROT_EXEC);
    return made;
}

/* As a driver answers that keeps private entries beside the exported functions: one for each, or
 * another one each time. */
static void *resolve_address(const struct proc *row)
{
    static unsigned char *entries;
    const char *wanted = getenv("SIMCUDA_PROC_ENTRIES");
    unsigned char *mine;

    if (wanted == NULL || (strcmp(wanted, "private") != 0 && strcmp(wanted, "fresh") != 0))
        return (void *)row->address;
    mine = strcmp(wanted, "fresh") == 0 ? NULL : __atomic_load_n(&entries, __ATOMIC_ACQUIRE);
    if (mine == NULL)
        mine = resolve_make_entries();
    if (mine == NULL)
        return (void *)row->address;
    __atomic_store_n(&entries, mine, __ATOMIC_RELEASE);
    return mine + (size_t)(row - procs) * 16;
}

static CUresult resolve_answer(const char *name, void **function, int version, cuuint64_t flags,
                               CUdriverProcAddressQueryResult *status)
{
    const struct proc *row = NULL;
    unsigned first;

    if (name == NULL || function == NULL || flags > RESOLVE_PTDS || version < 0 ||
        version > names_driver_version())
        return CUDA_ERROR_INVALID_VALUE;
    first = resolve_find(name);
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (first < procs_count && resolve_known(first)) {
        row = resolve_choose(first, (unsigned)version, flags == RESOLVE_PTDS);
        *status =
            row != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    *function = row != NULL ? resolve_address(row) : NULL;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult ignored;

    return resolve_answer(name, function, version, flags, status != NULL ? status : &ignored);
}

/* The form of CUDA 11 had no status and told a missing symbol by its result. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    CUresult result = resolve_answer(name, function, version, flags, &status);

    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    if (table == NULL || id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

int stub_refuse(const char *symbol)
{
    const char *wanted = getenv("SIMCUDA_LOG");
    char line[RESOLVE_LINE];

    if (wanted != NULL && strcmp(wanted, "0") != 0) {
        int length = snprintf(line, sizeof(line), "simcuda[%d]: %s is not implemented\n",
                              (int)getpid(), symbol);

        if (write(STDERR_FILENO, line, (size_t)length) < 0)
            return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static struct resolve_symbols resolve_own_symbols(void)
{
    struct resolve_symbols own = {0};
    struct link_map *map;
    Dl_info info;

    if (dladdr1((void *)resolve_own_symbols, &info, (void **)&map, RTLD_DL_LINKMAP) == 0)
        return own;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            own.table = (ElfW(Sym) *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_STRTAB)
            own.names = (const char *)entry->d_un.d_ptr;
        else if (entry->d_tag == DT_HASH)
            own.count = ((const ElfW(Word) *)entry->d_un.d_ptr)[1];
    }
    return own;
}

static bool resolve_newer(const char *symbol, unsigned driver)
{
    for (unsigned i = 0; i < procs_count; i++)
        if (strcmp(procs[i].symbol, symbol) == 0)
            return procs[i].since > driver;
    return false;
}

/* dlsym passes over a symbol without value. The table is this process's own copy of the page, so an
 * older driver costs nobody else anything; programs linked directly are bound before this runs. */
__attribute__((constructor)) static void resolve_hide_newer(void)
{
    unsigned driver = (unsigned)names_driver_version();
    struct resolve_symbols own;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start;
    uintptr_t end;

    if (driver >= CUDA_VERSION)
        return;
    own = resolve_own_symbols();
    start = (uintptr_t)own.table & ~(page - 1);
    end = (uintptr_t)(own.table + own.count);
    if (own.table == NULL || own.names == NULL || own.count == 0 ||
        mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "simcuda: a driver older than the headers cannot hide its newer symbols\n");
        return;
    }
    for (size_t i = 0; i < own.count; i++)
        if (own.table[i].st_shndx != SHN_UNDEF &&
            resolve_newer(own.names + own.table[i].st_name, driver))
            own.table[i].st_value = 0;
    mprotect((void *)start, end - start, PROT_READ);
}
