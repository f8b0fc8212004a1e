/*
 * unload: a program that loads the CUDA driver by itself, works, gives its handle back, works on
 * through the functions it has, looks the driver up again, and ends. It is not linked with the
 * driver, so that its own handle may be the only one. Prints one line a step.
 *
 *   unload FILE.ptx     a module with the kernel spin_ns(u64)
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void *driver;
static char text[1 << 16];
static int (*init)(unsigned);
static int (*device_get)(int *, int);
static int (*context_retain)(void **, int);
static int (*context_set)(void *);
static int (*context_wait)(void);
static int (*module_load)(void **, const void *);
static int (*module_function)(void **, void *, const char *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);
static int (*alloc)(uint64_t *, size_t);

static void unload_find(void *place, const char *name)
{
    void *found = dlsym(driver, name);

    memcpy(place, &found, sizeof found);
}

static int unload_open(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return -1;
    unload_find(&init, "cuInit");
    unload_find(&device_get, "cuDeviceGet");
    unload_find(&context_retain, "cuDevicePrimaryCtxRetain");
    unload_find(&context_set, "cuCtxSetCurrent");
    unload_find(&context_wait, "cuCtxSynchronize");
    unload_find(&module_load, "cuModuleLoadData");
    unload_find(&module_function, "cuModuleGetFunction");
    unload_find(&launch, "cuLaunchKernel");
    unload_find(&alloc, "cuMemAlloc_v2");
    return 0;
}

static void *function;

static int unload_start(void)
{
    void *context, *module;
    int device, rc = init(0);

    if (rc == 0)
        rc = device_get(&device, 0);
    if (rc == 0)
        rc = context_retain(&context, device);
    if (rc == 0)
        rc = context_set(context);
    if (rc == 0)
        rc = module_load(&module, text);
    return rc ? rc : module_function(&function, module, "spin_ns");
}

static int unload_work(unsigned count)
{
    uint64_t ns = 1000000;
    void *arguments[] = {&ns};
    int rc = 0;

    while (rc == 0 && count-- > 0)
        rc = launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
    return rc ? rc : context_wait();
}

static int unload_above_cap(void)
{
    uint64_t pointer;

    return alloc(&pointer, (size_t)65 << 20);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;

    if (!file || fread(text, 1, sizeof text - 1, file) == 0) {
        fprintf(stderr, "usage: unload FILE.ptx\n");
        return 2;
    }
    fclose(file);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("opened %d\n", unload_open());
    printf("closed before cuInit %d\n", dlclose(driver));
    printf("opened %d\n", unload_open());
    printf("started %d\n", unload_start());
    printf("worked %d\n", unload_work(20));
    printf("closed %d\n", dlclose(driver));
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    printf("worked %d\n", unload_work(100));
    printf("above the cap %d\n", unload_above_cap());
    printf("opened %d\n", unload_open());
    printf("worked %d\n", unload_work(100));
    printf("above the cap %d\n", unload_above_cap());
    printf("closed %d\n", dlclose(driver));
    return 0;
}
