/* `cuslice reap`: clears the places of dead processes now.
 *
 * Clients do this by themselves as soon as one waits, joins or lacks memory; on a ring where nobody
 * does, the dead one's figures stay until then. Whoever the kernel says is alive is left alone. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "ctl.h"
#include "rings.h"
#include "text.h"

const char reap_help[] =
    "usage: cuslice reap [--gpu GPU] [--dir DIRECTORY]\n"
    "\n"
    "Clears the slots of processes that are gone, and says what each one held. Clients do so by\n"
    "themselves when one waits, joins or lacks memory; this is for rings where none does. Nothing\n"
    "that lives is touched: the kernel's lock decides, no process id.\n"
    "\n"
    "  --gpu GPU        one ring: a UUID or its beginning, or the ring's number in 'cuslice\n"
    "                   status', from 0; all without it\n"
    "  --dir DIRECTORY  the ring directory (CUSLICE_DIR)\n"
    "\n"
    "Ends with 0 also when nobody was dead.\n";

static void reap_tell(const char *uuid, const struct admin_dead *dead)
{
    char text[TEXT_FIGURE];

    printf("%s: slot %u, process %" PRId32 " (%s) of %s: %s reserved\n", uuid, dead->slot,
           dead->pid, dead->command, *dead->tenant ? dead->tenant : "no tenant",
           text_bytes(text, dead->bytes));
}

static int reap_ring(const struct rings *rings, unsigned i)
{
    static struct admin_dead dead[CUSLICE_SLOTS];
    static struct status_ring snapshot;
    struct segment segment;
    uint64_t bytes = 0;
    char text[TEXT_FIGURE];

    if (rings_open(rings, i, &segment, &snapshot))
        return CTL_FAILED;
    unsigned count = admin_reap(&segment, dead);
    for (unsigned k = 0; k < count; k++) {
        reap_tell(snapshot.uuid, &dead[k]);
        bytes += dead[k].bytes;
    }
    printf("%s: %u dead cleared, %s freed\n", snapshot.uuid, count, text_bytes(text, bytes));
    segment_close(&segment);
    return CTL_OK;
}

int reap_main(int argc, char **argv)
{
    static const struct option options[] = {
        {"gpu", required_argument, NULL, 'g'}, {"dir", required_argument, NULL, 'd'}, {0}};
    static struct rings rings;
    struct config config;
    const char *directory = NULL, *gpu = NULL;
    int answer;

    while ((answer = getopt_long(argc, argv, ":", options, NULL)) != -1) {
        if (answer == 'g')
            gpu = optarg;
        else if (answer == 'd')
            directory = optarg;
        else
            return ctl_bad_option(argv, answer);
    }
    if (optind < argc)
        return ctl_usage("reap", "takes no arguments, got '%s'", argv[optind]);
    (void)ctl_settings(&config, directory); /* a bad cap stops programs, not who looks */
    int code = rings_choose(&rings, "reap", config.dir, gpu);
    if (code)
        return code;
    for (unsigned i = rings.first; i < rings.end; i++)
        if (reap_ring(&rings, i))
            code = CTL_FAILED;
    return code;
}
