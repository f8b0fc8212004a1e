/* The rings of a directory that a command changes: see rings.h. Creates nothing and joins nothing;
 * one thread. */
#include "rings.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "units.h"

/* Names are GPU-<uuid>.ring; the beginning of the UUID will do, with or without "GPU-". */
static bool rings_named(const char *name, const char *gpu)
{
    return strncasecmp(name, gpu, strlen(gpu)) == 0 ||
           (strncmp(name, "GPU-", 4) == 0 && strncasecmp(name + 4, gpu, strlen(gpu)) == 0);
}

static int rings_choose_uuid(struct rings *rings, const char *gpu)
{
    unsigned found = 0;

    for (unsigned i = 0; i < rings->names.count; i++)
        if (rings_named(rings->names.name[i], gpu)) {
            rings->first = i;
            found++;
        }
    rings->end = rings->first + 1;
    if (found == 0)
        return ctl_fail("no ring of GPU '%s' in %s", gpu, rings->directory);
    if (found > 1)
        return ctl_fail("'%s' is the beginning of %u UUIDs in %s", gpu, found, rings->directory);
    return CTL_OK;
}

static int rings_choose_among(struct rings *rings, const char *gpu)
{
    uint64_t index;

    rings->first = 0;
    rings->end = rings->names.count;
    if (!gpu || strcmp(gpu, "all") == 0)
        return CTL_OK;
    /* A UUID of digits alone has eight before its first dash. */
    if (strlen(gpu) >= 8 || units_parse_number(gpu, &index) < 0)
        return rings_choose_uuid(rings, gpu);
    if (index >= rings->names.count)
        return ctl_fail("no ring %s in %s: there are %u, counted from 0", gpu, rings->directory,
                        rings->names.count);
    rings->first = (unsigned)index;
    rings->end = rings->first + 1;
    return CTL_OK;
}

int rings_choose(struct rings *rings, const char *command, const char *directory, const char *gpu)
{
    int error = status_list(directory, &rings->names);

    rings->directory = directory;
    if (error && error != -ENOENT)
        return ctl_fail("cannot read the ring directory %s: %s", directory, strerror(-error));
    if (gpu && !*gpu)
        return ctl_usage(command, "--gpu takes a UUID, an index or all");
    if (error || rings->names.count == 0)
        return ctl_fail("no ring in %s: no program has used a GPU through cuslice there yet",
                        directory);
    if (rings->names.left_out)
        ctl_fail("%s has more rings than can be looked at: %u are left out", directory,
                 rings->names.left_out);
    return rings_choose_among(rings, gpu);
}

int rings_open(const struct rings *rings, unsigned i, struct segment *segment,
               struct status_ring *snapshot)
{
    char path[CONFIG_PATH_MAX + STATUS_NAME + 1];
    char reason[STATUS_REASON];

    snprintf(path, sizeof(path), "%s/%s", rings->directory, rings->names.name[i]);
    int error = admin_open(segment, path, reason, sizeof(reason));
    if (error < 0)
        return ctl_fail("%s %s%s", path, reason,
                        error == -EACCES || error == -EPERM || error == -EROFS
                            ? "; try as its owner or as root"
                            : "");
    struct status_file view = {.fd = segment->fd, .segment = segment->shared};
    status_read(&view, snapshot);
    return CTL_OK;
}
