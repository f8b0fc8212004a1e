/* A ring's file written by hand, for tests of what reads rings: the layout's own words are set, no
 * code of the scheduler runs. The caller holds the descriptor that mapfile_create gave; locks taken
 * through it are what makes a client live. */
#ifndef TEST_RING_FILE_H
#define TEST_RING_FILE_H

#include "clock.h"
#include "cuslice/segment.h"
#include "mapfile.h"
#include "test.h"

static inline int ring_file_fill(void *memory, size_t size, void *arg)
{
    struct cuslice_segment *s = memory;

    (void)arg;
    s->magic = CUSLICE_MAGIC;
    s->version = CUSLICE_LAYOUT_VERSION;
    s->fingerprint = CUSLICE_FINGERPRINT;
    s->size = size;
    s->device_bytes = UINT64_C(80) << 30;
    for (unsigned i = 0; i < 16; i++)
        s->uuid[i] = (uint8_t)(0x11 * i);
    strcpy(s->device_name, "Test GPU");
    s->created_ns = 1000;
    s->quantum_ns = s->asked[0] = 20 * CLOCK_MS;
    s->allowance_ns = s->asked[1] = CLOCK_S;
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        s->slot[i].tenant = CUSLICE_TENANTS;
    s->token = CUSLICE_TOKEN(7, CUSLICE_NOBODY);
    return 0;
}

static inline void ring_file_tenant(struct cuslice_segment *segment, unsigned index,
                                    const char *key, uint32_t weight, uint64_t limit)
{
    struct cuslice_tenant *tenant = &segment->tenant[index];

    tenant->id = 100 + index;
    snprintf(tenant->key, sizeof(tenant->key), "%s", key);
    snprintf(tenant->display, sizeof(tenant->display), "%s!", key);
    tenant->weight = weight;
    tenant->asked[0] = weight;
    tenant->asked[1] = limit;
    tenant->limit_ppm = 1000000;
    tenant->priority = CUSLICE_NORMAL;
    tenant->mem_limit = limit;
    tenant->mem_peak = 4096;
}

static inline void ring_file_client(struct cuslice_segment *segment, int owner, unsigned slot,
                                    unsigned tenant, uint64_t bytes)
{
    struct cuslice_slot *s = &segment->slot[slot];

    s->tenant = tenant;
    s->bytes = bytes;
    s->joined_ns = 5000;
    s->pid = 1000 + (int)slot;
    snprintf(s->command, sizeof(s->command), "program-%u", slot);
    if (owner >= 0)
        REQUIRE(mapfile_lock(owner, CUSLICE_LOCK_SLOT(slot)) == 0);
}

#endif
