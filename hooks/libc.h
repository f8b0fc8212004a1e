/*
 * libc: the real dlsym, dlvsym and dlopen, which ours stand in front of. Found without a lock, an
 * allocation or a look-up by the loader, since an allocator or a constructor may be the first to
 * ask. Objects that were there at the program's start never go, so their list can be walked freely.
 */
#ifndef CUSLICE_HOOKS_LIBC_H
#define CUSLICE_HOOKS_LIBC_H

#include <stdbool.h>

typedef void *libc_dlsym_function(void *handle, const char *name);
typedef void *libc_dlvsym_function(void *handle, const char *name, const char *version);
typedef void *libc_dlopen_function(const char *file, int mode);

/* What the doors of dlsym.S jump to: the next object's function behind ours, which is another
 * preload's where there is one. Set by libc_find. */
extern libc_dlsym_function *libc_next_dlsym;
extern libc_dlvsym_function *libc_next_dlvsym;
extern libc_dlopen_function *libc_next_dlopen;

/* libc's own. */
extern libc_dlsym_function *libc_dlsym;
extern libc_dlvsym_function *libc_dlvsym;
extern libc_dlopen_function *libc_dlopen;

/* Fills in the above; any thread, any number of times. */
void libc_find(void);

/* From now on whoever binds libc's dlsym, dlvsym or dlopen directly gets a door instead: for
 * callers loaded with RTLD_DEEPBIND, which look into libc before they look at us. False when libc's
 * table cannot be changed here. Keeps errno. */
bool libc_divert(void);

#endif
