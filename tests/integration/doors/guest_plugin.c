/*
 * guest_plugin: tries to load a library itself, and says how that went.
 */
#include <dlfcn.h>

const char *plugin_try(const char *file);
const char *plugin_try(const char *file)
{
    return dlopen(file, RTLD_NOW) ? "there" : dlerror();
}
