/*
 * entry: the bodies of all hooks, one short pattern per class of hooks.def. They run on the
 * program's threads in place of the driver's functions; policy is in the files they call. A process
 * that has not attached passes straight through.
 */
#include "arrays.h"
#include "attach.h"
#include "charge.h"
#include "contexts.h"
#include "copies.h"
#include "fast.h"
#include "footprint.h"
#include "gate.h"
#include "graphs.h"
#include "kind.h"
#include "outside.h"
#include "oversubscribe.h"
#include "pairs.h"
#include "physical.h"
#include "pools.h"
#include "query.h"
#include "real.h"
#include "resolve.h"
#include "shared.h"
#include "streams.h"

/* A place on the stack above all that the calls of the function will use. */
#define HERE ((uintptr_t)__builtin_frame_address(0))

#define SPECIAL(name, function, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        return function(PAIRS_PASS(__VA_ARGS__)); \
    }

/* The way through the gate that may wait for the turn: `function` does so in place of `name`. */
#define SLOW(function, name, stream_, flavour, ...) \
    CUresult function(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        FAST_UNWIND(); \
        struct gate_pass pass = {.here = HERE, .kind = KIND(name, __VA_ARGS__)}; \
        gate_enter_slow(&pass, stream_, flavour); \
        CUresult rc = real.name(PAIRS_PASS(__VA_ARGS__)); \
        gate_leave_slow(&pass, rc); \
        return rc; \
    }

#define GATE(name, stream_, flavour, ...) \
    CUresult entry_slow_##name(PAIRS_DECLARE(__VA_ARGS__)); \
    FAST(name, entry_slow_##name, __VA_ARGS__) \
    SLOW(entry_slow_##name, name, stream_, flavour, __VA_ARGS__)

#define COPY(name, within, stream_, flavour, after, ...) \
    static __attribute__((noinline)) SLOW(entry_gated_##name, name, stream_, flavour, __VA_ARGS__) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        bool inside = within; \
        uint64_t before __attribute__((unused)) = gate_sync_begin(); \
        CUresult rc = inside || copies_gated() ? entry_gated_##name(PAIRS_PASS(__VA_ARGS__)) \
                                               : real.name(PAIRS_PASS(__VA_ARGS__)); \
        if (!inside) \
            after; \
        return rc; \
    }

#define SYNC(name, done, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        uint64_t before = gate_sync_begin(); \
        CUresult rc = real.name(PAIRS_PASS(__VA_ARGS__)); \
        gate_synced(rc, before, done); \
        return rc; \
    }

#define SYNC_VOID(name, done) \
    CUresult name(void) \
    { \
        uint64_t before = gate_sync_begin(); \
        CUresult rc = real.name(); \
        gate_synced(rc, before, done); \
        return rc; \
    }

#define GRAPH(name, graph_, stream_, flavour, ...) \
    static __attribute__((noinline)) SLOW(entry_slow_##name, name, stream_, flavour, __VA_ARGS__) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        FAST_UNWIND(); \
        struct pool_take take; \
        if (!graphs_reserve(&take, graph_)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        CUresult rc; \
        do { \
            struct gate_mark *mark = gate_enter(HERE); \
            rc = mark ? real.name(PAIRS_PASS(__VA_ARGS__)) \
                      : entry_slow_##name(PAIRS_PASS(__VA_ARGS__)); \
            if (mark) \
                gate_leave(mark, 0); \
        } while (__builtin_expect(rc != CUDA_SUCCESS, 0) && charge_again(&take.charge, rc)); \
        return graphs_settle(&take, graph_, rc); \
    }

#define CHARGE(name, family, bytes_, key, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        struct charge charge; \
        if (!charge_reserve(&charge, family, bytes_)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        CUresult rc; \
        do \
            rc = (family) == PLAIN && charge_paged(&charge) \
                     ? oversubscribe_alloc((void *)(key), bytes_) \
                     : real.name(PAIRS_PASS(__VA_ARGS__)); \
        while (__builtin_expect(rc != CUDA_SUCCESS, 0) && charge_again(&charge, rc)); \
        return charge_settle(&charge, rc, rc == CUDA_SUCCESS ? (uintptr_t) * (key) : 0); \
    }

#define FREE(name, family, key, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        struct charge charge; \
        charge_take(&charge, family, (uintptr_t)(key)); \
        CUresult rc = real.name(PAIRS_PASS(__VA_ARGS__)); \
        return charge_return(&charge, rc, (uintptr_t)(key)); \
    }

#define POOL(name, pool_, stream_, flavour, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        struct pool_take take; \
        if (!pools_reserve(&take, pool_, stream_, flavour, bytes)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        CUresult rc; \
        do \
            rc = real.name(PAIRS_PASS(__VA_ARGS__)); \
        while (__builtin_expect(rc != CUDA_SUCCESS, 0) && charge_again(&take.charge, rc)); \
        return pools_settle(&take, rc, rc == CUDA_SUCCESS ? *pointer : 0); \
    }

#define LIFE(name, before, after, ...) \
    CUresult name(PAIRS_DECLARE(__VA_ARGS__)) \
    { \
        before; \
        CUresult rc = real.name(PAIRS_PASS(__VA_ARGS__)); \
        after; \
        return rc; \
    }

#include "hooks.def"
