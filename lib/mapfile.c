/*
 * mapfile: shared files that appear whole, and byte locks that the kernel keeps.
 * Owns no state. Runs on whatever thread attaches or looks after the ring. Must never follow a
 * link, shorten a file, leave a half-made file under its final name, or depend on umask.
 */
#include "mapfile.h"
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How often a file that is neither there nor can be made is tried for, since others make and remove
 * it. */
#define MAPFILE_TRIES 3

/* The two ways to make a file that has no final name yet. */
struct mapfile_draft {
    int fd;
    char name[PATH_MAX]; /* temporary name, or /proc/self/fd/N where the file has none */
    bool named;
};

/* The name's directory, as "." where it has none. */
static int mapfile_parent(const char *path, char *parent, size_t size)
{
    const char *slash = strrchr(path, '/');
    int n;

    if (!slash)
        n = snprintf(parent, size, ".");
    else if (slash == path)
        n = snprintf(parent, size, "/");
    else
        n = snprintf(parent, size, "%.*s", (int)(slash - path), path);
    return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* A file without any name leaves nothing behind when its maker is killed. */
static int mapfile_draft_unnamed(const char *parent, struct mapfile_draft *draft)
{
    draft->fd = open(parent, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (draft->fd < 0)
        return -errno;
    draft->named = false;
    snprintf(draft->name, sizeof(draft->name), "/proc/self/fd/%d", draft->fd);
    if (access(draft->name, F_OK) == 0)
        return 0;
    close(draft->fd);
    return -EOPNOTSUPP;
}

/* For filesystems without O_TMPFILE, and where /proc is not mounted. */
static int mapfile_draft_named(const char *parent, struct mapfile_draft *draft)
{
    for (unsigned attempt = 0; attempt < 64; attempt++) {
        int n = snprintf(draft->name, sizeof(draft->name), "%s/.new.%d.%llx", parent, (int)getpid(),
                         (unsigned long long)clock_now() + attempt);

        if (n >= (int)sizeof(draft->name))
            return -ENAMETOOLONG;
        draft->fd = open(draft->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        draft->named = true;
        if (draft->fd >= 0)
            return 0;
        if (errno != EEXIST && errno != EINTR)
            return -errno;
    }
    return -EEXIST;
}

static int mapfile_draft_open(const char *path, struct mapfile_draft *draft)
{
    char parent[PATH_MAX];
    int error = mapfile_parent(path, parent, sizeof(parent));

    if (error < 0)
        return error;
    error = mapfile_draft_unnamed(parent, draft);
    if (error == -EOPNOTSUPP || error == -EISDIR || error == -ENOENT || error == -EINVAL)
        error = mapfile_draft_named(parent, draft);
    return error;
}

static int mapfile_allocate(int fd, size_t size)
{
    int error;

    do {
        error = posix_fallocate(fd, 0, (off_t)size);
    } while (error == EINTR);
    return -error;
}

static int mapfile_draft_fill(const struct mapfile_draft *draft, size_t size, mode_t mode,
                              mapfile_fill *fill, void *arg)
{
    int error = mapfile_allocate(draft->fd, size);
    void *memory;

    if (error < 0)
        return error;
    memory = mapfile_map(draft->fd, size, &error);
    if (!memory)
        return error;
    error = fill ? fill(memory, size, arg) : 0;
    munmap(memory, size);
    if (error < 0)
        return error;
    return fchmod(draft->fd, mode) < 0 ? -errno : 0;
}

static int mapfile_build(const char *path, size_t size, mode_t mode, mapfile_fill *fill, void *arg)
{
    struct mapfile_draft draft;
    int error = mapfile_draft_open(path, &draft);

    if (error < 0)
        return error;
    error = mapfile_draft_fill(&draft, size, mode, fill, arg);
    if (error == 0 &&
        linkat(AT_FDCWD, draft.name, AT_FDCWD, path, draft.named ? 0 : AT_SYMLINK_FOLLOW) < 0)
        error = -errno;
    if (draft.named)
        unlink(draft.name);
    if (error == 0)
        return draft.fd;
    close(draft.fd);
    return error;
}

int mapfile_create(const char *path, size_t size, mode_t mode, mapfile_fill *fill, void *arg)
{
    int saved = errno;
    int result;

    if (size == 0 || size > (size_t)PTRDIFF_MAX)
        return -EINVAL;
    result = mapfile_build(path, size, mode, fill, arg);
    errno = saved;
    return result;
}

static int mapfile_open_checked(const char *path, struct stat *st)
{
    struct stat found;
    int fd, error = 0;

    do {
        /* O_NONBLOCK: whatever somebody has put there must not hold us up. */
        fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &found) < 0)
        error = -errno;
    else if (!S_ISREG(found.st_mode))
        error = -EINVAL;
    if (error < 0) {
        close(fd);
        return error;
    }
    if (st)
        *st = found;
    return fd;
}

int mapfile_open(const char *path, struct stat *st)
{
    int saved = errno;
    int result = mapfile_open_checked(path, st);

    errno = saved;
    return result;
}

void *mapfile_map(int fd, size_t size, int *error)
{
    int saved = errno;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED) {
        if (error)
            *error = -errno;
        memory = NULL;
    }
    errno = saved;
    return memory;
}

void *mapfile_map_twin(int fd, size_t size, size_t span, int *error)
{
    int saved = errno;
    void *memory = mmap(NULL, 2 * span, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *error = memory == MAP_FAILED ? -errno : 0;
    if (*error == 0 &&
        mmap(memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        *error = -errno;
        munmap(memory, 2 * span);
    }
    errno = saved;
    return *error == 0 ? memory : NULL;
}

/* One operation on one byte; *found is the conflicting lock's type after F_OFD_GETLK. */
static int mapfile_lock_call(int fd, uint64_t byte, int command, short type, short *found)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1, .l_pid = 0};
    int saved = errno;
    int result = fcntl(fd, command, &lock) < 0 ? -errno : 0;

    errno = saved;
    *found = lock.l_type;
    return result == -EACCES ? -EAGAIN : result;
}

int mapfile_lock(int fd, uint64_t byte)
{
    short found;

    return mapfile_lock_call(fd, byte, F_OFD_SETLK, F_WRLCK, &found);
}

int mapfile_unlock(int fd, uint64_t byte)
{
    short found;

    return mapfile_lock_call(fd, byte, F_OFD_SETLK, F_UNLCK, &found);
}

int mapfile_locked(int fd, uint64_t byte)
{
    short found;
    int result = mapfile_lock_call(fd, byte, F_OFD_GETLK, F_WRLCK, &found);

    return result < 0 ? result : found != F_UNLCK;
}

static bool mapfile_is(const struct stat *st, uint64_t device, uint64_t inode)
{
    return st->st_dev == device && st->st_ino == inode;
}

int mapfile_named(const char *path, uint64_t device, uint64_t inode)
{
    struct stat st;
    int saved = errno;
    bool named = lstat(path, &st) == 0 ? mapfile_is(&st, device, inode)
                                       : errno != ENOENT && errno != ENOTDIR;
    errno = saved;
    return named;
}

int mapfile_reopen(const char *path, uint64_t device, uint64_t inode)
{
    struct stat st;
    int fd = mapfile_open(path, &st);
    if (fd < 0 || mapfile_is(&st, device, inode))
        return fd;
    close(fd);
    return -ESTALE;
}

int mapfile_find(const char *path, size_t size, mode_t mode, mapfile_fill *fill, void *arg)
{
    int fd = mapfile_open(path, NULL);
    for (unsigned tries = 0; fd == -ENOENT && tries < MAPFILE_TRIES; tries++) {
        fd = mapfile_create(path, size, mode, fill, arg);
        if (fd == -EEXIST)
            fd = mapfile_open(path, NULL);
    }
    return fd;
}

static int mapfile_directory_checked(const char *path)
{
    bool made = mkdir(path, 01777) == 0;
    struct stat st;
    int fd, error = 0;

    if (!made && errno != EEXIST && errno != EROFS)
        return -errno;
    fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        error = -errno;
    else if (!S_ISDIR(st.st_mode))
        error = S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
    close(fd);
    /* mkdir obeys umask, so a new directory needs its mode again. */
    if (error == 0 && made && chmod(path, 01777) < 0)
        error = -errno;
    return error;
}

int mapfile_directory(const char *path)
{
    int saved = errno;
    int result = mapfile_directory_checked(path);

    errno = saved;
    return result;
}
