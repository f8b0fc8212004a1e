/* What `cuslice status` says of memory: see memory.h. Columns of what is rare appear only where
 * some row has it. One thread. */
#include "memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "table.h"
#include "text.h"

/* One row's figures; UINT64_MAX: this row has no such figure. */
struct memory_row {
    const char *name;
    uint64_t bytes;
    uint64_t context;
    uint64_t cap;
    uint64_t peak;
    uint64_t rare[4]; /* as in memory_rare */
    uint64_t refusals;
    uint64_t last_launch_ns;
};

static const char *const memory_rare[4] = {"ORPHANED", "EXPORTED", "IMPORTED", "PAGED"};

/* The table being filled, and which rare columns it has. */
struct memory_table {
    struct table table;
    char formats[TABLE_COLUMNS + 1];
    bool has[4];
    uint64_t now;
};

char *memory_name(char text[MEMORY_NAME], const struct status_tenant *tenant)
{
    const char *name = *tenant->display ? tenant->display : tenant->key;
    size_t length = strlen(name);

    if (length <= 20)
        snprintf(text, MEMORY_NAME, "%.20s", name);
    else
        snprintf(text, MEMORY_NAME, "%.9s..%.9s", name, name + length - 9);
    return text;
}

static void memory_begin(struct memory_table *memory, const struct status_ring *ring)
{
    const char *headings[TABLE_COLUMNS] = {"MEMORY OF", "RESERVED", "CONTEXT", "CAP", "PEAK"};
    unsigned columns = 5;

    *memory = (struct memory_table){.now = ring->taken_ns};
    for (unsigned i = 0; i < ring->tenants; i++) {
        const struct status_tenant *tenant = &ring->tenant[i];
        memory->has[0] |= tenant->orphaned != 0;
        memory->has[1] |= tenant->exported != 0;
        memory->has[2] |= tenant->imported != 0;
        memory->has[3] |= tenant->paged != 0;
    }
    for (unsigned i = 0; i < 4; i++)
        if (memory->has[i])
            headings[columns++] = memory_rare[i];
    headings[columns++] = "REFUSED";
    headings[columns++] = "IDLE";
    memset(memory->formats, 'r', columns);
    memory->formats[0] = 'l';
    table_begin(&memory->table, memory->formats, headings);
}

static void memory_add(struct memory_table *memory, const struct memory_row *row)
{
    struct table *table = &memory->table;
    char text[TEXT_FIGURE];

    table_add(table, "%s", row->name);
    table_add(table, "%s", text_bytes(text, row->bytes));
    table_add(table, row->context ? "~%s" : "-", text_bytes(text, row->context));
    table_add(table, "%s", text_cap(text, row->cap));
    table_add(table, "%s", text_bytes(text, row->peak));
    for (unsigned i = 0; i < 4; i++)
        if (memory->has[i])
            table_add(table, "%s", text_cap(text, row->rare[i]));
    table_add(table, "%" PRIu64, row->refusals);
    table_add(table, "%s",
              row->last_launch_ns == 0 ? "never"
              : row->last_launch_ns < memory->now
                  ? text_duration(text, memory->now - row->last_launch_ns)
                  : "0");
}

static void memory_add_tenant(struct memory_table *memory, const struct status_tenant *tenant)
{
    char name[MEMORY_NAME];
    struct memory_row row = {
        .name = memory_name(name, tenant),
        .bytes = tenant->mem_used,
        .context = tenant->context_bytes,
        .cap = tenant->mem_limit,
        .peak = tenant->mem_peak,
        .rare = {tenant->orphaned, tenant->exported, tenant->imported, tenant->paged},
        .refusals = tenant->books.refusals,
        .last_launch_ns = tenant->books.last_launch_ns};

    memory_add(memory, &row);
}

static void memory_add_clients(struct memory_table *memory, const struct status_ring *ring,
                               int tenant)
{
    for (unsigned i = 0; i < ring->clients; i++) {
        const struct status_client *client = &ring->client[i];
        char name[64];
        struct memory_row row = {
            .name = name,
            .bytes = client->bytes,
            .context = client->context_bytes,
            .cap = client->process_limit,
            .peak = client->peak,
            .rare = {UINT64_MAX, client->exported, client->imported, client->paged},
            .refusals = client->books.refusals,
            .last_launch_ns = client->books.last_launch_ns};
        snprintf(name, sizeof(name), "  %" PRId32 " %s", client->pid, client->command);
        if (client->tenant == tenant)
            memory_add(memory, &row);
    }
}

static void memory_print_refusal(const struct status_tenant *tenant, uint64_t now)
{
    char name[MEMORY_NAME], ago[TEXT_FIGURE], asked[TEXT_FIGURE], used[TEXT_FIGURE],
        cap[TEXT_FIGURE];
    uint64_t then = tenant->books.last_refusal_ns;

    if (!then)
        return;
    printf("  refused    %s, %s ago: asked %s, used %s of %s\n", memory_name(name, tenant),
           text_duration(ago, then < now ? now - then : 0),
           text_bytes(asked, tenant->books.last_refusal_asked),
           text_bytes(used, tenant->refusal_used), text_cap(cap, tenant->refusal_cap));
}

static bool memory_shown(const struct status_tenant *tenant, bool all)
{
    return all || tenant->clients || tenant->orphaned;
}

void memory_print(const struct status_ring *ring, bool all)
{
    struct memory_table memory;
    unsigned shown = 0;

    for (unsigned i = 0; i < ring->tenants; i++)
        shown += memory_shown(&ring->tenant[i], all);
    if (!shown && !ring->clients)
        return;
    memory_begin(&memory, ring);
    for (unsigned i = 0; i < ring->tenants; i++)
        if (memory_shown(&ring->tenant[i], all)) {
            memory_add_tenant(&memory, &ring->tenant[i]);
            memory_add_clients(&memory, ring, (int)i);
        }
    memory_add_clients(&memory, ring, STATUS_NONE);
    putchar('\n');
    table_end(&memory.table, "  ");
    for (unsigned i = 0; i < ring->tenants; i++)
        if (memory_shown(&ring->tenant[i], all))
            memory_print_refusal(&ring->tenant[i], ring->taken_ns);
}
