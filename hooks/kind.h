/*
 * kind: which submissions are taken to last alike: those of one function (of the driver, and of the
 * program) and of about the same size. Sizes (numbers of four and eight bytes) count by the length
 * of their product in bits, handles of functions and graphs as they are, addresses not at all.
 * Computed from a row's arguments where the hook is (entry.c); meter.c has what it is good for.
 */
#ifndef CUSLICE_HOOKS_KIND_H
#define CUSLICE_HOOKS_KIND_H

#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "pairs.h"
#include "real.h"

enum kind_part { KIND_NOTHING, KIND_SIZE, KIND_HANDLE, KIND_CONFIG };

/* What an argument of this type says. A size_t is no CUdeviceptr to the compiler. */
#define KIND_PART(type) \
    _Generic((type){0},                    \
        CUfunction: KIND_HANDLE,           \
        CUgraphExec: KIND_HANDLE,          \
        int: KIND_SIZE,                    \
        unsigned int: KIND_SIZE,           \
        unsigned long: KIND_SIZE,          \
        const CUlaunchConfig *: KIND_CONFIG, \
        default: KIND_NOTHING)

struct kind {
    uint64_t handles;
    uint64_t size; /* the product of all sizes: threads, or bytes */
};

static inline uint64_t kind_spread(uint64_t value)
{
    value *= UINT64_C(0x9e3779b97f4a7c15);
    return value ^ value >> 32;
}

/* Of a configuration only the grid: the blocks of one function are alike. */
static inline uint64_t kind_part_size(enum kind_part part, uintptr_t value)
{
    const CUlaunchConfig *config = (const CUlaunchConfig *)value;
    if (part == KIND_SIZE)
        return value | 1;
    return part != KIND_CONFIG || !config
               ? 1
               : (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ | 1;
}

static inline struct kind kind_add(struct kind kind, enum kind_part part, uintptr_t value)
{
    return (struct kind){part == KIND_HANDLE ? kind.handles ^ value : kind.handles,
                         kind.size * kind_part_size(part, value)};
}

static inline uint64_t kind_of(struct kind kind)
{
    unsigned bits = 64u - (unsigned)__builtin_clzll(kind.size | 1);
    return kind_spread(kind.handles << 8 ^ kind.handles >> 56 ^ bits) | 1;
}

#define KIND_ADD(type, name) kind = kind_add(kind, KIND_PART(type), (uintptr_t)name);

/* The kind of a call of row `name`; never 0. */
#define KIND(name, ...) \
    __extension__({ \
        struct kind kind = {offsetof(struct real, name) << 40, 1}; \
        PAIRS_EACH(KIND_ADD, __VA_ARGS__) \
        kind_of(kind); \
    })

#endif
