/*
 * memory: commands that take and give back device memory, and that ask for its figures.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "worker.h"

#define HELD 4096

/* One allocation: which function gives it back, and to what. */
struct held {
    CUresult (*release)(const struct held *held);
    CUdeviceptr pointer;
    uint64_t handle;
};

static struct held held[HELD];
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult memory_free(const struct held *h)
{
    return cu.cuMemFree_v2(h->pointer);
}

static CUresult memory_free_async(const struct held *h)
{
    return cu.cuMemFreeAsync(h->pointer, NULL);
}

static CUresult memory_free_async_ptsz(const struct held *h)
{
    return cu.cuMemFreeAsync_ptsz(h->pointer, NULL);
}

static CUresult memory_free_array(const struct held *h)
{
    return cu.cuArrayDestroy((CUarray)(uintptr_t)h->handle);
}

static CUresult memory_free_mipmapped(const struct held *h)
{
    return cu.cuMipmappedArrayDestroy((CUmipmappedArray)(uintptr_t)h->handle);
}

static CUresult memory_free_handle(const struct held *h)
{
    return cu.cuMemRelease(h->handle);
}

static CUresult memory_pitch(struct held *h, uint64_t bytes)
{
    size_t pitch = 0;

    /* Rows of 4 KiB: a multiple of any pitch, so that the size is exact. */
    return cu.cuMemAllocPitch_v2(&h->pointer, &pitch, 4096, bytes / 4096, 4);
}

static CUresult memory_pool(struct held *h, uint64_t bytes, bool per_thread)
{
    CUmemoryPool pool;
    CUresult rc = cu.cuDeviceGetDefaultMemPool(&pool, worker.device);

    if (rc != CUDA_SUCCESS)
        return rc;
    return per_thread ? cu.cuMemAllocFromPoolAsync_ptsz(&h->pointer, bytes, pool, NULL)
                      : cu.cuMemAllocFromPoolAsync(&h->pointer, bytes, pool, NULL);
}

static CUresult memory_array(struct held *h, uint64_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR d = {
        .Width = 1024, .Height = bytes / 4096, .NumChannels = 1, .Format = CU_AD_FORMAT_FLOAT};
    CUarray array = NULL;
    CUresult rc = cu.cuArrayCreate_v2(&array, &d);

    h->handle = (uintptr_t)array;
    return rc;
}

static CUresult memory_array3d(struct held *h, uint64_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 256,
                                 .Height = 256,
                                 .Depth = bytes / (256 * 256 * 4),
                                 .NumChannels = 1,
                                 .Format = CU_AD_FORMAT_FLOAT};
    CUarray array = NULL;
    CUresult rc = cu.cuArray3DCreate_v2(&array, &d);

    h->handle = (uintptr_t)array;
    return rc;
}

static CUresult memory_mipmapped(struct held *h, uint64_t bytes)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 1024, .Height = bytes / 4096, .NumChannels = 1, .Format = CU_AD_FORMAT_FLOAT};
    CUmipmappedArray array = NULL;
    CUresult rc = cu.cuMipmappedArrayCreate(&array, &d, 1);

    h->handle = (uintptr_t)array;
    return rc;
}

static CUresult memory_create(struct held *h, uint64_t bytes)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = worker.device}};
    CUmemGenericAllocationHandle handle = 0;
    CUresult rc = cu.cuMemCreate(&handle, bytes, &prop, 0);

    h->handle = handle;
    return rc;
}

static CUresult memory_take(const char *name, struct held *h, uint64_t bytes)
{
#define TAKE(which, release_, call) \
    if (!strcmp(name, #which)) { \
        h->release = release_; \
        return call; \
    }
    TAKE(cuMemAlloc_v2, memory_free, cu.cuMemAlloc_v2(&h->pointer, bytes))
    TAKE(cuMemAllocManaged, memory_free,
         cu.cuMemAllocManaged(&h->pointer, bytes, CU_MEM_ATTACH_GLOBAL))
    TAKE(cuMemAllocPitch_v2, memory_free, memory_pitch(h, bytes))
    TAKE(cuMemAllocAsync, memory_free_async, cu.cuMemAllocAsync(&h->pointer, bytes, NULL))
    TAKE(cuMemAllocAsync_ptsz, memory_free_async_ptsz,
         cu.cuMemAllocAsync_ptsz(&h->pointer, bytes, NULL))
    TAKE(cuMemAllocFromPoolAsync, memory_free_async, memory_pool(h, bytes, false))
    TAKE(cuMemAllocFromPoolAsync_ptsz, memory_free_async_ptsz, memory_pool(h, bytes, true))
    TAKE(cuArrayCreate_v2, memory_free_array, memory_array(h, bytes))
    TAKE(cuArray3DCreate_v2, memory_free_array, memory_array3d(h, bytes))
    TAKE(cuMipmappedArrayCreate, memory_free_mipmapped, memory_mipmapped(h, bytes))
    TAKE(cuMemCreate, memory_free_handle, memory_create(h, bytes))
    h->release = NULL;
    return (CUresult)-1;
}

static unsigned memory_place(void)
{
    unsigned place = 0;

    pthread_mutex_lock(&held_lock);
    while (place < HELD && held[place].release)
        place++;
    if (place < HELD)
        held[place].release = memory_free;
    pthread_mutex_unlock(&held_lock);
    return place;
}

/* alloc NAME BYTES: `result number`, or, when refused, `result touched` with touched 1 when an
 * output was written */
static void memory_alloc(struct job *job)
{
    const CUdeviceptr mark = 0x1234567890;
    unsigned place = memory_place();
    struct held h = {.pointer = mark};

    if (place == HELD) {
        job_answer(job, "no place");
        return;
    }
    CUresult rc = memory_take(job_text(job, 1, "cuMemAlloc_v2"), &h, job_number(job, 2, 0));
    if (rc != CUDA_SUCCESS) {
        job_answer(job, "%d %d", (int)rc, h.pointer != mark || h.handle != 0);
        h.release = NULL;
    } else {
        job_answer(job, "0 %u", place);
    }
    held[place] = h;
}

/* free NUMBER [async|sync] */
static void memory_give(struct job *job)
{
    unsigned place = (unsigned)job_number(job, 1, 0) % HELD;
    const char *how = job_text(job, 2, "");
    struct held h = held[place];
    CUresult rc;

    if (!h.release) {
        job_answer(job, "nothing there");
        return;
    }
    if (!strcmp(how, "async"))
        rc = cu.cuMemFreeAsync(h.pointer, NULL);
    else if (!strcmp(how, "sync"))
        rc = cu.cuMemFree_v2(h.pointer);
    else
        rc = h.release(&h);
    if (rc == CUDA_SUCCESS)
        held[place].release = NULL;
    job_answer(job, "%d", (int)rc);
}

static void memory_info(struct job *job)
{
    size_t free_bytes = 0, total = 0;
    CUresult rc = cu.cuMemGetInfo_v2(&free_bytes, &total);

    job_answer(job, "%d %zu %zu", (int)rc, free_bytes, total);
}

/* handed [ORDINAL]: what the simulated device has handed out to this process, by its own books:
 * `result memory context used orphaned managed resident`, the middle two of the whole device */
static void memory_handed(struct job *job)
{
    static const char *const names[] = {"simcudaHandedOut", "simcudaDeviceHandedOut",
                                        "simcudaManaged"};
    CUresult (*ask)(int, unsigned long long *, unsigned long long *);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    unsigned long long figures[6] = {0};
    CUresult rc = driver ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;

    for (unsigned i = 0; i < 3 && rc == CUDA_SUCCESS; i++) {
        *(void **)&ask = dlsym(driver, names[i]);
        rc = ask ? ask((int)job_number(job, 1, 0), &figures[2 * i], &figures[2 * i + 1])
                 : CUDA_ERROR_NOT_SUPPORTED;
    }
    if (driver)
        dlclose(driver);
    job_answer(job, "%d %llu %llu %llu %llu %llu %llu", (int)rc, figures[0], figures[1], figures[2],
               figures[3], figures[4], figures[5]);
}

/* total [ORDINAL] */
static void memory_total(struct job *job)
{
    size_t bytes = 0;
    CUresult rc = cu.cuDeviceTotalMem_v2(&bytes, (CUdevice)job_number(job, 1, 0));

    job_answer(job, "%d %zu", (int)rc, bytes);
}

/* nulls: what the calls say to missing outputs */
static void memory_nulls(struct job *job)
{
    size_t a = 0, b = 0;

    job_answer(job, "%d", (int)cu.cuMemGetInfo_v2(NULL, &a));
    job_answer(job, " %d", (int)cu.cuMemGetInfo_v2(&b, NULL));
    job_answer(job, " %d", (int)cu.cuMemGetInfo_v2(NULL, NULL));
    job_answer(job, " %d", (int)cu.cuDeviceTotalMem_v2(NULL, worker.device));
    job_answer(job, " %d", (int)cu.cuMemAlloc_v2(NULL, 4096));
    job_answer(job, " %d", (int)cu.cuMemAllocPitch_v2(NULL, NULL, 64, 64, 4));
    job_answer(job, " %d", (int)cu.cuMemFree_v2(0));
    /* Masked or not, an output that is there is filled or left alone as the driver does. */
    job_answer(job, " %d %d", a != 0, b != 0);
}

/* race MS BYTES: takes and gives back as fast as it can; `result taken refused` */
static void memory_race(struct job *job)
{
    uint64_t until = worker_now() + job_number(job, 1, 0) * MS, taken = 0, refused = 0;
    CUresult rc = CUDA_SUCCESS;
    CUdeviceptr pointer;

    while (rc == CUDA_SUCCESS && worker_now() < until) {
        rc = cu.cuMemAlloc_v2(&pointer, job_number(job, 2, 0));
        if (rc == CUDA_ERROR_OUT_OF_MEMORY) {
            refused++;
            rc = CUDA_SUCCESS;
            continue;
        }
        if (rc == CUDA_SUCCESS)
            rc = cu.cuMemFree_v2(pointer);
        taken++;
    }
    job_answer(job, "%d %llu %llu", (int)rc, (unsigned long long)taken,
               (unsigned long long)refused);
}

/* kind NUMBER: `result type managed` of a pointer */
static void memory_kind(struct job *job)
{
    CUdeviceptr pointer = held[job_number(job, 1, 0) % HELD].pointer;
    unsigned type = 0, managed = 0;
    CUresult rc = cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);

    cu.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer);
    job_answer(job, "%d %u %u", (int)rc, type, managed);
}

/* copy htod|dtoh BYTES: between device and pageable host memory; `result start end` */
static void memory_copy(struct job *job)
{
    static char host[PAD_BYTES];
    uint64_t bytes = job_number(job, 2, 4096), start = worker_now();
    CUdeviceptr device = worker.pad;
    CUresult rc;

    if (bytes > PAD_BYTES)
        bytes = PAD_BYTES;
    if (!strcmp(job_text(job, 1, ""), "htod"))
        rc = cu.cuMemcpyHtoD_v2(device, host, bytes);
    else
        rc = cu.cuMemcpyDtoH_v2(host, device, bytes);
    job_answer(job, "%d %llu %llu", (int)rc, (unsigned long long)start,
               (unsigned long long)worker_now());
}

const struct command commands_memory[] = {
    {"copy", memory_copy}, {"alloc", memory_alloc}, {"free", memory_give},
    {"info", memory_info}, {"total", memory_total}, {"nulls", memory_nulls},
    {"race", memory_race}, {"kind", memory_kind},   {"handed", memory_handed},
    {NULL, NULL},
};
