/* `cuslice run`: starts a program under the library.
 *
 * Works out the environment and execs, so that the program keeps the tool's process id, terminal
 * and parent, and its exit code is the program's own. Values are checked here with the library's
 * own parser: a mistake is told before the program starts, not in the middle of its output.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cap.h"
#include "ctl.h"
#include "environment.h"
#include "tenant.h"

#define RUN_LIBRARY "libcuslice.so"

const char run_help[] =
    "usage: cuslice run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts PROGRAM with libcuslice.so preloaded. PROGRAM and all it starts are one tenant: they\n"
    "share one memory cap and one share of GPU time. Inside a container the container is the\n"
    "tenant, however many programs are started in it, unless --tenant says otherwise.\n"
    "\n"
    "  --mem CAP            cap on the tenant's device memory (CUSLICE_MEM_LIMIT)\n"
    "  --process-mem CAP    cap on each process's besides (CUSLICE_PROCESS_MEM_LIMIT)\n"
    "  --weight N           share of GPU time relative to others, 1 to 10000 (CUSLICE_WEIGHT)\n"
    "  --limit PERCENT      ceiling on the part of GPU time, 1 to 100 (CUSLICE_LIMIT)\n"
    "  --priority CLASS     high, normal or low (CUSLICE_PRIORITY)\n"
    "  --tenant NAME        join this tenant instead of a new one (CUSLICE_TENANT)\n"
    "  --gang NAME          have this tenant's GPUs at the same time (CUSLICE_GANG)\n"
    "  --mode MODE          enforce, observe or off (CUSLICE_MODE)\n"
    "  --quantum TIME       slice length if this program makes the ring (CUSLICE_QUANTUM)\n"
    "  --allowance TIME     time to drain if it makes the ring (CUSLICE_ALLOWANCE)\n"
    "  --replicas N         what 'auto' caps divide by (CUSLICE_REPLICAS)\n"
    "  --oversubscribe 1    more memory than the device has, in pages (CUSLICE_OVERSUBSCRIBE)\n"
    "  --on-error POLICY    open or closed: what to do without a ring (CUSLICE_ON_ERROR)\n"
    "  --log LEVEL          error, warn, info or debug (CUSLICE_LOG)\n"
    "  --dir DIRECTORY      ring directory (CUSLICE_DIR)\n"
    "  --lib PATH           the libcuslice.so to preload (CUSLICE_SO); without it the one beside\n"
    "                       this tool, in ../lib, /usr/local/lib, /usr/lib or /usr/lib64\n"
    "\n"
    "CAP is " CAP_FORMS ".\n"
    "TIME is 20ms, 500us or 1.5s.\n"
    "What is not given here is left as the environment has it. A CUSLICE_TENANT that is already\n"
    "set is kept; otherwise, on the host, a name that nobody else has is made.\n"
    "\n"
    "Ends with PROGRAM's exit code; 126 when it cannot be executed, 127 when it is not found.\n"
    "\n"
    "Example: cuslice run --mem 4Gi --weight 50 -- python train.py\n";

/* Options whose text goes into one setting. */
struct run_option {
    const char *option;
    const char *setting;
};

static const struct run_option run_options[] = {
    {"mem", "CUSLICE_MEM_LIMIT"},
    {"process-mem", "CUSLICE_PROCESS_MEM_LIMIT"},
    {"weight", "CUSLICE_WEIGHT"},
    {"limit", "CUSLICE_LIMIT"},
    {"priority", "CUSLICE_PRIORITY"},
    {"tenant", "CUSLICE_TENANT"},
    {"gang", "CUSLICE_GANG"},
    {"mode", "CUSLICE_MODE"},
    {"quantum", "CUSLICE_QUANTUM"},
    {"allowance", "CUSLICE_ALLOWANCE"},
    {"replicas", "CUSLICE_REPLICAS"},
    {"oversubscribe", "CUSLICE_OVERSUBSCRIBE"},
    {"on-error", "CUSLICE_ON_ERROR"},
    {"log", "CUSLICE_LOG"},
};
enum { RUN_OPTIONS = sizeof(run_options) / sizeof(run_options[0]) };

/* An absolute path, because the program may change its directory before it uses it. */
static int run_absolute(const char *path, char absolute[PATH_MAX])
{
    char here[PATH_MAX] = "";
    int length;

    if (path[0] != '/' && !getcwd(here, sizeof(here)))
        return ctl_fail("cannot tell the current directory: %s", strerror(errno));
    length = snprintf(absolute, PATH_MAX, "%s%s%s", here, here[0] ? "/" : "", path);
    if (length >= PATH_MAX)
        return ctl_fail("path too long: %s", path);
    return CTL_OK;
}

static int run_use_library(const char *path, char library[PATH_MAX])
{
    char plain[PATH_MAX];

    if (run_absolute(path, plain))
        return CTL_FAILED;
    if (!realpath(plain, library) || access(library, R_OK) < 0)
        return ctl_fail("cannot read the library %s: %s", path, strerror(errno));
    if (strpbrk(library, " :"))
        return ctl_fail("the library's path may hold no blank or colon, or it cannot be preloaded: "
                        "%s",
                        library);
    return CTL_OK;
}

/* The directory of the tool itself; "." should /proc not tell. */
static void run_here(char here[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", here, PATH_MAX - 1);
    here[length > 0 ? length : 0] = 0;
    char *slash = strrchr(here, '/');

    if (slash)
        *slash = 0;
    else
        strcpy(here, ".");
}

/* Beside the tool: in a build tree both lie in one directory, installed they lie in bin and lib. */
static int run_find_library(char library[PATH_MAX])
{
    char here[PATH_MAX];
    char lib[PATH_MAX + 8];
    run_here(here);
    snprintf(lib, sizeof(lib), "%s/../lib", here);
    const char *const places[] = {here, lib, "/usr/local/lib", "/usr/lib", "/usr/lib64"};

    for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char path[PATH_MAX + 32];
        snprintf(path, sizeof(path), "%s/" RUN_LIBRARY, places[i]);
        if (access(path, R_OK) == 0)
            return run_use_library(path, library);
    }
    return ctl_fail("no " RUN_LIBRARY " in %s, %s, /usr/local/lib, /usr/lib or /usr/lib64; name it "
                    "with --lib",
                    here, lib);
}

/* Whether an entry of LD_PRELOAD is the library in some place: two copies of it in one process
 * would gate each launch twice. */
static bool run_is_library(const char *entry, size_t length)
{
    size_t name = strlen(RUN_LIBRARY);

    return length >= name && strncmp(entry + length - name, RUN_LIBRARY, name) == 0 &&
           (length == name || entry[length - name - 1] == '/');
}

/* Ours goes first, so that its dlsym is the one that programs bind to; others' follow. */
static void run_set_preload(struct environment *environment, const char *library)
{
    const char *old = environment_find(environment, "LD_PRELOAD");
    size_t room = strlen(library) + strlen(old) + 2;
    char *value = malloc(room);
    if (!value)
        exit(ctl_fail("out of memory"));

    char *end = stpcpy(value, library);
    while (*(old += strspn(old, " :"))) {
        size_t length = strcspn(old, " :");
        if (!run_is_library(old, length)) {
            *end++ = ':';
            end = mempcpy(end, old, length);
        }
        old += length;
    }
    *end = 0;
    environment_set(environment, "LD_PRELOAD", "%s", value);
    free(value);
}

/* A container's quota is the container's: a program started in it by hand must not make another. */
static bool run_in_container(void)
{
    uint64_t space = tenant_pid_namespace();

    return space && !tenant_on_host(space);
}

/* Program, process id and time: exec keeps the process id, so a name is taken at most once, and the
 * time tells apart equal ids of different namespaces and of a reused one. */
static void run_set_tenant(struct environment *environment, const char *program)
{
    char name[32];
    const char *slash = strrchr(program, '/');

    if (*environment_find(environment, "CUSLICE_TENANT") || run_in_container())
        return;
    snprintf(name, sizeof(name), "%s", slash && slash[1] ? slash + 1 : program);
    for (char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == ',' || *c == '"')
            *c = '-';
    environment_set(environment, "CUSLICE_TENANT", "%s.%d.%" PRIx64, name, (int)getpid(),
                    clock_now() / CLOCK_US);
}

static int run_set_option(struct environment *environment, const struct run_option *option,
                          const char *text)
{
    char forms[CONFIG_TEXT_MAX];

    if (config_check(option->setting, text) < 0) {
        config_describe(option->setting, forms, sizeof(forms));
        return ctl_usage("run", "--%s '%s' is not %s", option->option, text, forms);
    }
    environment_set(environment, option->setting, "%s", text);
    return CTL_OK;
}

static int run_set_directory(struct environment *environment, const char *text)
{
    char absolute[PATH_MAX];
    int code = run_absolute(text, absolute);

    if (code)
        return code;
    if (config_check("CUSLICE_DIR", absolute) < 0)
        return ctl_usage("run", "--dir '%s' cannot be a ring directory", text);
    environment_set(environment, "CUSLICE_DIR", "%s", absolute);
    return CTL_OK;
}

static void run_long_options(struct option options[RUN_OPTIONS + 3])
{
    memset(options, 0, (RUN_OPTIONS + 3) * sizeof(options[0]));
    for (int i = 0; i < RUN_OPTIONS; i++)
        options[i] = (struct option){run_options[i].option, required_argument, NULL, i};
    options[RUN_OPTIONS] = (struct option){"dir", required_argument, NULL, RUN_OPTIONS};
    options[RUN_OPTIONS + 1] = (struct option){"lib", required_argument, NULL, RUN_OPTIONS + 1};
}

/* Takes the options into the environment and *library; stops at the program's name. */
static int run_options_take(int argc, char **argv, struct environment *environment,
                            const char **library)
{
    struct option options[RUN_OPTIONS + 3];
    int code = CTL_OK;
    int answer;

    run_long_options(options);
    while (code == CTL_OK && (answer = getopt_long(argc, argv, "+:", options, NULL)) != -1) {
        if (answer == '?' || answer == ':')
            code = ctl_bad_option(argv, answer);
        else if (answer < RUN_OPTIONS)
            code = run_set_option(environment, &run_options[answer], optarg);
        else if (answer == RUN_OPTIONS)
            code = run_set_directory(environment, optarg);
        else
            *library = optarg;
    }
    return code;
}

static int run_exec(struct environment *environment, char **argv)
{
    execvpe(argv[0], argv, environment->entry);
    int error = errno;

    ctl_fail("cannot run %s: %s", argv[0], strerror(error));
    return error == ENOENT ? CTL_NOT_FOUND : CTL_NOT_EXECUTABLE;
}

int run_main(int argc, char **argv)
{
    struct environment environment;
    char library[PATH_MAX];

    environment_begin(&environment, RUN_OPTIONS + 4);
    const char *named = environment_find(&environment, "CUSLICE_SO");
    int code = run_options_take(argc, argv, &environment, &named);
    if (code)
        return code;
    if (optind == argc)
        return ctl_usage("run", "no program given");
    code = *named ? run_use_library(named, library) : run_find_library(library);
    if (code)
        return code;
    run_set_preload(&environment, library);
    run_set_tenant(&environment, argv[optind]);
    return run_exec(&environment, argv + optind);
}
