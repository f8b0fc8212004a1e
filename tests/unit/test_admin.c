/* Admin: settings changed under live clients, kept for those who come, given back; what may not be
 * written; the dead cleared away. */
#include "admin.h"

#include "capture.h"
#include "ledger.h"
#include "room.h"

static struct capture said;
static struct segment admin;
static char path[SEGMENT_PATH_MAX];

static void begin(void)
{
    char reason[STATUS_REASON] = "";

    segment_path(path, sizeof(path), room_path, room_device.uuid);
    REQUIRE(admin_open(&admin, path, reason, sizeof(reason)) == 0);
}

static struct admin_change set(struct admin_word word, uint64_t value)
{
    return (struct admin_change){.word = word, .value = value};
}

static struct admin_change release(struct admin_word word)
{
    return (struct admin_change){.word = word, .release = true};
}

static const struct admin_word mem = ADMIN_TENANT(mem_limit, TENANT_MEM_LIMIT);
static const struct admin_word process = ADMIN_TENANT(process_limit, TENANT_PROCESS_LIMIT);
static const struct admin_word weight = ADMIN_TENANT(weight, TENANT_WEIGHT);
static const struct admin_word quantum = ADMIN_RING(quantum_ns, SEGMENT_QUANTUM);
static const struct admin_word allowance = ADMIN_RING(allowance_ns, SEGMENT_ALLOWANCE);

/* A cap takes effect at the next reservation, takes nothing away, and is given back. */
static void test_cap_while_running(void)
{
    struct ring a;
    enum ledger_cap which;

    room_open();
    REQUIRE(room_try_join(&a, "alpha", 50, 1000) == 0);
    begin();
    REQUIRE(ledger_reserve(&a, 600, &which) == 0);

    struct admin_change change = set(mem, 500);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(change.before, 1000);
    CHECK_EQ(change.after, 500);
    CHECK_EQ(ledger_limit(&a), 500);
    CHECK_EQ(ledger_tenant(&a), 600);
    CHECK_EQ(ledger_reserve(&a, 1, &which), -ENOMEM);
    CHECK_EQ(which, LEDGER_TENANT);
    ledger_release(&a, 200);
    CHECK_EQ(ledger_reserve(&a, 100, &which), 0);
    CHECK_EQ(ledger_reserve(&a, 1, &which), -ENOMEM);

    change = set(mem, 2000);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(ledger_reserve(&a, 1500, &which), 0);

    change = release(mem);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(change.before, 2000);
    CHECK_EQ(change.after, 1000);
    CHECK_EQ(ring_tenant(&a)->settings_by_admin, 0);
    segment_close(&admin);
    ring_leave(&a);
    room_close();
}

/* Others' words, and the neighbours of a 32-bit word, stay. */
static void test_one_word(void)
{
    struct ring a, b;

    room_open();
    room_join(&a, "alpha", 50);
    room_join(&b, "beta", 60);
    begin();
    ring_tenant(&a)->limit_ppm = 123456;
    struct admin_change change = set(weight, 10000);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(change.before, 50);
    CHECK_EQ(ring_tenant(&a)->weight, 10000);
    CHECK_EQ(ring_tenant(&a)->limit_ppm, 123456);
    CHECK_EQ(ring_tenant(&a)->orphaned, 0);
    CHECK_EQ(ring_tenant(&a)->mem_limit, CUSLICE_NO_LIMIT);
    CHECK_EQ(ring_tenant(&b)->weight, 60);
    CHECK_EQ(ring_tenant(&b)->settings_by_admin, 0);
    CHECK_EQ(admin_change(&admin, "gamma", &change, 1), -ENOENT);
    CHECK_EQ(admin_change(&admin, "alph", &change, 1), -ENOENT);
    segment_close(&admin);
    ring_leave(&a);
    ring_leave(&b);
    room_close();
}

/* The administrator's cap on each process goes before each one's own, and only while it is set. */
static void test_process_cap(void)
{
    struct ring a, b;
    enum ledger_cap which;

    room_open();
    room_join(&a, "alpha", 50);
    room_join(&b, "alpha", 50);
    a.process_limit = 100;
    begin();
    struct admin_change change = set(process, 300);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(ring_process_limit(&a), 300);
    CHECK_EQ(ring_process_limit(&b), 300);
    change = set(process, CUSLICE_NO_LIMIT);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(ring_process_limit(&a), CUSLICE_NO_LIMIT);
    change = release(process);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    CHECK_EQ(ring_process_limit(&a), 100);
    CHECK_EQ(ring_process_limit(&b), CUSLICE_NO_LIMIT);
    CHECK_EQ(ledger_reserve(&b, 1000, &which), 0);
    segment_close(&admin);
    ring_leave(&a);
    ring_leave(&b);
    room_close();
}

/* What is set outlives the last client, and a first one that asks for something else. */
static void test_pinned(void)
{
    struct ring a;

    room_open();
    REQUIRE(room_try_join(&a, "alpha", 50, 1000) == 0);
    begin();
    struct admin_change changes[] = {set(weight, 70), set(mem, 400), set(process, 30)};
    CHECK_EQ(admin_change(&admin, "alpha", changes, 3), 0);
    ring_leave(&a);
    capture_begin(&said);
    REQUIRE(room_try_join(&a, "alpha", 20, 2000) == 0);
    const char *words = capture_end(&said);
    CHECK_HAS(words, "already has weight 70; 20 asked here is not used [tenant-differs]");
    CHECK_HAS(words, "memory cap of 400 bytes; 2000 bytes asked here is not used [tenant-differs]");
    CHECK_HAS(words, "cap on each process of 30 bytes");
    CHECK_EQ(ring_tenant(&a)->weight, 70);
    CHECK_EQ(ring_tenant(&a)->mem_limit, 400);
    CHECK_EQ(ring_process_limit(&a), 30);

    /* Given back: what the client that is there now asks, not the one that is gone. */
    struct admin_change back[] = {release(weight), release(mem)};
    CHECK_EQ(admin_change(&admin, "alpha", back, 2), 0);
    CHECK_EQ(back[0].after, 20);
    CHECK_EQ(back[1].after, 2000);
    CHECK_EQ(ring_tenant(&a)->settings_by_admin, TENANT_PROCESS_LIMIT);
    segment_close(&admin);
    ring_leave(&a);
    room_close();
}

static void test_ring_settings(void)
{
    struct ring a, b;

    room_open();
    room_join(&a, "alpha", 50);
    begin();
    struct admin_change changes[] = {set(quantum, 7 * CLOCK_MS), set(allowance, 2 * CLOCK_S)};
    CHECK_EQ(admin_change(&admin, NULL, changes, 2), 0);
    CHECK_EQ(changes[0].before, 20 * CLOCK_MS);
    CHECK_EQ(segment_quantum(ring_shared(&a)), 7 * CLOCK_MS);
    CHECK_EQ(segment_allowance(ring_shared(&a)), 2 * CLOCK_S);
    CHECK_EQ(ring_shared(&a)->settings_by_admin, SEGMENT_QUANTUM | SEGMENT_ALLOWANCE);
    capture_begin(&said);
    room_join(&b, "beta", 50);
    CHECK_HAS(capture_end(&said), "[ring-settings]");
    CHECK_EQ(segment_quantum(ring_shared(&b)), 7 * CLOCK_MS);
    changes[0] = release(quantum);
    CHECK_EQ(admin_change(&admin, NULL, changes, 1), 0);
    CHECK_EQ(segment_quantum(ring_shared(&a)), 20 * CLOCK_MS);
    CHECK_EQ(ring_shared(&a)->settings_by_admin, SEGMENT_ALLOWANCE);
    segment_close(&admin);
    ring_leave(&a);
    ring_leave(&b);
    room_close();
}

/* While a client of the tenant joins, nothing is changed; a change waits for it, not for ever. */
static void test_joining(void)
{
    struct ring a;
    struct segment other;
    char reason[STATUS_REASON];
    struct tenant_spec spec = room_tenant("alpha", 50, 1000);
    struct admin_change change = set(weight, 70);

    room_open();
    room_join(&a, "alpha", 50);
    begin();
    REQUIRE(admin_open(&other, path, reason, sizeof(reason)) == 0);
    REQUIRE(tenant_lock(&other, &spec) == 0);
    capture_begin(&said);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), -EBUSY);
    CHECK_HAS(capture_end(&said), "[tenant-busy]");
    CHECK_EQ(ring_tenant(&a)->weight, 50);
    tenant_unlock(&other, &spec);
    CHECK_EQ(admin_change(&admin, "alpha", &change, 1), 0);
    segment_close(&other);
    segment_close(&admin);
    ring_leave(&a);
    room_close();
}

static void test_refusals(void)
{
    struct ring a;
    struct segment none;
    char reason[STATUS_REASON] = "";

    room_open();
    segment_path(path, sizeof(path), room_path, room_device.uuid);
    CHECK_EQ(admin_open(&none, path, reason, sizeof(reason)), -ENOENT);
    CHECK_EQ(access(path, F_OK), -1);
    room_join(&a, "alpha", 50);
    if (geteuid() != 0) { /* root may write everything */
        REQUIRE(chmod(path, 0444) == 0);
        CHECK_EQ(admin_open(&none, path, reason, sizeof(reason)), -EACCES);
        CHECK_HAS(reason, "cannot be opened for writing: Permission denied");
    }
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    room_die(&a);
    if (fd >= 0)
        CHECK_EQ(admin_open(&none, path, reason, sizeof(reason)), -EINVAL);
    room_close();
}

/* The dead are cleared and told, the living and the tool itself stay. */
static void test_reap(void)
{
    static struct admin_dead dead[CUSLICE_SLOTS];
    struct ring a, b, c;
    enum ledger_cap which;
    uint64_t token;

    room_open();
    room_join(&a, "alpha", 50);
    room_join(&b, "beta", 50);
    room_join(&c, "beta", 50);
    begin();
    REQUIRE(ledger_reserve(&b, 4096, &which) == 0);
    ring_want(&b);
    REQUIRE(ring_look(&b, &token) == 1);
    unsigned slot = b.slot;
    CHECK_EQ(admin_reap(&admin, dead), 0);
    room_die(&b);
    CHECK_EQ(admin_reap(&admin, dead), 1);
    CHECK_EQ(dead[0].slot, slot);
    CHECK_EQ(dead[0].pid, getpid());
    CHECK_EQ(dead[0].bytes, 4096);
    CHECK_STR(dead[0].tenant, "beta");
    CHECK_STR(dead[0].command, "test_admin");
    CHECK_EQ(admin.shared->slot[slot].bytes, 0);
    CHECK_EQ(admin.shared->slot[slot].joined_ns, 0);
    CHECK(CUSLICE_TOKEN_HOLDER(admin.shared->token) != slot);
    CHECK_EQ(admin_reap(&admin, dead), 0);
    CHECK_EQ(ring_clients(&a), 2);
    segment_close(&admin);
    ring_leave(&a);
    ring_leave(&c);
    room_close();
}

int main(void)
{
    clock_init();
    TEST(test_cap_while_running);
    TEST(test_one_word);
    TEST(test_process_cap);
    TEST(test_pinned);
    TEST(test_ring_settings);
    TEST(test_joining);
    TEST(test_refusals);
    TEST(test_reap);
    return test_result();
}
