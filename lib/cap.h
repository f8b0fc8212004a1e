/*
 * cap: memory caps as text and as bytes. Knows no device: the caller says index, UUID and size.
 * Pure functions on the caller's memory; any thread; nothing is allocated or printed.
 * Units are powers of 1024 whatever their spelling (k = K = Ki = KiB, likewise M, G, T), as in the
 * field's other GPU caps: 1G = 1024m = 1048576k = 1073741824. Kubernetes' decimal G and milli m do
 * not apply.
 */
#ifndef CUSLICE_CAP_H
#define CUSLICE_CAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The answer where no cap is asked. */
#define CAP_NONE UINT64_MAX

/* Entries of one list: twice the devices of the largest usual node. */
#define CAPS_MAX 32

/* What a person may write, for messages. */
#define CAP_FORMS "bytes, 4Gi, 4096m, 25%, auto, none, or per device 0:4Gi,1:8Gi or GPU-UUID:4Gi"

enum cap_target { CAP_ALL, CAP_INDEX, CAP_UUID };
enum cap_kind { CAP_BYTES, CAP_PARTS, CAP_AUTO };

struct cap {
    enum cap_target target;
    enum cap_kind kind;
    unsigned index;         /* of CAP_INDEX: as the program counts its devices */
    unsigned char uuid[16]; /* of CAP_UUID */
    uint64_t amount; /* CAP_BYTES: bytes; CAP_PARTS: millionths of the device's memory; CAP_AUTO:
                        the number of replicas where it is fixed already, else 0 */
};

/* An ordered list of caps; empty: nothing asked. */
struct cap_list {
    unsigned count;
    struct cap cap[CAPS_MAX];
};

/* What was asked, and the node's ceiling over it. */
struct caps {
    struct cap_list asked;
    struct cap_list ceiling;
};

/* Reads `GPU-` or `MIG-` and 32 hex digits, grouped as usual; 0, or -EINVAL with *uuid undefined.
 */
int cap_parse_uuid(const char *text, unsigned char uuid[16]);

/* Writes it as cap_parse_uuid reads it, beginning with "GPU-". */
#define CAP_UUID_TEXT 41
void cap_format_uuid(char text[CAP_UUID_TEXT], const unsigned char uuid[16]);

/* Reads one text (see CAP_FORMS) into *list; 0, -EINVAL for text it does not know or a device named
 * twice, -E2BIG for more than CAPS_MAX entries. *list is set on success only. */
int cap_parse(const char *text, struct cap_list *list);

/* Writes the list's canonical text, "none" when it is empty; returns its full length as snprintf
 * does. */
size_t cap_format(const struct cap_list *list, char *text, size_t size);

/* True when an entry says `auto`, which needs a number of replicas. */
bool cap_needs_replicas(const struct cap_list *list);

/* Fixes the number that the list's `auto` entries divide by, whatever cap_resolve is told later. */
void cap_bind_replicas(struct cap_list *list, unsigned replicas);

/* The bytes allowed on a device of total_bytes: the lower of asked and ceiling, at most
 * total_bytes; CAP_NONE when neither names this device. An entry by UUID goes before one by index,
 * that before one for all. `auto` divides by replicas (0 counts as 1). */
uint64_t cap_resolve(const struct caps *caps, unsigned index, const unsigned char uuid[16],
                     uint64_t total_bytes, unsigned replicas);

/* True when the ceiling lowers, on that device, what was asked. */
bool cap_lowered(const struct caps *caps, unsigned index, const unsigned char uuid[16],
                 uint64_t total_bytes, unsigned replicas);

/* True when what was asked is above the ceiling whatever the device's size; cap_lowered decides the
 * rest once that is known. */
bool cap_exceeds(const struct caps *caps, unsigned replicas);

#endif
