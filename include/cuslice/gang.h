/* The shared layout of a gang: one file for each (tenant, gang name), beside the rings. The gang's
 * members are its clients on their rings; its turn opens when all of them that have asked hold
 * their rings' tokens, and ends when the work of all has left the GPUs (scheduler/gang.c).
 *
 * A member's words are written by its owner alone: who holds the kernel's lock on the byte of the
 * file whose offset is the member's index, as with the slots of a ring. The two words of the whole
 * gang change by single atomic instructions; order of all is seq_cst.
 *
 * Nothing read from here is trusted: every loop has a fixed end, every index is bounded. A damaged
 * file costs the gang its turns, which its neighbours take back as they do from any client.
 */
#ifndef CUSLICE_GANG_H
#define CUSLICE_GANG_H

#include "cuslice/segment.h"

#define CUSLICE_GANG_MAGIC UINT64_C(0x31676e6147754343) /* "CCuGang1" */
#define CUSLICE_GANG_VERSION 1u
#define CUSLICE_GANG_MEMBERS 64u

/* The word of the turn: its number, and how often a member has taken it back that it was drained.
 */
#define CUSLICE_GANG_TURN(word) ((word) >> 16)
#define CUSLICE_GANG_WORD(turn, again) ((uint64_t)(turn) << 16 | ((again)&0xffff))

struct cuslice_gang_member {
    uint8_t uuid[16];               /* of its GPU: rings are taken in this order */
    CUSLICE_SHARED(uint32_t) used;  /* hint: somebody is here; the lock decides */
    CUSLICE_SHARED(uint32_t) wake;  /* futex: whoever has news for those who sleep here adds 1 */
    CUSLICE_SHARED(uint32_t) sleep; /* the member on whose `wake` its owner sleeps */
    CUSLICE_SHARED(int32_t) pid;    /* as its own namespace sees it; for the reader's eye */
    CUSLICE_SHARED(uint64_t) want;  /* threads of it wait for a turn */
    /* number of the turn for which it holds its ring's token; 0 = it does not */
    CUSLICE_SHARED(uint64_t) held;
    CUSLICE_SHARED(uint64_t) idle;    /* number of the turn in which it has nothing to do */
    CUSLICE_SHARED(uint64_t) drained; /* number of the turn whose work has left its GPU */
    /* number of the turn in which it has closed its gate, and its submissions in that turn up to
     * then; these are written first */
    CUSLICE_SHARED(uint64_t) closed;
    CUSLICE_SHARED(uint64_t) submitted;
    uint64_t reserved[6];
};

struct cuslice_gang {
    uint64_t magic;
    uint32_t version;
    uint32_t members;
    uint64_t size;
    char tenant[CUSLICE_TEXT]; /* key */
    char name[CUSLICE_TEXT];
    CUSLICE_SHARED(uint64_t) turn;   /* CUSLICE_GANG_WORD; by CAS */
    CUSLICE_SHARED(uint64_t) ending; /* number of the turn that is to end */
    uint64_t reserved[11];
    struct cuslice_gang_member member[CUSLICE_GANG_MEMBERS];
};

CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_gang_member) == 128);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_gang_member, want) == 32);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_gang, turn) == 152);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_gang, member) == 256);
CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_gang) == 256 + 64 * 128);

#endif
