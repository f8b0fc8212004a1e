/*
 * storm_client: many threads take and give back device memory of many kinds at random, each giving
 * back what others took. One process of a tenant near its cap, or all of it.
 *
 *   storm_client SEED THREADS STEPS KINDS BYTES PLACES [LOG]
 *
 * KINDS: letters, l(inear) m(anaged) a(rray) v(irtual memory: a handle) x (mapped, without handle)
 * p (the device's pool) q (a pool of its own). BYTES: the largest request. PLACES: how many may be
 * alive at once. LOG: a file of struct record, one for each call. Says `ready` and waits for a
 * line; a result that is neither success nor CUDA_ERROR_OUT_OF_MEMORY of a request fails it.
 * Prints `done TAKEN REFUSED LEFT`, LEFT being what the device has for it after all was given back.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "client.h"

#include <stdatomic.h>

#define MIB ((size_t)1 << 20)
#define PLACES_MOST 65536u

struct record {
    uint64_t start, end;
    int64_t bytes; /* taken; given back when below 0; 0: refused */
    uint64_t asked;
};

/* One allocation. `state`: 0 free, 1 somebody is at it, 2 there. */
struct place {
    _Atomic unsigned state;
    char kind;
    uint64_t key;
    size_t bytes;
};

struct thread {
    unsigned long long taken, refused;
    uint64_t random;
    struct record *log;
    size_t logged;
    CUstream stream;
};

static struct client client;
static struct place places[PLACES_MOST];
static unsigned steps, places_count;
static const char *kinds;
static size_t most;
static CUmemoryPool own;
static bool logging;

static uint64_t next(struct thread *t)
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return t->random;
}

static CUmemAllocationProp prop_here(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
}

static CUresult take_mapped(uint64_t *key, size_t bytes)
{
    CUmemAllocationProp prop = prop_here();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range;
    CUresult rc = cuMemCreate(&handle, bytes, &prop, 0);
    if (rc != CUDA_SUCCESS)
        return rc;
    CHECK_CU(cuMemAddressReserve(&range, bytes, 0, 0, 0));
    CHECK_CU(cuMemMap(range, bytes, 0, handle, 0));
    CHECK_CU(cuMemRelease(handle));
    *key = range;
    return rc;
}

/* Bytes as the device will hand them out. */
static size_t whole(char kind, size_t bytes)
{
    size_t grain = kind == 'v' || kind == 'x' ? 2 * MIB : kind == 'a' ? 4096 : 512;
    return (bytes + grain - 1) / grain * grain;
}

static CUresult take(struct thread *t, char kind, size_t bytes, uint64_t *key)
{
    CUDA_ARRAY_DESCRIPTOR flat = {1024, bytes / 4096, CU_AD_FORMAT_FLOAT, 1};
    CUmemAllocationProp prop = prop_here();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr pointer = 0;
    CUarray array = NULL;
    CUresult rc;
    switch (kind) {
    case 'l':
        rc = cuMemAlloc_v2(&pointer, bytes);
        break;
    case 'm':
        rc = cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
        break;
    case 'a':
        rc = cuArrayCreate_v2(&array, &flat);
        break;
    case 'v':
        rc = cuMemCreate(&handle, bytes, &prop, 0);
        break;
    case 'x':
        return take_mapped(key, bytes);
    case 'p':
        rc = cuMemAllocAsync(&pointer, bytes, t->stream);
        break;
    default:
        rc = cuMemAllocFromPoolAsync(&pointer, bytes, own, t->stream);
    }
    *key = pointer ? pointer : handle ? handle : (uintptr_t)array;
    return rc;
}

static CUresult give(struct thread *t, const struct place *p)
{
    switch (p->kind) {
    case 'a':
        return cuArrayDestroy((CUarray)(uintptr_t)p->key);
    case 'v':
        return cuMemRelease(p->key);
    case 'x':
        CHECK_CU(cuMemUnmap(p->key, p->bytes));
        return cuMemAddressFree(p->key, p->bytes);
    case 'p':
    case 'q':
        return next(t) % 8 ? cuMemFreeAsync(p->key, t->stream) : cuMemFree_v2(p->key);
    default:
        return cuMemFree_v2(p->key);
    }
}

static void note(struct thread *t, uint64_t start, int64_t bytes, size_t asked)
{
    if (logging)
        t->log[t->logged++] = (struct record){start, client_now(), bytes, asked};
}

static void step_take(struct thread *t, struct place *p)
{
    char kind = kinds[next(t) % strlen(kinds)];
    size_t bytes = whole(kind, next(t) % most + 1);
    uint64_t start = client_now();
    CUresult rc = take(t, kind, bytes, &p->key);
    CHECK(rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY, "kind %c, %zu bytes: %s", kind,
          bytes, client_error_name(rc));
    p->kind = kind;
    p->bytes = bytes;
    note(t, start, rc == CUDA_SUCCESS ? (int64_t)bytes : 0, bytes);
    *(rc == CUDA_SUCCESS ? &t->taken : &t->refused) += 1;
    p->state = rc == CUDA_SUCCESS ? 2 : 0;
}

static void step_give(struct thread *t, struct place *p)
{
    uint64_t start = client_now();
    CUresult rc = give(t, p);
    CHECK(rc == CUDA_SUCCESS, "giving back kind %c: %s", p->kind, client_error_name(rc));
    note(t, start, -(int64_t)p->bytes, 0);
    p->state = 0;
}

static void step(struct thread *t)
{
    struct place *p = &places[next(t) % places_count];
    unsigned none = 0, there = 2;
    if (next(t) % 64 == 0)
        CHECK_CU(cuStreamSynchronize(t->stream));
    if (atomic_compare_exchange_strong(&p->state, &none, 1))
        step_take(t, p);
    else if (atomic_compare_exchange_strong(&p->state, &there, 1))
        step_give(t, p);
}

static void *body(void *arg)
{
    struct thread *t = arg;
    client_adopt(&client);
    t->stream = client_stream(CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < steps; i++)
        step(t);
    return NULL;
}

static void open_pool(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, client.device}};
    if (strchr(kinds, 'q'))
        CHECK_CU(cuMemPoolCreate(&own, &props));
}

static void write_log(const char *path, const struct thread *t, unsigned count)
{
    FILE *file = fopen(path, "wb");
    CHECK(file, "cannot write %s", path);
    for (unsigned i = 0; i < count; i++)
        CHECK(fwrite(t[i].log, sizeof *t[i].log, t[i].logged, file) == t[i].logged, "log");
    CHECK(fclose(file) == 0, "log");
}

int main(int argc, char **argv)
{
    struct thread *t, all = {0};
    char line[16];
    CHECK(argc >= 7, "arguments are missing");
    unsigned count = (unsigned)atoi(argv[2]);
    pthread_t *threads = calloc(count, sizeof *threads);
    t = calloc(count + 1, sizeof *t);
    steps = (unsigned)atoi(argv[3]);
    kinds = argv[4];
    most = strtoull(argv[5], NULL, 10);
    places_count = (unsigned)atoi(argv[6]);
    logging = argc > 7;
    CHECK(threads && t && places_count <= PLACES_MOST, "no memory");
    client_open(&client);
    open_pool();
    for (unsigned i = 0; i <= count; i++) {
        t[i].random = strtoull(argv[1], NULL, 10) * 1000003 + i * 7919 + 1;
        t[i].log = calloc(logging ? (size_t)steps + PLACES_MOST : 1, sizeof *t[i].log);
        CHECK(t[i].log, "no memory");
    }
    printf("ready\n");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin), "nobody says when to begin");
    for (unsigned i = 0; i < count; i++)
        threads[i] = client_thread(body, &t[i]);
    for (unsigned i = 0; i < count; i++) {
        client_thread_join(threads[i]);
        all.taken += t[i].taken;
        all.refused += t[i].refused;
    }
    for (unsigned i = 0; i < places_count; i++)
        if (places[i].state == 2)
            step_give(&t[count], &places[i]);
    CHECK_CU(cuCtxSynchronize());
    if (logging)
        write_log(argv[7], t, count + 1);
    printf("done %llu %llu %llu\n", all.taken, all.refused,
           client_handed_out(client.device).memory);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin), "nobody says when to end");
    return 0;
}
