/*
 * Managed memory: pages that are on the device or not, counted per client. A kernel's working set
 * is all that its process has; it must be there before the kernel runs, and pushes others' pages
 * out, least recently wanted first. All pages are taken for written, so that a page costs as much
 * on its way out as on its way in. What can never fit moves in and out for each kernel. Main thread
 * only.
 */
#include "device.h"

void paging_add(struct client *client, unsigned device, uint64_t bytes)
{
    client->managed[device] += bytes;
}

/* Of what is freed, that counts first which is not on the device. */
void paging_remove(struct client *client, unsigned device, uint64_t bytes)
{
    client->managed[device] -= bytes;
    if (client->resident[device] > client->managed[device])
        pool_page(&devices[device], client,
                  -(int64_t)(client->resident[device] - client->managed[device]));
}

uint64_t paging_time(uint64_t bytes)
{
    return (uint64_t)((double)bytes * 1e9 / (double)settings.page_rate);
}

/* The client, other than this one, whose pages have been idle longest. */
static struct client *paging_victim(unsigned device, const struct client *except)
{
    struct client *victim = NULL;

    for (unsigned i = 0; i < client_most; i++)
        if (clients[i] && clients[i]->used && clients[i] != except &&
            clients[i]->resident[device] &&
            (!victim || clients[i]->paged_at[device] < victim->paged_at[device]))
            victim = clients[i];
    return victim;
}

uint64_t paging_send_away(struct device *device, struct client *client, uint64_t most)
{
    uint64_t bytes = client->resident[device->ordinal];

    bytes = bytes < most ? bytes : most;
    pool_page(device, client, -(int64_t)bytes);
    return bytes;
}

static uint64_t paging_room(const struct device *device)
{
    return device->total > device->used ? device->total - device->used : 0;
}

/* Sends pages away until there is room for so many bytes, or nobody's are left; what moved. */
static uint64_t paging_clear(struct device *device, const struct client *except, uint64_t bytes)
{
    uint64_t moved = 0;

    while (paging_room(device) < bytes) {
        struct client *victim = paging_victim(device->ordinal, except);

        if (!victim)
            break;
        moved += paging_send_away(device, victim, bytes - paging_room(device));
    }
    return moved;
}

void paging_make_room(struct device *device, uint64_t bytes)
{
    paging_clear(device, NULL, bytes);
}

uint64_t paging_bring(struct device *device, struct client *client, uint64_t most, uint64_t t)
{
    uint64_t missing = client->managed[device->ordinal] - client->resident[device->ordinal];
    uint64_t moved, room;

    client->paged_at[device->ordinal] = t;
    missing = missing < most ? missing : most;
    if (!missing)
        return 0;
    moved = missing + paging_clear(device, client, missing);
    room = paging_room(device);
    if (room < missing)
        moved += missing - room; /* comes and goes */
    pool_page(device, client, (int64_t)(room < missing ? room : missing));
    return moved;
}
