/* The programs that the demo starts: see guest.h. Signals nobody but children that were started
 * here and have not been waited for, so no process id can have passed to somebody else. */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void guest_exec(const struct guest *guest, const struct stage *stage, unsigned kernel_us,
                       unsigned run_ms)
{
    char tool[PATH_MAX + 32], client[PATH_MAX + 64], weight[16], text[5][16];

    stage_dress(stage);
    snprintf(tool, sizeof(tool), "%s/cuslice", stage->build);
    snprintf(client, sizeof(client), "%s/examples/demo/demo_client", stage->build);
    snprintf(weight, sizeof(weight), "%u", guest->weight);
    snprintf(text[0], sizeof(text[0]), "%u", guest->memory_mib);
    snprintf(text[1], sizeof(text[1]), "%u", kernel_us);
    snprintf(text[2], sizeof(text[2]), "%u", run_ms);
    snprintf(text[3], sizeof(text[3]), "%u", guest->more_mib);
    snprintf(text[4], sizeof(text[4]), "%u", guest->more_at_ms);
    execl(tool, "cuslice", "run", "--tenant", guest->name, "--weight", weight, "--mem", guest->cap,
          "--dir", stage->rings, "--", client, text[0], text[1], text[2],
          guest->more_mib ? text[3] : NULL, text[4], NULL);
    fprintf(stderr, "cannot run %s: %s\n", tool, strerror(errno));
    _exit(127);
}

static void guest_become(const struct guest *guest, const struct stage *stage, const int input[2],
                         const int output[2], unsigned kernel_us, unsigned run_ms)
{
    int log = open(guest->log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);

    if (log < 0 || dup2(input[0], STDIN_FILENO) < 0 || dup2(output[1], STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0)
        _exit(126);
    guest_exec(guest, stage, kernel_us, run_ms);
}

int guest_start(struct guest *guest, const struct stage *stage, unsigned kernel_us, unsigned run_ms)
{
    int input[2], output[2];
    int error;

    snprintf(guest->log, sizeof(guest->log), "%s/%s.log", stage->root, guest->name);
    if (pipe2(input, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(output, O_CLOEXEC) < 0) {
        error = -errno;
        goto fail_input;
    }
    pid_t pid = fork();
    if (pid < 0) {
        error = -errno;
        goto fail_output;
    }
    if (pid == 0)
        guest_become(guest, stage, input, output, kernel_us, run_ms);
    close(input[0]);
    close(output[1]);
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    guest->input = input[1];
    guest->output = output[0];
    guest->pid = pid;
    return 0;

fail_output:
    close(output[0]);
    close(output[1]);
fail_input:
    close(input[0]);
    close(input[1]);
    return error;
}

static void guest_hear(struct guest *guest, const char *line)
{
    unsigned long long a, b;

    if (sscanf(line, "kernels %llu", &a) == 1 || sscanf(line, "done %llu", &a) == 1)
        guest->kernels = a;
    else if (sscanf(line, "total %llu", &a) == 1)
        guest->total = a;
    else if (sscanf(line, "allowed %llu", &a) == 1)
        guest->allowed = true;
    else if (sscanf(line, "refused %llu %llu %63s", &a, &b, guest->refusal) == 3) {
        guest->refused = a;
        guest->refused_used = b;
    } else if (strncmp(line, "device ", 7) == 0)
        snprintf(guest->device, sizeof(guest->device), "%s", line + 7);
}

void guest_listen(struct guest *guest)
{
    char bytes[512];
    ssize_t got;

    while ((got = read(guest->output, bytes, sizeof(bytes))) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] != '\n') {
                if (guest->line_length < sizeof(guest->line) - 1)
                    guest->line[guest->line_length++] = bytes[i];
                continue;
            }
            guest->line[guest->line_length] = 0;
            guest->line_length = 0;
            guest_hear(guest, guest->line);
        }
}

bool guest_lives(struct guest *guest)
{
    if (guest->pid && waitpid(guest->pid, &guest->status, WNOHANG) == guest->pid)
        guest->pid = 0;
    return guest->pid != 0;
}

static void guest_close(struct guest *guest)
{
    if (guest->input > 0)
        close(guest->input);
    guest->input = 0;
}

static unsigned guest_count(struct guest guests[GUESTS])
{
    unsigned count = 0;

    for (int i = 0; i < GUESTS; i++) {
        if (guests[i].output > 0)
            guest_listen(&guests[i]);
        count += guest_lives(&guests[i]);
    }
    return count;
}

void guest_end_all(struct guest guests[GUESTS], unsigned wait_ms)
{
    for (int i = 0; i < GUESTS; i++)
        guest_close(&guests[i]);
    for (unsigned waited = 0; guest_count(guests) && waited < wait_ms; waited += 10)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    for (int i = 0; i < GUESTS; i++) {
        if (guests[i].pid && kill(guests[i].pid, SIGKILL) == 0 &&
            waitpid(guests[i].pid, &guests[i].status, 0) == guests[i].pid)
            guests[i].pid = 0;
        if (guests[i].output > 0)
            close(guests[i].output);
        guests[i].output = 0;
    }
}

void guest_print_log(const struct guest *guest)
{
    char line[512];
    FILE *log = fopen(guest->log, "re");

    if (!log)
        return;
    for (int i = 0; i < 20 && fgets(line, sizeof(line), log); i++)
        fprintf(stderr, "  %s: %s", guest->name, line);
    fclose(log);
}

bool guest_find_line(const struct guest *guest, const char *word, char *line, size_t size)
{
    FILE *log = fopen(guest->log, "re");
    bool found = false;

    if (!log)
        return false;
    while (!found && fgets(line, (int)size, log))
        found = strstr(line, word) != NULL;
    fclose(log);
    if (found)
        line[strcspn(line, "\n")] = 0;
    return found;
}
