/*
 * process: commands about the process itself: beginnings, ends, children, signals, descriptors.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "worker.h"

static volatile sig_atomic_t signals;

/* init */
static void process_init(struct job *job)
{
    job_answer(job, "%d", (int)cu.cuInit(0));
}

/* open [ORDINAL]: everything up to loaded kernels; `result` */
static void process_open(struct job *job)
{
    job_answer(job, "%d", (int)worker_open((int)job_number(job, 1, 0)));
}

static void process_count(struct job *job)
{
    int count = -1;
    CUresult rc = cu.cuDeviceGetCount(&count);

    job_answer(job, "%d %d", (int)rc, count);
}

static void process_sleep(struct job *job)
{
    worker_sleep(job_number(job, 1, 0) * MS);
    job_answer(job, "0");
}

/* end exit|_exit|abort|return CODE */
static void process_end(struct job *job)
{
    const char *how = job_text(job, 1, "exit");
    int code = (int)job_number(job, 2, 0);

    if (!strcmp(how, "_exit"))
        _exit(code);
    if (!strcmp(how, "abort"))
        abort();
    exit(code);
}

/* exec DOOR: becomes a fresh worker with the same input and output */
static void process_exec(struct job *job)
{
    char *const argv[] = {(char[]){"worker"}, job->word[1], NULL};

    execv("/proc/self/exe", argv);
    job_answer(job, "%d", errno);
}

/* close: every descriptor from 3 on, as daemons do */
static void process_close(struct job *job)
{
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    job_answer(job, "0");
}

static void process_on_signal(int number)
{
    (void)number;
    signals++;
}

/* catch restart|plain: counts SIGUSR1 from now on */
static void process_catch(struct job *job)
{
    struct sigaction action = {.sa_handler = process_on_signal};

    action.sa_flags = !strcmp(job_text(job, 1, ""), "restart") ? SA_RESTART : 0;
    signals = 0;
    job_answer(job, "%d", sigaction(SIGUSR1, &action, NULL));
}

static void process_caught(struct job *job)
{
    job_answer(job, "%d", (int)signals);
}

static pthread_t leaver;
static bool leaver_cancelled;

/* Whether a frame of the calling thread is the driver's, or the one at `code` is a library's that
 * may hold a lock there: nobody may leave these like that. */
static bool process_inside(void *code)
{
    void *frame[64];
    int n = backtrace(frame, 64);
    Dl_info info;

    for (int i = 0; i < n; i++)
        if (dladdr(frame[i], &info) && strstr(info.dli_fname, "libcuda.so"))
            return true;
    return code && dladdr(code, &info) && strstr(info.dli_fname, "libcuslice");
}

/* In the thread that launches: while it sleeps before the driver, or is behind it. */
static void process_on_nudge(int number, siginfo_t *info, void *context)
{
    const ucontext_t *at = context;

    (void)number;
    (void)info;
    if (!process_inside((void *)at->uc_mcontext.gregs[REG_RIP]))
        pthread_exit(NULL);
}

/* leave exit|cancel NS: a launch of a thread that a `nudge` from another one ends: there is no
 * answer then */
static void process_leave(struct job *job)
{
    struct sigaction action = {.sa_sigaction = process_on_nudge, .sa_flags = SA_SIGINFO};

    leaver = pthread_self();
    leaver_cancelled = !strcmp(job_text(job, 1, ""), "cancel");
    process_inside(NULL); /* loads what it needs */
    sigaction(SIGUSR2, &action, NULL);
    job_answer(job, "%d", (int)worker_spin(NULL, job_number(job, 2, 0)));
    signal(SIGUSR2, SIG_IGN);
    pthread_testcancel();
}

static sigjmp_buf jumper_back;
static volatile sig_atomic_t jumper_inside;
static bool jumper_picks;

static void process_on_jump(int number)
{
    (void)number;
    if (jumper_inside && (!jumper_picks || process_inside(NULL)))
        siglongjmp(jumper_back, 1);
}

/* So many kilobytes further down the stack. */
static CUresult process_spin_below(unsigned kilobytes, uint64_t ns)
{
    char room[1024];
    CUresult rc = kilobytes ? process_spin_below(kilobytes - 1, ns) : worker_spin(NULL, ns);

    __asm__ volatile("" : : "r"(room) : "memory"); /* behind the call: this frame stays */
    return rc;
}

/* jump NS KILOBYTES [driver]: a launch so far down the stack, which a `nudge` from another thread
 * leaves by a jump, wherever it is or only in the driver; `result left` */
static void process_jump(struct job *job)
{
    struct sigaction action = {.sa_handler = process_on_jump, .sa_flags = SA_RESTART};
    volatile CUresult rc = CUDA_SUCCESS;
    volatile bool left = true;

    leaver = pthread_self();
    leaver_cancelled = false;
    jumper_picks = job->count > 3;
    process_inside(NULL); /* loads what it needs */
    sigaction(SIGUSR2, &action, NULL);
    if (sigsetjmp(jumper_back, 1) == 0) {
        jumper_inside = 1;
        rc = process_spin_below((unsigned)job_number(job, 2, 0), job_number(job, 1, 0));
        left = false;
    }
    jumper_inside = 0;
    job_answer(job, "%d %d", (int)rc, left);
}

/* nudge: ends the thread of `leave`, at the gate or when it comes back; the launch of `jump` */
static void process_nudge(struct job *job)
{
    job_answer(job, "%d",
               leaver_cancelled ? pthread_cancel(leaver) : pthread_kill(leaver, SIGUSR2));
}

/* Runs the `;`-separated commands of a child, which are written with `,` for blanks, and sends the
 * answers back. */
static void process_child(char *script, int out)
{
    static struct job job;
    char *next = NULL;

    for (char *line = strtok_r(script, ";", &next); line; line = strtok_r(NULL, ";", &next)) {
        char *rest = NULL;
        job.count = 0;
        for (char *word = strtok_r(line, ",", &rest); word && job.count < JOB_WORDS;
             word = strtok_r(NULL, ",", &rest))
            job.word[job.count++] = word;
        worker_run(&job);
        dprintf(out, "%s;", job.answer);
    }
    close(out);
    exit(0);
}

/* Reads what a child says until it closes its end, waits for it, answers with both. */
static void process_hear(struct job *job, pid_t pid, int in)
{
    char text[4096] = "";
    size_t used = 0;
    int status = -1;

    for (ssize_t got;
         used < sizeof text - 1 && (got = read(in, text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    close(in);
    waitpid(pid, &status, 0);
    for (char *c = text; *c; c++)
        *c = *c == ' ' ? ',' : *c == '\n' ? ';' : *c;
    job_answer(job, "%d %s", status, text);
}

/* fork COMMANDS: in a child without exec; `status answers` */
static void process_fork(struct job *job)
{
    int pipes[2];

    if (job->count < 2 || pipe(pipes) < 0) {
        job_answer(job, "-1");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(pipes[0]);
        process_child(job->word[1], pipes[1]);
    }
    close(pipes[1]);
    process_hear(job, pid, pipes[0]);
}

/* spawn COMMANDS: the same in a child that executes this program anew */
static void process_spawn(struct job *job)
{
    int in[2], out[2];

    if (job->count < 2 || pipe(in) < 0 || pipe(out) < 0) {
        job_answer(job, "-1");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int fd = 3; fd < 256; fd++)
            close(fd);
        execl("/proc/self/exe", "worker", "linked", NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    char *next = NULL;
    for (char *line = strtok_r(job->word[1], ";", &next); line; line = strtok_r(NULL, ";", &next)) {
        for (char *c = line; *c; c++)
            *c = *c == ',' ? ' ' : *c;
        dprintf(in[1], "0 %s\n", line);
    }
    close(in[1]);
    process_hear(job, pid, out[0]);
}

/* idlers COUNT MS [fork|clone]: children that never call CUDA and live so long, made by libc or
 * behind its back; their process ids. They keep no end of the worker's own pipes open. */
static void process_idlers(struct job *job)
{
    bool raw = !strcmp(job_text(job, 3, "fork"), "clone");

    for (uint64_t i = job_number(job, 1, 1); i > 0; i--) {
        pid_t pid = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
        if (pid == 0) {
            close(STDIN_FILENO);
            close(STDOUT_FILENO);
            close(STDERR_FILENO);
            worker_sleep(job_number(job, 2, 1000) * MS);
            _exit(0);
        }
        job_answer(job, "%d ", (int)pid);
    }
}

#define KEEP(number, call) \
    do { \
        errno = 4000 + (number); \
        CUresult rc_ = (call); \
        job_answer(job, "%s=%d:%d ", #number, (int)rc_, errno); \
    } while (0)

/* errno BYTES: what errno is after calls that find 4001, 4002, ... in it; BYTES is too much */
static void process_errno(struct job *job)
{
    CUdeviceptr pointer = 0, other = 0;
    size_t a, b;

    KEEP(1, cu.cuMemAlloc_v2(&pointer, 4096));
    KEEP(2, cu.cuMemAlloc_v2(&other, job_number(job, 1, 0)));
    KEEP(3, cu.cuMemFree_v2(pointer));
    KEEP(4, cu.cuMemGetInfo_v2(&a, &b));
    KEEP(5, worker_spin(NULL, 1000));
    KEEP(6, cu.cuCtxSynchronize());
    KEEP(7, worker_spin(worker_stream(1), 1000));
    KEEP(8, cu.cuStreamSynchronize(worker_stream(1)));
    KEEP(9, cu.cuInit(0));
}

/* errno_init: the same for the very first cuInit */
static void process_errno_init(struct job *job)
{
    KEEP(10, cu.cuInit(0));
}

/* The slack of this thread's timers, in ns. */
static void process_slack(struct job *job)
{
    job_answer(job, "0 %d", prctl(PR_GET_TIMERSLACK));
}

static void process_pid(struct job *job)
{
    job_answer(job, "%d", (int)getpid());
}

const struct command commands_process[] = {
    {"init", process_init},     {"open", process_open},
    {"count", process_count},   {"sleep", process_sleep},
    {"end", process_end},       {"exec", process_exec},
    {"close", process_close},   {"catch", process_catch},
    {"caught", process_caught}, {"fork", process_fork},
    {"spawn", process_spawn},   {"idlers", process_idlers},
    {"errno", process_errno},   {"errno_init", process_errno_init},
    {"pid", process_pid},       {"slack", process_slack},
    {"leave", process_leave},   {"jump", process_jump},
    {"nudge", process_nudge},   {NULL, NULL},
};
