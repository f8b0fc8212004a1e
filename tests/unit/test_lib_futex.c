/* futex: deadlines, wakes across processes, signals with and without SA_RESTART, several words, the
 * lock. */
#include "clock.h"
#include "futex.h"
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SLACK (2 * CLOCK_S) /* how late a busy machine may be */

typedef int waiter(const _Atomic uint32_t *, uint32_t, uint64_t);

static volatile sig_atomic_t handled;
static _Atomic uint32_t *shared;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static void check_timeout(waiter *wait_on)
{
    _Atomic uint32_t word = 3;
    uint64_t start = clock_now(), took;

    errno = EXDEV;
    CHECK_EQ(wait_on(&word, 3, start + 30 * CLOCK_MS), -ETIMEDOUT);
    took = clock_now() - start;
    CHECK(took >= 30 * CLOCK_MS && took < 30 * CLOCK_MS + SLACK);
    CHECK_EQ(wait_on(&word, 3, start), -ETIMEDOUT);
    CHECK_EQ(wait_on(&word, 3, 0), -ETIMEDOUT);
    CHECK_EQ(wait_on(&word, 4, start + 30 * CLOCK_S), -EAGAIN);
    CHECK_EQ(errno, EXDEV);
}

static void test_timeout(void)
{
    check_timeout(futex_wait);
    check_timeout(futex_wait_private);
}

/* Wakes the word as soon as somebody waits on it. */
static void wake_when_waiting(int (*wake)(const _Atomic uint32_t *, int))
{
    uint64_t limit = clock_after(10 * CLOCK_S);

    while (wake(shared, 1) == 0 && clock_now() < limit)
        usleep(200);
}

static void test_wake_across_processes(void)
{
    uint64_t start = clock_now();
    pid_t child = fork();

    if (child == 0) {
        wake_when_waiting(futex_wake);
        _exit(0);
    }
    CHECK_EQ(futex_wait(shared, 0, start + 20 * CLOCK_S), 0);
    CHECK(clock_now() - start < 10 * CLOCK_S);
    REQUIRE(waitpid(child, NULL, 0) == child);
}

/* A private wake does not reach another process, or private would not be private. */
static void test_private_is_private(void)
{
    pid_t child = fork();

    if (child == 0)
        _exit(futex_wait_private(shared, 0, clock_after(200 * CLOCK_MS)) == -ETIMEDOUT ? 0 : 1);
    for (unsigned i = 0; i < 10; i++) {
        CHECK_EQ(futex_wake_private(shared, 1), 0);
        usleep(10000);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

/* Signals interrupt a wait; a caller that goes on reaches its deadline all the same, whatever
 * SA_RESTART says: the deadline is absolute, so interruptions cannot lengthen it. */
static void check_interrupted(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    uint64_t start, deadline;
    pid_t parent = getpid(), child;
    unsigned interrupted = 0;
    int result;

    handled = 0;
    REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
    child = fork();
    if (child == 0) {
        for (unsigned i = 0; i < 10; i++) {
            usleep(10000);
            kill(parent, SIGUSR1);
        }
        _exit(0);
    }
    start = clock_now();
    deadline = start + 300 * CLOCK_MS;
    while ((result = futex_wait(shared, 0, deadline)) == -EINTR)
        interrupted++;
    CHECK_EQ(result, -ETIMEDOUT);
    CHECK(clock_now() >= deadline && clock_now() < deadline + SLACK);
    CHECK(handled > 0);
    if (!(flags & SA_RESTART))
        CHECK(interrupted > 0);
    REQUIRE(waitpid(child, NULL, 0) == child);
}

static void test_interrupted(void)
{
    check_interrupted(0);
    check_interrupted(SA_RESTART);
}

static void test_many(void)
{
    struct futex_watch watch[FUTEX_WATCH_MAX + 1] = {{.word = &shared[0], .expected = 0},
                                                     {.word = &shared[16], .expected = 7}};
    uint64_t start = clock_now();
    int result;

    CHECK_EQ(futex_wait_many(watch, 0, start), -EINVAL);
    CHECK_EQ(futex_wait_many(watch, FUTEX_WATCH_MAX + 1, start), -EINVAL);
    result = futex_wait_many(watch, 2, start);
    if (result == -ENOSYS || result == -EPERM) {
        printf("no futex_waitv here\n");
        return;
    }
    CHECK_EQ(result, -EAGAIN);
    watch[1].expected = 0;
    CHECK_EQ(futex_wait_many(watch, 2, start + 30 * CLOCK_MS), -ETIMEDOUT);
    CHECK(clock_now() - start >= 30 * CLOCK_MS);
    pid_t child = fork();
    if (child == 0) {
        shared = &shared[16];
        wake_when_waiting(futex_wake);
        _exit(0);
    }
    CHECK_EQ(futex_wait_many(watch, 2, clock_after(20 * CLOCK_S)), 1);
    REQUIRE(waitpid(child, NULL, 0) == child);
}

/* Under a filter from before futex_waitv, which answers EPERM to what it does not know. */
static void test_many_refused(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 449, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    struct futex_watch watch = {.word = &shared[0], .expected = atomic_load(&shared[0])};
    int status;
    pid_t child = fork();

    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
            _exit(77);
        _exit(futex_wait_many(&watch, 1, clock_now()) == -ENOSYS ? 0 : 1);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("no seccomp here\n");
    else
        CHECK_EQ(status, 0);
}

static struct lock lock = LOCK_INIT;
static unsigned guarded;

static void *count_up(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < 50000; i++) {
        lock_take(&lock);
        guarded++;
        lock_put(&lock);
    }
    return NULL;
}

static void *put_later(void *arg)
{
    (void)arg;
    usleep(50000);
    lock_put(&lock);
    return NULL;
}

static void test_lock(void)
{
    pthread_t thread[4];
    uint64_t start;

    for (unsigned i = 0; i < 4; i++)
        REQUIRE(pthread_create(&thread[i], NULL, count_up, NULL) == 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(guarded, 200000);
    CHECK_EQ(lock.word, 0);

    CHECK(lock_try(&lock));
    CHECK(!lock_try(&lock));
    start = clock_now();
    REQUIRE(pthread_create(&thread[0], NULL, put_later, NULL) == 0);
    lock_take(&lock);
    /* Woken, not timed out: the lock looks again by itself only once a second. */
    CHECK(clock_now() - start >= 50 * CLOCK_MS && clock_now() - start < 900 * CLOCK_MS);
    pthread_join(thread[0], NULL);
    CHECK(!lock_try(&lock));
    lock_reset(&lock);
    CHECK(lock_try(&lock));
    lock_put(&lock);
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    TEST(test_timeout);
    TEST(test_wake_across_processes);
    TEST(test_private_is_private);
    TEST(test_interrupted);
    TEST(test_many);
    TEST(test_many_refused);
    TEST(test_lock);
    return test_result();
}
