/* config: built-in values, the environment, the node's defaults and ceilings, their order, and
 * every complaint. */
#include "capture.h"
#include "config.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define GI (UINT64_C(1) << 30)
#define TOTAL (UINT64_C(80) * GI)

static char place[64], defaults[80];
static struct capture said;
static struct config config;
static int loaded;
static const unsigned char uuid[16];

/* Starts from nothing: no CUSLICE_ variable but the directory, no defaults file. */
static void reset(void)
{
    for (char **entry = environ; *entry;) {
        char name[128];

        if (strncmp(*entry, "CUSLICE_", 8) != 0) {
            entry++;
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        unsetenv(name);
    }
    setenv("CUSLICE_DIR", place, 1);
    unlink(defaults);
}

/* Loads, and leaves what was said in said.text. */
static void load(void)
{
    capture_begin(&said);
    loaded = config_load(&config);
    capture_end(&said);
}

static void write_defaults(const char *text)
{
    int fd;

    unlink(defaults);
    fd = open(defaults, O_CREAT | O_WRONLY | O_EXCL, 0644);
    REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    REQUIRE(fchmod(fd, 0644) == 0);
    close(fd);
}

static uint64_t cap_of(const struct caps *caps)
{
    return cap_resolve(caps, 0, uuid, TOTAL, config.replicas);
}

static void test_built_in(void)
{
    reset();
    errno = EXDEV;
    load();
    CHECK_EQ(loaded, 0);
    CHECK_STR(said.text, "");
    CHECK_STR(config.dir, place);
    CHECK_EQ(config.log, LOG_WARN);
    CHECK_EQ(config.mode, CONFIG_ENFORCE);
    CHECK_EQ(config.on_error, CONFIG_OPEN);
    CHECK_STR(config.tenant, "");
    CHECK_EQ(config.weight, 100);
    CHECK_EQ(config.quantum, 20 * CLOCK_MS);
    CHECK_EQ(config.allowance, CLOCK_S);
    CHECK_EQ(config.reap_wait, 2 * CLOCK_S);
    CHECK_EQ(config.replicas, 0);
    CHECK_EQ(cap_of(&config.mem_limit), CAP_NONE);
    CHECK_EQ(cap_of(&config.process_mem_limit), CAP_NONE);
    CHECK_EQ(config.origin[CONFIG_weight], CONFIG_BUILT_IN);
    CHECK_EQ(config.origin[CONFIG_dir], CONFIG_ENVIRONMENT);
    capture_begin(&said);
    errno = EXDEV;
    config_load(&config);
    CHECK_EQ(errno, EXDEV);
    capture_end(&said);
}

static void test_directory(void)
{
    reset();
    unsetenv("CUSLICE_DIR");
    load();
    CHECK_STR(config.dir, access("/run/cuslice", F_OK) == 0 ? "/run/cuslice" : "/dev/shm/cuslice");
    setenv("CUSLICE_DIR", "relative/place", 1);
    load();
    CHECK_HAS(said.text, "CUSLICE_DIR=relative/place in environment is not an absolute path");
    CHECK_EQ(config.dir[0], '/');
}

static void test_environment(void)
{
    reset();
    setenv("CUSLICE_LOG", "error", 1);
    setenv("CUSLICE_MODE", "observe", 1);
    setenv("CUSLICE_ON_ERROR", "closed", 1);
    setenv("CUSLICE_TENANT", "team a", 1);
    setenv("CUSLICE_WEIGHT", "10000", 1);
    setenv("CUSLICE_QUANTUM", "1.5", 1);
    setenv("CUSLICE_ALLOWANCE", "50ms", 1);
    setenv("CUSLICE_MEM_LIMIT", "auto", 1);
    setenv("CUSLICE_PROCESS_MEM_LIMIT", "25%", 1);
    setenv("CUSLICE_REPLICAS", "8", 1);
    setenv("CUSLICE_REAP_WAIT", "0", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_STR(said.text, "");
    CHECK_EQ(config.log, LOG_ERROR);
    CHECK_EQ(log_threshold, LOG_ERROR);
    CHECK_EQ(config.mode, CONFIG_OBSERVE);
    CHECK_EQ(config.on_error, CONFIG_CLOSED);
    CHECK_STR(config.tenant, "team a");
    CHECK_EQ(config.weight, 10000);
    CHECK_EQ(config.quantum, 1500 * CLOCK_US);
    CHECK_EQ(config.allowance, 50 * CLOCK_MS);
    CHECK_EQ(cap_of(&config.mem_limit), 10 * GI);
    CHECK_EQ(cap_of(&config.process_mem_limit), 20 * GI);
    CHECK_EQ(config.reap_wait, 0);
    CHECK_EQ(config.origin[CONFIG_weight], CONFIG_ENVIRONMENT);
}

static void test_bad_values_keep_the_default(void)
{
    static const struct {
        const char *name, *value, *form;
    } bad[] = {
        {"CUSLICE_LOG", "loud", "one of error, warn, info, debug; keeping warn"},
        {"CUSLICE_LOG_FILE", "log", "an absolute path"},
        {"CUSLICE_MODE", "Enforce", "one of enforce, observe, off; keeping enforce"},
        {"CUSLICE_ON_ERROR", "maybe", "one of open, closed; keeping open"},
        {"CUSLICE_TENANT", "tab\there", "1 to 63 printable ASCII characters; keeping the default"},
        {"CUSLICE_WEIGHT", "0", "a whole number from 1 to 10000; keeping 100"},
        {"CUSLICE_WEIGHT", "10001", "a whole number from 1 to 10000; keeping 100"},
        {"CUSLICE_WEIGHT", "1e3", "a whole number from 1 to 10000; keeping 100"},
        {"CUSLICE_WEIGHT", "4294967396", "a whole number from 1 to 10000; keeping 100"},
        {"CUSLICE_QUANTUM", "999us", "from 1ms to 10s; keeping 20ms"},
        {"CUSLICE_QUANTUM", "10001ms", "from 1ms to 10s; keeping 20ms"},
        {"CUSLICE_QUANTUM", "20 ms", "from 1ms to 10s; keeping 20ms"},
        {"CUSLICE_ALLOWANCE", "49", "from 50ms to 60s; keeping 1s"},
        {"CUSLICE_REPLICAS", "257", "a whole number from 1 to 256; keeping the default"},
        {"CUSLICE_REAP_WAIT", "-1", "from 0s to 60s; keeping 2s"},
    };

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        reset();
        setenv(bad[i].name, bad[i].value, 1);
        load();
        CHECK_EQ(loaded, 0);
        CHECK_EQ(capture_lines(&said), 1);
        CHECK_HAS(said.text, bad[i].name);
        CHECK_HAS(said.text, bad[i].form);
        CHECK_HAS(said.text, " warn: ");
        CHECK_HAS(said.text, "[config-value]");
        CHECK_EQ(config_check(bad[i].name, bad[i].value), -EINVAL);
    }
    CHECK_EQ(config.reap_wait, 2 * CLOCK_S);
}

static void test_tenant_length(void)
{
    char name[80];

    memset(name, 'n', sizeof(name));
    name[63] = '\0';
    reset();
    setenv("CUSLICE_TENANT", name, 1);
    load();
    CHECK_STR(config.tenant, name);
    name[63] = 'n';
    name[64] = '\0';
    setenv("CUSLICE_TENANT", name, 1);
    load();
    CHECK_STR(config.tenant, "");
    CHECK_EQ(capture_lines(&said), 1);
}

static void test_empty_is_unset(void)
{
    reset();
    setenv("CUSLICE_WEIGHT", "", 1);
    setenv("CUSLICE_LOG_FILE", "", 1);
    setenv("CUSLICE_TENANT", "", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_STR(said.text, "");
    CHECK_EQ(config.weight, 100);
}

/* Case 18 of the field: a bad cap is one line with the accepted forms, and never uncapped. */
static void test_bad_caps_are_refused(void)
{
    static const char *const bad[] = {"abc", "-1", "12 apples", "1e3", "", "0:4Gi,0:8Gi", "4.5"};
    static const char *const name[] = {"CUSLICE_MEM_LIMIT", "CUSLICE_PROCESS_MEM_LIMIT"};

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        for (unsigned k = 0; k < 2; k++) {
            reset();
            setenv(name[k], bad[i], 1);
            load();
            CHECK_EQ(loaded, -EINVAL);
            CHECK_EQ(capture_lines(&said), 1);
            CHECK_HAS(said.text, " error: ");
            CHECK_HAS(said.text, name[k]);
            CHECK_HAS(said.text, bad[i]);
            CHECK_HAS(said.text, CAP_FORMS);
            CHECK_EQ(cap_of(k ? &config.process_mem_limit : &config.mem_limit), 0);
        }
    }
}

/* The accepted forms are said however long the text was. */
static void test_long_bad_cap(void)
{
    static char text[4000];

    memset(text, 'z', sizeof(text) - 1);
    reset();
    setenv("CUSLICE_MEM_LIMIT", text, 1);
    load();
    CHECK_EQ(loaded, -EINVAL);
    CHECK_EQ(capture_lines(&said), 1);
    CHECK_HAS(said.text, CAP_FORMS);
}

static void test_auto_needs_replicas(void)
{
    reset();
    setenv("CUSLICE_MEM_LIMIT", "auto", 1);
    load();
    CHECK_EQ(loaded, -EINVAL);
    CHECK_HAS(said.text, "CUSLICE_MEM_LIMIT=auto (without CUSLICE_REPLICAS)");
    CHECK_EQ(cap_of(&config.mem_limit), 0);
    write_defaults("CUSLICE_REPLICAS=4\n");
    load();
    CHECK_EQ(loaded, 0);
    CHECK_EQ(cap_of(&config.mem_limit), 20 * GI);
}

static void test_unknown_names(void)
{
    reset();
    setenv("CUSLICE_WIEGHT", "50", 1);
    setenv("CUSLICE_MEMLIMIT", "4Gi", 1);
    setenv("CUSLICE_WEIGHT_MAX", "7", 1);
    setenv("CUSLICE_SO", "/some/where", 1);
    setenv("NOT_CUSLICE_THING", "1", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_EQ(capture_lines(&said), 3);
    CHECK_HAS(said.text,
              "CUSLICE_WIEGHT in the environment is no setting of cuslice; the nearest is "
              "CUSLICE_WEIGHT [config-unknown]");
    CHECK_HAS(said.text,
              "CUSLICE_MEMLIMIT in the environment is no setting of cuslice; the nearest "
              "is CUSLICE_MEM_LIMIT [config-unknown]");
    CHECK_HAS(said.text, "CUSLICE_WEIGHT_MAX counts in the node's defaults file only");
    CHECK_EQ(config.weight, 100);
    CHECK_EQ(config.weight_ceiling, 0);
    unsetenv("NOT_CUSLICE_THING");
}

static void test_very_long_name(void)
{
    char name[5000];

    memset(name, 'X', sizeof(name));
    memcpy(name, "CUSLICE_", 8);
    name[sizeof(name) - 1] = '\0';
    reset();
    setenv(name, "1", 1);
    load();
    CHECK_EQ(capture_lines(&said), 1);
    CHECK_HAS(said.text, "[config-unknown]");
    unsetenv(name);
}

static void test_node_defaults(void)
{
    reset();
    write_defaults("# the node's own values\n"
                   "\n"
                   "CUSLICE_WEIGHT=50\n"
                   "  CUSLICE_QUANTUM = 5ms \r\n"
                   "CUSLICE_MEM_LIMIT=4Gi\n"
                   "CUSLICE_LOG=error");
    setenv("CUSLICE_QUANTUM", "7ms", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_STR(said.text, "");
    CHECK_EQ(config.weight, 50);
    CHECK_EQ(config.origin[CONFIG_weight], CONFIG_NODE);
    CHECK_EQ(config.quantum, 7 * CLOCK_MS);
    CHECK_EQ(config.origin[CONFIG_quantum], CONFIG_ENVIRONMENT);
    CHECK_EQ(config.allowance, CLOCK_S);
    CHECK_EQ(cap_of(&config.mem_limit), 4 * GI);
    CHECK_EQ(log_threshold, LOG_ERROR);
    setenv("CUSLICE_LOG", "warn", 1);
    setenv("CUSLICE_MEM_LIMIT", "none", 1);
    load();
    CHECK_EQ(log_threshold, LOG_WARN);
    CHECK_EQ(cap_of(&config.mem_limit), CAP_NONE);
}

static void test_bad_node_defaults(void)
{
    reset();
    write_defaults("CUSLICE_WEIGHT=heavy\nCUSLICE_WAIT=1\nno equals sign\nCUSLICE_DIR=/x\n"
                   "CUSLICE_ALLOWANCE=2s\n");
    load();
    CHECK_EQ(loaded, 0);
    CHECK_EQ(capture_lines(&said), 4);
    CHECK_HAS(said.text, "CUSLICE_WEIGHT=heavy in node defaults is not a whole number");
    CHECK_HAS(said.text, "CUSLICE_WAIT in node defaults is no setting");
    CHECK_HAS(said.text, "line 3 of the node defaults");
    CHECK_HAS(said.text, "CUSLICE_DIR cannot be set");
    CHECK_EQ(config.weight, 100);
    CHECK_EQ(config.allowance, 2 * CLOCK_S);
    write_defaults("CUSLICE_MEM_LIMIT_MAX=lots\n");
    load();
    CHECK_EQ(loaded, -EINVAL);
    CHECK_EQ(cap_of(&config.mem_limit), 0);
}

static void check_untrusted(void)
{
    setenv("CUSLICE_WEIGHT", "7", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_EQ(capture_lines(&said), 1);
    CHECK_HAS(said.text, "/defaults ignored");
    CHECK_HAS(said.text, "[config-untrusted]");
    CHECK_EQ(config.weight_ceiling, 0);
    CHECK_EQ(config.weight, 7);
}

static void test_untrusted_defaults(void)
{
    char target[96];

    reset();
    write_defaults("CUSLICE_WEIGHT_MAX=5\n");
    chmod(defaults, 0664);
    check_untrusted();
    chmod(defaults, 0646);
    check_untrusted();
    chmod(defaults, 0644);
    snprintf(target, sizeof(target), "%s/elsewhere", place);
    REQUIRE(rename(defaults, target) == 0 && symlink(target, defaults) == 0);
    check_untrusted();
    unlink(target);
    unlink(defaults);
    REQUIRE(mkfifo(defaults, 0644) == 0);
    check_untrusted();
    unlink(defaults);
    REQUIRE(mkdir(defaults, 0755) == 0);
    check_untrusted();
    rmdir(defaults);
    if (geteuid() == 0) {
        write_defaults("CUSLICE_WEIGHT_MAX=5\n");
        REQUIRE(chown(defaults, 12345, (gid_t)-1) == 0);
        check_untrusted();
        REQUIRE(chown(place, 12345, (gid_t)-1) == 0);
        load();
        CHECK_EQ(config.weight, 5);
        REQUIRE(chown(place, 0, (gid_t)-1) == 0);
    }
}

/* A file of defaults that is another user's does not say where this process writes. */
static void test_log_file_of_another(void)
{
    reset();
    write_defaults("CUSLICE_LOG_FILE=/nowhere/log\nCUSLICE_WEIGHT=7\n");
    load();
    CHECK_STR(config.log_file, "/nowhere/log");
    if (geteuid() != 0)
        return;
    REQUIRE(chown(defaults, 12345, (gid_t)-1) == 0 && chown(place, 12345, (gid_t)-1) == 0);
    load();
    CHECK_STR(config.log_file, "");
    CHECK_EQ(config.origin[CONFIG_log_file], CONFIG_BUILT_IN);
    CHECK_EQ(config.weight, 7);
    CHECK_EQ(capture_lines(&said), 1);
    CHECK_HAS(said.text, "is another user's; ignored [config-value]");
    REQUIRE(chown(place, 0, (gid_t)-1) == 0);
}

static void test_too_large_defaults(void)
{
    static char text[20000];

    memset(text, '#', sizeof(text) - 1);
    reset();
    write_defaults(text);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_HAS(said.text, "/defaults ignored: File too large [config-unread]");
}

static void test_ceilings(void)
{
    reset();
    write_defaults("CUSLICE_WEIGHT_MAX=200\nCUSLICE_MEM_LIMIT_MAX=8Gi\n"
                   "CUSLICE_PROCESS_MEM_LIMIT_MAX=50%\n");
    load();
    CHECK_STR(said.text, "");
    CHECK_EQ(config.weight, 100);
    CHECK_EQ(cap_of(&config.mem_limit), 8 * GI);
    CHECK_EQ(cap_of(&config.process_mem_limit), 40 * GI);
    setenv("CUSLICE_WEIGHT", "300", 1);
    setenv("CUSLICE_MEM_LIMIT", "16Gi", 1);
    setenv("CUSLICE_PROCESS_MEM_LIMIT", "60%", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_EQ(capture_lines(&said), 3);
    CHECK_HAS(said.text, "CUSLICE_WEIGHT=300 lowered to this node's ceiling, 200 [config-lowered]");
    CHECK_HAS(said.text, "CUSLICE_MEM_LIMIT=16Gi lowered to this node's ceiling, 8Gi");
    CHECK_HAS(said.text, "CUSLICE_PROCESS_MEM_LIMIT=60% lowered to this node's ceiling, 50%");
    CHECK_EQ(config.weight, 200);
    CHECK_EQ(cap_of(&config.mem_limit), 8 * GI);
    CHECK_EQ(cap_of(&config.process_mem_limit), 40 * GI);
    setenv("CUSLICE_MEM_LIMIT", "none", 1);
    setenv("CUSLICE_WEIGHT", "200", 1);
    setenv("CUSLICE_PROCESS_MEM_LIMIT", "1Gi", 1);
    load();
    CHECK_STR(said.text, "");
    CHECK_EQ(cap_of(&config.mem_limit), 8 * GI);
    CHECK_EQ(cap_of(&config.process_mem_limit), GI);
    write_defaults("CUSLICE_WEIGHT_MAX=10\n");
    unsetenv("CUSLICE_WEIGHT");
    load();
    CHECK_EQ(config.weight, 10); /* the built-in weight obeys as well */
}

static void test_limit_and_priority(void)
{
    static const struct {
        const char *text;
        unsigned parts;
    } good[] = {{"50", 500000}, {"50%", 500000}, {"12.5%", 125000}, {"1", 10000}, {"100", 1000000}};
    static const char *const bad[] = {"0", "0.99", "101", "100.01%", "abc", "-5", "50 %", "5e1"};

    reset();
    load();
    CHECK(config.limit == 1000000 && config.priority == CONFIG_NORMAL);
    for (unsigned i = 0; i < 5; i++) {
        setenv("CUSLICE_LIMIT", good[i].text, 1);
        load();
        CHECK_STR(said.text, "");
        CHECK_EQ(config.limit, good[i].parts);
    }
    for (unsigned i = 0; i < 8; i++) {
        setenv("CUSLICE_LIMIT", bad[i], 1);
        load();
        CHECK_EQ(loaded, 0);
        CHECK_HAS(said.text, "a percentage (50, 50%, 12.5%) from 1% to 100%; keeping 100%");
        CHECK_EQ(config.limit, 1000000);
    }
    setenv("CUSLICE_LIMIT", "70", 1);
    setenv("CUSLICE_PRIORITY", "high", 1);
    load();
    CHECK_STR(said.text, "");
    CHECK_EQ(config.priority, CONFIG_HIGH);
    setenv("CUSLICE_PRIORITY", "highest", 1);
    load();
    CHECK_HAS(said.text, "is not one of low, normal, high; keeping normal");
    CHECK_EQ(config.priority, CONFIG_NORMAL);
}

static void test_limit_and_priority_ceilings(void)
{
    reset();
    write_defaults("CUSLICE_LIMIT_MAX=60%\nCUSLICE_PRIORITY_MAX=normal\n");
    load();
    CHECK_STR(said.text, "");
    CHECK(config.limit == 600000 && config.priority == CONFIG_NORMAL);
    setenv("CUSLICE_LIMIT", "70", 1);
    setenv("CUSLICE_PRIORITY", "high", 1);
    load();
    CHECK_EQ(capture_lines(&said), 2);
    CHECK_HAS(said.text, "CUSLICE_LIMIT=70% lowered to this node's ceiling, 60% [config-lowered]");
    CHECK_HAS(said.text, "CUSLICE_PRIORITY is lowered to this node's ceiling [config-lowered]");
    CHECK(config.limit == 600000 && config.priority == CONFIG_NORMAL);
    setenv("CUSLICE_LIMIT", "20", 1);
    setenv("CUSLICE_PRIORITY", "low", 1);
    load();
    CHECK_STR(said.text, "");
    CHECK(config.limit == 200000 && config.priority == CONFIG_LOW);
    write_defaults("CUSLICE_PRIORITY_MAX=low\nCUSLICE_PRIORITY=high\n");
    unsetenv("CUSLICE_PRIORITY");
    load();
    CHECK_STR(said.text, "");
    CHECK_EQ(config.priority, CONFIG_LOW);
    setenv("CUSLICE_PRIORITY_MAX", "high", 1);
    load();
    CHECK_HAS(said.text, "config-ceiling");
    CHECK_EQ(config.priority, CONFIG_LOW);
}

static void test_oversubscribe_ceiling(void)
{
    reset();
    setenv("CUSLICE_OVERSUBSCRIBE", "1", 1);
    load();
    CHECK_STR(said.text, "");
    CHECK_EQ(config.oversubscribe, 1);
    write_defaults("CUSLICE_OVERSUBSCRIBE_MAX=0\n");
    load();
    CHECK_HAS(said.text, "CUSLICE_OVERSUBSCRIBE is not allowed on this node [config-lowered]");
    CHECK_EQ(config.oversubscribe, 0);
    write_defaults("CUSLICE_OVERSUBSCRIBE_MAX=1\n");
    load();
    CHECK_STR(said.text, "");
    CHECK_EQ(config.oversubscribe, 1);
    write_defaults("CUSLICE_OVERSUBSCRIBE_MAX=2\n");
    load();
    CHECK_HAS(said.text, "is not one of none, 0, 1");
}

/* A process cannot raise an `auto` ceiling by claiming fewer replicas. */
static void test_auto_ceiling(void)
{
    reset();
    write_defaults("CUSLICE_MEM_LIMIT_MAX=auto\nCUSLICE_REPLICAS=8\n");
    setenv("CUSLICE_REPLICAS", "1", 1);
    setenv("CUSLICE_MEM_LIMIT", "auto", 1);
    load();
    CHECK_EQ(loaded, 0);
    CHECK_EQ(config.replicas, 1);
    CHECK_EQ(cap_of(&config.mem_limit), 10 * GI);
    CHECK_HAS(said.text, "CUSLICE_MEM_LIMIT=auto lowered");
    write_defaults("CUSLICE_MEM_LIMIT_MAX=auto\n");
    load();
    CHECK_EQ(loaded, -EINVAL);
    CHECK_EQ(cap_of(&config.mem_limit), 0);
}

static void test_log_file(void)
{
    char name[80], text[512] = "";
    int fd;

    reset();
    snprintf(name, sizeof(name), "%s/log", place);
    setenv("CUSLICE_LOG_FILE", name, 1);
    setenv("CUSLICE_WEIGHT", "none", 1);
    load();
    CHECK_STR(said.text, "");
    fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    CHECK_HAS(text, "[config-value]\n");
    unlink(name);
    unsetenv("CUSLICE_LOG_FILE");
    load();
}

static void test_check(void)
{
    CHECK_EQ(config_check("CUSLICE_WEIGHT", "5"), 0);
    CHECK_EQ(config_check("CUSLICE_MEM_LIMIT_MAX", "5Gi"), 0);
    CHECK_EQ(config_check("CUSLICE_MEM_LIMIT", "5 Gi"), -EINVAL);
    CHECK_EQ(config_check("CUSLICE_NOTHING", "5"), -ENOENT);
}

struct listing {
    char text[8192];
    size_t used;
    unsigned rows;
};

static int list_row(const struct config_row *row, void *arg)
{
    struct listing *l = arg;

    l->rows++;
    l->used += (size_t)snprintf(l->text + l->used, sizeof(l->text) - l->used, "%s=%s (%s)\n",
                                row->name, row->value, row->origin);
    return *row->help ? 0 : 1;
}

static int stop_at_second(const struct config_row *row, void *arg)
{
    (void)row;
    return ++*(int *)arg == 2 ? 9 : 0;
}

static void test_each(void)
{
    static struct listing l;
    int seen = 0;

    reset();
    write_defaults("CUSLICE_MEM_LIMIT_MAX=8Gi\nCUSLICE_QUANTUM=5ms\n");
    setenv("CUSLICE_MEM_LIMIT", "0:4096m,1:25%", 1);
    setenv("CUSLICE_MODE", "off", 1);
    load();
    CHECK_EQ(config_each(&config, list_row, &l), 0);
    CHECK_EQ(l.rows, CONFIG_COUNT + 1);
    CHECK_HAS(l.text, "CUSLICE_MEM_LIMIT=0:4Gi,1:25% (environment)\n");
    CHECK_HAS(l.text, "CUSLICE_MEM_LIMIT_MAX=8Gi (node defaults)\n");
    CHECK_HAS(l.text, "CUSLICE_QUANTUM=5ms (node defaults)\n");
    CHECK_HAS(l.text, "CUSLICE_MODE=off (environment)\n");
    CHECK_HAS(l.text, "CUSLICE_REPLICAS= (built-in)\n");
    CHECK_HAS(l.text, "CUSLICE_WEIGHT=100 (built-in)\n");
    CHECK_EQ(config_each(&config, stop_at_second, &seen), 9);
    CHECK_EQ(seen, 2);
}

/* What the tool sets for others: one option, by the same rules, and no ceiling over it. */
static void test_put(void)
{
    struct config other = {.weight = 5, .weight_ceiling = 10};
    char forms[CONFIG_TEXT_MAX];

    CHECK_EQ(config_put(&other, "CUSLICE_WEIGHT", "70"), 0);
    CHECK_EQ(other.weight, 70);
    CHECK_EQ(config_put(&other, "CUSLICE_WEIGHT", "10001"), -EINVAL);
    CHECK_EQ(config_put(&other, "CUSLICE_WEIGHT", ""), -EINVAL);
    CHECK_EQ(other.weight, 70);
    CHECK_EQ(config_put(&other, "CUSLICE_WEIGHT_MAX", "5"), -ENOENT);
    CHECK_EQ(config_put(&other, "CUSLICE_MEM_LIMIT", "1e3"), -EINVAL);
    CHECK_EQ(config_put(&other, "CUSLICE_MEM_LIMIT", "25%"), 0);
    CHECK_EQ(other.mem_limit.asked.count, 1);
    CHECK_EQ(config_put(&other, "CUSLICE_MEM_LIMIT", "none"), 0);
    CHECK_EQ(other.mem_limit.asked.count, 0);
    config_describe("CUSLICE_QUANTUM", forms, sizeof(forms));
    CHECK_HAS(forms, "1ms to 10s");
    config_describe("CUSLICE_NOTHING", forms, sizeof(forms));
    CHECK_STR(forms, "");
}

/* The same settings, without a word, and without a change to what is said by others. */
static void test_peek(void)
{
    static struct config quiet;

    reset();
    setenv("CUSLICE_MEM_LIMIT", "4 pears", 1);
    setenv("CUSLICE_WEIGHT", "heavy", 1);
    setenv("CUSLICE_WEIHGT", "3", 1);
    setenv("CUSLICE_LOG", "debug", 1);
    write_defaults("CUSLICE_REPLICAS=4\nnonsense\n");
    log_open(LOG_WARN, NULL);
    capture_begin(&said);
    CHECK_EQ(config_peek(&quiet), -EINVAL);
    CHECK_STR(capture_end(&said), "");
    CHECK(!log_enabled(LOG_INFO));
    load();
    CHECK(capture_lines(&said) >= 4);
    CHECK_EQ(loaded, -EINVAL);
    CHECK(memcmp(&quiet, &config, sizeof(config)) == 0);
    setenv("CUSLICE_MEM_LIMIT", "auto", 1);
    CHECK_EQ(config_peek(&config), 0);
    CHECK_EQ(cap_of(&config.mem_limit), TOTAL / 4);
    log_open(LOG_WARN, NULL);
}

int main(void)
{
    strcpy(place, "/tmp/config-XXXXXX");
    REQUIRE(mkdtemp(place));
    snprintf(defaults, sizeof(defaults), "%s/defaults", place);
    TEST(test_built_in);
    TEST(test_directory);
    TEST(test_environment);
    TEST(test_bad_values_keep_the_default);
    TEST(test_tenant_length);
    TEST(test_empty_is_unset);
    TEST(test_bad_caps_are_refused);
    TEST(test_long_bad_cap);
    TEST(test_auto_needs_replicas);
    TEST(test_unknown_names);
    TEST(test_very_long_name);
    TEST(test_node_defaults);
    TEST(test_bad_node_defaults);
    TEST(test_untrusted_defaults);
    TEST(test_log_file_of_another);
    TEST(test_too_large_defaults);
    TEST(test_ceilings);
    TEST(test_limit_and_priority);
    TEST(test_limit_and_priority_ceilings);
    TEST(test_oversubscribe_ceiling);
    TEST(test_auto_ceiling);
    TEST(test_log_file);
    TEST(test_check);
    TEST(test_each);
    TEST(test_peek);
    unlink(defaults);
    rmdir(place);
    TEST(test_put);
    return test_result();
}
