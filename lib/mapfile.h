/*
 * mapfile: files that are mapped and shared, and the kernel-held byte locks on them.
 * Files appear whole: built aside, allocated in full, filled, and only then linked to their name.
 * No symbolic link is followed in the last component, no file is ever shortened.
 * Calls return 0 (or a descriptor) or -errno and keep errno; the caller owns descriptors and
 * mappings.
 */
#ifndef CUSLICE_MAPFILE_H
#define CUSLICE_MAPFILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Fills a new file of zero bytes before anybody else can see it; 0 or -errno. */
typedef int mapfile_fill(void *memory, size_t size, void *arg);

/* Creates `path` with exactly `size` bytes and `mode` (umask is ignored); returns its descriptor
 * (read and write, close-on-exec), -EEXIST when the name is taken, also when somebody was faster;
 * -ENOSPC, ... */
int mapfile_create(const char *path, size_t size, mode_t mode, mapfile_fill *fill, void *arg);

/* The file that has the name, or a new one made as above: somebody may be faster, and somebody may
 * remove it meanwhile. */
int mapfile_find(const char *path, size_t size, mode_t mode, mapfile_fill *fill, void *arg);

/* Opens an existing regular file for reading and writing, never creating it. *st (may be NULL) is
 * set on success. -ELOOP for a symbolic link, -EINVAL for anything else that is not a regular file.
 */
int mapfile_open(const char *path, struct stat *st);

/* Maps `size` bytes of the file, shared, readable and writable; NULL when it cannot, with the
 * reason in *error (-errno; error may be NULL). */
void *mapfile_map(int fd, size_t size, int *error);

/* The same, with private zero bytes behind it: `span` in all for the file, a multiple of the page
 * size, and `span` for those. One munmap of both. */
void *mapfile_map_twin(int fd, size_t size, size_t span, int *error);

/* Takes the write lock on one byte for this open file description; -EAGAIN when another has it.
 * Never blocks. The lock lives as long as any descriptor or mapping made from the description. */
int mapfile_lock(int fd, uint64_t byte);

/* Gives the byte back. */
int mapfile_unlock(int fd, uint64_t byte);

/* 1 when another open file description holds the byte, 0 when it is free or held through `fd`
 * itself. */
int mapfile_locked(int fd, uint64_t byte);

/* 1 when `path` still names the file with this st_dev and st_ino, and while it cannot be looked at;
 * 0 when it names another, a link, or nothing. */
int mapfile_named(const char *path, uint64_t device, uint64_t inode);

/* Opens that file once more, with a description of its own; -ESTALE when the path names another. */
int mapfile_reopen(const char *path, uint64_t device, uint64_t inode);

/* Makes sure that `path` is a directory; a new one gets mode 1777, an existing one is left as it
 * is. -ELOOP for a symbolic link, -ENOTDIR for a file. The parent must exist. */
int mapfile_directory(const char *path);

#endif
