/* A cuBLAS program: multiplies two matrices many times and checks the product. cuBLAS brings a
 * static runtime of its own, which finds the driver by itself.
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define SIDE 1024

static void check(int ok, const char *what)
{
    if (!ok) {
        printf("FAILED: %s\n", what);
        exit(1);
    }
}

int main(void)
{
    size_t bytes = sizeof(float) * SIDE * SIDE;
    float *host = malloc(bytes), *a, *b, *c;
    const float one = 1.0f, zero = 0.0f;
    cublasHandle_t handle;

    check(host != NULL, "memory");
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        host[i] = 2.0f;
    check(!cudaMalloc((void **)&a, bytes) && !cudaMalloc((void **)&b, bytes) &&
          !cudaMalloc((void **)&c, bytes), "cudaMalloc");
    check(!cudaMemcpy(a, host, bytes, cudaMemcpyHostToDevice), "copy of a");
    check(!cudaMemcpy(b, host, bytes, cudaMemcpyHostToDevice), "copy of b");
    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    for (int i = 0; i < 200; i++)
        check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, a, SIDE, b,
                          SIDE, &zero, c, SIDE) == CUBLAS_STATUS_SUCCESS, "cublasSgemm");
    check(!cudaDeviceSynchronize(), "synchronise");
    check(!cudaMemcpy(host, c, bytes, cudaMemcpyDeviceToHost), "copy of c");
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        check(host[i] == 4.0f * SIDE, "the product is wrong");
    cublasDestroy(handle);
    printf("ok: 200 products of %d x %d matrices\n", SIDE, SIDE);
    return 0;
}
