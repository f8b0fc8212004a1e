/*
 * The program: looks through every door of its own, then has its plugins and its fellow preloads
 * look. Arguments: the doors to open.
 */
#include "linked.h"

typedef void look_function(const char *who);

static void program_ask(void *handle, const char *name, const char *who)
{
    look_function *ask = (look_function *)dlsym(handle, name);
    if (ask)
        ask(who);
    else
        printf("error no %s for %s\n", name, who);
}

static void program_plugin(const char *file, int mode, const char *name, const char *who)
{
    void *plugin = dlopen(file, mode);
    if (plugin)
        program_ask(plugin, name, who);
    else
        printf("error %s\n", dlerror());
}

static void program_namespace(void)
{
    void *driver = dlmopen(LM_ID_NEWLM, getenv("DRIVER"), RTLD_NOW);
    if (driver)
        look_by_dlsym("namespace", driver);
    else
        printf("error %s\n", dlerror());
}

/* One name at every version: what was found, where it changes. */
static void program_sweep_one(look_proc_v2 *proc, const char *base, int flags)
{
    const char *before = "";
    for (int step = 0; step < LOOK_STEPS; step++) {
        void *function = NULL;
        const char *symbol;
        int rc = proc(base, &function, look_version(step), (uint64_t)flags, NULL);
        const char *owner = look_owner(rc == 0 ? function : NULL, &symbol);
        if (strcmp(symbol, before))
            printf("sweep %s:%d:%d %s %s\n", base, look_version(step), flags, owner, symbol);
        before = symbol;
    }
}

static void program_sweep(const char *file)
{
    char base[128];
    FILE *names = fopen(file, "r");
    look_proc_v2 *proc = (look_proc_v2 *)dlsym(look_open("libcuda.so.1"), "cuGetProcAddress_v2");
    while (names && proc && fscanf(names, "%127s", base) == 1)
        for (int flags = 0; flags <= 2; flags++)
            program_sweep_one(proc, base, flags);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *what = argv[i];
        if (!strcmp(what, "own")) {
            look_linked("linked");
            look_all("");
            look_by_dlsym("next", RTLD_NEXT);
        } else if (!strcmp(what, "before") || !strcmp(what, "after")) {
            char name[64];
            snprintf(name, sizeof name, "preload_%s", what);
            program_ask(RTLD_DEFAULT, name, what);
        } else if (!strcmp(what, "deep")) {
            program_plugin(getenv("PLUGIN"), RTLD_NOW | RTLD_DEEPBIND, "plugin_look", "deepbind-");
            program_plugin(getenv("PLUGIN"), RTLD_NOW | RTLD_DEEPBIND, "plugin_next",
                           "deepbind-next");
            program_plugin(getenv("LINKED"), RTLD_NOW | RTLD_DEEPBIND, "plugin_look",
                           "deepbind-linked");
        } else if (!strcmp(what, "use")) {
            program_plugin(getenv("LINKED"), RTLD_LAZY | RTLD_DEEPBIND, "plugin_use", "deepbind");
        } else if (!strcmp(what, "namespace")) {
            program_namespace();
        } else {
            program_sweep(what);
        }
    }
    return 0;
}
