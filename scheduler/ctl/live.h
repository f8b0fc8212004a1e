/* The settings that the tool can change while programs run: the table that live.def expands to.
 * Constants and pure functions; one thread. */
#ifndef CUSLICE_CTL_LIVE_H
#define CUSLICE_CTL_LIVE_H

#include "admin.h"
#include "config.h"

#define LIVE_TEXT 32

/* A device, as caps want to know it. */
struct live_gpu {
    unsigned index; /* among the rings of the directory */
    const uint8_t *uuid;
    uint64_t bytes;
};

struct live_setting {
    const char *option;
    const char *variable;
    const char *words;
    struct admin_word word;
    /* The word's value on this device, from the settings; false: the text names other devices. */
    bool (*value)(const struct config *config, const struct live_gpu *gpu, uint64_t *value);
    /* The most that an environment can have on this device; UINT64_MAX: no ceiling. */
    uint64_t (*ceiling)(const struct config *config, const struct live_gpu *gpu);
    /* An exact text that the option would take; returns it. */
    char *(*show)(char text[LIVE_TEXT], uint64_t value);
    /* Whether the text read into *config says `auto` without a number to divide by. */
    bool (*lacks_replicas)(const struct config *config);
};

/* The i-th setting; NULL past the end. */
const struct live_setting *live_setting(unsigned i);
enum live_count {
#define LIVE(option, variable, field, ...) LIVE_##field,
#include "live.def"
    LIVE_SETTINGS
};

/* Whether a tenant's bits (ring false) or a ring's (ring true) say that it was set by the tool. */
bool live_pinned(const struct live_setting *setting, bool ring, uint64_t bits);

#endif
