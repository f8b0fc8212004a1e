/* The settings that the tool can change while programs run: see live.h. Knows what each one's word
 * is and how a text becomes its value; nothing of rings that exist. Pure; one thread. */
#include "live.h"

#include <inttypes.h>
#include <stdio.h>

#include "units.h"

static char *live_show_cap(char text[LIVE_TEXT], uint64_t value)
{
    if (value == CUSLICE_NO_LIMIT)
        snprintf(text, LIVE_TEXT, "none");
    else
        units_format_size(value, text, LIVE_TEXT);
    return text;
}

static char *live_show_number(char text[LIVE_TEXT], uint64_t value)
{
    snprintf(text, LIVE_TEXT, "%" PRIu64, value);
    return text;
}

static char *live_show_percent(char text[LIVE_TEXT], uint64_t value)
{
    units_format_percent(value, text, LIVE_TEXT);
    return text;
}

static char *live_show_priority(char text[LIVE_TEXT], uint64_t value)
{
    snprintf(text, LIVE_TEXT, "%s",
             value == CUSLICE_HIGH  ? "high"
             : value == CUSLICE_LOW ? "low"
                                    : "normal");
    return text;
}

static char *live_show_time(char text[LIVE_TEXT], uint64_t value)
{
    units_format_duration(value, text, LIVE_TEXT);
    return text;
}

/* Without the node's ceiling, which is for environments. A list that names other devices only says
 * nothing about this one. */
static bool live_caps_value(const struct config *config, const struct caps *caps,
                            const struct live_gpu *gpu, uint64_t *value)
{
    struct caps asked = {.asked = caps->asked};

    *value = cap_resolve(&asked, gpu->index, gpu->uuid, gpu->bytes, config->replicas);
    return *value != CAP_NONE || asked.asked.count == 0;
}

static uint64_t live_caps_ceiling(const struct config *config, const struct caps *caps,
                                  const struct live_gpu *gpu)
{
    struct caps ceiling = {.ceiling = caps->ceiling};

    return cap_resolve(&ceiling, gpu->index, gpu->uuid, gpu->bytes, config->replicas);
}

static bool live_caps_lack(const struct config *config, const struct caps *caps)
{
    return !config->replicas && cap_needs_replicas(&caps->asked);
}

#define LIVE_VALUE_CAPS(field) return live_caps_value(config, &config->field, gpu, value);
#define LIVE_VALUE_PLAIN(field) \
    (void)gpu; \
    *value = config->field; \
    return true;
#define LIVE_VALUE_CEILED(field) LIVE_VALUE_PLAIN(field)
#define LIVE_CEILING_CAPS(field) return live_caps_ceiling(config, &config->field, gpu);
#define LIVE_CEILING_PLAIN(field) \
    (void)gpu; \
    (void)config; \
    return UINT64_MAX;
#define LIVE_CEILING_CEILED(field) \
    (void)gpu; \
    return config->field##_ceiling ? config->field##_ceiling : UINT64_MAX;
#define LIVE_LACKS_CAPS(field) return live_caps_lack(config, &config->field);
#define LIVE_LACKS_PLAIN(field) \
    (void)config; \
    return false;
#define LIVE_LACKS_CEILED(field) LIVE_LACKS_PLAIN(field)

#define LIVE(option, variable, field, kind, ...) \
    static bool live_value_##field(const struct config *config, const struct live_gpu *gpu, \
                                   uint64_t *value) \
    { \
        LIVE_VALUE_##kind(field) \
    } \
    static uint64_t live_ceiling_##field(const struct config *config, const struct live_gpu *gpu) \
    { \
        LIVE_CEILING_##kind(field) \
    } \
    static bool live_lacks_##field(const struct config *config) \
    { \
        LIVE_LACKS_##kind(field) \
    }
#include "live.def"

/* Each bit has a place among the environment's values. */
#define LIVE_PLACES_TENANT CUSLICE_ASKED
#define LIVE_PLACES_RING CUSLICE_ASKED_RING
#define LIVE(option, variable, field, kind, scope, word, bit, ...) \
    CUSLICE_LAYOUT_ASSERT(__builtin_ctz(bit) < LIVE_PLACES_##scope);
#include "live.def"

static const struct live_setting live_settings[LIVE_SETTINGS] = {
#define LIVE(option, variable, field, kind, scope, word, bit, show, words, usage) \
    {option, \
     variable, \
     words, \
     ADMIN_##scope(word, bit), \
     live_value_##field, \
     live_ceiling_##field, \
     show, \
     live_lacks_##field},
#include "live.def"
};

const struct live_setting *live_setting(unsigned i)
{
    return i < LIVE_SETTINGS ? &live_settings[i] : NULL;
}

bool live_pinned(const struct live_setting *setting, bool ring, uint64_t bits)
{
    return setting->word.ring == ring && (bits & setting->word.bit);
}
