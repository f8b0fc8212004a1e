/* Rule: limits have documented defaults; a larger device heap, printf buffer or stack costs the
 * context device memory, which comes back when it is lowered; the heap cannot be changed once a
 * kernel that may use it was launched.
 * Source: CUDA Driver API, cuCtxSetLimit; CUDA Programming Guide, "Dynamic Global Memory
 * Allocation", "Formatted Output". That the heap is taken at once is a rule of the simulated
 * device.
 */
#include "client.h"

#define MIB ((size_t)1 << 20)

static const char uses_heap[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".extern .func (.param .b64 back) malloc(.param .b64 bytes);\n"
                                ".visible .entry takes()\n{\n"
                                "    .param .b64 bytes;\n    .param .b64 back;\n"
                                "    st.param.b64 [bytes], 16;\n"
                                "    call.uni (back), malloc, (bytes);\n    ret;\n}\n";

static size_t limit_of(CUlimit limit)
{
    size_t value;

    CHECK_CU(cuCtxGetLimit(&value, limit));
    return value;
}

/* What the context costs on the device besides memory. */
static size_t cost(const struct client *c)
{
    return client_handed_out(c->device).context;
}

static void check_raised(const struct client *c, CUlimit limit, size_t value, size_t least)
{
    size_t old = limit_of(limit), before = cost(c);

    CHECK_CU(cuCtxSetLimit(limit, value));
    CHECK(limit_of(limit) >= value, "limit %d is %zu instead of %zu", (int)limit, limit_of(limit),
          value);
    CHECK(cost(c) - before >= least && cost(c) - before <= least + 2 * MIB,
          "limit %d of %zu costs %zu", (int)limit, value, cost(c) - before);
    CHECK_CU(cuCtxSetLimit(limit, old));
    CHECK(cost(c) == before, "limit %d lowered again: %zu bytes are left", (int)limit,
          cost(c) - before);
}

static void check_defaults(void)
{
    CHECK(limit_of(CU_LIMIT_STACK_SIZE) == 1024, "the stack is %zu", limit_of(CU_LIMIT_STACK_SIZE));
    CHECK(limit_of(CU_LIMIT_MALLOC_HEAP_SIZE) == 8 * MIB, "the heap is %zu",
          limit_of(CU_LIMIT_MALLOC_HEAP_SIZE));
    CHECK(limit_of(CU_LIMIT_PRINTF_FIFO_SIZE) >= MIB, "the buffer is %zu",
          limit_of(CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK(limit_of(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT) == 2048, "%zu pending launches",
          limit_of(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT));
}

int main(void)
{
    CUfunction takes;
    CUmodule module;
    struct client c;
    size_t threads, before;

    client_open(&c);
    check_defaults();
    EXPECT_CU(cuCtxSetLimit((CUlimit)77, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    if (client_symbol("simcudaHandedOut")) {
        threads = (size_t)client_attribute(&c, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                  (size_t)client_attribute(&c, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        check_raised(&c, CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MIB, 64 * MIB);
        check_raised(&c, CU_LIMIT_PRINTF_FIFO_SIZE, 17 * MIB, 16 * MIB);
        check_raised(&c, CU_LIMIT_STACK_SIZE, 2048, 1024 * threads);
        before = cost(&c);
        EXPECT_CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1 << 45),
                  CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(cost(&c) == before && limit_of(CU_LIMIT_MALLOC_HEAP_SIZE) == 8 * MIB,
              "a refused heap changed something");
    }
    client_noop(&c, NULL);
    CHECK_CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB));
    CHECK_CU(cuModuleLoadData(&module, uses_heap));
    CHECK_CU(cuModuleGetFunction(&takes, module, "takes"));
    CHECK_CU(cuLaunchKernel(takes, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK_CU(cuCtxSynchronize());
    EXPECT_CU(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 32 * MIB), CUDA_ERROR_INVALID_VALUE);
    client_pass("defaults, costs and the heap that stays");
}
