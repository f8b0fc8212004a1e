/* A program on NVIDIA's runtime, as nvcc builds it: kernels by <<<>>>, copies, events, streams, a
 * captured graph. With a number as its argument it checks besides that the device's memory is told
 * as that many bytes, and that no more than that can be had.
 */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            printf("FAILED: line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(error_));        \
            exit(error_ == cudaErrorNoDevice ? 77 : 1);                                            \
        }                                                                                          \
    } while (0)

__global__ void add(const float *a, const float *b, float *sum, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        sum[i] = a[i] + b[i];
}

static void check_sum(const std::vector<float> &sum, int step)
{
    for (size_t i = 0; i < sum.size(); i++)
        if (sum[i] != 3.0f * (float)(i % 1000)) {
            printf("FAILED: step %d: element %zu is %f\n", step, i, sum[i]);
            exit(1);
        }
}

static void check_cap(size_t cap)
{
    size_t left, total;
    void *memory;

    CHECK(cudaMemGetInfo(&left, &total));
    if (total != cap || left > cap) {
        printf("FAILED: memory %zu of %zu, expected a total of %zu\n", left, total, cap);
        exit(1);
    }
    if (cudaMalloc(&memory, cap + (1 << 20)) != cudaErrorMemoryAllocation) {
        printf("FAILED: more than the cap could be had\n");
        exit(1);
    }
    (void)cudaGetLastError();
    CHECK(cudaMalloc(&memory, cap / 2));
    CHECK(cudaFree(memory));
}

int main(int argc, char **argv)
{
    const int count = 1 << 20;
    const size_t bytes = count * sizeof(float);
    std::vector<float> a(count), b(count), sum(count);
    float *da, *db, *ds;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;

    for (int i = 0; i < count; i++) {
        a[i] = (float)(i % 1000);
        b[i] = 2.0f * (float)(i % 1000);
    }
    CHECK(cudaMalloc(&da, bytes));
    CHECK(cudaMalloc(&db, bytes));
    CHECK(cudaMalloc(&ds, bytes));
    CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
    add<<<(count + 255) / 256, 256>>>(da, db, ds, count);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sum.data(), ds, bytes, cudaMemcpyDeviceToHost));
    check_sum(sum, 1);

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(ds, 0, bytes, stream));
    add<<<(count + 255) / 256, 256, 0, stream>>>(da, db, ds, count);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 100; i++)
        CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(sum.data(), ds, bytes, cudaMemcpyDeviceToHost));
    check_sum(sum, 2);
    if (argc > 1)
        check_cap(strtoull(argv[1], NULL, 0));
    printf("ok: kernels and a graph gave the right sums%s\n", argc > 1 ? ", the cap held" : "");
    return 0;
}
