/* The programs that the demo starts: unmodified CUDA programs under `cuslice run`, each a child of
 * the demo, tied to it by their standard input. */
#ifndef DEMO_GUEST_H
#define DEMO_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "stage.h"

enum { GUESTS = 3 };

struct guest {
    /* What it is to be. */
    const char *name; /* the tenant's */
    unsigned weight;
    const char *cap;
    unsigned memory_mib;
    unsigned more_mib; /* to ask for later, beyond the cap; 0: not */
    unsigned more_at_ms;
    /* Its process. */
    pid_t pid;  /* 0: none */
    int input;  /* closed to end it */
    int output; /* what it tells */
    int status; /* waitpid's, once pid is 0 again */
    char log[PATH_MAX + 32];
    /* What it told. */
    char device[96];
    char line[256];
    size_t line_length;
    uint64_t kernels;
    uint64_t total; /* memory that it believes the GPU has */
    uint64_t refused;
    uint64_t refused_used;
    char refusal[64];
    bool allowed; /* got what it should not have got */
};

/* Starts it; 0 or -errno. It ends by itself after run_ms, or when told to. */
int guest_start(struct guest *guest, const struct stage *stage, unsigned kernel_us,
                unsigned run_ms);

/* Takes in what it has told since; never blocks. */
void guest_listen(struct guest *guest);

/* Whether it still runs. */
bool guest_lives(struct guest *guest);

/* Ends all of them: asks, waits, and kills those that have not gone after wait_ms. */
void guest_end_all(struct guest guests[GUESTS], unsigned wait_ms);

/* Prints the beginning of what it wrote on standard error, which names the first thing that went
 * wrong. */
void guest_print_log(const struct guest *guest);

/* Copies the first line of its log that holds word, without its newline; false when none does. */
bool guest_find_line(const struct guest *guest, const char *word, char *line, size_t size);

#endif
