/* ctl_ring DIRECTORY AGO: keeps a hand-written ring with known figures there, with live clients,
 * until standard input ends; the last launch was AGO seconds ago. For the tests of the tool, which
 * compare what it prints with these figures. */
#include <sys/mman.h>

#include "histogram.h"
#include "ring_file.h"

static void fill_books(struct cuslice_tenant *tenant, uint64_t ago)
{
    tenant->books.granted_ns = 5 * CLOCK_S / 2;
    tenant->books.charged_ns = 2 * CLOCK_S;
    tenant->books.waited_ns = 750 * CLOCK_MS;
    tenant->books.slices = 123;
    tenant->books.revocations = 2;
    tenant->books.faults = 1;
    tenant->books.launches = 4567;
    tenant->books.refusals = 3;
    tenant->books.refused_bytes = 3 << 20;
    tenant->books.last_refusal_ns = clock_now() - 10 * CLOCK_S;
    tenant->books.last_refusal_asked = 1 << 20;
    tenant->refusal_used = UINT64_C(15) << 28;
    tenant->refusal_cap = UINT64_C(4) << 30;
    tenant->books.last_launch_ns = clock_now() - ago * CLOCK_S;
    tenant->orphaned = 8 << 20;
    for (int i = 0; i < 100; i++)
        histogram_add(&tenant->wait, 20 * CLOCK_MS);
}

int main(int argc, char **argv)
{
    char path[512], byte;

    REQUIRE(argc == 3);
    clock_init();
    snprintf(path, sizeof(path), "%s/GPU-00112233-4455-6677-8899-aabbccddeeff.ring", argv[1]);
    int owner = mapfile_create(path, sizeof(struct cuslice_segment), 0666, ring_file_fill, NULL);
    REQUIRE(owner >= 0);
    struct cuslice_segment *segment = mapfile_map(owner, sizeof(*segment), NULL);
    REQUIRE(segment);
    ring_file_tenant(segment, 0, "alpha", 50, UINT64_C(4) << 30);
    ring_file_tenant(segment, 1, "beta", 150, CUSLICE_NO_LIMIT);
    ring_file_tenant(segment, 2, "gone", 10, CUSLICE_NO_LIMIT);
    segment->tenant[2].left_ns = clock_now() - 60 * CLOCK_S;
    fill_books(&segment->tenant[0], strtoull(argv[2], NULL, 10));
    ring_file_client(segment, owner, 0, 0, UINT64_C(1) << 30);
    ring_file_client(segment, owner, 1, 0, UINT64_C(1) << 29);
    ring_file_client(segment, owner, 2, 1, 4096);
    ring_file_client(segment, -1, 3, 1, 1 << 20);
    segment->slot[0].process_limit = UINT64_C(2) << 30;
    segment->slot[1].process_limit = segment->slot[2].process_limit = CUSLICE_NO_LIMIT;
    segment->slot[0].peak = UINT64_C(3) << 29;
    segment->slot[0].context_bytes = 300 << 20;
    segment->slot[1].exported = 16 << 20;
    segment->slot[1].imported = 9 << 20;
    segment->slot[2].waiting_since_ns = clock_now();
    segment->slot[0].grant_epoch = 8;
    segment->slot[0].grant_ns = clock_now();
    segment->token = CUSLICE_TOKEN(8, 0);
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    return 0;
}
