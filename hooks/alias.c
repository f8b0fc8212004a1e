/*
 * alias: tells which exported function an unknown address stands for (see alias.h). Nothing is
 * known here of versions: a name's exported functions in the order of their numbers, and the
 * driver's distinct answers in the order of the versions asked for, are two lists of the same
 * things; when they are equally long they are matched one to one.
 */
#include "alias.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "libc.h"
#include "log.h"
#include "real.h"
#include "resolve.h"

#define ALIAS_MAX 16u
#define ALIAS_NAME 128u
#define ALIAS_VERSIONS 9 /* a name's numbers looked for: plain, _v2, ... */
#define ALIAS_MAJORS 40  /* versions asked for: until the driver knows no newer one */

struct alias_list {
    unsigned count;
    char name[ALIAS_MAX][ALIAS_NAME];
    void *function[ALIAS_MAX];
};

static void alias_add_name(struct alias_list *list, const char *base, int version, const char *end)
{
    char *name = list->name[list->count];
    if (list->count == ALIAS_MAX)
        return;
    int length = version == 1 ? snprintf(name, ALIAS_NAME, "%s%s", base, end)
                              : snprintf(name, ALIAS_NAME, "%s_v%d%s", base, version, end);
    if (length < (int)ALIAS_NAME && real_symbol(name))
        list->count++;
}

static void alias_names(struct alias_list *list, const char *base, bool per_thread)
{
    list->count = 0;
    for (int version = 1; version <= ALIAS_VERSIONS; version++) {
        alias_add_name(list, base, version, per_thread ? "_ptds" : "");
        if (per_thread)
            alias_add_name(list, base, version, "_ptsz");
    }
}

static CUresult alias_ask(const char *base, void **function, int version, cuuint64_t flags)
{
    *function = NULL;
    return REAL_HAS(cuGetProcAddress_v2)
               ? real.cuGetProcAddress_v2(base, function, version, flags, NULL)
               : real.cuGetProcAddress(base, function, version, flags);
}

static bool alias_has(const struct alias_list *list, const void *function)
{
    for (unsigned i = 0; list && i < list->count; i++)
        if (list->function[i] == function)
            return true;
    return false;
}

/* The distinct answers, but for those in `without`. */
static void alias_functions(struct alias_list *list, const char *base, cuuint64_t flags,
                            const struct alias_list *without)
{
    void *function;
    list->count = 0;
    for (int step = 20; step < ALIAS_MAJORS * 10; step++) {
        CUresult rc = alias_ask(base, &function, step / 10 * 1000 + step % 10 * 10, flags);
        if (rc == CUDA_ERROR_INVALID_VALUE)
            return;
        if (rc == CUDA_SUCCESS && function && !alias_has(list, function) &&
            !alias_has(without, function) && list->count < ALIAS_MAX)
            list->function[list->count++] = function;
    }
}

/* The exported name that a function of the list stands for, into names->name[*i]. */
static bool alias_match(const struct alias_list *names, const struct alias_list *functions,
                        const void *function, unsigned *i)
{
    if (names->count != functions->count)
        return false;
    for (*i = 0; *i < names->count; ++*i)
        if (functions->function[*i] == function)
            return true;
    return false;
}

/* An answer for per-thread default streams is a flavour of its own or, where there is none, the
 * plain function. */
static void *alias_find(const char *base, void *function, cuuint64_t flags)
{
    struct alias_list names, plain, flavoured;
    unsigned i;
    alias_names(&names, base, false);
    alias_functions(&plain, base, CU_GET_PROC_ADDRESS_LEGACY_STREAM, NULL);
    bool found = alias_match(&names, &plain, function, &i);
    if (!found && flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
        alias_names(&names, base, true);
        alias_functions(&flavoured, base, flags, &plain);
        found = alias_match(&names, &flavoured, function, &i);
    }
    if (!found)
        return NULL;
    void *hook = resolve_hook(names.name[i]);
    return hook ? hook : function;
}

void *alias_answer(const char *name, void *function, cuuint64_t flags)
{
    static _Atomic bool said;
    Dl_info info;
    if (dladdr(function, &info) && info.dli_sname && info.dli_saddr == function)
        return function;
    void *hook = alias_find(name, function, flags);
    if (!hook && !atomic_exchange(&said, true))
        log_error("unhooked",
                  "the driver answers %s with a function that it does not export: such "
                  "calls are not seen",
                  name);
    return hook ? hook : function;
}
