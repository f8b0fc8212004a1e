/* What the tool prints as JSON: see json.h. Runs on the tool's only thread; knows the keys and
 * nothing of how rings are read. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>

#include "ctl.h"
#include "live.h"

static void json_number(cJSON *object, const char *key, uint64_t value)
{
    cJSON_AddNumberToObject(object, key, (double)value);
}

static void json_seconds(cJSON *object, const char *key, uint64_t ns)
{
    cJSON_AddNumberToObject(object, key, (double)ns / 1e9);
}

/* null where the value means "none". */
static void json_optional(cJSON *object, const char *key, uint64_t value, uint64_t none)
{
    if (value == none)
        cJSON_AddNullToObject(object, key);
    else
        json_number(object, key, value);
}

static void json_text(cJSON *object, const char *key, const char *text)
{
    if (*text)
        cJSON_AddStringToObject(object, key, text);
    else
        cJSON_AddNullToObject(object, key);
}

/* How long ago something was that may never have been. */
static void json_ago(cJSON *object, const char *key, uint64_t now, uint64_t then)
{
    if (then)
        json_seconds(object, key, now > then ? now - then : 0);
    else
        cJSON_AddNullToObject(object, key);
}

static const char *json_name(const char *const *names, unsigned count, uint32_t value)
{
    return value < count ? names[value] : "unknown";
}

static const char *json_mode(uint32_t mode)
{
    static const char *const names[] = {"enforce", "observe", "off"};

    return json_name(names, 3, mode);
}

static const char *json_priority(uint32_t priority)
{
    static const char *const names[] = {"low", "normal", "high"};

    return json_name(names, 3, priority);
}

static void json_times(cJSON *object, const char *key, const struct status_times *times)
{
    cJSON *inner = cJSON_AddObjectToObject(object, key);

    json_number(inner, "count", times->count);
    json_seconds(inner, "sum_seconds", times->sum_ns);
    json_seconds(inner, "p50_seconds", times->p50_ns);
    json_seconds(inner, "p99_seconds", times->p99_ns);
}

static void json_books(cJSON *object, const struct status_books *books, uint64_t now)
{
    json_seconds(object, "granted_seconds", books->granted_ns);
    json_seconds(object, "charged_seconds", books->charged_ns);
    json_seconds(object, "waited_seconds", books->waited_ns);
    json_seconds(object, "overrun_seconds", books->overrun_ns);
    json_number(object, "slices", books->slices);
    json_number(object, "revocations", books->revocations);
    json_number(object, "overruns", books->overruns);
    json_number(object, "faults", books->faults);
    json_number(object, "launches", books->launches);
    json_number(object, "let_through", books->let_through);
    json_number(object, "refusals", books->refusals);
    json_number(object, "refused_bytes", books->refused_bytes);
    json_number(object, "would_refuse", books->would_refuse);
    json_ago(object, "last_launch_ago_seconds", now, books->last_launch_ns);
    json_ago(object, "last_refusal_ago_seconds", now, books->last_refusal_ns);
    json_optional(object, "last_refusal_asked_bytes",
                  books->last_refusal_ns ? books->last_refusal_asked : CUSLICE_NO_LIMIT,
                  CUSLICE_NO_LIMIT);
}

/* The names of the settings that `cuslice set` has set. */
static void json_set(cJSON *object, bool ring, uint64_t pinned)
{
    cJSON *names = cJSON_AddArrayToObject(object, "set_by_admin");

    for (unsigned i = 0; i < LIVE_SETTINGS; i++)
        if (live_pinned(live_setting(i), ring, pinned))
            cJSON_AddItemToArray(names, cJSON_CreateString(live_setting(i)->option));
}

static void json_tenant_memory(cJSON *object, const struct status_tenant *tenant)
{
    json_number(object, "memory_used_bytes", tenant->mem_used);
    json_optional(object, "memory_limit_bytes", tenant->mem_limit, CUSLICE_NO_LIMIT);
    json_optional(object, "process_memory_limit_bytes", tenant->process_limit, CUSLICE_NO_LIMIT);
    json_number(object, "memory_peak_bytes", tenant->mem_peak);
    json_number(object, "memory_orphaned_bytes", tenant->orphaned);
    json_number(object, "memory_exported_bytes", tenant->exported);
    json_number(object, "memory_imported_bytes", tenant->imported);
    json_number(object, "memory_paged_bytes", tenant->paged);
    json_number(object, "context_bytes", tenant->context_bytes);
}

/* What the books of a client do not have. */
static void json_refusal(cJSON *object, const struct status_tenant *tenant)
{
    uint64_t none = tenant->books.last_refusal_ns ? 0 : CUSLICE_NO_LIMIT;

    json_optional(object, "last_refusal_used_bytes", tenant->refusal_used | none, CUSLICE_NO_LIMIT);
    json_optional(object, "last_refusal_limit_bytes", tenant->refusal_cap | none, CUSLICE_NO_LIMIT);
}

static cJSON *json_tenant(const struct status_tenant *tenant, uint64_t now)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddStringToObject(object, "key", tenant->key);
    cJSON_AddStringToObject(object, "display", *tenant->display ? tenant->display : tenant->key);
    json_text(object, "pod", tenant->pod);
    json_text(object, "pod_namespace", tenant->pod_namespace);
    json_text(object, "container", tenant->container);
    json_number(object, "weight", tenant->weight);
    cJSON_AddNumberToObject(object, "limit_percent", tenant->limit_ppm / 1e4);
    cJSON_AddStringToObject(object, "priority", json_priority(tenant->priority));
    cJSON_AddStringToObject(object, "mode", json_mode(tenant->mode));
    json_set(object, false, tenant->pinned);
    json_number(object, "clients", tenant->clients);
    json_number(object, "waiting", tenant->waiting);
    cJSON_AddBoolToObject(object, "holds", tenant->holds);
    json_tenant_memory(object, tenant);
    json_books(object, &tenant->books, now);
    json_refusal(object, tenant);
    json_times(object, "wait", &tenant->wait);
    json_times(object, "burst", &tenant->burst);
    json_times(object, "burst_wait", &tenant->burst_wait);
    json_ago(object, "left_ago_seconds", now, tenant->clients ? 0 : tenant->left_ns);
    return object;
}

static cJSON *json_client(const struct status_ring *ring, const struct status_client *client)
{
    cJSON *object = cJSON_CreateObject();

    json_number(object, "slot", client->slot);
    json_text(object, "tenant",
              client->tenant == STATUS_NONE ? "" : ring->tenant[client->tenant].key);
    cJSON_AddNumberToObject(object, "pid", client->pid);
    if (client->host_pid)
        cJSON_AddNumberToObject(object, "host_pid", client->host_pid);
    else
        cJSON_AddNullToObject(object, "host_pid");
    json_text(object, "command", client->command);
    cJSON_AddStringToObject(object, "mode", json_mode(client->mode));
    json_number(object, "memory_used_bytes", client->bytes);
    json_number(object, "memory_peak_bytes", client->peak);
    json_optional(object, "process_memory_limit_bytes", client->process_limit, CUSLICE_NO_LIMIT);
    json_number(object, "memory_exported_bytes", client->exported);
    json_number(object, "memory_imported_bytes", client->imported);
    json_number(object, "memory_paged_bytes", client->paged);
    json_number(object, "context_bytes", client->context_bytes);
    json_ago(object, "attached_seconds", ring->taken_ns, client->joined_ns);
    cJSON_AddBoolToObject(object, "holds", client->holds);
    json_seconds(object, "holding_seconds", client->holding_ns);
    cJSON_AddBoolToObject(object, "draining", client->draining);
    cJSON_AddBoolToObject(object, "idle", client->idle);
    cJSON_AddBoolToObject(object, "waits", client->waiting_ns != 0);
    json_seconds(object, "waiting_seconds", client->waiting_ns);
    json_books(object, &client->books, ring->taken_ns);
    return object;
}

static void json_ring_head(cJSON *object, const struct status_ring *ring)
{
    cJSON_AddStringToObject(object, "uuid", ring->uuid);
    json_text(object, "name", ring->name);
    json_number(object, "memory_bytes", ring->device_bytes);
    json_number(object, "memory_used_bytes", ring->mem_used);
    json_seconds(object, "quantum_seconds", ring->quantum_ns);
    json_seconds(object, "allowance_seconds", ring->allowance_ns);
    json_set(object, true, ring->pinned);
    json_number(object, "token_epoch", ring->epoch);
    if (ring->holder == STATUS_NONE)
        cJSON_AddNullToObject(object, "holder_slot");
    else
        json_number(object, "holder_slot", ring->client[ring->holder].slot);
    json_number(object, "waiting", ring->waiting);
    json_number(object, "unreaped", ring->dead);
    json_number(object, "reaped", ring->reaped);
    json_ago(object, "age_seconds", ring->taken_ns, ring->created_ns);
    json_seconds(object, "busy_seconds", ring->busy_ns);
    json_seconds(object, "idle_wanted_seconds", ring->idle_wanted_ns);
    json_number(object, "handovers", ring->handovers);
    json_seconds(object, "handover_seconds", ring->handover_ns);
    json_seconds(object, "drain_seconds", ring->drain_ns);
    json_times(object, "handover", &ring->handover);
}

cJSON *json_ring(const struct status_ring *ring, unsigned index)
{
    cJSON *object = cJSON_CreateObject();

    json_number(object, "index", index);
    json_ring_head(object, ring);
    cJSON *tenants = cJSON_AddArrayToObject(object, "tenants");
    for (unsigned i = 0; i < ring->tenants; i++)
        cJSON_AddItemToArray(tenants, json_tenant(&ring->tenant[i], ring->taken_ns));
    cJSON *clients = cJSON_AddArrayToObject(object, "clients");
    for (unsigned i = 0; i < ring->clients; i++)
        cJSON_AddItemToArray(clients, json_client(ring, &ring->client[i]));
    return object;
}

int json_print(cJSON *root)
{
    char *text = cJSON_Print(root);

    cJSON_Delete(root);
    if (!text)
        return ctl_fail("out of memory");
    puts(text);
    free(text);
    return CTL_OK;
}
