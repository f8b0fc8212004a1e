/*
 * contexts: commands that make contexts, and fill them with code and heaps.
 */
#include <stdio.h>
#include <string.h>

#include "worker.h"

#define HELD 16

static CUmodule modules[HELD];
static CUcontext contexts[HELD];

/* module load NUMBER BYTES: one with a variable of so many bytes and a kernel `tiny`
 * module unload NUMBER
 * module function NUMBER [TIMES]: asks for the kernel so often */
static void contexts_module(struct job *job)
{
    const char *how = job_text(job, 1, "");
    CUmodule *module = &modules[job_number(job, 2, 0) % HELD];
    char text[256];
    CUfunction function;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    if (!strcmp(how, "load")) {
        snprintf(text, sizeof text,
                 ".version 7.0\n.target sm_50\n.address_size 64\n"
                 ".visible .global .align 8 .b8 filling[%llu];\n"
                 ".visible .entry tiny()\n{\nret;\n}\n",
                 (unsigned long long)job_number(job, 3, 8));
        rc = cu.cuModuleLoadData(module, text);
    } else if (!strcmp(how, "unload")) {
        rc = cu.cuModuleUnload(*module);
    } else if (!strcmp(how, "function")) {
        for (uint64_t i = job_number(job, 3, 1); i > 0; i--)
            rc = cu.cuModuleGetFunction(&function, *module, "tiny");
    }
    job_answer(job, "%d", (int)rc);
}

/* limit NUMBER VALUE: a CUlimit of the current context */
static void contexts_limit(struct job *job)
{
    job_answer(job, "%d",
               (int)cu.cuCtxSetLimit((CUlimit)job_number(job, 1, 0), job_number(job, 2, 0)));
}

/* context make|use|end NUMBER: a context of its own beside the primary one; `use 0`: that one
 * context reset: the end of the primary one */
static void contexts_one(struct job *job)
{
    const char *how = job_text(job, 1, "");
    uint64_t number = job_number(job, 2, 0) % HELD;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    if (!strcmp(how, "make"))
        rc = cu.cuCtxCreate_v2(&contexts[number], 0, worker.device);
    else if (!strcmp(how, "use"))
        rc = cu.cuCtxSetCurrent(number ? contexts[number] : worker.context);
    else if (!strcmp(how, "end"))
        rc = cu.cuCtxDestroy_v2(contexts[number]);
    else if (!strcmp(how, "reset"))
        rc = cu.cuDevicePrimaryCtxReset_v2(worker.device);
    job_answer(job, "%d", (int)rc);
}

const struct command commands_contexts[] = {
    {"module", contexts_module},
    {"limit", contexts_limit},
    {"context", contexts_one},
    {NULL, NULL},
};
