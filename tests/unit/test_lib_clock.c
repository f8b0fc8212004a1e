/* clock: the system's time, the replaced one, deadlines at the edges, and a time namespace's shift.
 */
#include "clock.h"
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static uint64_t now;

static uint64_t fake_now(void)
{
    return now;
}

static uint64_t system_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return clock_ns(t);
}

static void test_now(void)
{
    uint64_t before = system_now() - (uint64_t)clock_offset();
    uint64_t between = clock_now();
    uint64_t after = system_now() - (uint64_t)clock_offset();

    CHECK(before <= between && between <= after);
}

static void test_fake(void)
{
    clock_fake(fake_now);
    now = 77;
    CHECK_EQ(clock_now(), 77);
    CHECK_EQ(clock_after(3), 80);
    CHECK_EQ(clock_after(CLOCK_NEVER), CLOCK_NEVER);
    now = CLOCK_NEVER - 5;
    CHECK_EQ(clock_after(6), CLOCK_NEVER);
    now = 10 * CLOCK_S;
    CHECK_EQ(clock_ns(clock_rel(12 * CLOCK_S + 5)), 2 * CLOCK_S + 5);
    CHECK_EQ(clock_rel(12 * CLOCK_S + 5).tv_sec, 2);
    CHECK_EQ(clock_ns(clock_rel(9 * CLOCK_S)), 0);
    clock_fake(NULL);
    CHECK(clock_now() != 10 * CLOCK_S);
}

static void test_abs(void)
{
    struct timespec t = clock_abs(3 * CLOCK_S + 9);

    CHECK_EQ(clock_ns(t), 3 * CLOCK_S + 9 + (uint64_t)clock_offset());
    CHECK(clock_abs(CLOCK_NEVER).tv_nsec < 1000000000);
    CHECK(clock_abs(CLOCK_NEVER).tv_sec > 10000000);
}

/* In a child whose namespace is a day ahead; what it sees as host time comes back through the pipe.
 */
static int run_shifted(const char *offset, int out)
{
    uint64_t answer[2];
    int fd;

    if (unshare(CLONE_NEWTIME) < 0)
        return TEST_SKIP;
    fd = open("/proc/self/timens_offsets", O_WRONLY);
    if (fd < 0 || write(fd, offset, strlen(offset)) < 0)
        return TEST_SKIP;
    close(fd);
    /* The maker of the namespace is not in it itself: its offset is still none. */
    clock_init();
    if (clock_offset() != 0)
        return 1;
    if (fork() == 0) {
        clock_init();
        answer[0] = (uint64_t)clock_offset();
        answer[1] = clock_now();
        _exit(write(out, answer, sizeof(answer)) != sizeof(answer));
    }
    wait(NULL);
    return 0;
}

static void check_shifted(const char *offset, int64_t shift)
{
    uint64_t before = system_now(), answer[2] = {0};
    int fd[2], status;
    pid_t child;

    REQUIRE(pipe(fd) == 0);
    child = fork();
    if (child == 0)
        _exit(run_shifted(offset, fd[1]));
    close(fd[1]);
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP) {
        printf("no time namespaces here (or not allowed)\n");
        close(fd[0]);
        return;
    }
    CHECK_EQ(status, 0);
    CHECK_EQ(read(fd[0], answer, sizeof(answer)), sizeof(answer));
    close(fd[0]);
    CHECK_EQ(answer[0], shift);
    CHECK(answer[1] >= before && answer[1] < before + 10 * CLOCK_S);
}

static void test_time_namespace(void)
{
    clock_init();
    if (clock_offset() != 0)
        return; /* nested: the numbers below are those of a child of the host's namespace */
    check_shifted("monotonic 86400 5\n", (int64_t)(86400 * CLOCK_S + 5));
    check_shifted("monotonic -3 0\n", -(int64_t)(3 * CLOCK_S));
}

/* A thread's slack is lent and given back. */
static void test_slack(void)
{
    int before = clock_slack(1);
    CHECK(before >= 0);
    CHECK_EQ(clock_slack(2), 1);
    clock_give_slack(-1);
    CHECK_EQ(clock_slack(1), 2);
    clock_give_slack(before);
    CHECK_EQ(clock_slack(before), before);
}

/* Who shares a CPU with another busy process is taken off it; who sleeps has left it by itself. */
static void test_switches(void)
{
    cpu_set_t all, one;
    pid_t child;
    long before;

    REQUIRE(sched_getaffinity(0, sizeof(all), &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
    child = fork();
    if (child == 0)
        for (uint64_t end = clock_after(10 * CLOCK_S); clock_now() < end;)
            ;
    before = clock_switches();
    for (uint64_t end = clock_after(5 * CLOCK_S); clock_now() < end && clock_switches() == before;)
        ;
    CHECK(clock_switches() > before);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    sched_setaffinity(0, sizeof(all), &all);
}

int main(void)
{
    TEST(test_slack);
    TEST(test_switches);
    TEST(test_time_namespace);
    TEST(test_now);
    TEST(test_fake);
    TEST(test_abs);
    return test_result();
}
