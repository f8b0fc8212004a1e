/* onlooker: a tenant's figures seen by somebody who joins nothing: sums over the living, nothing
 * changed in the file, no file made, and refusal of whatever is no ring of this GPU. */
#include "onlooker.h"

#include "capture.h"
#include "ledger.h"
#include "room.h"

#define DEVICE (UINT64_C(80) << 30)
#define CAP (100 * ROOM_MIB)

static struct capture said;

/* What a process may believe that only looks. */
static void seen(const char *key, uint64_t *free, uint64_t *total)
{
    struct onlooker onlooker;

    REQUIRE(onlooker_open(&onlooker, room_path, room_device.uuid, key) == 0);
    REQUIRE(onlooker_tenant(&onlooker));
    *free = *total = DEVICE;
    ledger_mask(&onlooker.ring, free, total);
    onlooker_close(&onlooker);
}

static void reserve(struct ring *ring, uint64_t bytes)
{
    enum ledger_cap which;

    REQUIRE(ledger_reserve(ring, bytes, &which) == 0);
}

static void test_no_ring(void)
{
    struct onlooker onlooker;

    room_open();
    capture_begin(&said);
    CHECK_EQ(onlooker_open(&onlooker, room_path, room_device.uuid, "alpha"), -ENOENT);
    onlooker_close(&onlooker);
    CHECK_EQ(onlooker_open(&onlooker, "/nonexistent", room_device.uuid, NULL), -ENOENT);
    onlooker_close(&onlooker);
    capture_end(&said);
    CHECK_EQ(capture_lines(&said), 0);
    CHECK(access(room_path, F_OK) == 0);
    CHECK_EQ(rmdir(room_path), 0); /* empty: nothing was made */
}

static void test_sum_of_the_living(void)
{
    struct ring a, b, other;
    uint64_t free, total;

    room_open();
    REQUIRE(room_try_join(&a, "alpha", 100, CAP) == 0);
    REQUIRE(room_try_join(&b, "alpha", 100, CAP) == 0);
    REQUIRE(room_try_join(&other, "beta", 100, CAP) == 0);
    reserve(&a, 20 * ROOM_MIB);
    reserve(&b, 30 * ROOM_MIB);
    reserve(&other, 7 * ROOM_MIB);
    seen("alpha", &free, &total);
    CHECK_EQ(total, CAP);
    CHECK_EQ(free, 50 * ROOM_MIB);
    seen("beta", &free, &total);
    CHECK_EQ(free, 93 * ROOM_MIB);
    room_die(&b);
    seen("alpha", &free, &total);
    CHECK_EQ(free, 80 * ROOM_MIB);
    room_die(&a);
    seen("alpha", &free, &total);
    CHECK_EQ(free, CAP);
    ring_leave(&other);
    room_close();
}

static void test_leaves_no_trace(void)
{
    struct cuslice_segment *shared, *before = malloc(sizeof(*before));
    struct ring a, dead;
    struct onlooker onlooker;

    room_open();
    REQUIRE(before && room_try_join(&a, "alpha", 100, CAP) == 0);
    REQUIRE(room_try_join(&dead, "alpha", 100, CAP) == 0);
    reserve(&dead, ROOM_MIB);
    room_die(&dead);
    shared = room_map();
    memcpy(before, shared, sizeof(*before));
    REQUIRE(onlooker_open(&onlooker, room_path, room_device.uuid, "alpha") == 0);
    atomic_store(&onlooker_tenant(&onlooker)->mem_limit, 1);
    CHECK_EQ(onlooker_tenant(&onlooker)->mem_limit, 1);
    onlooker_close(&onlooker);
    CHECK_EQ(onlooker_open(&onlooker, room_path, room_device.uuid, "nobody"), 0);
    CHECK(!onlooker_tenant(&onlooker));
    CHECK_EQ(onlooker.ring.slot, CUSLICE_SLOTS);
    onlooker_close(&onlooker);
    CHECK_EQ(onlooker_open(&onlooker, room_path, room_device.uuid, NULL), 0);
    CHECK(!onlooker_tenant(&onlooker));
    onlooker_close(&onlooker);
    CHECK(memcmp(before, shared, sizeof(*before)) == 0);
    room_unmap(shared);
    ring_leave(&a);
    room_close();
    free(before);
}

/* A member is found by the id that the host knows it by, as long as it lives and says that it is
 * one. */
static void test_find(void)
{
    struct cuslice_segment *shared;
    struct ring a, b, other;
    struct onlooker onlooker;

    room_open();
    REQUIRE(room_try_join(&a, "alpha", 100, CAP) == 0);
    REQUIRE(room_try_join(&b, "alpha", 100, CAP) == 0);
    REQUIRE(room_try_join(&other, "beta", 100, CAP) == 0);
    shared = room_map();
    shared->slot[a.slot].host_pid = 501;
    shared->slot[b.slot].host_pid = 502;
    shared->slot[other.slot].host_pid = 503;
    REQUIRE(onlooker_open(&onlooker, room_path, room_device.uuid, "alpha") == 0);
    const struct ring *rings[] = {&a, &onlooker.ring};
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(onlooker_find(rings[i], 501), a.slot);
        CHECK_EQ(onlooker_find(rings[i], 502), b.slot);
        CHECK_EQ(onlooker_find(rings[i], 503), CUSLICE_SLOTS);
        CHECK_EQ(onlooker_find(rings[i], 0), CUSLICE_SLOTS);
    }
    onlooker_close(&onlooker);
    room_die(&b);
    CHECK_EQ(onlooker_find(&a, 502), CUSLICE_SLOTS);
    REQUIRE(onlooker_open(&onlooker, room_path, room_device.uuid, "alpha") == 0);
    CHECK_EQ(onlooker_find(&onlooker.ring, 502), CUSLICE_SLOTS);
    CHECK_EQ(onlooker_find(&onlooker.ring, 501), a.slot);
    onlooker_close(&onlooker);
    shared->slot[a.slot].tenant = b.tenant + 1; /* damage */
    CHECK_EQ(onlooker_find(&a, 501), CUSLICE_SLOTS);
    room_unmap(shared);
    room_close();
}

static void test_refuses(void)
{
    static const uint8_t another[16] = {9};
    char path[SEGMENT_PATH_MAX], moved[SEGMENT_PATH_MAX];
    struct cuslice_segment *shared;
    struct ring a;
    struct onlooker onlooker;

    room_open();
    room_join(&a, "alpha", 100);
    segment_path(path, sizeof(path), room_path, room_device.uuid);
    segment_path(moved, sizeof(moved), room_path, another);
    REQUIRE(link(path, moved) == 0);
    CHECK_EQ(onlooker_open(&onlooker, room_path, another, "alpha"), -EPROTO);
    onlooker_close(&onlooker);
    shared = room_map();
    shared->fingerprint ^= 1;
    CHECK_EQ(onlooker_open(&onlooker, room_path, room_device.uuid, "alpha"), -EPROTO);
    onlooker_close(&onlooker);
    shared->fingerprint ^= 1;
    shared->magic = 0;
    CHECK_EQ(onlooker_open(&onlooker, room_path, room_device.uuid, "alpha"), -EINVAL);
    onlooker_close(&onlooker);
    room_unmap(shared);
    room_close();
}

int main(void)
{
    TEST(test_no_ring);
    TEST(test_sum_of_the_living);
    TEST(test_leaves_no_trace);
    TEST(test_find);
    TEST(test_refuses);
    return test_result();
}
