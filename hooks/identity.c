/*
 * identity: names this process's tenant (see identity.h). Any thread; reads /proc and the host's
 * name, keeps nothing, allocates nothing, prints nothing.
 */
#include "identity.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "clock.h"

bool identity_key(const struct config *config, char key[CUSLICE_TEXT])
{
    uint64_t space = tenant_pid_namespace();
    if (config->tenant[0])
        snprintf(key, CUSLICE_TEXT, "%s", config->tenant);
    else if (space && !tenant_on_host(space))
        snprintf(key, CUSLICE_TEXT, "pidns:%llu", (unsigned long long)space);
    else
        return false;
    return true;
}

static void identity_display(char *text, const struct config *config)
{
    char name[CUSLICE_TEXT] = "";
    if (config->tenant[0])
        snprintf(text, CUSLICE_TEXT, "%s", config->tenant);
    else if (gethostname(name, sizeof name - 1) == 0)
        snprintf(text, CUSLICE_TEXT, "%s", name);
}

void identity_describe(struct tenant_spec *spec, const struct config *config)
{
    *spec = (struct tenant_spec){.weight = config->weight,
                                 .mode = config->mode,
                                 .limit_ppm = config->limit,
                                 .priority = config->priority};
    if (identity_key(config, spec->key)) {
        identity_display(spec->display, config);
    } else {
        snprintf(spec->key, sizeof spec->key, "pid:%d:%llx", getpid(),
                 (unsigned long long)clock_now());
        snprintf(spec->display, sizeof spec->display, "%.40s[%d]", program_invocation_short_name,
                 getpid());
    }
    if (!spec->display[0])
        snprintf(spec->display, sizeof spec->display, "%s", spec->key);
}
