/*
 * guest: what a program that knows no CUDA sees of the loader. Prints the same with the library and
 * without, whether there is a driver or not.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int chain_dlsyms, chain_dlopens;
__attribute__((weak)) int chain_dlsyms, chain_dlopens;

static void guest_try(const char *file, int mode)
{
    void *handle = dlopen(file, mode);
    const char *error = dlerror();
    printf("%s %x: %s\n", file, mode, handle ? "there" : error);
}

static void guest_plugin(int mode)
{
    void *plugin = dlopen(getenv("PLUGIN"), mode);
    char *(*ask)(const char *) = NULL;
    if (plugin)
        *(void **)&ask = dlsym(plugin, "plugin_try");
    printf("plugin %x: %s\n", mode, ask ? ask("libcuda.so.1") : dlerror());
}

int main(void)
{
    void *self = dlopen(NULL, RTLD_NOW);
    int before = chain_dlsyms;
    guest_try("libcuda.so.1", RTLD_NOW);
    guest_try("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    guest_try("libcuda.so.1", RTLD_LAZY | RTLD_DEEPBIND);
    guest_try("libcuda.so", RTLD_NOW);
    guest_try("/nowhere/libcuda.so.1", RTLD_NOW);
    guest_plugin(RTLD_NOW);
    guest_plugin(RTLD_NOW | RTLD_DEEPBIND);
    guest_plugin(RTLD_NOW | RTLD_DEEPBIND);
    /* The runpath is this program's: a library by its bare name is found as the caller finds it. */
    guest_try("libbeside.so", RTLD_NOW);
    guest_try("libbeside.so", RTLD_NOW | RTLD_DEEPBIND);
    printf("%d %d\n", dlsym(self, "main") != NULL, dlsym(RTLD_DEFAULT, "getenv") != NULL);
    printf("%d %s\n", dlvsym(RTLD_DEFAULT, "getenv", "NO_SUCH") != NULL, dlerror());
    printf("chain %d %d\n", chain_dlsyms - before, chain_dlopens);
    return 0;
}
