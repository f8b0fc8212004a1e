/*
 * Which devices this process sees and in what order: CUDA_VISIBLE_DEVICES, by index or by the
 * beginning of a UUID, read once in the first cuInit. A bad entry, or one that comes again, ends
 * the list. The handle of a device is its place on the board, not in this list.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "identity.h"

static unsigned visible[SIM_DEVICES];
static unsigned visible_number;

/* Whether the device's UUID, written out, begins with these `length` characters. */
static bool visible_is(unsigned device, const char *entry, size_t length)
{
    char uuid[48];

    identity_uuid_text(device, uuid, sizeof(uuid));
    return length <= strlen(uuid) && !strncmp(uuid, entry, length);
}

/* The device that an entry names; -1: none, or more than one. */
static int visible_find(const char *entry, size_t length)
{
    char *end;
    long number = strtol(entry, &end, 10);
    int found = -1;

    if (end == entry + length && length)
        return number >= 0 && number < (long)sim.devices ? (int)number : -1;
    if (length < 5 || strncmp(entry, "GPU-", 4))
        return -1;
    for (unsigned i = 0; i < sim.devices; i++)
        if (visible_is(i, entry, length)) {
            if (found >= 0)
                return -1;
            found = (int)i;
        }
    return found;
}

static bool visible_has(int device)
{
    for (unsigned i = 0; i < visible_number; i++)
        if (visible[i] == (unsigned)device)
            return true;
    return false;
}

void visible_open(void)
{
    const char *entry = getenv("CUDA_VISIBLE_DEVICES");

    visible_number = 0;
    if (!entry) {
        while (visible_number < sim.devices) {
            visible[visible_number] = visible_number;
            visible_number++;
        }
        return;
    }
    for (bool more = true; more;) {
        size_t length = strcspn(entry, ",");
        int device = visible_find(entry, length);

        more = device >= 0 && !visible_has(device) && entry[length] == ',';
        if (device >= 0 && !visible_has(device))
            visible[visible_number++] = (unsigned)device;
        entry += length + 1;
    }
}

unsigned visible_count(void)
{
    return visible_number;
}

int visible_device(int ordinal)
{
    return ordinal >= 0 && (unsigned)ordinal < visible_number ? (int)visible[ordinal] : -1;
}
