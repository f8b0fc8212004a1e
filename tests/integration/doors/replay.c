/*
 * replay: makes the look-ups of a list as the CUDA runtime makes them: one dlsym, no status
 * pointer, and from the look-up of the look-up on with the function that was given for it. Knows no
 * CUDA.
 */
#include "look.h"

int main(int argc, char **argv)
{
    char name[128], empty[] = "-";
    int version, flags;
    FILE *list = argc == 2 ? fopen(argv[1], "r") : NULL;
    void *driver = look_open("libcuda.so.1");
    look_proc_v2 *proc = driver ? (look_proc_v2 *)dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (!list || !proc)
        return 1;
    while (fscanf(list, " %127s %d %d", name, &version, &flags) == 3) {
        void *function = NULL;
        const char *symbol;
        int rc = proc(strcmp(name, empty) ? name : "", &function, version, (uint64_t)flags, NULL);
        const char *owner = look_owner(rc == 0 ? function : NULL, &symbol);
        printf("%s %d %d %d %s %s\n", name, version, flags, rc, owner, symbol);
        if (rc == 0 && function && !strcmp(name, "cuGetProcAddress") && version >= 12000)
            proc = (look_proc_v2 *)function;
    }
    return 0;
}
