/* What the guests got: see tally.h. */
#include "tally.h"

#include <string.h>

static void tally_add_client(struct tally_row *row, const struct status_client *client)
{
    row->present = true;
    row->holds |= client->holds;
    row->draining |= client->draining;
    row->holding_ns += client->holding_ns;
    /* Books are closed at the end of a turn or a wait; what runs now is added, so that a long one
     * does not show as a jump. */
    row->granted_ns += client->holding_ns;
    row->waited_ns += client->waiting_ns;
    row->waiting_ns += client->waiting_ns;
}

static void tally_read(struct tally_row row[GUESTS], const struct status_ring *ring,
                       const struct guest guests[GUESTS])
{
    memset(row, 0, GUESTS * sizeof(row[0]));
    for (int i = 0; i < GUESTS; i++) {
        int place = status_find_tenant(ring, guests[i].name);
        if (place == STATUS_NONE)
            continue;
        const struct status_tenant *tenant = &ring->tenant[place];
        row[i].granted_ns = tenant->books.granted_ns;
        row[i].waited_ns = tenant->books.waited_ns;
        row[i].slices = tenant->books.slices;
        row[i].refusals = tenant->books.refusals;
        row[i].memory = tenant->mem_used;
        row[i].cap = tenant->mem_limit;
        row[i].kernels = guests[i].kernels;
        for (unsigned c = 0; c < ring->clients; c++)
            if (ring->client[c].tenant == place)
                tally_add_client(&row[i], &ring->client[c]);
    }
}

bool tally_ready(const struct status_ring *ring, const struct guest guests[GUESTS])
{
    struct tally_row row[GUESTS];

    tally_read(row, ring, guests);
    for (int i = 0; i < GUESTS; i++)
        if (!row[i].present || row[i].slices == 0 || row[i].kernels == 0)
            return false;
    return true;
}

void tally_begin(struct tally *tally, const struct status_ring *ring,
                 const struct guest guests[GUESTS])
{
    tally->begin_ns = ring->taken_ns;
    tally_read(tally->base, ring, guests);
    tally_update(tally, ring, guests);
}

/* A turn that ended between two loads may show twice or not at all for an instant. */
static uint64_t tally_since(uint64_t now, uint64_t base)
{
    return now > base ? now - base : 0;
}

void tally_update(struct tally *tally, const struct status_ring *ring,
                  const struct guest guests[GUESTS])
{
    tally->now_ns = ring->taken_ns;
    tally_read(tally->row, ring, guests);
    for (int i = 0; i < GUESTS; i++) {
        struct tally_row *row = &tally->row[i];
        const struct tally_row *base = &tally->base[i];
        row->granted_ns = tally_since(row->granted_ns, base->granted_ns);
        row->waited_ns = tally_since(row->waited_ns, base->waited_ns);
        row->slices = tally_since(row->slices, base->slices);
        row->kernels = tally_since(row->kernels, base->kernels);
        row->refusals = tally_since(row->refusals, base->refusals);
    }
}

static double tally_percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

double tally_share(const struct tally *tally, int guest)
{
    uint64_t whole = 0;

    for (int i = 0; i < GUESTS; i++)
        whole += tally->row[i].granted_ns;
    return tally_percent(tally->row[guest].granted_ns, whole);
}

double tally_kernel_share(const struct tally *tally, int guest)
{
    uint64_t whole = 0;

    for (int i = 0; i < GUESTS; i++)
        whole += tally->row[i].kernels;
    return tally_percent(tally->row[guest].kernels, whole);
}

double tally_asked(const struct guest guests[GUESTS], int guest)
{
    uint64_t whole = 0;

    for (int i = 0; i < GUESTS; i++)
        whole += guests[i].weight;
    return tally_percent(guests[guest].weight, whole);
}

int tally_holder(const struct tally *tally)
{
    for (int i = 0; i < GUESTS; i++)
        if (tally->row[i].holds)
            return i;
    return -1;
}
