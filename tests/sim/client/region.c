/*
 * What this process knows about addresses: a table of regions ordered by address. Adding at the end
 * is the usual case; look-ups are a binary search. One lock of its own, innermost of all.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

static struct region **table;
static size_t count, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_id = 1;

/* Index of the first region that starts above the address. Under the lock. */
static size_t region_above(uint64_t address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (table[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool region_find(uint64_t address, struct region *out)
{
    bool found = false;
    size_t above;

    pthread_mutex_lock(&lock);
    above = region_above(address);
    if (above && address - table[above - 1]->address < table[above - 1]->bytes) {
        *out = *table[above - 1];
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool region_any(uint64_t address, uint64_t bytes)
{
    bool found;
    size_t above;

    pthread_mutex_lock(&lock);
    above = region_above(address);
    found = (above && address - table[above - 1]->address < table[above - 1]->bytes) ||
            (above < count && table[above]->address - address < bytes);
    pthread_mutex_unlock(&lock);
    return found;
}

bool region_covers(uint64_t address, uint64_t bytes)
{
    struct region region;

    while (region_find(address, &region)) {
        uint64_t left = region.bytes - (address - region.address);

        if (bytes <= left)
            return true;
        if (region.kind != REGION_VIRTUAL)
            return false;
        address += left;
        bytes -= left;
    }
    return false;
}

static bool region_grow(void)
{
    struct region **bigger;

    if (count < room)
        return true;
    bigger = realloc(table, (room ? room * 2 : 256) * sizeof(*table));
    if (!bigger)
        return false;
    table = bigger;
    room = room ? room * 2 : 256;
    return true;
}

CUresult region_add(const struct region *region)
{
    struct region *copy = malloc(sizeof(*copy));
    bool added = false;
    size_t at;

    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = *region;
    pthread_mutex_lock(&lock);
    copy->id = next_id++;
    if (region_grow()) {
        at = region_above(copy->address);
        memmove(&table[at + 1], &table[at], (count - at) * sizeof(*table));
        table[at] = copy;
        count++;
        added = true;
    }
    pthread_mutex_unlock(&lock);
    if (!added)
        free(copy);
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool region_remove(uint64_t address, struct region *out)
{
    struct region *found = NULL;
    size_t above;

    pthread_mutex_lock(&lock);
    above = region_above(address);
    if (above && table[above - 1]->address == address) {
        found = table[above - 1];
        memmove(&table[above - 1], &table[above], (count - above) * sizeof(*table));
        count--;
    }
    pthread_mutex_unlock(&lock);
    if (found && out)
        *out = *found;
    free(found);
    return found != NULL;
}

/* Host memory stays when its context ends: the program may still use it. */
static bool region_goes(const struct region *region, const struct context *context)
{
    return region->context == context && region->kind != REGION_PINNED &&
           region->kind != REGION_REGISTERED;
}

void region_forget_context(struct context *context)
{
    size_t kept = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count; i++)
        if (region_goes(table[i], context))
            free(table[i]);
        else
            table[kept++] = table[i];
    count = kept;
    pthread_mutex_unlock(&lock);
}
