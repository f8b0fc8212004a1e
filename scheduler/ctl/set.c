/* `cuslice set`: changes settings of tenants and rings while their programs run.
 *
 * Texts are read by the library's own parser into the tool's settings; what they come to on a
 * device is written into its ring by scheduler/admin. Which settings there are says live.def alone.
 * One thread; a mistake in any argument is told before anything is changed.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "live.h"
#include "rings.h"
#include "text.h"

const char set_help[] =
    "usage: cuslice set --tenant NAME [--gpu GPU] SETTING...\n"
    "       cuslice set [--gpu GPU] RING-SETTING...\n"
    "\n"
    "Changes settings while programs run; they take effect at the next allocation or slice. What\n"
    "is set here stands, whatever the environment of programs says that come later (they are\n"
    "warned), until it is given back: SETTING 'default', or --unset. Then it is again what the\n"
    "environment of the tenant's first program, or of the ring's first one, asked. The ring's\n"
    "file keeps it all, so it ends with the file.\n"
    "\n"
#define LIVE(option, variable, field, kind, scope, word, bit, show, words, usage) usage
#include "live.def"
    "  --unset SETTING      gives a setting back; its name as above, without the dashes\n"
    "  --tenant NAME        the tenant: its key or the name that 'cuslice status' shows; on every\n"
    "                       GPU where it is known\n"
    "  --gpu GPU            one GPU: a UUID or its beginning, or the ring's number in 'cuslice\n"
    "                       status', from 0; 'all', as without it\n"
    "  --dir DIRECTORY      the ring directory (CUSLICE_DIR)\n"
    "\n"
    "CAP is " CAP_FORMS ".\n"
    "A part is one of the device's memory; 'auto' divides by CUSLICE_REPLICAS; an index is the\n"
    "ring's number. 0 means no device memory at all, more than there is the whole device.\n"
    "A cap below what is in use takes nothing away: nothing new is allocated until it fits.\n"
    "Ceilings in the node's defaults are for environments; what goes beyond one is set, and said.\n"
    "Whoever may write to the ring's file may set.\n"
    "\n"
    "Ends with 0 when everything was set, 1 when something was not (no such tenant, no\n"
    "permission), 2 for a value that is not accepted; then nothing is changed.\n"
    "\n"
    "Example: cuslice set --tenant train --mem 6Gi --weight 30\n";

enum { SET_TENANT = LIVE_SETTINGS, SET_GPU, SET_DIR, SET_UNSET, SET_OPTIONS };

/* What was asked, and how far it has come. */
struct set {
    const char *text[LIVE_SETTINGS]; /* NULL: leave it */
    bool release[LIVE_SETTINGS];
    const char *tenant;
    const char *gpu;
    const char *directory;
    struct config config;
    struct rings rings;
    unsigned met;     /* rings that have the tenant, or were chosen for themselves */
    unsigned done;    /* rings in which something was set */
    char known[1024]; /* tenants of the rings that lack this one, each behind ", " */
};

static struct status_ring set_ring;

static void set_options(struct option options[SET_OPTIONS + 1])
{
    static const char *const others[] = {"tenant", "gpu", "dir", "unset"};

    memset(options, 0, (SET_OPTIONS + 1) * sizeof(options[0]));
    for (int i = 0; i < SET_OPTIONS; i++)
        options[i] = (struct option){i < LIVE_SETTINGS ? live_setting((unsigned)i)->option
                                                       : others[i - LIVE_SETTINGS],
                                     required_argument, NULL, i};
}

static int set_take(struct set *set, unsigned i, const char *text)
{
    const char *option = live_setting(i)->option;

    if (set->text[i])
        return ctl_usage("set", "'%s' is given twice", option);
    set->text[i] = text;
    set->release[i] = strcmp(text, "default") == 0;
    return CTL_OK;
}

static int set_take_unset(struct set *set, const char *name)
{
    for (unsigned i = 0; i < LIVE_SETTINGS; i++)
        if (strcmp(name, live_setting(i)->option) == 0)
            return set_take(set, i, "default");
    return ctl_usage("set", "--unset '%s' is no setting", name);
}

static int set_arguments(struct set *set, int argc, char **argv)
{
    struct option options[SET_OPTIONS + 1];
    int code = CTL_OK, answer;

    set_options(options);
    while (!code && (answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (answer == '?' || answer == ':')
            code = ctl_bad_option(argv, answer);
        else if (answer < LIVE_SETTINGS)
            code = set_take(set, (unsigned)answer, optarg);
        else if (answer == SET_UNSET)
            code = set_take_unset(set, optarg);
        else
            *(answer == SET_TENANT ? &set->tenant
              : answer == SET_GPU  ? &set->gpu
                                   : &set->directory) = optarg;
    }
    if (!code && optind < argc)
        code = ctl_usage("set", "takes no arguments, got '%s'", argv[optind]);
    return code;
}

/* A change is a tenant's or a ring's: --tenant says which is meant. */
static int set_check_scope(const struct set *set)
{
    unsigned count = 0;

    for (unsigned i = 0; i < LIVE_SETTINGS; i++) {
        const struct live_setting *setting = live_setting(i);
        if (!set->text[i])
            continue;
        if (!setting->word.ring && !set->tenant)
            return ctl_usage("set", "--%s is a tenant's: say whose with --tenant", setting->option);
        if (setting->word.ring && set->tenant)
            return ctl_usage("set", "--%s is the ring's, not a tenant's: give it without --tenant",
                             setting->option);
        count++;
    }
    return count ? CTL_OK : ctl_usage("set", "nothing to set");
}

static int set_read(struct set *set, unsigned i)
{
    const struct live_setting *setting = live_setting(i);
    char forms[CONFIG_TEXT_MAX];

    if (!set->text[i] || set->release[i])
        return CTL_OK;
    if (config_put(&set->config, setting->variable, set->text[i]) < 0) {
        config_describe(setting->variable, forms, sizeof(forms));
        return ctl_usage("set", "--%s '%s' is not %s, or default", setting->option, set->text[i],
                         forms);
    }
    if (setting->lacks_replicas(&set->config))
        return ctl_usage("set",
                         "--%s '%s' needs CUSLICE_REPLICAS, which neither the environment nor the "
                         "node's defaults set",
                         setting->option, set->text[i]);
    return CTL_OK;
}

/* The changes of one ring; how many. What names other devices only is left as it is. */
static unsigned set_resolve(const struct set *set, const struct live_gpu *gpu,
                            struct admin_change changes[LIVE_SETTINGS],
                            const struct live_setting *settings[LIVE_SETTINGS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < LIVE_SETTINGS; i++) {
        const struct live_setting *setting = live_setting(i);
        struct admin_change change = {.word = setting->word, .release = set->release[i]};
        if (!set->text[i])
            continue;
        if (!change.release && !setting->value(&set->config, gpu, &change.value)) {
            printf("%s: --%s '%s' names other GPUs\n", set_ring.uuid, setting->option,
                   set->text[i]);
            continue;
        }
        settings[count] = setting;
        changes[count++] = change;
    }
    return count;
}

/* A cap on each process that the tool has not set is each process's own affair. */
static bool set_is_own(const struct live_setting *setting, bool pinned)
{
    return !pinned && !setting->word.ring && setting->word.bit == TENANT_PROCESS_LIMIT;
}

static const char *set_name(const struct status_tenant *tenant)
{
    return *tenant->display ? tenant->display : tenant->key;
}

static void set_tell_use(const struct status_tenant *tenant, uint64_t cap)
{
    char text[TEXT_FIGURE];

    if (status_counted(tenant) > cap)
        printf("    uses %s, above the new cap: nothing new until it fits, nothing is taken away\n",
               text_bytes(text, status_counted(tenant)));
    else
        printf("    uses %s\n", text_bytes(text, status_counted(tenant)));
}

static void set_tell_processes(int tenant, uint64_t cap)
{
    char text[TEXT_FIGURE];

    for (unsigned i = 0; i < set_ring.clients; i++) {
        const struct status_client *client = &set_ring.client[i];
        if (client->tenant == tenant && status_counted_client(client) > cap)
            printf("    process %" PRId32 " (%s) uses %s, above the new cap: nothing new until it "
                   "fits, nothing is taken away\n",
                   client->pid, client->command, text_bytes(text, status_counted_client(client)));
    }
}

/* "memory cap 1Gi (was 4Gi)" */
static void set_tell_change(const struct live_setting *setting, bool pinned,
                            const struct admin_change *change)
{
    char after[LIVE_TEXT], before[LIVE_TEXT];
    bool own = set_is_own(setting, !change->release);

    setting->show(after, change->after);
    setting->show(before, change->before);
    printf("%s %s%s (was %s)\n", setting->words, own ? "left to each one's environment" : after,
           change->release && !own ? ", as the environment asks" : "",
           set_is_own(setting, pinned) ? "each one's own" : before);
}

/* tenant: its place in set_ring, or STATUS_NONE for the ring's own settings. */
static void set_tell(const struct set *set, const struct live_gpu *gpu, int tenant,
                     const struct live_setting *setting, const struct admin_change *change)
{
    const struct status_tenant *t = tenant == STATUS_NONE ? NULL : &set_ring.tenant[tenant];
    uint64_t most = setting->ceiling(&set->config, gpu);
    char ceiling[LIVE_TEXT];

    printf("%s: %s%s", set_ring.uuid, t ? set_name(t) : "", t ? ": " : "");
    set_tell_change(setting, live_pinned(setting, t == NULL, t ? t->pinned : set_ring.pinned),
                    change);
    if (!change->release && change->after > most)
        printf("    above the node's ceiling of %s, which holds for environments only\n",
               setting->show(ceiling, most));
    if (t && setting->word.bit == TENANT_MEM_LIMIT)
        set_tell_use(t, change->after);
    if (t && setting->word.bit == TENANT_PROCESS_LIMIT && !change->release)
        set_tell_processes(tenant, change->after);
}

static bool set_knows(const struct set *set, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = set->known; (at = strstr(at, name)); at++)
        if (strchr(", ", at[-1]) && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* Adds this ring's tenants to those that are known, each once. */
static void set_know(struct set *set)
{
    for (unsigned i = 0; i < set_ring.tenants; i++) {
        const struct status_tenant *tenant = &set_ring.tenant[i];
        size_t used = strlen(set->known);
        char name[2 * CUSLICE_TEXT + 8];
        bool same = !*tenant->display || strcmp(tenant->key, tenant->display) == 0;
        snprintf(name, sizeof(name), "%s%s%s%s", tenant->key, same ? "" : " (",
                 same ? "" : tenant->display, same ? "" : ")");
        if (!set_knows(set, name) && used + strlen(name) + 3 < sizeof(set->known))
            sprintf(set->known + used, ", %s", name);
    }
}

/* By key, else by display name if it is one tenant's only; CTL_FAILED, said, when it is several's.
 */
static int set_find(const char *name, int *place)
{
    unsigned found = 0;

    *place = status_find_tenant(&set_ring, name);
    if (*place != STATUS_NONE)
        return CTL_OK;
    for (unsigned i = 0; i < set_ring.tenants; i++)
        if (strcmp(set_ring.tenant[i].display, name) == 0) {
            *place = (int)i;
            found++;
        }
    if (found > 1)
        return ctl_fail("%u tenants of %s are called '%s': name one by its key ('cuslice status "
                        "--json')",
                        found, set_ring.uuid, name);
    return CTL_OK;
}

static int set_change(struct set *set, struct segment *segment, unsigned index, int tenant)
{
    const char *key = tenant == STATUS_NONE ? NULL : set_ring.tenant[tenant].key;
    struct live_gpu gpu = {index, segment->shared->uuid, set_ring.device_bytes};
    struct admin_change changes[LIVE_SETTINGS];
    const struct live_setting *settings[LIVE_SETTINGS];
    unsigned count = set_resolve(set, &gpu, changes, settings);

    set->met++;
    if (count == 0)
        return CTL_OK;
    int error = admin_change(segment, key, changes, count);
    if (error < 0)
        return ctl_fail("%s: nothing changed: %s", set_ring.uuid,
                        error == -ENOENT  ? "the tenant is gone"
                        : error == -EBUSY ? "one of the tenant's programs has been starting for "
                                            "seconds"
                                          : strerror(-error));
    for (unsigned i = 0; i < count; i++)
        set_tell(set, &gpu, tenant, settings[i], &changes[i]);
    set->done++;
    return CTL_OK;
}

static int set_apply(struct set *set, unsigned i)
{
    struct segment segment;
    int tenant = STATUS_NONE;
    int code = rings_open(&set->rings, i, &segment, &set_ring);

    if (code)
        return code;
    if (set->tenant)
        code = set_find(set->tenant, &tenant);
    if (!code && set->tenant && tenant == STATUS_NONE)
        set_know(set);
    else if (!code)
        code = set_change(set, &segment, i, tenant);
    segment_close(&segment);
    return code;
}

static int set_all(struct set *set)
{
    int code = CTL_OK;

    for (unsigned i = set->rings.first; i < set->rings.end; i++)
        if (set_apply(set, i))
            code = CTL_FAILED;
    if (code || set->done)
        return code;
    if (set->met)
        return ctl_fail("nothing is set: no GPU here is named");
    return ctl_fail("no tenant '%s'%s: known are %s", set->tenant, set->gpu ? " there" : "",
                    *set->known ? set->known + 2 : "none, since no program has used the GPU");
}

int set_main(int argc, char **argv)
{
    static struct set set;
    int code = set_arguments(&set, argc, argv);

    if (!code)
        code = set_check_scope(&set);
    if (code)
        return code;
    (void)ctl_settings(&set.config, set.directory); /* a bad cap stops programs only */
    for (unsigned i = 0; i < LIVE_SETTINGS && !code; i++)
        code = set_read(&set, i);
    if (!code)
        code = rings_choose(&set.rings, "set", set.config.dir, set.gpu);
    return code ? code : set_all(&set);
}
