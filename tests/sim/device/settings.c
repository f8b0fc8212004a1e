/*
 * The device's settings and its kernels by name. Both are read from the environment of whoever
 * started the device, once, before anything else runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { KERNELS = 65536, BUCKETS = 4096 };

struct settings settings;

static struct kernel *kernels[KERNELS];
static unsigned kernel_count;
static uint32_t kernel_bucket[BUCKETS]; /* number + 1 of the newest in it */
static uint32_t kernel_chain[KERNELS];

static const struct {
    const char *name;
    enum effect effect;
    enum outcome outcome;
} builtin[] = {
    {"spin_ns", EFFECT_SPIN, OUTCOME_OK},     {"wait_flag", EFFECT_WAIT, OUTCOME_OK},
    {"set_u32", EFFECT_SET, OUTCOME_OK},      {"add_u32", EFFECT_ADD, OUTCOME_OK},
    {"fill_u32", EFFECT_FILL, OUTCOME_OK},    {"fault", EFFECT_NONE, OUTCOME_FAULT},
    {"pdl_spin_ns", EFFECT_SPIN, OUTCOME_OK},
};

void settings_load(void)
{
    const char *trace = getenv("SIMCUDA_TRACE");

    if (util_directory(settings.directory, sizeof(settings.directory)))
        settings.directory[0] = 0;
    if (trace && *trace)
        snprintf(settings.trace, sizeof(settings.trace), "%s", trace);
    else
        snprintf(settings.trace, sizeof(settings.trace), "%.4000s/trace", settings.directory);
    settings.devices = (unsigned)util_env_number("SIMCUDA_DEVICES", 1, SIM_DEVICES);
    settings.memory = util_env_size("SIMCUDA_MEMORY", UINT64_C(8) << 30);
    settings.teardown = util_env_duration("SIMCUDA_TEARDOWN", 50000000);
    settings.slice = util_env_duration("SIMCUDA_SLICE", 2000000);
    settings.switch_cost = util_env_duration("SIMCUDA_SWITCH", 100000);
    settings.start_delay = util_env_duration("SIMCUDA_START_DELAY", 0);
    settings.linger = util_env_duration("SIMCUDA_LINGER", 2000000000);
    settings.spin = util_env_duration("SIMCUDA_SPIN", 60000);
    settings.capacity = (unsigned)util_env_number("SIMCUDA_CAPACITY", 1, 4096);
    settings.queue = (unsigned)util_env_number("SIMCUDA_QUEUE", 1024, 1000000);
    settings.kernel_default = util_env_duration("SIMCUDA_KERNEL_DEFAULT", 10000);
    settings.context_bytes = util_env_size("SIMCUDA_CONTEXT_BYTES", UINT64_C(256) << 20);
    settings.copy_latency = util_env_duration("SIMCUDA_COPY_LATENCY", 1500);
    settings.copy_rate = util_env_size("SIMCUDA_COPY_RATE", UINT64_C(20000000000));
    settings.memory_rate = util_env_size("SIMCUDA_MEMORY_RATE", UINT64_C(800000000000));
    settings.paging = util_env_number("SIMCUDA_CONCURRENT_MANAGED", 1, 1) != 0;
    settings.code = util_env_number("SIMCUDA_CODE", 1, 1) != 0;
    settings.page_rate = util_env_size("SIMCUDA_PAGE_RATE", UINT64_C(12000000000));
    settings.overlap = util_env_duration("SIMCUDA_OVERLAP", 3000);
    if (!settings.slice)
        settings.slice = 1;
    if (!settings.capacity)
        settings.capacity = 1;
    if (!settings.queue)
        settings.queue = 1;
    if (!settings.copy_rate)
        settings.copy_rate = 1;
    if (!settings.page_rate)
        settings.page_rate = 1;
    if (!settings.memory_rate)
        settings.memory_rate = 1;
}

static bool kernel_matches(const char *pattern, size_t length, const char *name)
{
    if (length && pattern[length - 1] == '*')
        return !strncmp(pattern, name, length - 1);
    return strlen(name) == length && !strncmp(pattern, name, length);
}

/* The first matching entry of SIMCUDA_KERNELS decides. */
static void kernel_configure(struct kernel *kernel)
{
    const char *text = getenv("SIMCUDA_KERNELS");

    while (text && *text) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);

        if (equals && kernel_matches(text, (size_t)(equals - text), kernel->name)) {
            const char *value = equals + 1;
            size_t size = (size_t)(text + length - value);

            if (size == 5 && !strncmp(value, "fault", size))
                kernel->outcome = OUTCOME_FAULT;
            else if (size == 4 && !strncmp(value, "lost", size))
                kernel->outcome = OUTCOME_LOST;
            else if (util_parse_duration(value, size, &kernel->duration))
                kernel->timed = true;
            return;
        }
        text += length + (text[length] == ',');
    }
}

static struct kernel *kernel_make(const char *name)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    if (!kernel)
        return NULL;
    snprintf(kernel->name, sizeof(kernel->name), "%s", name);
    kernel->duration = settings.kernel_default;
    for (unsigned i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++)
        if (!strcmp(builtin[i].name, name)) {
            kernel->effect = builtin[i].effect;
            kernel->outcome = builtin[i].outcome;
        }
    kernel_configure(kernel);
    return kernel;
}

static unsigned kernel_hash(const char *name)
{
    uint32_t hash = 2166136261u;

    while (*name)
        hash = (hash ^ (unsigned char)*name++) * 16777619u;
    return hash % BUCKETS;
}

int kernel_number(const char *name)
{
    unsigned hash = kernel_hash(name);

    for (uint32_t at = kernel_bucket[hash]; at; at = kernel_chain[at - 1])
        if (!strcmp(kernels[at - 1]->name, name))
            return (int)at - 1;
    if (kernel_count == KERNELS)
        return -1;
    kernels[kernel_count] = kernel_make(name);
    if (!kernels[kernel_count])
        return -1;
    kernel_chain[kernel_count] = kernel_bucket[hash];
    kernel_bucket[hash] = ++kernel_count;
    return (int)kernel_count - 1;
}

const struct kernel *kernel_get(uint32_t number)
{
    return number < kernel_count ? kernels[number] : NULL;
}
