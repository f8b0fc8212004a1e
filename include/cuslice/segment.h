/* The shared layout of a ring: one file per GPU (or MIG instance), mapped by every client of it.
 *
 * How it is kept whole without a lock
 *   - Two words move turns: `token` (who may submit) and `waiting` (who wants to). Both change by
 *     single atomic instructions; a process may die after any of them and the next reader finds a
 *     state that it knows how to go on from (the essay in scheduler/ring.c numbers the steps).
 *   - A slot is written by its owner alone. Owner is who holds the kernel's open-file-description
 *     lock on the byte of the file whose offset is the slot's index; the kernel drops it with the
 *     process. Whoever reaps a dead slot holds that byte meanwhile. No PID decides anything.
 *   - Sums (a tenant's bytes) are made by the reader over live slots and stored nowhere, so a death
 *     leaves nothing to repair.
 *   - Tenant counters are only ever added to; two adders cannot lose each other's figures.
 *
 * Nothing read from here is trusted: every index is bounded before use, every loop has a fixed end.
 * Stale values cost what the field's comment says and no more.
 *
 * Numbers are little-endian; times are nanoseconds on the host's CLOCK_MONOTONIC; bytes are bytes.
 * "order" is the memory order that writers and readers use where it is stronger than relaxed.
 */
#ifndef CUSLICE_SEGMENT_H
#define CUSLICE_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define CUSLICE_SHARED(type) type
#define CUSLICE_LAYOUT_ASSERT(condition) static_assert(condition, #condition)
#else
#define CUSLICE_SHARED(type) _Atomic(type)
#define CUSLICE_LAYOUT_ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define CUSLICE_MAGIC UINT64_C(0x31676e6952754343) /* "CCuRing1" */
#define CUSLICE_LAYOUT_VERSION 4u
#define CUSLICE_SLOTS 256u
#define CUSLICE_TENANTS 128u
#define CUSLICE_SLOT_WORDS (CUSLICE_SLOTS / 64u)
#define CUSLICE_TEXT 64u
#define CUSLICE_ASKED 8u
#define CUSLICE_ASKED_RING 2u

/* Bytes of the file that carry locks (offsets; the bytes themselves are ordinary data or lie behind
 * the end). Joins of one tenant exclude each other by a byte far behind the end that its key's hash
 * names (scheduler/segment.h). */
#define CUSLICE_LOCK_SLOT(index) ((uint64_t)(index))

/* The token word: epoch in the upper 48 bits, holder in the lower 16. */
#define CUSLICE_NOBODY 0xffffu
#define CUSLICE_TOKEN(epoch, holder) (((uint64_t)(epoch) << 16) | (uint64_t)(holder))
#define CUSLICE_TOKEN_EPOCH(token) ((uint64_t)(token) >> 16)
#define CUSLICE_TOKEN_HOLDER(token) ((unsigned)((token)&0xffffu))

#define CUSLICE_NO_LIMIT UINT64_MAX

/* A slot's word of bytes: granted in the lower 44 bits; announced, in steps of 512, above. */
#define CUSLICE_BYTES_BITS 44
#define CUSLICE_BYTES_STEP_BITS 9
#define CUSLICE_BYTES_GRANTED(word) ((word) & ((UINT64_C(1) << CUSLICE_BYTES_BITS) - 1))
#define CUSLICE_BYTES_ANNOUNCED(word) ((word) >> CUSLICE_BYTES_BITS << CUSLICE_BYTES_STEP_BITS)

enum cuslice_priority { CUSLICE_LOW = 0, CUSLICE_NORMAL = 1, CUSLICE_HIGH = 2 };
enum cuslice_mode { CUSLICE_ENFORCE = 0, CUSLICE_OBSERVE = 1, CUSLICE_OFF = 2 };

/* Log-linear: four buckets an octave. bucket[0] counts below 1,024 ns, bucket[1 + 4*o + s] counts
 * [2^(10+o) * (1 + s/4), 2^(10+o) * (1 + (s+1)/4)) for o in 0..30, bucket[125] the rest.
 * Writers: any client of the tenant, by addition. Readers may see a count that the sum lacks yet.
 */
#define CUSLICE_BUCKETS 126u
struct cuslice_histogram {
    CUSLICE_SHARED(uint64_t) count;
    CUSLICE_SHARED(uint64_t) sum_ns;
    CUSLICE_SHARED(uint64_t) bucket[CUSLICE_BUCKETS];
};

/* Counters kept alike for a client (in its slot; gone with it) and for its tenant (outlives it,
 * never goes back). Writers: the client itself; for a dead or revoked one, who reaps or revokes. */
struct cuslice_books {
    CUSLICE_SHARED(uint64_t) granted_ns;  /* time held, drain included */
    CUSLICE_SHARED(uint64_t) charged_ns;  /* part of it that counts against the share */
    CUSLICE_SHARED(uint64_t) waited_ns;   /* time at the closed gate, per client */
    CUSLICE_SHARED(uint64_t) overrun_ns;  /* work past revocation or death, as far as it is seen */
    CUSLICE_SHARED(uint64_t) slices;      /* turns taken */
    CUSLICE_SHARED(uint64_t) revocations; /* turns taken away */
    CUSLICE_SHARED(uint64_t) faults;      /* contexts lost to a sticky error */
    CUSLICE_SHARED(uint64_t) launches;    /* submissions that passed the gate, as last published */
    CUSLICE_SHARED(uint64_t) refusals;    /* allocations refused by a cap */
    CUSLICE_SHARED(uint64_t) refused_bytes;
    CUSLICE_SHARED(uint64_t) would_refuse; /* observe mode: allocations a cap would have refused */
    CUSLICE_SHARED(uint64_t) overruns;     /* submissions or slices counted as overrun */
    /* last turn's end or publication with launches in it */
    CUSLICE_SHARED(uint64_t) last_launch_ns;
    CUSLICE_SHARED(uint64_t) last_refusal_ns;
    CUSLICE_SHARED(uint64_t) last_refusal_asked;
    CUSLICE_SHARED(uint64_t) let_through; /* launches that the bound on run-ahead let pass, late */
};

/* A tenant. `id` is claimed by CAS from 0 (or from an evictable record) to the hash of the key; the
 * claimer then writes the identity. Settings are written by the first live client, by a joiner that
 * finds no live member, or by the administrator's tool; readers take them at each decision. */
struct cuslice_tenant {
    CUSLICE_SHARED(uint64_t) id;      /* 0 = free; else hash of key; order: CAS acq_rel */
    CUSLICE_SHARED(uint64_t) left_ns; /* when its last client left; 0 while it has one */
    CUSLICE_SHARED(uint64_t)
    members[CUSLICE_SLOT_WORDS]; /* hint: slots of its clients; set by
                   joiner, cleared by leaver or reaper; order: seq_cst */
    CUSLICE_SHARED(uint64_t)
    vtime;                              /* charged time * 100 / weight; order: acq_rel; stale: one
                                           turn goes to the wrong tenant and is paid back later */
    CUSLICE_SHARED(uint64_t) mem_limit; /* bytes; CUSLICE_NO_LIMIT; read at every reservation */
    CUSLICE_SHARED(uint64_t) mem_peak;  /* highest sum seen by a reserver; CAS maximum */
    CUSLICE_SHARED(uint64_t) orphaned;  /* bytes of dead exporters still imported */
    CUSLICE_SHARED(uint32_t) weight;    /* 1..10000 */
    CUSLICE_SHARED(uint32_t) limit_ppm; /* ceiling of occupancy in millionths; 1000000 = none */
    CUSLICE_SHARED(uint32_t) priority;  /* enum cuslice_priority */
    CUSLICE_SHARED(uint32_t) mode;      /* enum cuslice_mode of its first client */
    /* bit per setting pinned by the tool; comes after the setting's own word, goes before it */
    CUSLICE_SHARED(uint32_t) settings_by_admin;
    CUSLICE_SHARED(uint32_t) gang; /* hash of the gang's name; 0 = none */
    CUSLICE_SHARED(uint64_t) slo;  /* latency guard's word; 0 = none */
    /* cap on each process, as the administrator's tool set it (settings_by_admin says whether) */
    CUSLICE_SHARED(uint64_t) process_limit;
    /* what was in use, and the cap, at the last refusal (books has when and how much was asked) */
    CUSLICE_SHARED(uint64_t) refusal_used;
    CUSLICE_SHARED(uint64_t) refusal_cap;
    /* What the environment of the first client asks, by the number of the setting's bit in
     * settings_by_admin: in force again when the tool gives a setting back. Written with the
     * settings. */
    CUSLICE_SHARED(uint64_t) asked[CUSLICE_ASKED];
    /* The limit (scheduler/limit.c). When all use so far is paid for at the rate of limit_ppm, in
     * steps of 2 ns; the lowest bit says that the budget was used up and has to grow to a start
     * first. Written by who charges, who begins to wait, and who finds it to be damage or of
     * another limit; order: CAS seq_cst; stale: a slice more or less, paid back later */
    CUSLICE_SHARED(uint64_t) limit_paid;
    /* limit_ppm that limit_paid is in terms of; whoever exchanges it converts; order: CAS */
    CUSLICE_SHARED(uint32_t) limit_rate;
    uint32_t pad0;
    /* when a client of it last began a turn: lower classes take theirs in this order; written by
     * who claims a turn; stale: a turn goes to another of them */
    CUSLICE_SHARED(uint64_t) last_grant_ns;
    uint64_t reserved1[4];
    char key[CUSLICE_TEXT]; /* NUL-terminated; written once by the claimer */
    char display[CUSLICE_TEXT];
    char pod[CUSLICE_TEXT];
    char pod_namespace[CUSLICE_TEXT];
    char container[CUSLICE_TEXT];
    struct cuslice_books books;
    struct cuslice_histogram wait;       /* waiting per turn */
    struct cuslice_histogram burst;      /* first launch after idle to the end of the synchronise */
    struct cuslice_histogram burst_wait; /* the waiting part of those bursts */
};

/* A client's place. Three cache lines by who touches them: what others write, what the ledger
 * writes, what the owner alone writes. */
struct cuslice_slot {
    /* Written by others as well. */
    CUSLICE_SHARED(uint32_t)
    wake;                                /* futex; whoever has news for the threads that wait adds
                                            1, wakes */
    CUSLICE_SHARED(uint32_t) generation; /* +1 at each reaping; tells old news from new */
    /* epoch that grant_ns belongs to; written by the granter before the token word; stale: owner
     * takes its own now */
    CUSLICE_SHARED(uint64_t) grant_epoch;
    CUSLICE_SHARED(uint64_t) grant_ns;
    /* the holding is charged up to here; by the holder, or by who takes the token off it; stale:
     * a part of a turn is charged twice or not */
    CUSLICE_SHARED(uint64_t) charged_to_ns;
    /* holder: my keeper knows that somebody waits in this epoch; else it must be woken; order:
     * seq_cst */
    CUSLICE_SHARED(uint64_t) armed_epoch;
    /* holder: last epoch that a thread of mine has used; stale: one wake-up too many */
    CUSLICE_SHARED(uint64_t) claimed_epoch;
    /* holder: when it expects to pass; stale: the next client looks too early, or is woken instead
     */
    CUSLICE_SHARED(uint64_t) due_ns;
    /* one of its threads looks closely for the token and need not be woken; order: seq_cst */
    CUSLICE_SHARED(uint32_t) looking;
    /* with due_ns: the CPU that its keeper is on, counted from 1; stale: the next client looks in
     * its way, or sleeps and is woken */
    CUSLICE_SHARED(uint32_t) due_cpu;
    /* The ledger (scheduler/ledger.c): readers take `pending` before `bytes`; order: seq_cst. */
    /* granted and not yet given back; announced by small requests and not decided
     * (CUSLICE_BYTES_...) */
    CUSLICE_SHARED(uint64_t) bytes;
    CUSLICE_SHARED(uint64_t) pending;       /* announced by all other requests, not decided */
    CUSLICE_SHARED(uint64_t) peak;          /* owner's maximum of what is granted */
    CUSLICE_SHARED(uint64_t) process_limit; /* this process's own cap, for the reader's eye */
    /* estimate of what contexts, modules and heaps cost; counts against caps; order: seq_cst */
    CUSLICE_SHARED(uint64_t) context_bytes;
    CUSLICE_SHARED(uint64_t) exported; /* part of bytes that other processes may have open */
    CUSLICE_SHARED(uint64_t) imported; /* of other processes, open here; charged to nobody */
    CUSLICE_SHARED(uint64_t) paged;    /* part of bytes that may be paged out (oversubscription) */
    /* Written by the owner (and by a joiner or reaper that holds its byte). */
    CUSLICE_SHARED(uint32_t) tenant;           /* index; CUSLICE_TENANTS = none; order: release */
    CUSLICE_SHARED(uint32_t) mode;             /* enum cuslice_mode */
    CUSLICE_SHARED(uint64_t) joined_ns;        /* 0 = free slot */
    CUSLICE_SHARED(uint64_t) waiting_since_ns; /* 0 = does not wait */
    CUSLICE_SHARED(uint64_t) closing_ns;       /* gate closed and draining since; 0 = not */
    CUSLICE_SHARED(int32_t) pid;               /* as its own namespace sees it */
    CUSLICE_SHARED(int32_t) host_pid;          /* as the host sees it; 0 = not known */
    CUSLICE_SHARED(uint64_t) pid_namespace;    /* inode of it */
    CUSLICE_SHARED(uint64_t) idle_since_ns; /* holder with the token but no work since; 0 = busy */
    CUSLICE_SHARED(uint64_t) last_grant_ns; /* for turns within a tenant */
    char command[32];
    /* how long its turns are where memory pages, 0: a quantum; written as it begins one
     * (scheduler/paging.c); stale: a turn is as long as the one before it */
    CUSLICE_SHARED(uint64_t) slice_ns;
    /* Calls that change how much of the device is in use without the books telling when: begun in
     * the upper half, ended in the lower one. Unequal: no difference is taken meanwhile. */
    CUSLICE_SHARED(uint64_t) changes;
    /* Hint: futex; the id of the owner's thread whose end the kernel tells of, as its namespace
     * sees it, and the bit that somebody may wait; 0 = it does not tell. The kernel writes it too,
     * in its owner's name, when that thread ends (scheduler/notice.c); order: seq_cst; stale: its
     * death is found by the next look, or looks at its lock find it alive */
    CUSLICE_SHARED(uint32_t) death;
    CUSLICE_SHARED(uint32_t) call; /* futex; as `wake`, for the owner's keeper */
    /* Hint: when the owner's keeper last said that it sleeps on the death words of the clients
     * behind it (scheduler/guard.c); 0 = it cannot; stale: a death is found by
     * the next look, of an idle client's neighbour up to 3.5 s later */
    CUSLICE_SHARED(uint64_t) guard_ns;
    uint64_t reserved2[16];
    struct cuslice_books books;
};

struct cuslice_segment {
    /* Written once, before the file has a name. */
    uint64_t magic;
    uint32_t version;
    uint32_t fingerprint; /* of sizes and offsets; see CUSLICE_FINGERPRINT */
    uint64_t size;        /* of the whole file */
    uint64_t device_bytes;
    uint8_t uuid[16];
    char device_name[CUSLICE_TEXT];
    uint64_t created_ns;
    uint64_t reserved0;
    /* Settings of the ring: the creator's, later the administrator's. Read at each slice. */
    CUSLICE_SHARED(uint64_t) quantum_ns;
    CUSLICE_SHARED(uint64_t) allowance_ns;
    CUSLICE_SHARED(uint64_t) settings_by_admin; /* bit per setting pinned by the tool */
    /* The creator's values by the number of the setting's bit: in force again when the tool gives a
     * setting back. Written once. */
    CUSLICE_SHARED(uint64_t) asked[CUSLICE_ASKED_RING];
    uint64_t reserved1[3];
    /* Turns. */
    CUSLICE_SHARED(uint64_t) token; /* order: CAS seq_cst, load acquire on the fast path */
    uint64_t pad0[7];
    /* Bit per slot that wants the token; set by its owner, cleared by it, by its reaper, by who
     * revokes it, or by who finds the slot empty; order: seq_cst. */
    CUSLICE_SHARED(uint64_t) waiting[CUSLICE_SLOT_WORDS];
    uint64_t pad1[4];
    /* Hint: slots in use; the lock decides; stale: a joiner tries a lock in vain, a count is one
     * off. */
    CUSLICE_SHARED(uint64_t) attached[CUSLICE_SLOT_WORDS];
    uint64_t pad2[4];
    CUSLICE_SHARED(uint64_t) vclock;  /* virtual time of the ring: where sleepers are lifted to */
    CUSLICE_SHARED(uint64_t) busy_ns; /* charged time of all, for the reader's eye */
    CUSLICE_SHARED(uint64_t) idle_wanted_ns; /* free or idle while somebody waited, as measured */
    CUSLICE_SHARED(uint64_t) handovers;
    CUSLICE_SHARED(uint64_t) handover_ns;   /* pass to first submission, summed */
    CUSLICE_SHARED(uint64_t) drain_ns;      /* gate closed to pass, summed */
    CUSLICE_SHARED(uint64_t) passed_ns;     /* time of the last pass */
    CUSLICE_SHARED(uint64_t) reaped;        /* dead clients cleared */
    CUSLICE_SHARED(uint64_t) last_death_ns; /* when a reaper last cleared one that held bytes */
    /* A context's own cost on this device (hooks/footprint.c): the least of so many undisturbed
     * differences, with the driver of that version; others start afresh. */
    CUSLICE_SHARED(uint64_t) context_least;
    CUSLICE_SHARED(uint32_t) context_samples;
    CUSLICE_SHARED(uint32_t) context_driver;
    /* Memory in use on the device that no client's books explain, when that was, and what the books
     * looked like then (a hash over them and the figure); written by who measured last, in this
     * order; stale, or of two writers: no difference is taken */
    CUSLICE_SHARED(uint64_t) unexplained;
    CUSLICE_SHARED(uint64_t) unexplained_print;
    CUSLICE_SHARED(uint64_t) close_ns; /* CPU time spent in looking closely for a hand-over */
    /* until then nobody looks closely: who last did was put off its CPU; stale: hand-overs are
     * slower than need be */
    CUSLICE_SHARED(uint64_t) crowded_ns;
    CUSLICE_SHARED(uint64_t) unexplained_ns; /* when `unexplained` was measured */
    /* when a client last left or was reaped: what it had comes back some time after that; stale:
     * the estimate of a context's cost may take part of that off */
    CUSLICE_SHARED(uint64_t) last_left_ns;
    uint64_t reserved2[12];
    /* Time owed to tenants below the highest waiting class (scheduler/class.c), two's complement:
     * grows with what the class above is charged while they wait, shrinks with what they are.
     * Written by who charges; order: CAS seq_cst; stale: one of their turns early or late */
    CUSLICE_SHARED(uint64_t) class_owed;
    /* epoch of the last turn that was given out of it, although a higher class waited; written by
     * the granter before the token word; stale: that turn is not booked on it */
    CUSLICE_SHARED(uint64_t) class_epoch;
    uint64_t reserved3[33];
    struct cuslice_histogram handover;
    struct cuslice_slot slot[CUSLICE_SLOTS];
    struct cuslice_tenant tenant[CUSLICE_TENANTS];
};

CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_histogram) == 1024);
CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_books) == 128);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, members) == 16);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, vtime) == 48);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, weight) == 80);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, slo) == 104);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, asked) == 136);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, limit_paid) == 200);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, limit_rate) == 208);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, last_grant_ns) == 216);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, key) == 256);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, books) == 576);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_tenant, wait) == 704);
CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_tenant) == 3776);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, wake) == 0);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, grant_ns) == 16);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, bytes) == 64);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, pending) == 72);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, tenant) == 128);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, pid) == 160);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, command) == 192);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, death) == 240);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_slot, books) == 384);
CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_slot) == 512);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, quantum_ns) == 128);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, asked) == 152);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, token) == 192);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, waiting) == 256);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, attached) == 320);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, vclock) == 384);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, class_owed) == 616);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, class_epoch) == 624);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, handover) == 896);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, slot) == 1920);
CUSLICE_LAYOUT_ASSERT(offsetof(struct cuslice_segment, tenant) == 1920 + 256 * 512);
CUSLICE_LAYOUT_ASSERT(sizeof(struct cuslice_segment) == 1920 + 256 * 512 + 128 * 3776);

#define CUSLICE_FINGERPRINT \
    ((uint32_t)(CUSLICE_LAYOUT_VERSION * 2654435761u ^ sizeof(struct cuslice_segment) ^ \
                sizeof(struct cuslice_slot) << 8 ^ sizeof(struct cuslice_tenant) << 16 ^ \
                offsetof(struct cuslice_segment, slot) << 4))

#endif
