/*
 * Failures on demand: SIMCUDA_FAIL names exported symbols and what happens to calls of them.
 * `name=2` error 2 always, `name=2@3` at the third call only, `name=slow:100ms` every call takes so
 * much longer, `name=slow:1s@2` the second one only; several are separated by commas. Any thread.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core.h"

enum { RULES = 64 };

struct rule {
    char name[96];
    CUresult error;
    uint64_t slow;
    unsigned long only; /* number of the one call it is about; 0: all */
    _Atomic unsigned long calls;
};

static struct rule rules[RULES];
static unsigned count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fail_parse_one(const char *text, size_t length)
{
    struct rule *rule = &rules[count];
    const char *equals = memchr(text, '=', length);
    const char *value = equals ? equals + 1 : NULL;
    size_t size = value ? (size_t)(text + length - value) : 0;
    const char *at = value ? memchr(value, '@', size) : NULL;

    if (!value || count == RULES || (size_t)(equals - text) >= sizeof(rule->name))
        return;
    memcpy(rule->name, text, (size_t)(equals - text));
    if (at) {
        rule->only = strtoul(at + 1, NULL, 10);
        size = (size_t)(at - value);
    }
    if (size > 5 && !strncmp(value, "slow:", 5)) {
        if (!util_parse_duration(value + 5, size - 5, &rule->slow))
            return;
    } else {
        rule->error = (CUresult)strtoul(value, NULL, 10);
    }
    count++;
}

static void fail_parse(void)
{
    const char *text = getenv("SIMCUDA_FAIL");

    while (text && *text) {
        size_t length = strcspn(text, ",");

        fail_parse_one(text, length);
        text += length + (text[length] == ',');
    }
}

CUresult fail_check(const char *symbol)
{
    pthread_once(&once, fail_parse);
    for (unsigned i = 0; i < count; i++) {
        struct rule *rule = &rules[i];
        unsigned long call;

        if (strcmp(rule->name, symbol))
            continue;
        call = atomic_fetch_add(&rule->calls, 1) + 1;
        if (rule->only && rule->only != call)
            continue;
        if (rule->slow)
            nanosleep(&(struct timespec){.tv_sec = (time_t)(rule->slow / 1000000000),
                                         .tv_nsec = (long)(rule->slow % 1000000000)},
                      NULL);
        if (rule->error)
            return rule->error;
    }
    return CUDA_SUCCESS;
}
