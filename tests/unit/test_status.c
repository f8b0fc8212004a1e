/* Status: rings written by hand, read back; what is refused; who counts as alive; garbage. */
#include "status.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "histogram.h"
#include "ring_file.h"
#include "tenant.h"

static char directory[64] = "/tmp/test-status-XXXXXX";
static char path[128];
static struct cuslice_segment *segment;
static int owner; /* the description that holds the slots' locks */
static struct status_ring ring;
static uint64_t now;

static uint64_t fake_clock(void)
{
    return now;
}

static void begin(void)
{
    unlink(path);
    owner = mapfile_create(path, sizeof(*segment), 0666, ring_file_fill, NULL);
    REQUIRE(owner >= 0);
    segment = mapfile_map(owner, sizeof(*segment), NULL);
    REQUIRE(segment);
}

static void end(void)
{
    munmap(segment, sizeof(*segment));
    close(owner);
    unlink(path);
}

static void add_tenant(unsigned index, const char *key, uint32_t weight, uint64_t limit)
{
    ring_file_tenant(segment, index, key, weight, limit);
}

static void add_client(unsigned slot, unsigned tenant, uint64_t bytes, bool alive)
{
    ring_file_client(segment, alive ? owner : -1, slot, tenant, bytes);
}

static void snapshot(void)
{
    struct status_file file;
    char reason[STATUS_REASON] = "";

    REQUIRE(status_open(path, &file, reason, sizeof(reason)) == 0);
    memset(&ring, 0x5a, sizeof(ring));
    status_read(&file, &ring);
    status_close(&file);
}

static void test_empty_ring(void)
{
    begin();
    snapshot();
    CHECK_STR(ring.uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    CHECK_STR(ring.name, "Test GPU");
    CHECK_EQ(ring.device_bytes, UINT64_C(80) << 30);
    CHECK_EQ(ring.quantum_ns, 20 * CLOCK_MS);
    CHECK_EQ(ring.allowance_ns, CLOCK_S);
    CHECK_EQ(ring.epoch, 7);
    CHECK_EQ(ring.holder, STATUS_NONE);
    CHECK_EQ(ring.clients + ring.tenants + ring.waiting + ring.dead, 0);
    CHECK_EQ(ring.mem_used, 0);
    end();
}

static void test_sums(void)
{
    begin();
    add_tenant(3, "alpha", 50, 4096);
    add_tenant(127, "beta", 20, CUSLICE_NO_LIMIT);
    add_client(0, 3, 100, true);
    add_client(9, 3, 200, true);
    add_client(10, 3, 4000, false);
    add_client(255, 127, 50, true);
    snapshot();
    CHECK_EQ(ring.tenants, 2);
    CHECK_EQ(ring.clients, 3);
    CHECK_EQ(ring.dead, 1);
    CHECK_EQ(ring.mem_used, 350);
    CHECK_EQ(ring.tenant[0].mem_used, 300);
    CHECK_EQ(ring.tenant[0].clients, 2);
    CHECK_EQ(ring.tenant[0].index, 3);
    CHECK_STR(ring.tenant[0].key, "alpha");
    CHECK_STR(ring.tenant[0].display, "alpha!");
    CHECK_EQ(ring.tenant[0].mem_limit, 4096);
    CHECK_EQ(ring.tenant[1].mem_used, 50);
    CHECK_EQ(ring.tenant[1].mem_limit, CUSLICE_NO_LIMIT);
    CHECK_EQ(ring.client[2].slot, 255);
    CHECK_EQ(ring.client[2].tenant, 1);
    CHECK_STR(ring.client[2].command, "program-255");
    CHECK_EQ(ring.client[2].pid, 1255);
    CHECK_EQ(status_find_tenant(&ring, "beta"), 1);
    CHECK_EQ(status_find_tenant(&ring, "gamma"), STATUS_NONE);
    end();
}

/* Which cap is in force, what is shared or paged, what the last refusal was. */
static void test_memory(void)
{
    begin();
    add_tenant(0, "alpha", 50, 4096);
    add_tenant(1, "beta", 50, 4096);
    for (unsigned i = 0; i < 3; i++) {
        add_client(i, i / 2, 100, true);
        segment->slot[i].process_limit = 70 + i;
        segment->slot[i].context_bytes = 1000;
        segment->slot[i].exported = 10 + i;
        segment->slot[i].imported = 20 + i;
        segment->slot[i].paged = 30 + i;
    }
    segment->tenant[0].process_limit = 5;
    segment->tenant[0].orphaned = 7;
    segment->tenant[0].refusal_used = 4000;
    segment->tenant[0].refusal_cap = 4096;
    snapshot();
    CHECK_EQ(ring.client[1].process_limit, 71);
    CHECK_EQ(ring.tenant[0].process_limit, CUSLICE_NO_LIMIT);
    CHECK_EQ(ring.tenant[0].exported, 21);
    CHECK_EQ(ring.tenant[0].imported, 41);
    CHECK_EQ(ring.tenant[0].paged, 61);
    CHECK_EQ(ring.client[2].exported, 12);
    CHECK_EQ(ring.tenant[0].refusal_used, 4000);
    CHECK_EQ(ring.tenant[0].refusal_cap, 4096);
    CHECK_EQ(status_counted(&ring.tenant[0]), 2200);
    CHECK_EQ(ring.tenant[0].orphaned, 7);
    CHECK_EQ(status_counted_client(&ring.client[0]), 1100);

    /* The administrator's goes before each one's own. */
    segment->tenant[0].settings_by_admin = TENANT_PROCESS_LIMIT;
    segment->settings_by_admin = SEGMENT_QUANTUM;
    snapshot();
    CHECK_EQ(ring.client[0].process_limit, 5);
    CHECK_EQ(ring.client[1].process_limit, 5);
    CHECK_EQ(ring.client[2].process_limit, 72);
    CHECK_EQ(ring.tenant[0].process_limit, 5);
    CHECK_EQ(ring.tenant[0].pinned, TENANT_PROCESS_LIMIT);
    CHECK_EQ(ring.pinned, SEGMENT_QUANTUM);

    /* Orphaned is only what somebody alive still has open. */
    segment->tenant[0].orphaned = 1000;
    snapshot();
    CHECK_EQ(ring.tenant[0].orphaned, 41);
    end();
}

static void test_turns(void)
{
    begin();
    now = 10 * CLOCK_S;
    clock_fake(fake_clock);
    add_tenant(0, "alpha", 50, 4096);
    add_client(4, 0, 1, true);
    add_client(5, 0, 1, true);
    segment->token = CUSLICE_TOKEN(9, 4);
    segment->slot[4].grant_epoch = 9;
    segment->slot[4].grant_ns = now - 12 * CLOCK_MS;
    segment->slot[5].waiting_since_ns = now - 3 * CLOCK_MS;
    snapshot();
    CHECK_EQ(ring.holder, 0);
    CHECK(ring.client[0].holds && !ring.client[1].holds);
    CHECK_EQ(ring.client[0].holding_ns, 12 * CLOCK_MS);
    CHECK_EQ(ring.client[1].waiting_ns, 3 * CLOCK_MS);
    CHECK_EQ(ring.waiting, 1);
    CHECK(ring.tenant[0].holds);
    CHECK_EQ(ring.tenant[0].waiting, 1);

    /* A grant of another epoch says nothing about this turn; a time to come is no age. */
    segment->slot[4].grant_epoch = 8;
    segment->slot[5].waiting_since_ns = now + CLOCK_S;
    snapshot();
    CHECK(ring.client[0].holds);
    CHECK_EQ(ring.client[0].holding_ns, 0);
    CHECK_EQ(ring.client[1].waiting_ns, 0);
    clock_fake(NULL);
    end();
}

static void test_dead_holder(void)
{
    begin();
    add_client(6, 0, 1, false);
    segment->token = CUSLICE_TOKEN(9, 6);
    snapshot();
    CHECK_EQ(ring.holder, STATUS_NONE);
    CHECK_EQ(ring.dead, 1);
    end();
}

static void test_books(void)
{
    begin();
    add_tenant(0, "alpha", 50, 4096);
    struct cuslice_tenant *tenant = &segment->tenant[0];
    tenant->books.granted_ns = 1;
    tenant->books.charged_ns = 2;
    tenant->books.waited_ns = 3;
    tenant->books.slices = 4;
    tenant->books.refusals = 5;
    tenant->books.refused_bytes = 6;
    tenant->books.last_refusal_asked = 7;
    histogram_add(&tenant->wait, 5 * CLOCK_MS);
    snapshot();
    CHECK_EQ(ring.tenant[0].books.granted_ns, 1);
    CHECK_EQ(ring.tenant[0].books.charged_ns, 2);
    CHECK_EQ(ring.tenant[0].books.waited_ns, 3);
    CHECK_EQ(ring.tenant[0].books.slices, 4);
    CHECK_EQ(ring.tenant[0].books.refusals, 5);
    CHECK_EQ(ring.tenant[0].books.refused_bytes, 6);
    CHECK_EQ(ring.tenant[0].books.last_refusal_asked, 7);
    CHECK_EQ(ring.tenant[0].wait.count, 1);
    CHECK_EQ(ring.tenant[0].wait.sum_ns, 5 * CLOCK_MS);
    CHECK(ring.tenant[0].wait.p50_ns > 4 * CLOCK_MS && ring.tenant[0].wait.p50_ns < 6 * CLOCK_MS);
    CHECK_EQ(ring.tenant[0].clients, 0);
    end();
}

/* Life is the kernel's lock: a killed process's slot is dead although its words still say
 * otherwise. */
static void test_killed_owner(void)
{
    int pipe_fds[2];
    char byte;

    begin();
    add_tenant(0, "alpha", 50, 4096);
    add_client(1, 0, 77, false);
    REQUIRE(pipe(pipe_fds) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int fd = mapfile_open(path, NULL);
        byte = fd >= 0 && mapfile_lock(fd, CUSLICE_LOCK_SLOT(1)) == 0;
        if (write(pipe_fds[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    REQUIRE(read(pipe_fds[0], &byte, 1) == 1 && byte == 1);
    snapshot();
    CHECK_EQ(ring.clients, 1);
    CHECK_EQ(ring.tenant[0].mem_used, 77);
    REQUIRE(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    snapshot();
    CHECK_EQ(ring.clients, 0);
    CHECK_EQ(ring.dead, 1);
    CHECK_EQ(ring.tenant[0].mem_used, 0);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    end();
}

static int refuse(char reason[STATUS_REASON])
{
    struct status_file file;

    *reason = 0;
    int error = status_open(path, &file, reason, STATUS_REASON);
    if (error == 0)
        status_close(&file);
    return error;
}

static void test_refusals(void)
{
    char reason[STATUS_REASON];

    begin();
    segment->version = 99;
    CHECK_EQ(refuse(reason), -EPROTO);
    CHECK_HAS(reason, "layout version 99");
    segment->version = CUSLICE_LAYOUT_VERSION;
    segment->fingerprint ^= 1;
    CHECK_EQ(refuse(reason), -EPROTO);
    CHECK_HAS(reason, "fingerprint");
    segment->fingerprint ^= 1;
    segment->size--;
    CHECK_EQ(refuse(reason), -EINVAL);
    CHECK_HAS(reason, "damaged");
    segment->size++;
    segment->magic = 0;
    CHECK_EQ(refuse(reason), -EINVAL);
    CHECK_HAS(reason, "not a cuslice ring");
    segment->magic = CUSLICE_MAGIC;
    CHECK_EQ(refuse(reason), 0);
    segment->uuid[0] ^= 1;
    CHECK_EQ(refuse(reason), -EPROTO);
    CHECK_HAS(reason, "ring of GPU-01112233-4455-6677-8899-aabbccddeeff");
    segment->uuid[0] ^= 1;
    /* Shorter than it says: touching the rest would be a SIGBUS. */
    REQUIRE(ftruncate(owner, 4096) == 0);
    CHECK_EQ(refuse(reason), -EINVAL);
    CHECK_HAS(reason, "4096 bytes long");
    REQUIRE(ftruncate(owner, 3) == 0);
    CHECK_EQ(refuse(reason), -EINVAL);
    CHECK_HAS(reason, "not a cuslice ring");
    end();
}

static void test_foreign_kinds(void)
{
    char reason[STATUS_REASON];

    CHECK_EQ(refuse(reason), -ENOENT);
    CHECK_HAS(reason, "cannot be opened");
    REQUIRE(symlink("/etc/passwd", path) == 0);
    CHECK_EQ(refuse(reason), -ELOOP);
    CHECK_HAS(reason, "symbolic link");
    unlink(path);
    REQUIRE(mkfifo(path, 0600) == 0);
    CHECK_EQ(refuse(reason), -EINVAL);
    CHECK_HAS(reason, "not a regular file");
    unlink(path);
    REQUIRE(mkdir(path, 0700) == 0);
    CHECK_EQ(refuse(reason), -EINVAL);
    rmdir(path);
}

static bool printable(const char *text, size_t size)
{
    const char *end = memchr(text, 0, size);

    for (const char *c = text; end && c < end; c++)
        if (*c < ' ' || *c > '~')
            return false;
    return end != NULL;
}

/* Every word of the body is garbage: the reading ends, stays within its arrays, texts are clean. */
static void test_garbage(void)
{
    for (unsigned pattern = 0; pattern < 256; pattern += 51) {
        begin();
        memset((char *)segment + offsetof(struct cuslice_segment, device_name), (int)pattern,
               sizeof(*segment) - offsetof(struct cuslice_segment, device_name));
        for (unsigned i = 0; i < CUSLICE_SLOTS; i++)
            REQUIRE(mapfile_lock(owner, CUSLICE_LOCK_SLOT(i)) == 0);
        snapshot();
        CHECK_EQ(ring.clients, pattern ? CUSLICE_SLOTS : 0);
        CHECK_EQ(ring.tenants, pattern ? CUSLICE_TENANTS : 0);
        CHECK(printable(ring.name, sizeof(ring.name)));
        for (unsigned i = 0; i < ring.tenants; i++)
            CHECK(printable(ring.tenant[i].key, CUSLICE_TEXT) &&
                  printable(ring.tenant[i].container, CUSLICE_TEXT));
        for (unsigned i = 0; i < ring.clients; i++)
            CHECK(printable(ring.client[i].command, sizeof(ring.client[i].command)));
        end();
    }
}

static void touch(const char *name)
{
    char file[192];

    snprintf(file, sizeof(file), "%s/%s", directory, name);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    close(fd);
}

static void drop(const char *name)
{
    char file[192];

    snprintf(file, sizeof(file), "%s/%s", directory, name);
    unlink(file);
}

static void test_list(void)
{
    static struct status_names names;
    static const char *const files[] = {"GPU-b.ring",  "GPU-a.ring",     "defaults",
                                        ".GPU-c.ring", "GPU-d.ring.tmp", ".ring"};

    for (unsigned i = 0; i < 6; i++)
        touch(files[i]);
    CHECK_EQ(status_list(directory, &names), 0);
    CHECK_EQ(names.count, 2);
    CHECK_STR(names.name[0], "GPU-a.ring");
    CHECK_STR(names.name[1], "GPU-b.ring");
    CHECK_EQ(names.left_out, 0);
    for (unsigned i = 0; i < 6; i++)
        drop(files[i]);
    CHECK_EQ(status_list("/nonexistent/directory", &names), -ENOENT);
}

static void test_long_list(void)
{
    static struct status_names names;
    char name[32];

    for (unsigned i = 0; i < STATUS_FILES + 3; i++) {
        snprintf(name, sizeof(name), "%02u.ring", i);
        touch(name);
    }
    CHECK_EQ(status_list(directory, &names), 0);
    CHECK_EQ(names.count, STATUS_FILES);
    CHECK_EQ(names.left_out, 3);
    for (unsigned i = 0; i < STATUS_FILES + 3; i++) {
        snprintf(name, sizeof(name), "%02u.ring", i);
        drop(name);
    }
}

int main(void)
{
    REQUIRE(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/GPU-00112233-4455-6677-8899-aabbccddeeff.ring", directory);
    TEST(test_empty_ring);
    TEST(test_sums);
    TEST(test_memory);
    TEST(test_turns);
    TEST(test_dead_holder);
    TEST(test_books);
    TEST(test_killed_owner);
    TEST(test_refusals);
    TEST(test_foreign_kinds);
    TEST(test_garbage);
    TEST(test_list);
    TEST(test_long_list);
    rmdir(directory);
    return test_result();
}
