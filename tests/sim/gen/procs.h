/*
 * The driver's symbols as one table: what gen.py makes of the toolkit's headers and symbols.txt.
 * Rows are ordered by base name, then legacy before per-thread flavour, then by version, so that
 * the answer to a look-up is the last row that is not too new.
 */
#ifndef SIM_GEN_PROCS_H
#define SIM_GEN_PROCS_H

struct proc {
    const char *name;     /* base name, as cuGetProcAddress is asked */
    const char *symbol;   /* exported name */
    int (*address)(void); /* this library's own definition; the true type is the header's */
    unsigned since;       /* CUDA version (1000 * major + 10 * minor) that brought it */
    unsigned per_thread;  /* 1: the _ptsz or _ptds flavour */
};

extern const struct proc procs[];
extern const unsigned procs_count;

/* What a symbol without implementation answers: logs its name, CUDA_ERROR_NOT_SUPPORTED. */
int stub_refuse(const char *symbol);

#endif
