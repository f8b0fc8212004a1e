/*
 * frames_client: launches that are left, interrupted or entered again while the driver has them, on
 * a driver that calls back (frames/driver.c). Does one thing and prints how many launches came to
 * an end that can be seen; then stays, and works no more, until its standard input ends.
 *
 *   frames_client arguments     every argument arrives, by the way that is open and the other one
 *   frames_client step          one launch, instruction by instruction, each with a walk up the
 *                               stack; prints how many instructions of the hook there are
 *   frames_client nested        launches within launches
 *   frames_client turns         the same in several threads for a while, in turns with a neighbour
 *   frames_client signals       a signal at each instruction, whose handler launches
 *   frames_client throw LIBRARY C++ exceptions through a launch
 *   frames_client jump          longjmp out of a launch
 *   frames_client exit          threads that end inside of one
 *   frames_client fork          children made inside of one
 *   frames_client probe         one launch
 */
#define __CUDA_API_VERSION_INTERNAL
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "client.h"
#include "frames/frames.h"

#define DEPTH 64
#define NESTED 3
#define ROUNDS 20
#define TURNS_NS (1500 * MS)
#define TURNS_THREADS 3

static struct client client;
static CUstream stream;
static _Atomic unsigned long launches;

/* The return address of the launch that is looked at. */
static void *volatile caller;

static _Atomic CUresult last;

/* Never inlined, and not a tail call: it has one return address in the program. */
static __attribute__((noinline)) CUresult launch(frames_callback *callback, void *arg)
{
    void *extra[] = {NULL, arg}, *params[] = {stream, extra};
    const unsigned n = FRAMES_FIRST;

    *(frames_callback **)&extra[0] = callback;
    launches++;
    CUresult rc = cuLaunchKernel(client.noop, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, stream,
                                 params, extra);
    last = rc;
    return rc;
}

static void launch_plain(void)
{
    CHECK_CU(launch(NULL, NULL));
}

static bool seen_from_here(void)
{
    void *address[DEPTH];
    int count = backtrace(address, DEPTH);

    for (int i = 0; i < count; i++)
        if (address[i] == caller)
            return true;
    return false;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static void launch_others(void)
{
    CUlaunchConfig config = {.hStream = stream};
    void *extra[] = {NULL}, *params[] = {&config, extra}, *cooperative[] = {stream};
    const unsigned n = FRAMES_FIRST;

    CHECK_CU(cuLaunchKernelEx(&config, client.noop, params, extra));
    CHECK_CU(cuLaunchCooperativeKernel(client.noop, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6,
                                       stream, cooperative));
    launches += 2;
}

/* A thread's first launch takes the slow way. */
static void run_arguments(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        launch_plain();
        launch_others();
    }
}

/* ---- Instruction by instruction -------------------------------------------------------------- */

#ifdef __x86_64__
#define TRAP 0x100 /* the flag that makes the processor stop behind each instruction */

static uintptr_t hook, hook_size;
static unsigned hook_steps, lost;
static bool step_launches;

static void step_on(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP;
}

static void step_off(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP;
}

static void step(int number, siginfo_t *info, void *context)
{
    const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t at = (uintptr_t)registers[REG_RIP];

    (void)number, (void)info;
    if (at - hook >= hook_size)
        return;
    if (at == hook)
        caller = *(void **)registers[REG_RSP];
    hook_steps++;
    if (step_launches)
        launch_plain();
    else if (!seen_from_here()) {
        lost++;
        printf("lost at +%lu\n", (unsigned long)(at - hook));
    }
}

static void step_handlers(void)
{
    struct {
        int signal;
        void (*handler)(int, siginfo_t *, void *);
    } const all[] = {{SIGUSR1, step_on}, {SIGUSR2, step_off}, {SIGTRAP, step}};

    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct sigaction action = {.sa_flags = SA_SIGINFO};
        action.sa_sigaction = all[i].handler;
        CHECK(sigaction(all[i].signal, &action, NULL) == 0, "sigaction");
    }
}

static void step_find_hook(void)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;

    hook = (uintptr_t)cuLaunchKernel;
    CHECK(dladdr1((void *)hook, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol,
          "cuLaunchKernel is nowhere");
    hook_size = symbol->st_size;
}

static void look_up(void *seen)
{
    *(bool *)seen = seen_from_here();
}

/* Walks the stack from the driver's function too. */
static void run_step(void)
{
    bool seen = false;

    seen_from_here(); /* which loads what it needs */
    step_find_hook();
    step_handlers();
    launch_plain();
    raise(SIGUSR1);
    CUresult rc = launch(NULL, NULL);
    raise(SIGUSR2);
    CHECK_CU(rc);
    CHECK_CU(launch(look_up, &seen));
    CHECK(seen, "the launch's caller is not seen from the driver");
    CHECK(hook_steps, "the hook has not been stepped through");
    CHECK(!lost, "the launch's caller is not seen at %u of %u instructions", lost, hook_steps);
    printf("instructions %u\n", hook_steps);
}

static void run_signals(void)
{
    step_launches = true;
    step_find_hook();
    step_handlers();
    launch_plain();
    for (int i = 0; i < ROUNDS; i++) {
        raise(SIGUSR1);
        CUresult rc = launch(NULL, NULL);
        raise(SIGUSR2);
        CHECK_CU(rc);
    }
    CHECK(hook_steps >= 10 * ROUNDS, "only %u signals", hook_steps);
}
#else
static void run_step(void)
{
    client_skip("no single steps on this processor");
}

static void run_signals(void)
{
    client_skip("no single steps on this processor");
}
#endif

/* ---- Launches within launches ---------------------------------------------------------------- */

static void nest(void *depth)
{
    if ((uintptr_t)depth > 0) {
        CHECK_CU(launch(nest, (void *)((uintptr_t)depth - 1)));
        launch_plain();
    }
}

static void *nest_thread(void *unused)
{
    client_adopt(&client);
    for (int i = 0; i < ROUNDS; i++)
        nest((void *)(uintptr_t)NESTED);
    return unused;
}

/* In a new thread the first of them goes the slow way. */
static void run_nested(void)
{
    for (int i = 0; i < 2; i++)
        client_thread_join(client_thread(nest_thread, NULL));
    nest_thread(NULL);
}

static void *turns_thread(void *until)
{
    client_adopt(&client);
    while (client_now() < *(uint64_t *)until)
        nest((void *)(uintptr_t)NESTED);
    return NULL;
}

static void run_turns(void)
{
    uint64_t until = client_now() + TURNS_NS;
    pthread_t thread[TURNS_THREADS];

    for (int i = 0; i < TURNS_THREADS; i++)
        thread[i] = client_thread(turns_thread, &until);
    for (int i = 0; i < TURNS_THREADS; i++)
        client_thread_join(thread[i]);
    printf("late_ms %lu\n", (unsigned long)((client_now() - until) / MS));
}

/* ---- Out of a launch, and never back --------------------------------------------------------- */

static void (*throw_it)(void);

static void throw_now(void *unused)
{
    (void)unused;
    throw_it();
}

static void launch_and_throw(void)
{
    launch(throw_now, NULL);
}

static void launch_nested_and_throw(void)
{
    launch((frames_callback *)launch_and_throw, NULL);
}

/* The hook sees that they end, so the last thing that happens may be one. */
static void run_throw(const char *library)
{
    int (*catch_it)(void (*)(void)) = NULL;
    void *handle = dlopen(library, RTLD_NOW);

    CHECK(handle, "%s", dlerror());
    *(void **)&throw_it = dlsym(handle, "frames_throw");
    *(void **)&catch_it = dlsym(handle, "frames_catch");
    CHECK(throw_it && catch_it, "no frames_throw, frames_catch");
    CHECK(catch_it(launch_and_throw), "caught nothing on the slow way");
    for (int i = 0; i < ROUNDS; i++) {
        launch_plain();
        CHECK(catch_it(launch_nested_and_throw), "caught nothing");
        CHECK(catch_it(launch_and_throw), "caught nothing");
    }
}

static jmp_buf back;

static void jump(void *unused)
{
    (void)unused;
    longjmp(back, 1);
}

/* Nobody sees that; the next launch from there or from above shows it. */
static void run_jump(void)
{
    static volatile int i;

    for (i = 0; i < ROUNDS; i++)
        if (setjmp(back) == 0)
            launch(jump, NULL);
        else
            launches--; /* as far as anybody sees */
    launch_plain();
}

static void end_thread(void *way)
{
    if (way)
        pthread_exit(NULL);
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static void *end_inside(void *way)
{
    client_adopt(&client);
    launch_plain();
    launch(end_thread, way);
    client_fail_at(__FILE__, __LINE__, "end", "the thread goes on");
}

static void run_exit(void)
{
    launch_plain();
    for (int i = 0; i < ROUNDS; i++) {
        client_thread_join(client_thread(end_inside, i % 2 ? &client : NULL));
    }
}

/* ---- Children -------------------------------------------------------------------------------- */

/* The child goes back through the hook with what it has of its parent's. */
static void make_child(void *child)
{
    *(pid_t *)child = fork();
}

static void run_fork(void)
{
    launch_plain();
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = -1;
        int status;
        CUresult rc = launch(make_child, &child);
        if (child == 0)
            _exit(rc != CUDA_SUCCESS || launch(NULL, NULL) != CUDA_SUCCESS);
        CHECK_CU(rc);
        CHECK(child > 0 && waitpid(child, &status, 0) == child, "no child");
        CHECK(status == 0, "the child ended with %#x", (unsigned)status);
    }
}

int main(int count, char **word)
{
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"arguments", run_arguments}, {"step", run_step},       {"nested", run_nested},
               {"turns", run_turns},         {"signals", run_signals}, {"jump", run_jump},
               {"exit", run_exit},           {"fork", run_fork},       {"probe", launch_plain}};

    CHECK(count > 1, "what?");
    setvbuf(stdout, NULL, _IOLBF, 0);
    client_open(&client);
    CHECK_CU(cuStreamCreate(&stream, 0));
    if (count > 2 && strcmp(word[1], "throw") == 0)
        run_throw(word[2]);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(word[1], all[i].name) == 0)
            all[i].run();
    printf("launches %lu\n", launches);
    while (getchar() != EOF)
        ;
    return 0;
}
