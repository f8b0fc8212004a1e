/* slot: 256 places and no more, the lock that decides who lives, what reaping clears and what it
 * keeps, and joiners and reapers that die after any of their steps. */
#include "slot.h"

#include "ledger.h"
#include "mapfile.h"
#include "room.h"

static struct ring ring[CUSLICE_SLOTS + 1];

static bool bit(const _Atomic(uint64_t) *set, unsigned slot)
{
    return set[slot / 64] >> (slot % 64) & 1;
}

static void test_join_and_leave(void)
{
    struct cuslice_segment *shared;
    struct cuslice_slot *slot;
    char comm[32] = "";
    FILE *file = fopen("/proc/self/comm", "re");

    REQUIRE(file && fgets(comm, sizeof(comm), file));
    fclose(file);
    comm[strcspn(comm, "\n")] = '\0';
    room_open();
    room_join(&ring[0], "a", 100);
    shared = ring_shared(&ring[0]);
    slot = ring_me(&ring[0]);
    CHECK_EQ(ring[0].slot, 0);
    CHECK_EQ(slot->pid, getpid());
    CHECK_STR(slot->command, comm);
    CHECK(slot->joined_ns != 0 && slot->joined_ns <= clock_now());
    CHECK_EQ(slot->tenant, ring[0].tenant);
    CHECK(bit(shared->attached, 0) && bit(shared->tenant[slot->tenant].members, 0));
    CHECK_EQ(ring[0].segment.fd, -1);
    room_join(&ring[1], "a", 100);
    CHECK_EQ(ring[1].slot, 1);
    CHECK_EQ(ring[1].tenant, ring[0].tenant);
    CHECK_EQ(ring_clients(&ring[1]), 2);
    ring_leave(&ring[1]);
    CHECK_EQ(ring_clients(&ring[0]), 1);
    CHECK(!bit(shared->tenant[ring[0].tenant].members, 1));
    CHECK_EQ(shared->slot[1].joined_ns, 0);
    CHECK_EQ(shared->slot[1].tenant, CUSLICE_TENANTS);
    ring_leave(&ring[0]);
    room_close();
}

static void test_as_many_as_places(void)
{
    char key[8];

    room_open();
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++) {
        snprintf(key, sizeof(key), "t%u", i % 100);
        room_join(&ring[i], key, 100);
        CHECK_EQ(ring[i].slot, i);
    }
    CHECK_EQ(ring_clients(&ring[0]), CUSLICE_SLOTS);
    CHECK_EQ(room_try_join(&ring[CUSLICE_SLOTS], "more", 100, 0), -ENOSPC);
    CHECK(ring[CUSLICE_SLOTS].segment.shared == NULL);
    room_die(&ring[130]);
    room_join(&ring[CUSLICE_SLOTS], "more", 100);
    CHECK_EQ(ring[CUSLICE_SLOTS].slot, 130);
    CHECK_EQ(room_try_join(&ring[130], "more", 100, 0), -ENOSPC);
    ring_leave(&ring[CUSLICE_SLOTS]);
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        if (i != 130)
            ring_leave(&ring[i]);
    struct cuslice_segment *shared = room_map();
    for (unsigned i = 0; i < CUSLICE_SLOT_WORDS; i++)
        CHECK(shared->attached[i] == 0 && shared->waiting[i] == 0);
    room_unmap(shared);
    room_close();
}

/* More keys than records: the slot that was taken for the one too many is given back. */
static void test_as_many_as_records(void)
{
    char key[8];

    room_open();
    for (unsigned i = 0; i <= CUSLICE_TENANTS; i++) {
        snprintf(key, sizeof(key), "t%u", i);
        int rc = room_try_join(&ring[i], key, 100, 0);
        CHECK_EQ(rc, i < CUSLICE_TENANTS ? 0 : -ENOSPC);
    }
    CHECK_EQ(ring_clients(&ring[0]), CUSLICE_TENANTS);
    REQUIRE(room_try_join(&ring[CUSLICE_TENANTS], "t5", 100, 0) == 0);
    CHECK_EQ(ring[CUSLICE_TENANTS].slot, CUSLICE_TENANTS);
    for (unsigned i = 0; i <= CUSLICE_TENANTS; i++)
        ring_leave(&ring[i]);
    room_close();
}

static void test_the_lock_decides(void)
{
    struct cuslice_segment *shared;
    unsigned slot;

    room_open();
    room_join(&ring[0], "a", 100);
    room_join(&ring[1], "b", 100);
    shared = ring_shared(&ring[0]);
    slot = ring[1].slot;
    shared->slot[slot].pid = 1; /* whatever it says */
    CHECK_EQ(slot_dead(&ring[0].segment, slot), 0);
    CHECK_EQ(slot_dead(&ring[0].segment, ring[0].slot), 0);
    CHECK_EQ(slot_reap(&ring[0].segment, slot), -EAGAIN);
    CHECK(bit(shared->attached, slot));
    CHECK_EQ(slot_dead(&ring[0].segment, 77), 0); /* nobody was ever there */
    room_die(&ring[1]);
    CHECK_EQ(slot_dead(&ring[0].segment, slot), 1);
    CHECK_EQ(slot_reap(&ring[0].segment, slot), 0);
    CHECK_EQ(slot_dead(&ring[0].segment, slot), 0);
    ring_leave(&ring[0]);
    room_close();
}

static void test_reaping_clears_and_keeps(void)
{
    struct cuslice_segment *shared;
    struct cuslice_tenant *tenant;
    struct cuslice_slot *slot;
    enum ledger_cap which;
    uint64_t token;
    uint32_t generation;

    room_stop_clock();
    room_open();
    room_join(&ring[0], "a", 100);
    room_join(&ring[1], "b", 100);
    shared = ring_shared(&ring[0]);
    slot = &shared->slot[ring[1].slot];
    tenant = ring_tenant(&ring[0]) + (ring[1].tenant - ring[0].tenant);
    generation = slot->generation;
    ring_want(&ring[1]);
    REQUIRE(ring_look(&ring[1], &token) == 1);
    ring_claim(&ring[1], token);
    CHECK_EQ(ledger_reserve(&ring[1], 4096, &which), 0);
    slot_count(shared, ring[1].slot, launches, 3);
    ring_want(&ring[1]);
    room_pass(7 * CLOCK_MS);
    room_die(&ring[1]);
    CHECK_EQ(slot_reap(&ring[0].segment, 1), 0);
    CHECK_EQ(slot->generation, generation + 1);
    CHECK_EQ(slot->bytes, 0);
    CHECK_EQ(slot->joined_ns, 0);
    CHECK_EQ(slot->waiting_since_ns, 0);
    CHECK_EQ(slot->tenant, CUSLICE_TENANTS);
    CHECK_EQ(slot->books.launches, 0);
    CHECK(!bit(shared->waiting, 1) && !bit(shared->attached, 1) && !bit(tenant->members, 1));
    CHECK_EQ(CUSLICE_TOKEN_HOLDER(shared->token), CUSLICE_NOBODY);
    CHECK_EQ(tenant->books.launches, 3);
    CHECK_EQ(tenant->books.granted_ns, 7 * CLOCK_MS);
    CHECK_EQ(tenant->books.charged_ns, 7 * CLOCK_MS);
    CHECK_EQ(tenant->vtime, 7 * CLOCK_MS);
    CHECK_EQ(tenant->left_ns, room_clock());
    CHECK_EQ(shared->last_death_ns, room_clock());
    CHECK_EQ(shared->reaped, 1);
    CHECK_EQ(slot_reap(&ring[0].segment, 1), 0); /* again: nothing is done twice */
    CHECK_EQ(slot->generation, generation + 1);
    CHECK_EQ(shared->reaped, 1);
    ring_leave(&ring[0]);
    room_close();
    clock_fake(NULL);
}

static void test_sets_are_reaped(void)
{
    struct cuslice_segment *shared;

    room_open();
    for (unsigned i = 0; i < 6; i++)
        room_join(&ring[i], "a", 100);
    shared = ring_shared(&ring[0]);
    room_die(&ring[2]);
    room_die(&ring[3]);
    room_die(&ring[5]);
    CHECK_EQ(slot_reap_set(&ring[0].segment, shared->attached, 3), 2);
    CHECK(bit(shared->attached, 3) && !bit(shared->attached, 2) && !bit(shared->attached, 5));
    room_join(&ring[2], "a", 100); /* a member of the same tenant clears the others of it */
    CHECK(!bit(shared->attached, 3) || ring[2].slot == 3);
    CHECK_EQ(ring_clients(&ring[0]), 4);
    ring_leave(&ring[0]);
    ring_leave(&ring[1]);
    ring_leave(&ring[2]);
    ring_leave(&ring[4]);
    room_close();
}

static void test_charged_once(void)
{
    struct cuslice_segment *shared;
    struct cuslice_tenant *tenant;
    uint64_t token, epoch;

    room_stop_clock();
    room_open();
    room_join(&ring[0], "a", 200);
    shared = ring_shared(&ring[0]);
    tenant = ring_tenant(&ring[0]);
    ring_want(&ring[0]);
    REQUIRE(ring_look(&ring[0], &token) == 1);
    epoch = CUSLICE_TOKEN_EPOCH(token);
    ring_claim(&ring[0], token);
    room_pass(10);
    slot_charge(shared, 0, epoch, room_clock());
    slot_charge(shared, 0, epoch, room_clock());
    CHECK_EQ(tenant->books.charged_ns, 10);
    slot_charge(shared, 0, epoch - 1, room_clock() + 5);
    slot_charge(shared, 0, epoch + 1, room_clock() + 5);
    slot_charge(shared, 0, epoch, room_clock() - 5);
    CHECK_EQ(tenant->books.charged_ns, 10);
    room_pass(30);
    slot_charge(shared, 0, epoch, room_clock());
    CHECK_EQ(tenant->books.charged_ns, 40);
    CHECK_EQ(shared->slot[0].books.granted_ns, 40);
    CHECK_EQ(shared->busy_ns, 40);
    shared->slot[0].charged_to_ns = UINT64_MAX; /* damage costs what it hides, and no more */
    slot_charge(shared, 0, epoch, room_clock());
    room_pass(30);
    slot_charge(shared, 0, epoch, room_clock());
    CHECK_EQ(tenant->books.charged_ns, 70);
    CHECK_EQ(tenant->vtime, 35);
    ring_leave(&ring[0]);
    room_close();
    clock_fake(NULL);
}

/* A turn that others would have revoked long ago, had they been awake, was a slice. */
static void test_frozen_turn_is_a_slice(void)
{
    struct cuslice_segment *shared;
    uint64_t token, epoch, charged;

    room_stop_clock();
    room_open();
    room_join(&ring[0], "a", 100);
    room_join(&ring[1], "b", 100);
    shared = ring_shared(&ring[0]);
    ring_want(&ring[0]);
    REQUIRE(ring_look(&ring[0], &token) == 1);
    epoch = CUSLICE_TOKEN_EPOCH(token);
    ring_claim(&ring[0], token);
    room_pass(10 * CLOCK_S); /* alone */
    slot_charge(shared, 0, epoch, room_clock());
    CHECK_EQ(ring_tenant(&ring[0])->books.charged_ns, 10 * CLOCK_S);
    room_pass(5 * CLOCK_MS);
    ring_want(&ring[1]);
    room_pass(room_device.quantum_ns + room_device.allowance_ns); /* the longest that may be */
    slot_charge(shared, 0, epoch, room_clock());
    charged = 10 * CLOCK_S + 5 * CLOCK_MS + room_device.quantum_ns + room_device.allowance_ns;
    CHECK_EQ(ring_tenant(&ring[0])->books.charged_ns, charged);
    room_pass(10 * CLOCK_S); /* everybody is frozen */
    slot_charge(shared, 0, epoch, room_clock());
    charged += room_device.quantum_ns;
    CHECK_EQ(ring_tenant(&ring[0])->books.charged_ns, charged);
    CHECK_EQ(ring_tenant(&ring[0])->vtime, charged);
    CHECK_EQ(shared->slot[0].charged_to_ns, room_clock());
    ring_leave(&ring[0]);
    ring_leave(&ring[1]);
    room_close();
    clock_fake(NULL);
}

/* What slot_join does, up to `step`, then death. */
static int half_join(void *arg)
{
    unsigned step = *(unsigned *)arg;
    struct tenant_spec spec = room_tenant("half", 100, 5);
    struct segment s;
    int tenant;

    if (segment_open(&s, room_path, &room_device) < 0 || mapfile_lock(s.fd, 1) < 0)
        return 1;
    if (step >= 1 && tenant_lock(&s, &spec) < 0)
        return 1;
    tenant = step >= 2 ? tenant_claim(&s, &spec, 1) : 0;
    if (step >= 3)
        atomic_fetch_or(&s.shared->attached[0], 2);
    if (step >= 4)
        s.shared->slot[1].joined_ns = 1;
    if (step >= 5)
        s.shared->slot[1].tenant = (unsigned)tenant;
    if (step >= 6)
        tenant_enter(s.shared, (unsigned)tenant, 1, &spec);
    raise(SIGKILL);
    return 2;
}

static void test_joiner_dies_half_way(void)
{
    for (unsigned step = 0; step <= 6; step++) {
        struct cuslice_segment *shared;

        room_open();
        room_join(&ring[0], "a", 100);
        shared = ring_shared(&ring[0]);
        CHECK_EQ(room_join_child(room_fork(half_join, &step)), 1000 + SIGKILL);
        CHECK_EQ(slot_dead(&ring[0].segment, 1), step >= 3);
        slot_reap_set(&ring[0].segment, shared->attached, ring[0].slot);
        CHECK_EQ(ring_clients(&ring[0]), 1);
        for (unsigned i = 0; i < CUSLICE_TENANTS; i++)
            CHECK(!bit(shared->tenant[i].members, 1));
        room_join(&ring[1], "half", 100);
        CHECK_EQ(ring[1].slot, 1);
        CHECK_STR(ring_tenant(&ring[1])->key, "half");
        CHECK_EQ(ring_tenant(&ring[1])->mem_limit, CUSLICE_NO_LIMIT);
        ring_leave(&ring[1]);
        ring_leave(&ring[0]);
        room_close();
    }
}

/* What slot_reap does, up to `step`, then death: the next reaper does all of it. */
static int half_reap(void *arg)
{
    unsigned step = *(unsigned *)arg;
    struct segment s;

    if (segment_open(&s, room_path, &room_device) < 0 || mapfile_lock(s.fd, 1) < 0)
        return 1;
    if (step >= 1)
        atomic_fetch_and(&s.shared->waiting[0], ~UINT64_C(2));
    if (step >= 2)
        ring_evict(s.shared, 1, clock_now());
    if (step >= 3)
        tenant_leave(s.shared, s.shared->slot[1].tenant, 1, clock_now());
    if (step >= 4)
        s.shared->slot[1].bytes = 0;
    if (step >= 5)
        s.shared->slot[1].tenant = CUSLICE_TENANTS;
    if (step >= 6)
        s.shared->slot[1].joined_ns = 0;
    raise(SIGKILL);
    return 2;
}

static void test_reaper_dies_half_way(void)
{
    for (unsigned step = 0; step <= 6; step++) {
        struct cuslice_segment *shared;
        enum ledger_cap which;
        uint64_t token;

        room_open();
        room_join(&ring[0], "a", 100);
        room_join(&ring[1], "b", 100);
        shared = ring_shared(&ring[0]);
        ring_want(&ring[1]);
        REQUIRE(ring_look(&ring[1], &token) == 1);
        REQUIRE(ledger_reserve(&ring[1], 64, &which) == 0);
        room_die(&ring[1]);
        CHECK_EQ(room_join_child(room_fork(half_reap, &step)), 1000 + SIGKILL);
        CHECK_EQ(slot_dead(&ring[0].segment, 1), 1);
        CHECK_EQ(slot_reap_set(&ring[0].segment, shared->attached, 0), 1);
        CHECK_EQ(shared->slot[1].bytes, 0);
        CHECK_EQ(shared->slot[1].tenant, CUSLICE_TENANTS);
        CHECK(!bit(shared->tenant[ring[1].tenant].members, 1));
        CHECK(shared->tenant[ring[1].tenant].left_ns != 0);
        CHECK(CUSLICE_TOKEN_HOLDER(shared->token) != 1);
        ring_leave(&ring[0]);
        room_close();
    }
}

struct pack {
    _Atomic(uint32_t) ready;
    _Atomic(uint32_t) go;
    _Atomic(uint32_t) reaped;
};

static struct pack *pack;

static int reaper_body(void *arg)
{
    struct ring mine;
    unsigned n;

    (void)arg;
    room_join(&mine, "reapers", 100);
    atomic_fetch_add(&pack->ready, 1);
    while (!atomic_load(&pack->go))
        ;
    n = slot_reap_set(&mine.segment, ring_shared(&mine)->attached, mine.slot);
    atomic_fetch_add(&pack->reaped, n);
    ring_leave(&mine);
    return 0;
}

/* However many find the same dead, each is cleared once. */
static void test_reapers_race(void)
{
    struct cuslice_segment *shared;
    pid_t child[6];

    pack = room_page(sizeof(*pack));
    room_open();
    room_join(&ring[0], "a", 100);
    shared = ring_shared(&ring[0]);
    for (unsigned i = 1; i <= 60; i++)
        room_join(&ring[i], "dead", 100);
    for (unsigned i = 0; i < 6; i++)
        child[i] = room_fork(reaper_body, NULL);
    REQUIRE(room_await(&pack->ready, 6));
    for (unsigned i = 1; i <= 60; i++)
        room_die(&ring[i]);
    atomic_store(&pack->go, 1);
    for (unsigned i = 0; i < 6; i++)
        CHECK_EQ(room_join_child(child[i]), 0);
    CHECK(pack->reaped >= 60);
    CHECK_EQ(shared->reaped, 60);
    CHECK_EQ(ring_clients(&ring[0]), 1);
    for (unsigned i = 1; i <= 60; i++)
        CHECK_EQ(shared->slot[i].generation, 2); /* its joiner, its reaper */
    ring_leave(&ring[0]);
    room_close();
    munmap(pack, sizeof(*pack));
}

static int closing_body(void *arg)
{
    struct ring mine;

    (void)arg;
    room_join(&mine, "closes", 100);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    atomic_store(&pack->ready, 1);
    room_await(&pack->go, 1);
    return 0;
}

static void test_closing_descriptors_keeps_the_place(void)
{
    pid_t child;

    pack = room_page(sizeof(*pack));
    room_open();
    room_join(&ring[0], "a", 100);
    child = room_fork(closing_body, NULL);
    REQUIRE(room_await(&pack->ready, 1));
    CHECK_EQ(slot_dead(&ring[0].segment, 1), 0);
    CHECK_EQ(slot_reap(&ring[0].segment, 1), -EAGAIN);
    atomic_store(&pack->go, 1);
    CHECK_EQ(room_join_child(child), 0);
    CHECK_EQ(slot_dead(&ring[0].segment, 1), 1);
    ring_leave(&ring[0]);
    room_close();
    munmap(pack, sizeof(*pack));
}

static int executing_body(void *arg)
{
    char *argv[] = {(char *)(uintptr_t) "sleep", (char *)(uintptr_t) "5", NULL};
    struct ring mine;

    (void)arg;
    room_join(&mine, "execs", 100);
    atomic_store(&pack->ready, 1);
    room_await(&pack->go, 1);
    execvp(argv[0], argv);
    return 1;
}

static void test_exec_ends_the_client(void)
{
    bool dead = false;
    pid_t child;

    pack = room_page(sizeof(*pack));
    room_open();
    room_join(&ring[0], "a", 100);
    child = room_fork(executing_body, NULL);
    REQUIRE(room_await(&pack->ready, 1));
    CHECK_EQ(slot_dead(&ring[0].segment, 1), 0);
    atomic_store(&pack->go, 1);
    for (unsigned i = 0; i < 2000 && !dead; i++) {
        room_sleep(CLOCK_MS);
        dead = slot_dead(&ring[0].segment, 1) == 1;
    }
    CHECK(dead);
    CHECK_EQ(kill(child, 0), 0);
    kill(child, SIGKILL);
    CHECK_EQ(room_join_child(child), 1000 + SIGKILL);
    ring_leave(&ring[0]);
    room_close();
    munmap(pack, sizeof(*pack));
}

static void test_private_ring(void)
{
    struct tenant_spec spec = room_tenant("alone", 100, 100);
    enum ledger_cap which;
    uint64_t token;

    memset(&ring[0], 0, sizeof(ring[0]));
    ring[0].process_limit = 60;
    REQUIRE(ring_join_private(&ring[0], &room_device, &spec) == 0);
    CHECK_EQ(ring[0].slot, 0);
    CHECK_EQ(slot_dead(&ring[0].segment, 0), 0);
    CHECK_EQ(slot_reap(&ring[0].segment, 0), -EAGAIN);
    CHECK_EQ(ledger_reserve(&ring[0], 61, &which), -ENOMEM);
    CHECK_EQ(which, LEDGER_PROCESS);
    CHECK_EQ(ledger_reserve(&ring[0], 60, &which), 0);
    ring_want(&ring[0]);
    CHECK_EQ(ring_look(&ring[0], &token), 1);
    CHECK_EQ(ring_tend(&ring[0]), 0);
    ring_leave(&ring[0]);
}

int main(void)
{
    TEST(test_join_and_leave);
    TEST(test_as_many_as_places);
    TEST(test_as_many_as_records);
    TEST(test_the_lock_decides);
    TEST(test_reaping_clears_and_keeps);
    TEST(test_sets_are_reaped);
    TEST(test_charged_once);
    TEST(test_frozen_turn_is_a_slice);
    TEST(test_joiner_dies_half_way);
    TEST(test_reaper_dies_half_way);
    TEST(test_reapers_race);
    TEST(test_closing_descriptors_keeps_the_place);
    TEST(test_exec_ends_the_client);
    TEST(test_private_ring);
    return test_result();
}
