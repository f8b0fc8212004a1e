/* log: the line's form, one write per line, errno, levels, long and hostile texts, closed pipes,
 * files. */
#include "capture.h"
#include "clock.h"
#include "log.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct capture said;
static uint64_t now;

static uint64_t fake_now(void)
{
    return now;
}

static void test_form(void)
{
    char wanted[128];

    log_open(LOG_WARN, NULL);
    capture_begin(&said);
    log_warn("ring-full", "no place for %d of %s", 3, "them");
    snprintf(wanted, sizeof(wanted), "cuslice[%d] warn: no place for 3 of them [ring-full]\n",
             (int)getpid());
    CHECK_STR(capture_end(&said), wanted);
}

static void test_levels(void)
{
    log_open(LOG_WARN, NULL);
    capture_begin(&said);
    log_error("a", "x");
    log_warn("b", "x");
    log_info("c", "x");
    log_debug("d", "x");
    CHECK_EQ((capture_end(&said), capture_lines(&said)), 2);
    CHECK_HAS(said.text, "error: x [a]");
    log_open(LOG_DEBUG, NULL);
    capture_begin(&said);
    log_info("c", "x");
    log_debug("d", "x");
    CHECK_EQ((capture_end(&said), capture_lines(&said)), 2);
    log_open(LOG_WARN, NULL);
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static void test_disabled_costs_nothing(void)
{
    log_open(LOG_WARN, NULL);
    log_info("x", "%d", evaluate());
    CHECK_EQ(evaluated, 0);
}

static void test_errno(void)
{
    capture_begin(&said);
    errno = ENOSPC;
    log_warn("x", "could not: %m");
    CHECK_EQ(errno, ENOSPC);
    log_open(LOG_WARN, "/nonexistent/place/log");
    CHECK_EQ(errno, ENOSPC);
    log_warn("x", "file: %m");
    CHECK_EQ(errno, ENOSPC);
    log_open(LOG_WARN, NULL);
    capture_end(&said);
    CHECK_HAS(said.text, "could not: No space left on device [x]");
    CHECK_HAS(said.text, "file: No space left on device [x]");
}

/* A line that cannot be written is lost, and nothing else. */
static void test_closed_stderr(void)
{
    int kept = dup(STDERR_FILENO);

    REQUIRE(kept >= 0);
    close(STDERR_FILENO);
    errno = EXDEV;
    log_warn("x", "to nobody");
    CHECK_EQ(errno, EXDEV);
    REQUIRE(dup2(kept, STDERR_FILENO) == STDERR_FILENO);
    close(kept);
}

static void test_long_and_hostile(void)
{
    char text[4000];

    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    capture_begin(&said);
    log_warn("long-one", "%s", text);
    log_warn("forged", "a\ncuslice[1] error: b\r\x1b[2J\x7f");
    capture_end(&said);
    CHECK_EQ(capture_lines(&said), 2);
    CHECK_EQ(strcspn(said.text, "\n"), LOG_LINE_MAX - 1 - 1);
    CHECK_HAS(said.text, "yyy... [long-one]\n");
    CHECK_HAS(said.text, "a?cuslice[1] error: b??[2J? [forged]\n");
}

static void *chatter(void *arg)
{
    for (unsigned i = 0; i < 500; i++)
        log_warn("thread", "%s", (const char *)arg);
    return NULL;
}

static void test_whole_lines(void)
{
    pthread_t thread[2];
    static const char *const text[] = {"aaaaaaaaaaaaaaaa", "bbbbbbbb"};
    static char seen[CAPTURE_MAX];
    char *rest = seen, *line;
    unsigned good = 0;

    capture_begin(&said);
    for (unsigned i = 0; i < 2; i++)
        REQUIRE(pthread_create(&thread[i], NULL, chatter, (void *)text[i]) == 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    strcpy(seen, capture_end(&said));
    while ((line = strsep(&rest, "\n")) && *line)
        good += strstr(line, "warn: aaaaaaaaaaaaaaaa [thread]") ||
                strstr(line, "warn: bbbbbbbb [thread]");
    CHECK_EQ(good, 1000);
}

/* A program that never writes to its closed stderr must not be ended by our writing there. */
static void test_closed_pipe(void)
{
    int fd[2], status;
    pid_t child;

    REQUIRE(pipe(fd) == 0);
    close(fd[0]);
    child = fork();
    if (child == 0) {
        sigset_t pending;

        dup2(fd[1], STDERR_FILENO);
        log_warn("x", "into nothing");
        sigpending(&pending);
        _exit(sigismember(&pending, SIGPIPE) ? 1 : 0);
    }
    close(fd[1]);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

/* A relative name stays where it was meant although the program moves and closes everything. */
static void test_file(void)
{
    char place[] = "/tmp/log-XXXXXX", name[64], text[512] = "", back[PATH_MAX];
    int fd;

    REQUIRE(mkdtemp(place) && getcwd(back, sizeof(back)) && chdir(place) == 0);
    log_open(LOG_WARN, "here.log");
    REQUIRE(chdir("/") == 0);
    capture_begin(&said);
    log_warn("one", "first");
    log_warn("two", "second");
    CHECK_STR(capture_end(&said), "");
    log_open(LOG_WARN, NULL);
    snprintf(name, sizeof(name), "%s/here.log", place);
    fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    CHECK_HAS(text, "first [one]\n");
    CHECK_HAS(text, "second [two]\n");
    unlink(name);
    rmdir(place);
    REQUIRE(chdir(back) == 0);
}

static void test_file_that_cannot_be(void)
{
    log_open(LOG_WARN, "/nonexistent/place/log");
    capture_begin(&said);
    log_warn("x", "still said");
    CHECK_HAS(capture_end(&said), "still said [x]\n");
    log_open(LOG_WARN, NULL);
}

static void test_every(void)
{
    struct log_rate rate = {0};
    unsigned suppressed = 99;

    clock_fake(fake_now);
    now = 5 * CLOCK_S;
    CHECK(log_every(&rate, CLOCK_S, &suppressed));
    CHECK_EQ(suppressed, 0);
    CHECK(!log_every(&rate, CLOCK_S, &suppressed));
    now += CLOCK_S - 1;
    CHECK(!log_every(&rate, CLOCK_S, &suppressed));
    now += 1;
    CHECK(log_every(&rate, CLOCK_S, &suppressed));
    CHECK_EQ(suppressed, 2);
    now += 10 * CLOCK_S;
    CHECK(log_every(&rate, CLOCK_S, &suppressed));
    CHECK_EQ(suppressed, 0);
    clock_fake(NULL);
}

static void *test_hush_another(void *unused)
{
    (void)unused;
    log_warn("other", "from another thread");
    return NULL;
}

/* One thread's silence is its own, and leaves the level and the file as they were. */
static void test_hush(void)
{
    pthread_t other;

    log_open(LOG_WARN, NULL);
    capture_begin(&said);
    log_hush(true);
    errno = EXDEV;
    log_error("x", "not said");
    log_open(LOG_DEBUG, "/nonexistent/place/log");
    CHECK_EQ(errno, EXDEV);
    REQUIRE(pthread_create(&other, NULL, test_hush_another, NULL) == 0);
    REQUIRE(pthread_join(other, NULL) == 0);
    log_hush(false);
    log_info("x", "below the level");
    log_warn("y", "said again");
    capture_end(&said);
    CHECK_EQ(capture_lines(&said), 2);
    CHECK_HAS(said.text, "from another thread [other]\n");
    CHECK_HAS(said.text, "said again [y]\n");
}

int main(void)
{
    TEST(test_hush);
    TEST(test_form);
    TEST(test_levels);
    TEST(test_disabled_costs_nothing);
    TEST(test_errno);
    TEST(test_closed_stderr);
    TEST(test_long_and_hostile);
    TEST(test_whole_lines);
    TEST(test_closed_pipe);
    TEST(test_file);
    TEST(test_file_that_cannot_be);
    TEST(test_every);
    return test_result();
}
