/* tenant: one record per key however many join at once, settings of the first, pins of the
 * administrator, records that outlive their clients and are given up oldest first, and claimers
 * that die half-way. */
#include "tenant.h"

#include "capture.h"
#include "mapfile.h"
#include "room.h"

static struct capture said;
static struct segment ring_file;

static void open_segment(void)
{
    room_open();
    REQUIRE(segment_open(&ring_file, room_path, &room_device) == 0);
}

static void close_segment(void)
{
    segment_close(&ring_file);
    room_close();
}

static struct cuslice_tenant *record(int index)
{
    REQUIRE(index >= 0 && index < (int)CUSLICE_TENANTS);
    return &ring_file.shared->tenant[index];
}

/* Claims, and enters `slot` when it is one. */
static int claim(const char *key, unsigned slot, uint64_t now)
{
    struct tenant_spec spec = room_tenant(key, 100, 1000);
    int rc;

    REQUIRE(tenant_lock(&ring_file, &spec) == 0);
    rc = tenant_claim(&ring_file, &spec, now);
    if (rc >= 0 && slot < CUSLICE_SLOTS)
        tenant_enter(ring_file.shared, (unsigned)rc, slot, &spec);
    tenant_unlock(&ring_file, &spec);
    return rc;
}

static void test_one_record_per_key(void)
{
    int a, b;

    open_segment();
    a = claim("alpha", 0, 10);
    b = claim("beta", 1, 10);
    CHECK(a != b);
    CHECK_EQ(claim("alpha", 2, 10), a);
    CHECK_EQ(claim("beta", 3, 10), b);
    CHECK_STR(record(a)->key, "alpha");
    CHECK_STR(record(b)->display, "beta");
    CHECK_EQ(record(a)->members[0], 5);
    CHECK_EQ(record(b)->members[0], 10);
    close_segment();
}

static void test_settings_of_the_first(void)
{
    struct tenant_spec first = room_tenant("t", 50, 4096), second = room_tenant("t", 70, 8192);
    struct cuslice_tenant *t;
    unsigned index;
    const char *text;

    open_segment();
    index = (unsigned)claim("t", CUSLICE_SLOTS, 1);
    t = record((int)index);
    tenant_enter(ring_file.shared, index, 0, &first);
    second.mode = CUSLICE_OBSERVE;
    capture_begin(&said);
    tenant_enter(ring_file.shared, index, 1, &second);
    text = capture_end(&said);
    CHECK_HAS(text, "already has weight 50; 70 asked");
    CHECK_HAS(text, "memory cap of 4096 bytes; 8192 bytes asked");
    CHECK_HAS(text, "another mode");
    CHECK_EQ(t->weight, 50);
    CHECK_EQ(t->mem_limit, 4096);
    CHECK_EQ(t->mode, CUSLICE_ENFORCE);

    tenant_leave(ring_file.shared, index, 0, 77);
    CHECK_EQ(t->left_ns, 0);
    tenant_leave(ring_file.shared, index, 1, 78);
    CHECK_EQ(t->left_ns, 78);
    t->vtime = 123;
    t->books.slices = 9;
    tenant_enter(ring_file.shared, index, 5, &second);
    CHECK_EQ(t->weight, 70);
    CHECK_EQ(t->mem_limit, 8192);
    CHECK_EQ(t->left_ns, 0);
    CHECK(t->vtime == 123 && t->books.slices == 9);
    close_segment();
}

static void test_administrator_goes_first(void)
{
    struct tenant_spec spec = room_tenant("t", 50, 4096);
    struct cuslice_tenant *t;
    unsigned index;

    open_segment();
    index = (unsigned)claim("t", CUSLICE_SLOTS, 1);
    t = record((int)index);
    t->weight = 900;
    t->limit_ppm = 250000;
    t->settings_by_admin = TENANT_WEIGHT | TENANT_LIMIT;
    tenant_enter(ring_file.shared, index, 0, &spec);
    CHECK_EQ(t->weight, 900);
    CHECK_EQ(t->limit_ppm, 250000);
    CHECK_EQ(t->mem_limit, 4096);
    CHECK_EQ(t->priority, CUSLICE_NORMAL);
    close_segment();
}

/* The first client's limit and class become the tenant's; a record that is taken again by the same
 * key has the next one's, and still knows what was used. */
static void test_limit_and_class(void)
{
    struct tenant_spec first = room_tenant("t", 50, 4096), second = first;
    struct cuslice_tenant *t;
    unsigned index;

    open_segment();
    index = (unsigned)claim("t", CUSLICE_SLOTS, 1);
    t = record((int)index);
    first.limit_ppm = 125000;
    first.priority = CUSLICE_LOW;
    tenant_enter(ring_file.shared, index, 0, &first);
    CHECK(t->limit_ppm == 125000 && t->priority == CUSLICE_LOW);
    second.priority = CUSLICE_HIGH;
    tenant_enter(ring_file.shared, index, 1, &second);
    CHECK(t->limit_ppm == 125000 && t->priority == CUSLICE_LOW);
    tenant_leave(ring_file.shared, index, 0, 5);
    tenant_leave(ring_file.shared, index, 1, 5);
    t->limit_paid = 77;
    tenant_enter(ring_file.shared, index, 0, &second);
    CHECK(t->limit_ppm == 1000000 && t->priority == CUSLICE_HIGH);
    CHECK_EQ(t->limit_paid, 77);
    t->settings_by_admin = TENANT_PRIORITY;
    tenant_leave(ring_file.shared, index, 0, 6);
    tenant_enter(ring_file.shared, index, 0, &first);
    CHECK(t->limit_ppm == 125000 && t->priority == CUSLICE_HIGH);
    close_segment();
}

static void name(char *key, unsigned i)
{
    snprintf(key, CUSLICE_TEXT, "tenant-%u", i);
}

static void test_oldest_makes_room(void)
{
    char key[CUSLICE_TEXT];
    int place[CUSLICE_TENANTS], fresh;

    open_segment();
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++) {
        name(key, i);
        place[i] = claim(key, i, 1000);
        REQUIRE(place[i] >= 0);
    }
    CHECK_EQ(claim("fresh", 200, 1000), -ENOSPC);
    tenant_leave(ring_file.shared, (unsigned)place[40], 40, 5000);
    tenant_leave(ring_file.shared, (unsigned)place[50], 50, 3000);
    record(place[50])->vtime = 1;
    record(place[50])->books.slices = 1;
    record(place[50])->settings_by_admin = TENANT_WEIGHT;
    fresh = claim("fresh", 200, 6000);
    CHECK_EQ(fresh, place[50]);
    CHECK_STR(record(fresh)->key, "fresh");
    CHECK(record(fresh)->vtime == 0 && record(fresh)->books.slices == 0);
    CHECK_EQ(record(fresh)->weight, 100);
    CHECK_EQ(claim("tenant-40", 40, 7000), place[40]); /* not given up: still there */
    CHECK_EQ(claim("tenant-50", 201, 7000), -ENOSPC);
    CHECK_EQ(claim("fresh", 202, 7000), fresh);
    close_segment();
}

/* A claimer that dies after the compare-exchange leaves its key's id on another key's text. */
static void test_half_made_record_is_finished(void)
{
    struct cuslice_tenant *t;
    uint64_t id;
    int place;

    open_segment();
    place = claim("late", CUSLICE_SLOTS, 1);
    t = record(place);
    id = t->id;
    memset(t, 0, sizeof(*t));
    snprintf(t->key, sizeof(t->key), "somebody else");
    t->vtime = 99;
    t->id = id;
    CHECK_EQ(claim("late", 3, 2), place);
    CHECK_STR(t->key, "late");
    CHECK_EQ(t->vtime, 0);
    CHECK_EQ(t->weight, 100);
    /* One of the same hash with live clients is shared, not wiped. */
    snprintf(t->key, sizeof(t->key), "somebody else");
    t->vtime = 99;
    CHECK_EQ(claim("late", 4, 2), place);
    CHECK_EQ(t->vtime, 99);
    close_segment();
}

static void test_record_whose_key_is_being_joined_stays(void)
{
    struct tenant_spec spec = room_tenant("tenant-7", 100, 0);
    struct segment other;
    char key[CUSLICE_TEXT];
    int seven = -1;

    open_segment();
    for (unsigned i = 0; i < CUSLICE_TENANTS; i++) {
        name(key, i);
        int place = claim(key, i == 7 ? CUSLICE_SLOTS : i, 1000);
        seven = i == 7 ? place : seven;
    }
    REQUIRE(segment_open(&other, room_path, &room_device) == 0);
    REQUIRE(tenant_lock(&other, &spec) == 0);
    CHECK_EQ(claim("fresh", 200, 1000), -ENOSPC);
    CHECK_STR(record(seven)->key, "tenant-7");
    tenant_unlock(&other, &spec);
    CHECK_EQ(claim("fresh", 200, 1000), seven);
    segment_close(&other);
    close_segment();
}

static void test_stopped_joiner_holds_up_its_own_key_only(void)
{
    struct tenant_spec spec = room_tenant("same", 100, 0);
    struct segment other;
    uint64_t before = clock_now();

    open_segment();
    REQUIRE(segment_open(&other, room_path, &room_device) == 0);
    REQUIRE(tenant_lock(&other, &spec) == 0);
    CHECK(claim("different", 0, 1) >= 0);
    CHECK(clock_now() - before < CLOCK_S);
    capture_begin(&said);
    CHECK_EQ(tenant_lock(&ring_file, &spec), -EBUSY);
    CHECK_HAS(capture_end(&said), "another client of tenant same");
    CHECK(clock_now() - before < 10 * CLOCK_S);
    segment_close(&other); /* as its death would */
    CHECK(claim("same", 1, 1) >= 0);
    close_segment();
}

static void test_tenant_of_garbage(void)
{
    open_segment();
    ring_file.shared->slot[3].tenant = 0xdeadbeef;
    CHECK(tenant_of(ring_file.shared, 3) == NULL);
    ring_file.shared->slot[3].tenant = CUSLICE_TENANTS;
    CHECK(tenant_of(ring_file.shared, 3) == NULL);
    ring_file.shared->slot[3].tenant = 127;
    CHECK(tenant_of(ring_file.shared, 3) == &ring_file.shared->tenant[127]);
    tenant_leave(ring_file.shared, 0xdeadbeef, 3, 1);
    CHECK_EQ(ring_file.shared->tenant[0].left_ns, 0);
    close_segment();
}

struct rush {
    _Atomic(uint32_t) go;
    _Atomic(uint32_t) ready;
    _Atomic(uint32_t) wrong;
    _Atomic(uint32_t) joined;
};

static struct rush *rush;

/* Joins and leaves under keys of which there are more than records; whoever is in must find its own
 * name on the door. */
static int rush_body(void *arg)
{
    uint64_t seed = 88172645463325252ull + (uintptr_t)arg * 7919;
    char key[CUSLICE_TEXT];
    struct ring ring;

    atomic_fetch_add(&rush->ready, 1);
    while (!atomic_load(&rush->go))
        room_sleep(CLOCK_MS);
    for (unsigned i = 0; i < 400; i++) {
        name(key, (unsigned)(room_random(&seed) % 160));
        if (room_try_join(&ring, key, 100, 5) < 0)
            return 1;
        if (strcmp(ring_tenant(&ring)->key, key) != 0 || ring_tenant(&ring)->mem_limit != 5 ||
            !(ring_tenant(&ring)->members[ring.slot / 64] >> (ring.slot % 64) & 1))
            atomic_fetch_add(&rush->wrong, 1);
        ring_leave(&ring);
    }
    return 0;
}

static void check_unique(void)
{
    const struct cuslice_tenant *t = ring_file.shared->tenant;

    for (unsigned i = 0; i < CUSLICE_TENANTS; i++) {
        CHECK_EQ(t[i].members[0] | t[i].members[1] | t[i].members[2] | t[i].members[3], 0);
        for (unsigned j = i + 1; j < CUSLICE_TENANTS; j++)
            CHECK(t[i].id == 0 || t[i].id != t[j].id);
    }
}

static void test_records_change_hands_under_load(void)
{
    pid_t child[6];

    open_segment();
    rush = room_page(sizeof(*rush));
    for (uintptr_t i = 0; i < 6; i++)
        child[i] = room_fork(rush_body, (void *)i);
    CHECK(room_await(&rush->ready, 6));
    atomic_store(&rush->go, 1);
    for (unsigned i = 0; i < 6; i++)
        CHECK_EQ(room_join_child(child[i]), 0);
    CHECK_EQ(rush->wrong, 0);
    check_unique();
    munmap(rush, sizeof(*rush));
    close_segment();
}

static int crowd_body(void *arg)
{
    struct ring ring;

    (void)arg;
    atomic_fetch_add(&rush->ready, 1);
    while (!atomic_load(&rush->go))
        room_sleep(CLOCK_MS);
    if (room_try_join(&ring, "crowd", 100, 5) < 0)
        return 1;
    atomic_fetch_add(&rush->joined, 1);
    if (!room_await(&rush->joined, 40))
        return 2;
    ring_leave(&ring);
    return 0;
}

static void test_a_crowd_of_one_key(void)
{
    pid_t child[40];

    open_segment();
    rush = room_page(sizeof(*rush));
    for (unsigned i = 0; i < 40; i++)
        child[i] = room_fork(crowd_body, NULL);
    CHECK(room_await(&rush->ready, 40));
    atomic_store(&rush->go, 1);
    for (unsigned i = 0; i < 40; i++)
        CHECK_EQ(room_join_child(child[i]), 0);
    check_unique();
    munmap(rush, sizeof(*rush));
    close_segment();
}

int main(void)
{
    TEST(test_one_record_per_key);
    TEST(test_settings_of_the_first);
    TEST(test_administrator_goes_first);
    TEST(test_limit_and_class);
    TEST(test_oldest_makes_room);
    TEST(test_half_made_record_is_finished);
    TEST(test_record_whose_key_is_being_joined_stays);
    TEST(test_stopped_joiner_holds_up_its_own_key_only);
    TEST(test_tenant_of_garbage);
    TEST(test_records_change_hands_under_load);
    TEST(test_a_crowd_of_one_key);
    return test_result();
}
