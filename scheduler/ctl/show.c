/* `cuslice status`: the rings of a directory, as tables or as JSON.
 *
 * Reads one snapshot of each ring and prints it; joins and changes nothing. A file that is no ring
 * costs one line on standard error and exit code 1, the others are shown all the same.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "cuslice/version.h"
#include "json.h"
#include "live.h"
#include "memory.h"
#include "status.h"
#include "table.h"
#include "text.h"

const char show_help[] =
    "usage: cuslice status [--json] [--all] [--dir DIRECTORY]\n"
    "\n"
    "Shows each GPU's ring: who holds the token, who waits, and what every tenant and process\n"
    "uses. Reads only; needs no GPU and joins nothing.\n"
    "\n"
    "  --json           one JSON object (below)\n"
    "  --all            also tenants without a running process (JSON always has them)\n"
    "  --dir DIRECTORY  the ring directory (CUSLICE_DIR)\n"
    "\n"
    "Tenants: SHARE is the weight's part of all that run. GRANTED is the time it held the token,\n"
    "CHARGED the part that counts against its share, WAITED the time its processes stood at the\n"
    "closed gate, summed; P50 and P99 are the waits per turn. REVOKED counts turns taken away,\n"
    "FAULTS contexts lost to an error; both are there when they are not 0. A '*' marks who holds\n"
    "the token.\n"
    "\n"
    "Memory, of tenants and of their processes: RESERVED is what they have allocated, CONTEXT an\n"
    "estimate of what their contexts cost besides, CAP the limit in force, PEAK the most that was\n"
    "ever reserved. ORPHANED are bytes of dead processes that others still have open, EXPORTED\n"
    "the part of RESERVED that others may open, IMPORTED what is open of others and charged to\n"
    "them, PAGED the part that may be paged out; these are there when they are not 0. REFUSED\n"
    "counts allocations over a cap, IDLE is the time since the last launch. Below: the last\n"
    "refusal of each tenant, and what 'cuslice set' has set.\n"
    "\n"
    "JSON: keys end in their unit (_seconds, _bytes, _percent), plain numbers are counts, null is\n"
    "not known or none.\n"
    "  version, layout, directory, gpus, problems (path, reason)\n"
    "  gpus: index, uuid, name, memory_bytes, memory_used_bytes, quantum_seconds,\n"
    "    allowance_seconds, set_by_admin, token_epoch, holder_slot, waiting, unreaped, reaped,\n"
    "    age_seconds, busy_seconds, idle_wanted_seconds, handovers, handover_seconds,\n"
    "    drain_seconds, handover, tenants, clients\n"
    "  handover, wait, burst, burst_wait: count, sum_seconds, p50_seconds, p99_seconds\n"
    "  tenants: key, display, pod, pod_namespace, container, weight, limit_percent, priority,\n"
    "    mode, set_by_admin, clients, waiting, holds, memory_used_bytes, memory_limit_bytes,\n"
    "    process_memory_limit_bytes (as set by the administrator), memory_peak_bytes,\n"
    "    memory_orphaned_bytes, memory_exported_bytes, memory_imported_bytes,\n"
    "    memory_paged_bytes, context_bytes, BOOKS, last_refusal_used_bytes,\n"
    "    last_refusal_limit_bytes, wait, burst, burst_wait, left_ago_seconds\n"
    "  clients: slot, tenant, pid, host_pid, command, mode, memory_used_bytes,\n"
    "    memory_peak_bytes, process_memory_limit_bytes (the one in force),\n"
    "    memory_exported_bytes, memory_imported_bytes, memory_paged_bytes, context_bytes,\n"
    "    attached_seconds, holds, holding_seconds, draining, idle, waits, waiting_seconds, BOOKS\n"
    "  BOOKS: granted_seconds, charged_seconds, waited_seconds, overrun_seconds, slices,\n"
    "    revocations, overruns, faults, launches, let_through, refusals, refused_bytes,\n"
    "    would_refuse, last_launch_ago_seconds, last_refusal_ago_seconds,\n"
    "    last_refusal_asked_bytes\n"
    "  set_by_admin: names of settings, as 'cuslice set' has them\n";

/* What was asked, and what has been found so far. */
struct show {
    bool json;
    bool all;
    const char *directory;
    unsigned shown;
    unsigned problems;
    cJSON *gpus;
    cJSON *problem_list;
};

static struct status_ring show_ring;

/* The tenant at this place, or none. */
static const char *show_name(char text[MEMORY_NAME], const struct status_ring *ring, int tenant)
{
    return tenant == STATUS_NONE ? "?" : memory_name(text, &ring->tenant[tenant]);
}

static void show_holder(const struct status_ring *ring)
{
    char text[TEXT_FIGURE], name[MEMORY_NAME];

    if (ring->holder == STATUS_NONE) {
        printf("  token      free, %u waiting\n", ring->waiting);
        return;
    }
    const struct status_client *client = &ring->client[ring->holder];
    printf("  token      %s, process %" PRId32 " (%s), for %s%s; %u waiting\n",
           show_name(name, ring, client->tenant), client->pid, client->command,
           text_duration(text, client->holding_ns),
           client->draining ? ", draining"
           : client->idle   ? ", idle"
                            : "",
           ring->waiting);
}

static void show_head(const struct status_ring *ring, unsigned index)
{
    char a[TEXT_FIGURE], b[TEXT_FIGURE], c[TEXT_FIGURE];

    printf("ring %u  %s  %s\n", index, ring->uuid, ring->name);
    printf("  memory     %s of %s reserved\n", text_bytes(a, ring->mem_used),
           text_bytes(b, ring->device_bytes));
    printf("  slices     quantum %s, allowance %s\n", text_duration(a, ring->quantum_ns),
           text_duration(b, ring->allowance_ns));
    show_holder(ring);
    printf("  time       busy %s, idle while wanted %s, draining %s\n",
           text_duration(a, ring->busy_ns), text_duration(b, ring->idle_wanted_ns),
           text_duration(c, ring->drain_ns));
    printf("  hand-over  %" PRIu64 " times, p50 %s, p99 %s\n", ring->handovers,
           text_duration(a, ring->handover.p50_ns), text_duration(b, ring->handover.p99_ns));
    if (ring->dead)
        printf("  dead       %u not reaped yet\n", ring->dead);
}

/* The table of tenants, and which of its rare columns it has. */
struct show_columns {
    bool revoked;
    bool faults;
};

static void show_tenant(struct table *table, const struct show_columns *columns,
                        const struct status_tenant *tenant, uint64_t live_weight)
{
    const struct status_books *books = &tenant->books;
    char text[TEXT_FIGURE], name[MEMORY_NAME];

    table_add(table, "%s", tenant->holds ? "*" : "");
    table_add(table, "%s", memory_name(name, tenant));
    table_add(table, "%" PRIu32, tenant->weight);
    table_add(table, "%s",
              tenant->clients ? text_percent(text, tenant->weight, (double)live_weight) : "-");
    table_add(table, "%u", tenant->clients);
    table_add(table, "%s", text_duration(text, books->granted_ns));
    table_add(table, "%s", text_duration(text, books->charged_ns));
    table_add(table, "%s", text_duration(text, books->waited_ns));
    table_add(table, "%" PRIu64, books->slices);
    table_add(table, "%s", text_duration(text, tenant->wait.p50_ns));
    table_add(table, "%s", text_duration(text, tenant->wait.p99_ns));
    if (columns->revoked)
        table_add(table, "%" PRIu64, books->revocations);
    if (columns->faults)
        table_add(table, "%" PRIu64, books->faults);
}

static void show_tenants_begin(struct table *table, struct show_columns *columns,
                               char formats[TABLE_COLUMNS], const struct status_ring *ring)
{
    const char *headings[TABLE_COLUMNS] = {"",       "TENANT",  "WEIGHT",  "SHARE",
                                           "PROCS",  "GRANTED", "CHARGED", "WAITED",
                                           "SLICES", "P50",     "P99"};
    unsigned count = 11;

    *columns = (struct show_columns){0};
    for (unsigned i = 0; i < ring->tenants; i++) {
        columns->revoked |= ring->tenant[i].books.revocations != 0;
        columns->faults |= ring->tenant[i].books.faults != 0;
    }
    if (columns->revoked)
        headings[count++] = "REVOKED";
    if (columns->faults)
        headings[count++] = "FAULTS";
    memset(formats, 'r', count);
    formats[count] = '\0';
    formats[0] = formats[1] = 'l';
    table_begin(table, formats, headings);
}

static void show_tenants(const struct status_ring *ring, bool all)
{
    struct show_columns columns;
    struct table table;
    char formats[TABLE_COLUMNS + 1];
    uint64_t weight = 0;
    unsigned rows = 0;

    for (unsigned i = 0; i < ring->tenants; i++)
        weight += ring->tenant[i].clients ? ring->tenant[i].weight : 0;
    show_tenants_begin(&table, &columns, formats, ring);
    for (unsigned i = 0; i < ring->tenants; i++)
        if (all || ring->tenant[i].clients) {
            show_tenant(&table, &columns, &ring->tenant[i], weight);
            rows++;
        }
    if (!rows)
        table_drop(&table);
    else {
        putchar('\n');
        table_end(&table, "  ");
    }
}

/* "  set        NAME: mem, weight" where the tool has set something. */
static void show_set(const char *name, bool ring, uint64_t pinned)
{
    const char *between = ": ";

    for (unsigned i = 0; i < LIVE_SETTINGS; i++) {
        if (!live_pinned(live_setting(i), ring, pinned))
            continue;
        if (*between == ':')
            printf("  set        %s", name);
        printf("%s%s", between, live_setting(i)->option);
        between = ", ";
    }
    if (*between == ',')
        putchar('\n');
}

static void show_all_set(const struct status_ring *ring, bool all)
{
    char name[MEMORY_NAME];

    show_set("the ring", true, ring->pinned);
    for (unsigned i = 0; i < ring->tenants; i++)
        if (all || ring->tenant[i].clients)
            show_set(memory_name(name, &ring->tenant[i]), false, ring->tenant[i].pinned);
}

static void show_state(char *state, size_t size, const struct status_client *client)
{
    char text[TEXT_FIGURE];

    if (client->holds)
        snprintf(state, size, "%s %s",
                 client->draining ? "drains"
                 : client->idle   ? "holds, idle"
                                  : "holds",
                 text_duration(text, client->holding_ns));
    else if (client->waiting_ns)
        snprintf(state, size, "waits %s", text_duration(text, client->waiting_ns));
    else
        snprintf(state, size, "quiet");
}

static void show_client(struct table *table, const struct status_ring *ring,
                        const struct status_client *client)
{
    char text[TEXT_FIGURE], state[64], name[MEMORY_NAME];

    show_state(state, sizeof(state), client);
    table_add(table, "%s", client->holds ? "*" : "");
    table_add(table, "%s", show_name(name, ring, client->tenant));
    table_add(table, "%u", client->slot);
    table_add(table, "%" PRId32, client->pid);
    if (client->host_pid)
        table_add(table, "%" PRId32, client->host_pid);
    else
        table_add(table, "-");
    table_add(table, "%s", client->command);
    table_add(table, "%" PRIu64, client->books.launches);
    table_add(table, "%s", text_duration(text, client->books.waited_ns));
    table_add(table, "%s", state);
}

static void show_clients(const struct status_ring *ring)
{
    static const char *const headings[] = {"",        "TENANT",   "SLOT",   "PID",  "HOSTPID",
                                           "COMMAND", "LAUNCHES", "WAITED", "STATE"};
    struct table table;

    if (!ring->clients) {
        puts("\n  no process attached");
        return;
    }
    putchar('\n');
    table_begin(&table, "llrrrlrrl", headings);
    for (unsigned i = 0; i < ring->clients; i++)
        show_client(&table, ring, &ring->client[i]);
    table_end(&table, "  ");
}

static void show_problem(struct show *show, const char *path, const char *reason)
{
    show->problems++;
    ctl_fail("%s %s", path, reason);
    if (show->json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddStringToObject(object, "path", path);
        cJSON_AddStringToObject(object, "reason", reason);
        cJSON_AddItemToArray(show->problem_list, object);
    }
}

static void show_file(struct show *show, unsigned index, const char *name)
{
    char path[CONFIG_PATH_MAX + STATUS_NAME + 1];
    char reason[STATUS_REASON];
    struct status_file file;

    snprintf(path, sizeof(path), "%s/%s", show->directory, name);
    if (status_open(path, &file, reason, sizeof(reason)) < 0) {
        show_problem(show, path, reason);
        return;
    }
    status_read(&file, &show_ring);
    status_close(&file);
    if (show->json) {
        cJSON_AddItemToArray(show->gpus, json_ring(&show_ring, index));
        return;
    }
    if (show->shown++)
        putchar('\n');
    show_head(&show_ring, index);
    show_tenants(&show_ring, show->all);
    memory_print(&show_ring, show->all);
    show_all_set(&show_ring, show->all);
    show_clients(&show_ring);
}

static int show_directory(struct show *show)
{
    struct status_names names = {0};
    int error = status_list(show->directory, &names);

    if (error && error != -ENOENT)
        return ctl_fail("cannot read the ring directory %s: %s", show->directory, strerror(-error));
    for (unsigned i = 0; i < names.count; i++)
        show_file(show, i, names.name[i]);
    if (names.left_out)
        show_problem(show, show->directory, "has more rings than can be shown");
    if (!show->json && names.count == 0)
        printf("No ring in %s: no program has used a GPU through cuslice there yet.\n",
               show->directory);
    return show->problems ? CTL_FAILED : CTL_OK;
}

static int show_json(struct show *show)
{
    cJSON *root = cJSON_CreateObject();

    cJSON_AddStringToObject(root, "version", CUSLICE_VERSION);
    cJSON_AddNumberToObject(root, "layout", CUSLICE_LAYOUT_VERSION);
    cJSON_AddStringToObject(root, "directory", show->directory);
    show->gpus = cJSON_AddArrayToObject(root, "gpus");
    show->problem_list = cJSON_AddArrayToObject(root, "problems");
    int code = show_directory(show);
    int printed = json_print(root);
    return code ? code : printed;
}

int show_main(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"all", no_argument, NULL, 'a'},
                                            {"dir", required_argument, NULL, 'd'},
                                            {0}};
    struct show show = {0};
    struct config config;
    const char *directory = NULL;
    int answer;

    while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (answer == 'j')
            show.json = true;
        else if (answer == 'a')
            show.all = true;
        else if (answer == 'd')
            directory = optarg;
        else
            return ctl_bad_option(argv, answer);
    }
    if (optind < argc)
        return ctl_usage("status", "takes no arguments, got '%s'", argv[optind]);
    (void)ctl_settings(&config, directory); /* a bad cap stops programs, not who looks */
    show.directory = config.dir;
    return show.json ? show_json(&show) : show_directory(&show);
}
