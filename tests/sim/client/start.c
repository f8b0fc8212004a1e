/*
 * cuInit: the arena, the way to the device, and what every entry point asks first. Owns struct sim.
 * The arena's lock and mapping are this process's sign of life: kept out of forked children, where
 * everything answers CUDA_ERROR_NOT_INITIALIZED from then on.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int start_socket = -1;
static ino_t start_socket_inode;
static _Atomic bool leaving;

void sim_log(const char *format, ...)
{
    char line[512];
    va_list args;
    int n, m;

    if (!sim.log)
        return;
    n = snprintf(line, sizeof(line), "simcuda[%d]: ", (int)getpid());
    va_start(args, format);
    m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    if (m > 0)
        n += m < (int)sizeof(line) - n - 1 ? m : (int)sizeof(line) - n - 2;
    line[n++] = '\n';
    if (write(2, line, (size_t)n) < 0)
        return;
}

uint64_t sim_now(void)
{
    return util_now();
}

void sim_spend(uint64_t ns)
{
    uint64_t until;

    if (!ns)
        return;
    until = util_now() + ns;
    while (util_now() < until)
        util_pause();
}

bool start_device_lives(void)
{
    struct stat st;
    char byte;

    if (fstat(start_socket, &st) || !S_ISSOCK(st.st_mode) || st.st_ino != start_socket_inode)
        return true; /* the program closed it: nothing is known, so nothing is claimed */
    return recv(start_socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

static int start_arena(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    int fd = memfd_create("simcuda-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *base;

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)ARENA_BYTES) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        fcntl(fd, F_OFD_SETLK, &lock))
        goto fail;
    base = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        goto fail;
    madvise(base, ARENA_BYTES, MADV_DONTFORK);
    madvise(base, ARENA_BYTES, MADV_DONTDUMP);
    sim.arena_base = base;
    sim.arena = base;
    sim.arena->magic = SIM_MAGIC;
    sim.arena->version = SIM_VERSION;
    sim.arena->bytes = ARENA_BYTES;
    return fd;
fail:
    close(fd);
    return -errno;
}

/* A page that reads 1 here and 0 in a child, however that child was made. */
static int start_alive_page(void)
{
    _Atomic uint32_t *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK))
        return -errno;
    atomic_store(page, 1);
    sim.alive = page;
    return 0;
}

static int start_map_device(const struct connection *connection)
{
    void *base;

    sim.board =
        mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, connection->board, 0);
    if (sim.board == MAP_FAILED)
        return -errno;
    madvise(sim.board, sizeof(struct board), MADV_DONTFORK);
    base = mmap((void *)(uintptr_t)sim.board->memory_base, connection->welcome.memory_bytes,
                PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE,
                connection->memory, 0);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, connection->welcome.memory_bytes, MADV_DONTDUMP);
    return 0;
}

static void start_at_exit(void)
{
    if (!sim.ready || !atomic_load(sim.alive) || atomic_exchange(&leaving, true))
        return;
    call_device(CALL_LEAVE, NULL, 0, NULL, NULL);
}

static void start_settings(void)
{
    const char *text = getenv("SIMCUDA_FAIL");

    sim.failing = text && *text;
    sim.null_launch = util_env_number("SIMCUDA_NULL_LAUNCH", 0, 1) != 0;
    sim.log = util_env_number("SIMCUDA_LOG", 0, 1) != 0;
    sim.code = util_env_number("SIMCUDA_CODE", 1, 1) != 0;
    sim.fabric = util_env_number("SIMCUDA_FABRIC", 1, 1) != 0;
    sim.multicast = util_env_number("SIMCUDA_MULTICAST", 1, 1) != 0;
    sim.launch_cost = util_env_duration("SIMCUDA_LAUNCH_COST", 0);
    sim.record_cost = util_env_duration("SIMCUDA_RECORD_COST", 0);
    sim.query_cost = util_env_duration("SIMCUDA_QUERY_COST", 0);
    sim.write_cost = util_env_duration("SIMCUDA_WRITE_COST", 0);
    sim.rounds = (unsigned)util_env_number("SIMCUDA_ROUNDS", 1, 10000);
}

/* Calls before cuInit can be told to fail, too. */
__attribute__((constructor)) static void start_load(void)
{
    start_settings();
}

static int start_connect(void)
{
    struct connection connection;
    struct stat st;
    int arena, error;

    util_clock_init();
    arena = start_arena();
    if (arena < 0)
        return arena;
    error = connect_device(arena, sim.arena_base, &connection);
    close(arena);
    if (error)
        return error;
    error = start_map_device(&connection);
    close(connection.board);
    close(connection.memory);
    if (!error)
        error = start_alive_page();
    if (error) {
        close(connection.socket);
        return error;
    }
    start_socket = connection.socket;
    start_socket_inode = fstat(start_socket, &st) ? 0 : st.st_ino;
    sim.client = connection.welcome.client;
    sim.devices = sim.board->devices;
    visible_open();
    return 0;
}

static CUresult start_once(void)
{
    int error;

    if (sim.alive)
        return visible_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
    error = start_connect();
    if (error) {
        sim_log("cannot reach the device: %s", strerror(-error));
        if (sim.arena_base)
            munmap(sim.arena_base, ARENA_BYTES);
        sim.arena_base = NULL;
        sim.arena = NULL;
        return error == -EUSERS || error == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                                                    : CUDA_ERROR_SYSTEM_NOT_READY;
    }
    if (!visible_count())
        return CUDA_ERROR_NO_DEVICE;
    thread_open();
    atomic_store(&sim.ready, true);
    atexit(start_at_exit);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
    CUresult result;

    if (!atomic_load(&sim.ready))
        start_settings(); /* a program may set its own environment first */
    ENTRY();
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim.alive && !atomic_load_explicit(sim.alive, memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (atomic_load(&leaving))
        return CUDA_ERROR_DEINITIALIZED;
    pthread_mutex_lock(&sim.lock);
    result = start_once();
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult sim_check(void)
{
    if (__builtin_expect(!atomic_load_explicit(&sim.ready, memory_order_acquire), 0))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (__builtin_expect(!atomic_load_explicit(sim.alive, memory_order_relaxed), 0))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (__builtin_expect(atomic_load_explicit(&leaving, memory_order_relaxed), 0))
        return CUDA_ERROR_DEINITIALIZED;
    return CUDA_SUCCESS;
}
