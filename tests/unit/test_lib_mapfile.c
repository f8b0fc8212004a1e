/* mapfile: whole or not there, one winner among many creators, modes, links refused, and the
 * kernel's locks. */
#include "mapfile.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define SIZE 65536
#define WORDS (SIZE / sizeof(uint32_t))

static char place[64], path[80];

static int fill(void *memory, size_t size, void *arg)
{
    uint32_t *word = memory;

    for (size_t i = 0; i < size / sizeof(*word); i++)
        word[i] = *(uint32_t *)arg;
    return 0;
}

static int fill_fails(void *memory, size_t size, void *arg)
{
    (void)memory, (void)size, (void)arg;
    return -ENODATA;
}

static unsigned files_in_place(void)
{
    DIR *dir = opendir(place);
    struct dirent *entry;
    unsigned n = 0;

    REQUIRE(dir);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return n;
}

static void test_create_and_open(void)
{
    uint32_t seed = 0xabcd1234;
    struct stat st;
    mode_t mask = umask(077);
    int fd, other, error = 1;
    uint32_t *memory;

    errno = EXDEV;
    fd = mapfile_create(path, SIZE, 0666, fill, &seed);
    umask(mask);
    REQUIRE(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(mapfile_create(path, SIZE, 0666, fill, &seed), -EEXIST);
    other = mapfile_open(path, &st);
    REQUIRE(other >= 0);
    CHECK_EQ(errno, EXDEV);
    CHECK(fcntl(other, F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(st.st_mode & 07777, 0666);
    CHECK_EQ(st.st_size, SIZE);
    CHECK_EQ(st.st_nlink, 1);
    memory = mapfile_map(other, SIZE, &error);
    REQUIRE(memory);
    CHECK_EQ(memory[WORDS - 1], seed);
    CHECK_EQ(files_in_place(), 1);
    munmap(memory, SIZE);
    close(fd);
    close(other);
    unlink(path);
}

static void test_failures_leave_nothing(void)
{
    char too_long[8192];

    CHECK_EQ(mapfile_create(path, SIZE, 0666, fill_fails, NULL), -ENODATA);
    CHECK_EQ(files_in_place(), 0);
    CHECK_EQ(mapfile_create("/nonexistent/x", SIZE, 0666, NULL, NULL), -ENOENT);
    CHECK_EQ(mapfile_create(path, 0, 0666, NULL, NULL), -EINVAL);
    memset(too_long, 'x', sizeof(too_long) - 1);
    too_long[sizeof(too_long) - 1] = '\0';
    too_long[4200] = '/';
    CHECK_EQ(mapfile_create(too_long, SIZE, 0666, NULL, NULL), -ENAMETOOLONG);
    CHECK_EQ(mapfile_open(path, NULL), -ENOENT);
    CHECK_EQ(files_in_place(), 0);
}

/* Every byte has its place before the name appears, written or not: a sparse file on a full
 * filesystem is a SIGBUS later. */
static void test_allocated_in_full(void)
{
    struct stat st;
    int fd = mapfile_create(path, 1 << 20, 0666, NULL, NULL);

    REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
    CHECK(st.st_blocks * 512 >= 1 << 20);
    close(fd);
    unlink(path);
}

/* More than the filesystem has must fail at once, not with a SIGBUS at the first touch. */
static void test_no_space(void)
{
    struct statvfs fs;
    int result;

    REQUIRE(statvfs(place, &fs) == 0);
    if ((uint64_t)fs.f_blocks * fs.f_frsize > (UINT64_C(1) << 50))
        return;
    result = mapfile_create(path, (size_t)1 << 52, 0666, NULL, NULL);
    CHECK(result == -ENOSPC || result == -EFBIG || result == -ENOMEM);
    CHECK_EQ(files_in_place(), 0);
}

static void check_refused(int expected)
{
    CHECK_EQ(mapfile_open(path, NULL), expected);
    CHECK_EQ(mapfile_create(path, SIZE, 0666, NULL, NULL), -EEXIST);
    unlink(path);
}

static void test_refused_kinds(void)
{
    char target[96];

    snprintf(target, sizeof(target), "%s/target", place);
    close(open(target, O_CREAT | O_WRONLY, 0600));
    REQUIRE(symlink(target, path) == 0);
    check_refused(-ELOOP);
    REQUIRE(symlink("nowhere", path) == 0);
    check_refused(-ELOOP);
    REQUIRE(mkfifo(path, 0600) == 0);
    check_refused(-EINVAL);
    CHECK_EQ(access(target, F_OK), 0);
    unlink(target);
    REQUIRE(mkdir(path, 0700) == 0);
    CHECK_EQ(mapfile_open(path, NULL), -EISDIR);
    rmdir(path);
}

/* One creator of the race: 0 when it won, 1 when it lost and then saw the winner's file whole. */
static int race(int gate, uint32_t seed)
{
    struct stat st;
    uint32_t *memory;
    char byte;
    int fd;

    if (read(gate, &byte, 1) != 0)
        return 2;
    fd = mapfile_create(path, SIZE, 0666, fill, &seed);
    if (fd >= 0)
        return 0;
    if (fd != -EEXIST)
        return 3;
    fd = mapfile_open(path, &st);
    memory = fd >= 0 && st.st_size == SIZE ? mapfile_map(fd, SIZE, NULL) : NULL;
    if (!memory || memory[0] == 0)
        return 4;
    for (size_t i = 1; i < WORDS; i++) {
        if (memory[i] != memory[0])
            return 5;
    }
    return 1;
}

static void test_race(void)
{
    for (unsigned round = 0; round < 20; round++) {
        unsigned count[2] = {0};
        int gate[2], status;

        REQUIRE(pipe(gate) == 0);
        for (uint32_t i = 0; i < 8; i++) {
            if (fork() == 0) {
                close(gate[1]);
                _exit(race(gate[0], i + 1));
            }
        }
        close(gate[0]);
        close(gate[1]);
        while (wait(&status) > 0) {
            REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
            count[WEXITSTATUS(status)]++;
        }
        CHECK_EQ(count[0], 1);
        CHECK_EQ(count[1], 7);
        CHECK_EQ(files_in_place(), 1);
        unlink(path);
    }
}

/* A killed creator leaves neither the name nor litter: the file has no name until it is whole. */
static int fill_then_die(void *memory, size_t size, void *arg)
{
    (void)memory, (void)size, (void)arg;
    raise(SIGKILL);
    return 0;
}

static void test_killed_creator(void)
{
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(mapfile_create(path, SIZE, 0666, fill_then_die, NULL) < 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(access(path, F_OK), -1);
    CHECK_EQ(files_in_place(), 0);
}

/* Without /proc a file cannot be linked from its descriptor: the named way must do as well. */
static int create_without_proc(void)
{
    uint32_t seed = 5;
    struct stat st;
    int fd;

    if ((unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) ||
        mount("none", "/proc", "tmpfs", 0, NULL) < 0)
        return TEST_SKIP;
    fd = mapfile_create(path, SIZE, 0640, fill, &seed);
    if (fd < 0 || mapfile_create(path, SIZE, 0666, fill, &seed) != -EEXIST)
        return 1;
    if (fstat(fd, &st) < 0 || st.st_nlink != 1 || (st.st_mode & 07777) != 0640)
        return 2;
    return files_in_place() == 1 ? 0 : 3;
}

static void test_without_proc(void)
{
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(create_without_proc());
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
        printf("no mount namespaces here\n");
    else
        CHECK_EQ(status, 0);
    unlink(path);
}

static void test_locks(void)
{
    int a = mapfile_create(path, SIZE, 0666, NULL, NULL);
    int b = mapfile_open(path, NULL);

    REQUIRE(a >= 0 && b >= 0);
    CHECK_EQ(mapfile_locked(a, 7), 0);
    CHECK_EQ(mapfile_lock(a, 7), 0);
    CHECK_EQ(mapfile_lock(a, 7), 0); /* one's own lock is no conflict */
    CHECK_EQ(mapfile_locked(a, 7), 0);
    CHECK_EQ(mapfile_locked(b, 7), 1);
    errno = EXDEV;
    CHECK_EQ(mapfile_lock(b, 7), -EAGAIN);
    CHECK_EQ(errno, EXDEV);
    CHECK_EQ(mapfile_lock(b, 8), 0); /* a byte is a byte */
    CHECK_EQ(mapfile_locked(a, 8), 1);
    CHECK_EQ(mapfile_unlock(a, 7), 0);
    CHECK_EQ(mapfile_lock(b, 7), 0);
    CHECK_EQ(mapfile_locked(-1, 7), -EBADF);
    close(b);
    CHECK_EQ(mapfile_locked(a, 7), 0);
    CHECK_EQ(mapfile_locked(a, 8), 0);
    close(a);
    unlink(path);
}

/* What classic POSIX locks get wrong: closing another descriptor of the file must not drop the
 * lock; and the mapping alone keeps it when every descriptor is gone. */
static void test_lock_lives_with_mapping(void)
{
    int a = mapfile_create(path, SIZE, 0666, NULL, NULL);
    int other = mapfile_open(path, NULL), watcher = mapfile_open(path, NULL);
    void *memory;

    REQUIRE(a >= 0 && other >= 0 && watcher >= 0);
    memory = mapfile_map(a, SIZE, NULL);
    REQUIRE(memory && mapfile_lock(a, 3) == 0);
    close(other);
    CHECK_EQ(mapfile_locked(watcher, 3), 1);
    close(a);
    CHECK_EQ(mapfile_locked(watcher, 3), 1);
    munmap(memory, SIZE);
    CHECK_EQ(mapfile_locked(watcher, 3), 0);
    close(watcher);
    unlink(path);
}

/* What lies behind a twin's file is private, and the file is the file. */
static void test_twin(void)
{
    uint32_t seed = 7;
    int fd = mapfile_create(path, SIZE, 0600, fill, &seed), error = 1;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), span = (SIZE + page - 1) / page * page;
    char *one = mapfile_map_twin(fd, SIZE, span, &error);
    char *two = mapfile_map_twin(fd, SIZE, span, &error);

    REQUIRE(fd >= 0 && one && two && error == 0);
    one[0] = 1;
    CHECK_EQ(two[0], 1);
    two[0] = 2;
    CHECK_EQ(one[0], 2);
    CHECK_EQ(one[span], 0);
    CHECK_EQ(one[2 * span - 1], 0);
    one[span] = 3;
    CHECK_EQ(two[span], 0);
    munmap(one, 2 * span);
    munmap(two, 2 * span);
    close(fd);
    CHECK(mapfile_map_twin(-1, SIZE, span, &error) == NULL);
    CHECK_EQ(error, -EBADF);
    unlink(path);
}

/* The holder of the test below: locks byte 3, says so, and waits to be killed. */
static void hold(int ready, bool keep_fork)
{
    int fd = mapfile_open(path, NULL);
    void *memory = mapfile_map(fd, SIZE, NULL);

    if (!memory || mapfile_lock(fd, 3) < 0)
        _exit(1);
    if (!keep_fork)
        madvise(memory, SIZE, MADV_DONTFORK);
    if (fork() == 0) {
        if (!keep_fork)
            close(fd);
        dup2(ready, 0);
        if (write(ready, "y", 1) != 1)
            _exit(1);
        for (;;) {
            char end;

            if (read(ready, &end, 1) <= 0)
                _exit(0);
        }
    }
    for (;;)
        pause();
}

static void check_killed_holder(bool keep_fork, int held_afterwards)
{
    int watcher = mapfile_create(path, SIZE, 0666, NULL, NULL);
    int ready[2];
    char byte;
    pid_t child;

    REQUIRE(watcher >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ready) == 0);
    child = fork();
    if (child == 0) {
        close(watcher);
        close(ready[0]);
        hold(ready[1], keep_fork);
    }
    close(ready[1]);
    REQUIRE(read(ready[0], &byte, 1) == 1);
    CHECK_EQ(mapfile_locked(watcher, 3), 1);
    kill(child, SIGKILL);
    REQUIRE(waitpid(child, NULL, 0) == child);
    CHECK_EQ(mapfile_locked(watcher, 3), held_afterwards);
    close(ready[0]);
    close(watcher);
    unlink(path);
}

static void test_killed_holder(void)
{
    check_killed_holder(true, 1); /* the trap: a forked child inherits the lock */
    check_killed_holder(false, 0);
}

/* What had the name is told from what has it. */
static void test_named(void)
{
    struct stat first, second;
    int a = mapfile_create(path, SIZE, 0666, NULL, NULL), b;

    REQUIRE(a >= 0 && fstat(a, &first) == 0);
    CHECK_EQ(mapfile_named(path, first.st_dev, first.st_ino), 1);
    b = mapfile_reopen(path, first.st_dev, first.st_ino);
    REQUIRE(b >= 0 && mapfile_lock(a, 3) == 0);
    CHECK_EQ(mapfile_locked(b, 3), 1); /* a description of its own */
    close(b);
    unlink(path);
    CHECK_EQ(mapfile_named(path, first.st_dev, first.st_ino), 0);
    CHECK_EQ(mapfile_reopen(path, first.st_dev, first.st_ino), -ENOENT);
    b = mapfile_create(path, SIZE, 0666, NULL, NULL);
    REQUIRE(b >= 0 && fstat(b, &second) == 0);
    CHECK_EQ(mapfile_named(path, first.st_dev, first.st_ino), 0);
    CHECK_EQ(mapfile_named(path, second.st_dev, second.st_ino), 1);
    CHECK_EQ(mapfile_reopen(path, first.st_dev, first.st_ino), -ESTALE);
    close(a);
    close(b);
    unlink(path);
    REQUIRE(symlink(path, path) == 0);
    CHECK_EQ(mapfile_named(path, second.st_dev, second.st_ino), 0);
    unlink(path);
}

static void test_directory(void)
{
    char name[80], link_name[80];
    struct stat st;
    mode_t mask = umask(077);

    snprintf(name, sizeof(name), "%s/dir", place);
    snprintf(link_name, sizeof(link_name), "%s/link", place);
    CHECK_EQ(mapfile_directory(name), 0);
    umask(mask);
    REQUIRE(stat(name, &st) == 0);
    CHECK_EQ(st.st_mode & 07777, 01777);
    chmod(name, 0750);
    CHECK_EQ(mapfile_directory(name), 0);
    REQUIRE(stat(name, &st) == 0);
    CHECK_EQ(st.st_mode & 07777, 0750); /* the administrator's choice stands */
    REQUIRE(symlink(name, link_name) == 0);
    CHECK_EQ(mapfile_directory(link_name), -ELOOP);
    unlink(link_name);
    close(open(link_name, O_CREAT | O_WRONLY, 0600));
    CHECK_EQ(mapfile_directory(link_name), -ENOTDIR);
    CHECK_EQ(mapfile_directory("/nonexistent/place"), -ENOENT);
    unlink(link_name);
    rmdir(name);
}

static void run_all(const char *parent)
{
    snprintf(place, sizeof(place), "%s/mapfile-XXXXXX", parent);
    REQUIRE(mkdtemp(place));
    snprintf(path, sizeof(path), "%s/file", place);
    TEST(test_create_and_open);
    TEST(test_failures_leave_nothing);
    TEST(test_allocated_in_full);
    TEST(test_no_space);
    TEST(test_refused_kinds);
    TEST(test_race);
    TEST(test_killed_creator);
    TEST(test_without_proc);
    TEST(test_locks);
    TEST(test_lock_lives_with_mapping);
    TEST(test_twin);
    TEST(test_killed_holder);
    TEST(test_named);
    TEST(test_directory);
    rmdir(place);
}

int main(void)
{
    run_all("/tmp");
    if (access("/dev/shm", W_OK) == 0)
        run_all("/dev/shm");
    return test_result();
}
