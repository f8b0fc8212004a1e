/* places: prints the fingerprint of a ring of this layout, then a line for each field of the shared
 * files that tests and benchmarks read or damage: `struct.field offset bytes`. places.py reads it;
 * what moves in the headers moves there too, and what leaves them does not compile here. */
#include <stdio.h>

#include "cuslice/gang.h"

#define PLACE(type, field) \
    printf("%s.%s %zu %zu\n", #type, #field, offsetof(struct cuslice_##type, field), \
           sizeof(((struct cuslice_##type *)NULL)->field))

static void print_segment(void)
{
    PLACE(segment, magic);
    PLACE(segment, version);
    PLACE(segment, fingerprint);
    PLACE(segment, uuid);
    PLACE(segment, quantum_ns);
    PLACE(segment, token);
    PLACE(segment, attached);
    PLACE(segment, passed_ns);
    PLACE(segment, close_ns);
    PLACE(segment, crowded_ns);
    PLACE(segment, slot);
    PLACE(segment, slot[0]);
    PLACE(segment, tenant);
    PLACE(segment, tenant[0]);
}

static void print_records(void)
{
    PLACE(slot, bytes);
    PLACE(slot, context_bytes);
    PLACE(slot, joined_ns);
    PLACE(slot, pid);
    PLACE(slot, host_pid);
    PLACE(slot, death);
    PLACE(tenant, members);
    PLACE(tenant, mem_limit);
    PLACE(tenant, weight);
    PLACE(tenant, limit_ppm);
    PLACE(tenant, mode);
    PLACE(tenant, key);
}

int main(void)
{
    printf("%u\n", CUSLICE_FINGERPRINT);
    print_segment();
    print_records();
    PLACE(gang, turn);
    PLACE(gang, member[0].submitted);
    return 0;
}
