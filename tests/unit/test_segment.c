/* segment: whole from the start, one file for many creators, damaged and foreign files refused with
 * a line, replaced files noticed, and nothing of it in a forked child. */
#include "segment.h"

#include "capture.h"
#include "room.h"

static struct capture said;
static char path[SEGMENT_PATH_MAX];

static void new_room(void)
{
    room_open();
    segment_path(path, sizeof(path), room_path, room_device.uuid);
}

static void test_created_in_full(void)
{
    struct segment s;
    struct stat st;
    const char *why = "unset";
    mode_t mask = umask(0077);

    new_room();
    REQUIRE(segment_open(&s, room_path, &room_device) == 0);
    umask(mask);
    REQUIRE(stat(path, &st) == 0);
    CHECK_EQ(st.st_mode & 07777, 0666);
    CHECK_EQ(st.st_size, sizeof(struct cuslice_segment));
    CHECK((uint64_t)st.st_blocks * 512 >= sizeof(struct cuslice_segment));
    CHECK_EQ(segment_check(s.shared, (uint64_t)st.st_size, room_device.uuid, &why), 0);
    CHECK(why == NULL);
    CHECK_EQ(s.shared->token, CUSLICE_TOKEN(1, CUSLICE_NOBODY));
    CHECK_EQ(s.shared->quantum_ns, room_device.quantum_ns);
    CHECK_EQ(s.shared->allowance_ns, room_device.allowance_ns);
    CHECK_EQ(s.shared->device_bytes, room_device.device_bytes);
    CHECK_STR(s.shared->device_name, room_device.device_name);
    CHECK(memcmp(s.shared->uuid, room_device.uuid, 16) == 0);
    for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
        CHECK_EQ(s.shared->slot[i].tenant, CUSLICE_TENANTS);
    segment_close(&s);
    CHECK(s.shared == NULL && s.fd == -1);
    room_close();
}

static void test_settings_of_the_creator_stand(void)
{
    struct segment_spec other = room_device;
    struct segment a, b;

    new_room();
    REQUIRE(segment_open(&a, room_path, &room_device) == 0);
    other.quantum_ns = 5 * CLOCK_MS;
    REQUIRE(segment_open(&b, room_path, &other) == 0);
    CHECK_EQ(b.shared->quantum_ns, room_device.quantum_ns);
    CHECK_EQ(a.inode, b.inode);
    segment_close(&a);
    segment_close(&b);
    room_close();
}

static void test_settings_held_to_their_ranges(void)
{
    struct segment s;

    REQUIRE(segment_open_private(&s, &room_device) == 0);
    CHECK_EQ(segment_quantum(s.shared), 20 * CLOCK_MS);
    s.shared->quantum_ns = 0;
    s.shared->allowance_ns = 0;
    CHECK_EQ(segment_quantum(s.shared), CLOCK_MS);
    CHECK_EQ(segment_allowance(s.shared), 50 * CLOCK_MS);
    s.shared->quantum_ns = UINT64_MAX;
    s.shared->allowance_ns = UINT64_MAX;
    CHECK_EQ(segment_quantum(s.shared), 10 * CLOCK_S);
    CHECK_EQ(segment_allowance(s.shared), 60 * CLOCK_S);
    segment_close(&s);
}

/* Opens a ring file that ought to be refused, and finds it unchanged afterwards. */
static void refused(int expected, const char *words)
{
    struct segment s;
    struct stat before, after;
    const char *text;

    REQUIRE(lstat(path, &before) == 0);
    capture_begin(&said);
    CHECK_EQ(segment_open(&s, room_path, &room_device), expected);
    text = capture_end(&said);
    CHECK_HAS(text, words);
    CHECK_HAS(text, path);
    CHECK_EQ(capture_lines(&said), 1);
    CHECK(s.shared == NULL && s.fd == -1);
    REQUIRE(lstat(path, &after) == 0);
    CHECK(before.st_ino == after.st_ino && before.st_size == after.st_size &&
          before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
}

static void write_at(off_t offset, uint64_t value, size_t size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    REQUIRE(fd >= 0);
    CHECK_EQ(pwrite(fd, &value, size, offset), size);
    close(fd);
}

static void resize(off_t size)
{
    REQUIRE(truncate(path, size) == 0);
}

static void new_file(void)
{
    struct segment s;

    unlink(path);
    REQUIRE(segment_open(&s, room_path, &room_device) == 0);
    segment_close(&s);
}

static void test_damaged_files_are_refused(void)
{
    new_room();
    new_file();
    write_at(offsetof(struct cuslice_segment, magic), 0x1122334455667788, 8);
    refused(-EPROTO, "not a cuslice ring");
    new_file();
    write_at(offsetof(struct cuslice_segment, version), CUSLICE_LAYOUT_VERSION + 1, 4);
    refused(-EPROTO, "version");
    new_file();
    write_at(offsetof(struct cuslice_segment, fingerprint), CUSLICE_FINGERPRINT ^ 1, 4);
    refused(-EPROTO, "layout differs");
    new_file();
    write_at(offsetof(struct cuslice_segment, size), 4096, 8);
    refused(-EPROTO, "size is wrong");
    new_file();
    resize(4096);
    refused(-EPROTO, "size is 4096 bytes");
    resize(0);
    refused(-EPROTO, "size is 0 bytes");
    resize((off_t)sizeof(struct cuslice_segment) + 4096);
    refused(-EPROTO, "its size is");
    room_close();
}

/* Of the same machine and the same layout, copied or moved into place. */
static void test_another_gpus_ring_is_refused(void)
{
    struct segment_spec other = room_device;
    char from[SEGMENT_PATH_MAX];
    struct segment s;

    new_room();
    other.uuid[15]++;
    REQUIRE(segment_open(&s, room_path, &other) == 0);
    segment_path(from, sizeof(from), room_path, other.uuid);
    REQUIRE(rename(from, path) == 0);
    refused(-EPROTO, "another GPU's");
    segment_close(&s);
    room_close();
}

static void test_what_is_no_file_is_refused(void)
{
    char target[128];
    struct stat st;

    new_room();
    snprintf(target, sizeof(target), "%s/elsewhere", room_path);
    REQUIRE(symlink(target, path) == 0);
    refused(-ELOOP, "symbolic link");
    CHECK(stat(target, &st) < 0); /* nothing was made behind it */
    unlink(path);
    REQUIRE(mkfifo(path, 0666) == 0);
    refused(-EINVAL, "cannot use the ring");
    unlink(path);
    REQUIRE(mkdir(path, 0777) == 0);
    refused(-EISDIR, "cannot use the ring");
    rmdir(path);
    room_close();
}

static void test_directory_link_is_refused(void)
{
    char link_path[80];
    struct segment s;

    new_room();
    snprintf(link_path, sizeof(link_path), "%s-link", room_path);
    REQUIRE(symlink(room_path, link_path) == 0);
    capture_begin(&said);
    CHECK_EQ(segment_open(&s, link_path, &room_device), -ELOOP);
    CHECK_HAS(capture_end(&said), "cannot use the ring");
    unlink(link_path);
    room_close();
}

struct race {
    _Atomic(uint32_t) go;
    _Atomic(uint32_t) ready;
    uint64_t inode[20];
    unsigned next;
};

struct racer {
    struct race *race;
    unsigned index;
};

static int race_body(void *arg)
{
    struct racer *me = arg;
    struct segment s;

    atomic_fetch_add(&me->race->ready, 1);
    while (!atomic_load(&me->race->go))
        ;
    if (segment_open(&s, room_path, &room_device) < 0)
        return 1;
    me->race->inode[me->index] = s.inode;
    return s.shared->magic == CUSLICE_MAGIC ? 0 : 2;
}

static unsigned files(void)
{
    DIR *dir = opendir(room_path);
    unsigned n = 0;

    REQUIRE(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void test_creators_race(void)
{
    struct race *race = room_page(sizeof(*race));

    for (unsigned round = 0; round < 10; round++) {
        struct racer racer[20];
        pid_t child[20];

        new_room();
        memset(race, 0, sizeof(*race));
        for (unsigned i = 0; i < 20; i++) {
            racer[i] = (struct racer){.race = race, .index = i};
            child[i] = room_fork(race_body, &racer[i]);
        }
        CHECK(room_await(&race->ready, 20));
        atomic_store(&race->go, 1);
        for (unsigned i = 0; i < 20; i++)
            CHECK_EQ(room_join_child(child[i]), 0);
        for (unsigned i = 0; i < 20; i++)
            CHECK_EQ(race->inode[i], race->inode[0]);
        CHECK_EQ(files(), 1);
        room_close();
    }
    munmap(race, sizeof(*race));
}

static void test_replaced_file_is_noticed(void)
{
    struct segment s, other;
    char aside[SEGMENT_PATH_MAX + 8];
    int fd;

    new_room();
    snprintf(aside, sizeof(aside), "%s.aside", path);
    REQUIRE(segment_open(&s, room_path, &room_device) == 0);
    CHECK(segment_current(&s));
    fd = segment_reopen(&s);
    CHECK(fd >= 0);
    close(fd);
    REQUIRE(rename(path, aside) == 0);
    CHECK(!segment_current(&s));
    CHECK_EQ(segment_reopen(&s), -ENOENT);
    REQUIRE(segment_open(&other, room_path, &room_device) == 0);
    CHECK(!segment_current(&s));
    CHECK(segment_current(&other));
    CHECK_EQ(segment_reopen(&s), -ESTALE);
    REQUIRE(rename(aside, path) == 0);
    CHECK(segment_current(&s));
    segment_close(&s);
    segment_close(&other);
    room_close();
}

/* By inode: a file that was made without a name keeps none in this list. */
static bool mapped(uint64_t inode)
{
    char line[4096];
    bool found = false;
    unsigned long long number;
    FILE *maps = fopen("/proc/self/maps", "re");

    REQUIRE(maps);
    while (fgets(line, sizeof(line), maps))
        found |= sscanf(line, "%*s %*s %*s %*s %llu", &number) == 1 && number == inode;
    fclose(maps);
    return found;
}

static int child_looks(void *arg)
{
    const struct segment *s = arg;

    return mapped(s->inode);
}

static void test_forked_child_has_no_mapping(void)
{
    struct segment s;

    new_room();
    REQUIRE(segment_open(&s, room_path, &room_device) == 0);
    CHECK(mapped(s.inode));
    CHECK_EQ(room_join_child(room_fork(child_looks, &s)), 0);
    segment_close(&s);
    room_close();
}

struct family {
    _Atomic(uint32_t) joined;
    _Atomic(uint32_t) end;
    unsigned slot;
    pid_t worker;
};

static int worker_body(void *arg)
{
    struct family *family = arg;

    room_await(&family->end, 1);
    return 0;
}

/* Joins, forks a worker that never heard of CUDA, and waits to be killed. */
static int parent_body(void *arg)
{
    struct family *family = arg;
    struct ring ring;

    room_join(&ring, "parent", 100);
    family->slot = ring.slot;
    family->worker = room_fork(worker_body, family);
    atomic_store(&family->joined, 1);
    pause();
    return 1;
}

static void test_worker_does_not_keep_the_lock(void)
{
    struct family *family = room_page(sizeof(*family));
    struct ring watcher;
    pid_t parent;

    new_room();
    room_join(&watcher, "watcher", 100);
    parent = room_fork(parent_body, family);
    REQUIRE(room_await(&family->joined, 1));
    CHECK_EQ(slot_dead(&watcher.segment, family->slot), 0);
    kill(parent, SIGKILL);
    CHECK_EQ(room_join_child(parent), 1000 + SIGKILL);
    CHECK_EQ(kill(family->worker, 0), 0);
    CHECK_EQ(slot_dead(&watcher.segment, family->slot), 1);
    atomic_store(&family->end, 1);
    ring_leave(&watcher);
    munmap(family, sizeof(*family));
    room_close();
}

static int child_sees_wiped(void *arg)
{
    struct segment *s = arg;

    return s->shared->magic == 0 && s->shared->slot[0].bytes == 0 ? 0 : 1;
}

static void test_private_copy(void)
{
    struct segment s;

    new_room();
    REQUIRE(segment_open_private(&s, &room_device) == 0);
    CHECK_EQ(s.shared->magic, CUSLICE_MAGIC);
    CHECK(segment_current(&s));
    s.shared->slot[0].bytes = 7;
    CHECK_EQ(room_join_child(room_fork(child_sees_wiped, &s)), 0);
    CHECK_EQ(files(), 0);
    segment_close(&s);
    room_close();
}

static void test_lowest_of_a_set(void)
{
    uint64_t set[CUSLICE_SLOT_WORDS] = {0};

    CHECK_EQ(segment_first(set), CUSLICE_SLOTS);
    set[3] = UINT64_C(1) << 63;
    CHECK_EQ(segment_first(set), 255);
    set[1] = 6;
    CHECK_EQ(segment_first(set), 65);
}

int main(void)
{
    TEST(test_created_in_full);
    TEST(test_settings_of_the_creator_stand);
    TEST(test_settings_held_to_their_ranges);
    TEST(test_damaged_files_are_refused);
    TEST(test_another_gpus_ring_is_refused);
    TEST(test_what_is_no_file_is_refused);
    TEST(test_directory_link_is_refused);
    TEST(test_creators_race);
    TEST(test_replaced_file_is_noticed);
    TEST(test_forked_child_has_no_mapping);
    TEST(test_worker_does_not_keep_the_lock);
    TEST(test_private_copy);
    TEST(test_lowest_of_a_set);
    return test_result();
}
