/*
 * Addresses as clients name them: device memory (the same everywhere), pinned memory (in the
 * arena), ranges mapped to device memory, and registered memory of the client itself, which is read
 * and written through its process id. Main thread only. Never believes an address or a length.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "device.h"

static bool reach_within(uint64_t address, uint64_t bytes, uint64_t start, uint64_t length)
{
    return address >= start && bytes <= length && address - start <= length - bytes;
}

static uint64_t reach_memory_bytes(void)
{
    return board->memory_stride * (settings.devices ? settings.devices : 1);
}

static const struct mapping *reach_mapping(const struct client *client, uint64_t address)
{
    for (const struct mapping *m = client->mappings; m; m = m->next)
        if (reach_within(address, 1, m->address, m->bytes))
            return m;
    return NULL;
}

void *reach_direct(const struct client *client, uint64_t address, uint64_t bytes)
{
    const struct mapping *m;

    if (reach_within(address, bytes, board->memory_base, reach_memory_bytes()))
        return (void *)(uintptr_t)address;
    if (reach_within(address, bytes, client->arena_address + ARENA_STAGES,
                     ARENA_BYTES - ARENA_STAGES))
        return client->base + (address - client->arena_address);
    m = reach_mapping(client, address);
    if (m && m->memory && reach_within(address, bytes, m->address, m->bytes))
        return (void *)(uintptr_t)(m->memory + (address - m->address));
    return NULL;
}

uint64_t reach_piece(const struct client *client, uint64_t address, uint64_t bytes, void **direct)
{
    const struct mapping *m;
    uint64_t left;

    *direct = reach_direct(client, address, bytes);
    if (*direct)
        return bytes;
    m = reach_mapping(client, address);
    if (!m)
        return 0;
    left = m->bytes - (address - m->address);
    if (m->memory)
        *direct = (void *)(uintptr_t)(m->memory + (address - m->address));
    return left < bytes ? left : bytes;
}

static bool reach_process(const struct client *client, uint64_t address, void *here, uint64_t bytes,
                          bool write)
{
    struct iovec local = {.iov_base = here, .iov_len = bytes};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
    ssize_t n;

    if (client->dead_at || client->host_pid <= 0)
        return false;
    n = write ? process_vm_writev(client->host_pid, &local, 1, &remote, 1, 0)
              : process_vm_readv(client->host_pid, &local, 1, &remote, 1, 0);
    return n >= 0 && (uint64_t)n == bytes;
}

static bool reach_move(const struct client *client, uint64_t address, unsigned char *here,
                       uint64_t bytes, bool write)
{
    while (bytes) {
        void *direct;
        uint64_t n = reach_piece(client, address, bytes, &direct);

        if (!n)
            return false;
        if (!direct) {
            if (!reach_process(client, address, here, n, write))
                return false;
        } else if (write) {
            memmove(direct, here, n);
        } else {
            memmove(here, direct, n);
        }
        address += n;
        here += n;
        bytes -= n;
    }
    return true;
}

bool reach_read(const struct client *client, uint64_t address, void *to, uint64_t bytes)
{
    return reach_move(client, address, to, bytes, false);
}

bool reach_write(const struct client *client, uint64_t address, const void *from, uint64_t bytes)
{
    return reach_move(client, address, (unsigned char *)(uintptr_t)from, bytes, true);
}

bool reach_copy(const struct client *client, uint64_t to, uint64_t from, uint64_t bytes)
{
    static unsigned char bounce[65536];

    while (bytes) {
        void *source = reach_direct(client, from, bytes);
        uint64_t n = bytes < sizeof(bounce) ? bytes : sizeof(bounce);

        if (source)
            return reach_write(client, to, source, bytes);
        if (!reach_read(client, from, bounce, n) || !reach_write(client, to, bounce, n))
            return false;
        to += n;
        from += n;
        bytes -= n;
    }
    return true;
}

bool reach_map(struct client *client, uint64_t address, uint64_t bytes, uint64_t backing)
{
    struct mapping *m;
    unsigned char probe;

    if (!bytes || address + bytes < address)
        return false;
    if (backing && reach_within(backing, bytes, client->arena_address + ARENA_STAGES,
                                ARENA_BYTES - ARENA_STAGES))
        backing = (uint64_t)(uintptr_t)client->base + (backing - client->arena_address);
    else if (backing && !reach_within(backing, bytes, board->memory_base, reach_memory_bytes()))
        return false;
    if (!backing && !reach_process(client, address, &probe, 1, false))
        return false;
    m = calloc(1, sizeof(*m));
    if (!m)
        return false;
    m->address = address;
    m->bytes = bytes;
    m->memory = backing;
    m->next = client->mappings;
    client->mappings = m;
    return true;
}

bool reach_unmap(struct client *client, uint64_t address)
{
    for (struct mapping **at = &client->mappings; *at; at = &(*at)->next)
        if ((*at)->address == address) {
            struct mapping *m = *at;

            *at = m->next;
            free(m);
            return true;
        }
    return false;
}

void reach_forget(struct client *client)
{
    while (client->mappings)
        reach_unmap(client, client->mappings->address);
}
