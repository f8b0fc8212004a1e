/*
 * runtime: wakes one copy of the CUDA runtime up: the one it is linked with, or, given a library
 * and a function of it, the copy within that library. What the call returns does not matter here.
 */
#include <dlfcn.h>
#include <stdio.h>

#ifdef LINKED_RUNTIME
int cudaGetDeviceCount(int *count);

int main(void)
{
    int count;
    printf("%d\n", cudaGetDeviceCount(&count));
    return 0;
}
#else
int main(int argc, char **argv)
{
    void *places[64] = {0};
    void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*call)(void *, long, void *) = NULL;
    if (library)
        *(void **)&call = dlsym(library, argv[2]);
    if (!call) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("%d\n", call(places, 1, NULL));
    return 0;
}
#endif
