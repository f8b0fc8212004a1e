/*
 * The two memory files that everybody maps: the board and the device memory. Made once by the main
 * thread before the first client is let in; sealed so that no client can shrink them.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"

/* Below the region where mmap puts libraries, and inside what the thread sanitizer lets programs
 * use; too small for the largest settings, which go where no program looks. */
#define BASE_NEAR UINT64_C(0x7e8000000000)
#define BASE_NEAR_BYTES (UINT64_C(256) << 30)
/* Address space per byte of memory: managed memory may exceed what there is. */
#define AREA_LARGE 4
#define BASE_FAR UINT64_C(0x200000000000)

struct board *board;
unsigned char *memory;
static int board_fd = -1;
static int memory_fd = -1;

int area_board_fd(void)
{
    return board_fd;
}

int area_memory_fd(void)
{
    return memory_fd;
}

static int area_file(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
        int error = -errno;

        close(fd);
        return error;
    }
    return fd;
}

static int area_memory(void)
{
    uint64_t devices_made = settings.devices ? settings.devices : 1;
    uint64_t stride = SIM_ALIGN(settings.memory * AREA_LARGE, UINT64_C(1) << 30);
    uint64_t bytes, base;

    if (stride * devices_made > BASE_NEAR_BYTES)
        stride = SIM_ALIGN(settings.memory * 2, UINT64_C(1) << 30);
    bytes = stride * devices_made;
    base = bytes <= BASE_NEAR_BYTES ? BASE_NEAR : BASE_FAR;

    memory_fd = area_file("simcuda-memory", bytes);
    if (memory_fd < 0)
        return memory_fd;
    memory = mmap((void *)(uintptr_t)base, bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory_fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    board->memory_base = base;
    board->memory_stride = stride;
    return 0;
}

int area_create(void)
{
    int error;

    board_fd = area_file("simcuda-board", sizeof(struct board));
    if (board_fd < 0)
        return board_fd;
    board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, board_fd, 0);
    if (board == MAP_FAILED)
        return -errno;
    board->magic = SIM_MAGIC;
    board->version = SIM_VERSION;
    board->devices = settings.devices;
    board->queue = settings.queue;
    board->paging = settings.paging;
    error = area_memory();
    if (error)
        return error;
    for (unsigned i = 0; i < settings.devices; i++) {
        devices[i].ordinal = i;
        devices[i].shared = &board->device[i];
        devices[i].engine.device = &devices[i];
        devices[i].total = settings.memory;
        atomic_store(&board->device[i].total, settings.memory);
        error = pool_open(&devices[i]);
        if (error)
            return error;
    }
    return 0;
}
