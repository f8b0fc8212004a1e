/* gang_client: ranks of a job whose steps are collective. Each rank has a thread and a GPU of its
 * own; a step is some work, then a kernel that says so to the other ranks, then kernels that wait
 * until all of them have. Ranks in other processes are reached through a file.
 *
 *   gang_client FILE RANKS STEPS WORK_NS RANK...
 *
 * Runs the ranks named of RANKS, rank N on device N. Prints "ready", then after a line on its input
 * runs STEPS steps and prints the milliseconds that they took.
 */
#include "client.h"

#include <fcntl.h>
#include <sys/mman.h>

#define GANG_RANKS 8u
#define GANG_WORD 64u /* bytes from one rank's word to the next */
#define GANG_BYTES 4096u

static struct {
    unsigned ranks, mine;
    uint64_t steps, work_ns;
    char *words;
    pthread_barrier_t ready, go;
} job;

static void gang_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0666);

    CHECK(fd >= 0 && ftruncate(fd, GANG_BYTES) == 0, "cannot open %s", path);
    job.words = mmap(NULL, GANG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(job.words != MAP_FAILED, "cannot map %s", path);
    close(fd);
}

static void gang_step(const struct client *c, CUdeviceptr words, unsigned rank, uint32_t step)
{
    client_spin(c, NULL, job.work_ns);
    client_set(c, NULL, words + rank * GANG_WORD, step);
    for (unsigned peer = 0; peer < job.ranks; peer++)
        if (peer != rank)
            client_wait(c, NULL, words + peer * GANG_WORD, step);
}

static void *gang_rank(void *arg)
{
    unsigned rank = (unsigned)(uintptr_t)arg;
    struct client c = {.device = (CUdevice)rank};
    CUdeviceptr words;

    CHECK_CU(cuDevicePrimaryCtxRetain(&c.context, c.device));
    CHECK_CU(cuCtxSetCurrent(c.context));
    client_load(&c);
    CHECK_CU(cuMemHostGetDevicePointer(&words, job.words, 0));
    pthread_barrier_wait(&job.ready);
    pthread_barrier_wait(&job.go);
    for (uint64_t step = 1; step <= job.steps; step++) {
        gang_step(&c, words, rank, (uint32_t)step);
        if (step % 2 == 0)
            CHECK_CU(cuCtxSynchronize());
    }
    CHECK_CU(cuCtxSynchronize());
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[GANG_RANKS];
    CUcontext context;
    char line[16];

    CHECK(argc > 5 && argc - 5 <= (int)GANG_RANKS, "see the head of gang_client.c");
    job.ranks = (unsigned)atoi(argv[2]);
    job.steps = strtoull(argv[3], NULL, 0);
    job.work_ns = strtoull(argv[4], NULL, 0);
    job.mine = (unsigned)argc - 5;
    CHECK(job.ranks <= GANG_RANKS, "too many ranks");
    gang_map(argv[1]);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, atoi(argv[5])));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemHostRegister(job.words, GANG_BYTES,
                               CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    pthread_barrier_init(&job.ready, NULL, job.mine + 1);
    pthread_barrier_init(&job.go, NULL, job.mine + 1);
    for (unsigned i = 0; i < job.mine; i++)
        thread[i] = client_thread(gang_rank, (void *)(uintptr_t)atoi(argv[5 + i]));
    pthread_barrier_wait(&job.ready);
    puts("ready");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin), "the end of the input");
    uint64_t start = client_now();
    pthread_barrier_wait(&job.go);
    for (unsigned i = 0; i < job.mine; i++)
        client_thread_join(thread[i]);
    printf("%.1f\n", (double)(client_now() - start) / (double)MS);
    return 0;
}
