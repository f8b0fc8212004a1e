/*
 * cap: reads, writes and applies memory caps.
 * Owns nothing. Runs on any thread. Must never turn a text it does not know into "no cap", and must
 * never overflow: too large means the whole device.
 */
#include "cap.h"
#include "units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CAP_WHOLE UINT64_C(1000000) /* the whole device, in CAP_PARTS */
#define CAP_ENTRY_MAX 128           /* the longest entry: a MIG UUID, a colon and an amount */

static int cap_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

/* 8-4-4-4-12 hex digits; the whole text or nothing. */
int cap_parse_uuid(const char *text, unsigned char uuid[16])
{
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return -EINVAL;
    text += 4;
    for (unsigned i = 0; i < 16; i++) {
        int high, low;

        if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
            return -EINVAL;
        high = cap_hex(text[0]);
        low = high < 0 ? -1 : cap_hex(text[1]);
        if (low < 0)
            return -EINVAL;
        uuid[i] = (unsigned char)(high << 4 | low);
        text += 2;
    }
    return *text ? -EINVAL : 0;
}

void cap_format_uuid(char text[CAP_UUID_TEXT], const unsigned char uuid[16])
{
    char *end = stpcpy(text, "GPU");

    for (unsigned i = 0; i < 16; i++)
        end += sprintf(end, i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                       uuid[i]);
}

static int cap_parse_target(const char *text, struct cap *cap)
{
    uint64_t index;

    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0) {
        cap->target = CAP_UUID;
        return cap_parse_uuid(text, cap->uuid);
    }
    if (units_parse_number(text, &index) < 0 || index > 65535)
        return -EINVAL;
    cap->target = CAP_INDEX;
    cap->index = (unsigned)index;
    return 0;
}

static int cap_parse_amount(const char *text, struct cap *cap)
{
    if (strcmp(text, "auto") == 0) {
        cap->kind = CAP_AUTO;
        return 0;
    }
    if (strchr(text, '%')) {
        cap->kind = CAP_PARTS;
        return units_parse_percent(text, &cap->amount);
    }
    cap->kind = CAP_BYTES;
    return units_parse_size(text, &cap->amount);
}

/* One entry: AMOUNT where the list has only one, else DEVICE:AMOUNT. `text` is cut up. */
static int cap_parse_entry(char *text, bool only, struct cap *cap)
{
    char *colon = strchr(text, ':');

    *cap = (struct cap){.target = CAP_ALL};
    if (!colon)
        return only ? cap_parse_amount(text, cap) : -EINVAL;
    *colon = '\0';
    if (cap_parse_target(text, cap) < 0)
        return -EINVAL;
    return cap_parse_amount(colon + 1, cap);
}

static bool cap_same_target(const struct cap *a, const struct cap *b)
{
    if (a->target != b->target)
        return false;
    return a->target == CAP_UUID ? memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0
                                 : a->index == b->index;
}

static int cap_add(struct cap_list *list, const struct cap *cap)
{
    if (list->count == CAPS_MAX)
        return -E2BIG;
    for (unsigned i = 0; i < list->count; i++) {
        if (cap_same_target(&list->cap[i], cap))
            return -EINVAL;
    }
    list->cap[list->count++] = *cap;
    return 0;
}

/* Reads the first entry of a list and adds it; returns its length, or -errno. */
static int cap_parse_first(const char *text, bool only, struct cap_list *list)
{
    size_t length = strcspn(text, ",");
    char entry[CAP_ENTRY_MAX];
    struct cap cap;
    int error;

    if (length >= sizeof(entry))
        return -EINVAL;
    memcpy(entry, text, length);
    entry[length] = '\0';
    error = cap_parse_entry(entry, only, &cap);
    if (error == 0)
        error = cap_add(list, &cap);
    return error < 0 ? error : (int)length;
}

int cap_parse(const char *text, struct cap_list *list)
{
    struct cap_list parsed = {0};
    bool only = !strchr(text, ',');

    if (strcmp(text, "none") == 0) {
        *list = parsed;
        return 0;
    }
    for (;;) {
        int length = cap_parse_first(text, only, &parsed);

        if (length < 0)
            return length;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *list = parsed;
    return 0;
}

/* A cursor over a text that may be too short; counts on past its end as snprintf does. */
struct cap_writer {
    char *text;
    size_t size;
    size_t used;
};

static void cap_write(struct cap_writer *w, const char *piece)
{
    size_t left = w->used < w->size ? w->size - w->used : 0;

    w->used += (size_t)snprintf(left ? w->text + w->used : NULL, left, "%s", piece);
}

static void cap_write_target(struct cap_writer *w, const struct cap *cap)
{
    char piece[CAP_UUID_TEXT];

    if (cap->target == CAP_ALL)
        return;
    if (cap->target == CAP_INDEX)
        snprintf(piece, sizeof(piece), "%u", cap->index);
    else
        cap_format_uuid(piece, cap->uuid);
    cap_write(w, piece);
    cap_write(w, ":");
}

static void cap_write_amount(struct cap_writer *w, const struct cap *cap)
{
    char piece[64] = "auto";

    if (cap->kind == CAP_BYTES)
        units_format_size(cap->amount, piece, sizeof(piece));
    else if (cap->kind == CAP_PARTS)
        units_format_percent(cap->amount, piece, sizeof(piece));
    cap_write(w, piece);
}

size_t cap_format(const struct cap_list *list, char *text, size_t size)
{
    struct cap_writer w = {.text = text, .size = size};

    if (list->count == 0)
        cap_write(&w, "none");
    for (unsigned i = 0; i < list->count && i < CAPS_MAX; i++) {
        if (i > 0)
            cap_write(&w, ",");
        cap_write_target(&w, &list->cap[i]);
        cap_write_amount(&w, &list->cap[i]);
    }
    return w.used;
}

bool cap_needs_replicas(const struct cap_list *list)
{
    for (unsigned i = 0; i < list->count; i++) {
        if (list->cap[i].kind == CAP_AUTO)
            return true;
    }
    return false;
}

void cap_bind_replicas(struct cap_list *list, unsigned replicas)
{
    for (unsigned i = 0; i < list->count; i++) {
        if (list->cap[i].kind == CAP_AUTO)
            list->cap[i].amount = replicas;
    }
}

static bool cap_covers(const struct cap *cap, unsigned index, const unsigned char uuid[16])
{
    if (cap->target == CAP_UUID)
        return memcmp(cap->uuid, uuid, sizeof(cap->uuid)) == 0;
    return cap->target == CAP_ALL || cap->index == index;
}

/* The entry that counts for a device: the most particular one. */
static const struct cap *cap_find(const struct cap_list *list, unsigned index,
                                  const unsigned char uuid[16])
{
    const struct cap *best = NULL;

    for (unsigned i = 0; i < list->count; i++) {
        const struct cap *cap = &list->cap[i];

        if (cap_covers(cap, index, uuid) && (!best || cap->target > best->target))
            best = cap;
    }
    return best;
}

static uint64_t cap_divisor(const struct cap *cap, unsigned replicas)
{
    if (cap->amount)
        return cap->amount;
    return replicas ? replicas : 1;
}

static uint64_t cap_bytes(const struct cap *cap, uint64_t total_bytes, unsigned replicas)
{
    uint64_t bytes = cap->amount;

    if (cap->kind == CAP_AUTO)
        return total_bytes / cap_divisor(cap, replicas);
    if (cap->kind == CAP_PARTS) {
        if (cap->amount >= CAP_WHOLE)
            return total_bytes;
        bytes = (uint64_t)((unsigned __int128)total_bytes * cap->amount / CAP_WHOLE);
    }
    return bytes < total_bytes ? bytes : total_bytes;
}

static uint64_t cap_list_resolve(const struct cap_list *list, unsigned index,
                                 const unsigned char uuid[16], uint64_t total_bytes,
                                 unsigned replicas)
{
    const struct cap *cap = cap_find(list, index, uuid);

    return cap ? cap_bytes(cap, total_bytes, replicas) : CAP_NONE;
}

uint64_t cap_resolve(const struct caps *caps, unsigned index, const unsigned char uuid[16],
                     uint64_t total_bytes, unsigned replicas)
{
    uint64_t asked = cap_list_resolve(&caps->asked, index, uuid, total_bytes, replicas);
    uint64_t ceiling = cap_list_resolve(&caps->ceiling, index, uuid, total_bytes, replicas);

    return asked < ceiling ? asked : ceiling;
}

bool cap_lowered(const struct caps *caps, unsigned index, const unsigned char uuid[16],
                 uint64_t total_bytes, unsigned replicas)
{
    uint64_t asked = cap_list_resolve(&caps->asked, index, uuid, total_bytes, replicas);

    return asked != CAP_NONE && cap_resolve(caps, index, uuid, total_bytes, replicas) < asked;
}

/* Amounts of one kind that can be compared without knowing a device; false for a pair that cannot.
 */
static bool cap_is_above(const struct cap *asked, const struct cap *ceiling, unsigned replicas)
{
    if (asked->kind == CAP_BYTES && ceiling->kind == CAP_BYTES)
        return asked->amount > ceiling->amount;
    if (asked->kind == CAP_BYTES || ceiling->kind == CAP_BYTES)
        return false;
    /* Both are parts of a device: any large device tells which is more. */
    return cap_bytes(asked, UINT64_C(1) << 50, replicas) >
           cap_bytes(ceiling, UINT64_C(1) << 50, replicas);
}

bool cap_exceeds(const struct caps *caps, unsigned replicas)
{
    for (unsigned i = 0; i < caps->asked.count; i++) {
        for (unsigned k = 0; k < caps->ceiling.count; k++) {
            const struct cap *asked = &caps->asked.cap[i], *ceiling = &caps->ceiling.cap[k];

            if ((ceiling->target == CAP_ALL || cap_same_target(asked, ceiling)) &&
                cap_is_above(asked, ceiling, replicas))
                return true;
        }
    }
    return false;
}
