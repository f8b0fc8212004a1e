/*
 * segment: one process's view of a ring's file. Opens, creates and checks it; makes a private one
 * where no ring can be had, so that a process cap holds all the same. Called while attaching and by
 * the keeper's look once a second; never on a launch's way.
 */
#ifndef CUSLICE_SCHEDULER_SEGMENT_H
#define CUSLICE_SCHEDULER_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuslice/segment.h"

#define SEGMENT_PATH_MAX 1280

/* The byte whose lock serialises those who join under one key; far behind the end of the file. */
#define SEGMENT_LOCK_KEY(id) (UINT64_C(1) << 62 | ((id) & ((UINT64_C(1) << 62) - 1)))

/* Bits of struct cuslice_segment.settings_by_admin; bit n's creator's value is asked[n]. */
enum segment_setting { SEGMENT_QUANTUM = 1, SEGMENT_ALLOWANCE = 2 };

struct segment {
    struct cuslice_segment *shared;
    size_t mapped; /* bytes from there on, its twin included */
    int fd; /* open until a slot is joined; the mapping keeps the description alive after that */
    bool private_copy; /* an anonymous mapping: no neighbours, no file */
    uint64_t device;   /* st_dev and st_ino of the file that is mapped */
    uint64_t inode;
    char path[SEGMENT_PATH_MAX];
};

/* What a new ring is made with; the settings of one that exists stand. */
struct segment_spec {
    uint8_t uuid[16];
    const char *device_name;
    uint64_t device_bytes;
    uint64_t quantum_ns;
    uint64_t allowance_ns;
};

/* Writes `DIR/GPU-<uuid>.ring`. */
void segment_path(char *path, size_t size, const char *directory, const uint8_t uuid[16]);

/* Maps the ring of this GPU, creating directory and file where they lack. 0 or -errno: -EPROTO for
 * a file that is no ring, or one of another layout or another GPU; said in one line. The mapping is
 * not inherited by forked children. Blocking (file system). */
int segment_open(struct segment *segment, const char *directory, const struct segment_spec *spec);

/* A ring for this process alone, in anonymous memory that forked children find wiped. */
int segment_open_private(struct segment *segment, const struct segment_spec *spec);

/* How far private memory of the same size lies behind an opened ring's: one distance for all rings
 * of a process (not for segment_open_private's). What belongs to a shared word and is no business
 * of others can lie there. */
size_t segment_span(void);

static inline void *segment_twin(const void *shared)
{
    return (char *)shared + segment_span();
}

/* Unmaps. Nobody may use the segment any more. */
void segment_close(struct segment *segment);

/* 0 when `shared`, of `size` bytes, is a ring of this layout and of the GPU with that UUID;
 * -EPROTO, with *why set, when not. */
int segment_check(const struct cuslice_segment *shared, uint64_t size, const uint8_t uuid[16],
                  const char **why);

/* Whether the path still names the file that is mapped. */
bool segment_current(const struct segment *segment);

/* Opens the mapped file once more, with a description of its own; a descriptor or -errno, -ESTALE
 * when the path names another file. For locks: a description of its own conflicts with every other
 * one, and is not shared with another thread. */
int segment_reopen(const struct segment *segment);

/* The ring's settings, held to the ranges of options.def whatever the file says. Nanoseconds. */
uint64_t segment_quantum(const struct cuslice_segment *shared);
uint64_t segment_allowance(const struct cuslice_segment *shared);

/* Index of the lowest slot in `set`, or CUSLICE_SLOTS. */
unsigned segment_first(const uint64_t set[CUSLICE_SLOT_WORDS]);

#endif
