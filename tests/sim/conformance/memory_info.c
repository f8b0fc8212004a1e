/* Rule: cuMemGetInfo's free figure falls by an allocation and comes back with it; its total is the
 * device's; the figures are the device's, so another process's allocation shows in them.
 * Source: CUDA Driver API, cuMemGetInfo, cuDeviceTotalMem.
 */
#include "client.h"

#define BYTES ((size_t)512 << 20)
#define SLACK ((size_t)64 << 20)

static int taker_run(struct child *parent, void *arg)
{
    struct client c;
    CUdeviceptr memory;

    (void)arg;
    client_open(&c);
    client_tell(parent, 1);
    client_hear(parent);
    memory = client_alloc(BYTES);
    client_tell(parent, 1);
    client_hear(parent);
    CHECK_CU(cuMemFree(memory));
    client_tell(parent, 1);
    client_hear(parent);
    return 0;
}

int main(void)
{
    struct child taker = client_fork(taker_run, NULL);
    struct client c;
    size_t total, device_total, before, left;
    CUdeviceptr memory;

    client_open(&c);
    client_hear(&taker);
    CHECK_CU(cuMemGetInfo(&left, &total));
    CHECK_CU(cuDeviceTotalMem(&device_total, c.device));
    CHECK(total <= device_total && total >= device_total / 10 * 9, "total %zu, device %zu", total,
          device_total);
    before = client_free_bytes();
    memory = client_alloc(BYTES);
    left = client_free_bytes();
    CHECK(before - left >= BYTES && before - left <= BYTES + SLACK,
          "free fell by %zu for %zu bytes", before - left, BYTES);
    CHECK_CU(cuMemFree(memory));
    CHECK(client_free_bytes() + SLACK >= before, "free is %zu after freeing, %zu before",
          client_free_bytes(), before);
    client_tell(&taker, 1);
    client_hear(&taker);
    left = client_free_bytes();
    CHECK(before - left >= BYTES - SLACK, "another process's %zu bytes made free fall by %zu",
          BYTES, before - left);
    client_tell(&taker, 1);
    client_hear(&taker);
    CHECK(client_free_bytes() + SLACK >= before, "another process's bytes do not come back");
    client_tell(&taker, 1);
    client_join_passed(&taker);
    client_pass("free moved by this process's and another's %zu MiB", BYTES >> 20);
}
