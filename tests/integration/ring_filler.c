/* ring_filler DIRECTORY UUID COUNT: takes so many places in the ring of a GPU and keeps them until
 * standard input ends; prints how many it got. For the tests of a full ring, where as many
 * processes would be too much for a small machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "ring.h"

static int filler_uuid(const char *text, uint8_t uuid[16])
{
    unsigned n = 0;

    for (const char *c = text; n < 16 && *c; c++) {
        unsigned byte;
        if (*c == '-')
            continue;
        if (sscanf(c, "%2x", &byte) != 1)
            return -1;
        uuid[n++] = (uint8_t)byte;
        c++;
    }
    return n == 16 ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct ring rings[CUSLICE_SLOTS + 8];
    struct segment_spec spec = {.device_name = "filled",
                                .device_bytes = UINT64_C(8) << 30,
                                .quantum_ns = 20 * CLOCK_MS,
                                .allowance_ns = CLOCK_S};
    struct tenant_spec tenant = {.key = "filler",
                                 .display = "filler",
                                 .weight = 100,
                                 .priority = CUSLICE_NORMAL,
                                 .mem_limit = CUSLICE_NO_LIMIT};
    unsigned wanted, got = 0;
    char byte;

    if (argc != 4 || filler_uuid(argv[2], spec.uuid) < 0)
        return 2;
    clock_init();
    wanted = (unsigned)atoi(argv[3]);
    while (got < wanted && got < CUSLICE_SLOTS + 8 &&
           ring_join(&rings[got], argv[1], &spec, &tenant) == 0)
        got++;
    printf("%u\n", got);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    for (unsigned i = 0; i < got; i++)
        ring_leave(&rings[i]);
    return 0;
}
