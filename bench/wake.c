/* wake CPU CPU COUNT PAUSE_US: what a bare futex wake-up takes between two processes that have
 * slept for a while.
 *
 * One process, on the first CPU, wakes the other, on the second, and sleeps until that has woken it
 * in turn; then it sleeps for PAUSE_US, and so on. Prints the nanoseconds of half of each round.
 * The yardstick for a token that an idle process has to be woken for. Knows no CUDA and no ring.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "futex.h"
#include "place.h"

#define WAKE_WAIT_NS (10 * CLOCK_S)

struct wake_word {
    _Alignas(64) _Atomic uint32_t word;
};

static void wake_await(_Atomic uint32_t *word, uint32_t before)
{
    uint64_t end = clock_after(WAKE_WAIT_NS);
    while (atomic_load(word) == before) {
        if (clock_now() > end)
            place_fail("wake", "the other process", ETIMEDOUT);
        futex_wait(word, before, end);
    }
}

static void wake_tell(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    futex_wake(word, 1);
}

static void wake_answer(struct wake_word word[2], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        wake_await(&word[0].word, i);
        wake_tell(&word[1].word);
    }
}

static void wake_ask(struct wake_word word[2], uint32_t count, long pause_us)
{
    struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000};
    for (uint32_t i = 0; i < count; i++) {
        nanosleep(&pause, NULL);
        uint64_t from = clock_now();
        wake_tell(&word[0].word);
        wake_await(&word[1].word, i);
        printf("%llu\n", (unsigned long long)(clock_now() - from) / 2);
    }
}

int main(int count, char **words)
{
    int status;
    if (count != 5) {
        fprintf(stderr, "usage: wake CPU CPU COUNT PAUSE_US\n");
        return 2;
    }
    clock_init();
    struct wake_word *word =
        mmap(NULL, 2 * sizeof *word, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED)
        place_fail("wake", "mmap", errno);
    pid_t child = fork();
    if (child < 0)
        place_fail("wake", "fork", errno);
    place_pin("wake", (unsigned)atoi(words[child ? 1 : 2]));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        wake_answer(word, (uint32_t)atoi(words[3]));
        return 0;
    }
    wake_ask(word, (uint32_t)atoi(words[3]), atol(words[4]));
    if (waitpid(child, &status, 0) < 0 || status != 0)
        place_fail("wake", "the other process", ECHILD);
    return 0;
}
