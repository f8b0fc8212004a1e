"""cuda.bindings: NVRTC to a cubin, the driver API call by call, kernels whose results are real."""
import ctypes
import json

from cuda.bindings import driver, nvrtc

SOURCE = rb"""
extern "C" __global__ void fill_u32(unsigned *p, unsigned v, unsigned long long n)
{
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = v;
}
extern "C" __global__ void add_u32(unsigned *p, unsigned v)
{
    if (blockIdx.x + threadIdx.x == 0)
        *p += v;
}
"""
WORDS = 4096
BLOCK = 48 << 20


def ok(answer):
    error, *values = answer
    if error.value:
        raise RuntimeError(error)
    return values[0] if len(values) == 1 else values


def compile_source(architecture):
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"client.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=" + architecture]))
    cubin = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
    ok(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin


def launch(function, stream, values, types):
    ok(driver.cuLaunchKernel(function, WORDS // 256, 1, 1, 256, 1, 1, 0, stream, (values, types),
                             0))


def compute(module):
    fill, add = (ok(driver.cuModuleGetFunction(module, n)) for n in (b"fill_u32", b"add_u32"))
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    words = ok(driver.cuMemAlloc(4 * WORDS))
    other = ok(driver.cuMemAllocAsync(4 * WORDS, stream))
    ok(driver.cuMemsetD32Async(other, 5, WORDS, stream))
    launch(fill, stream, (words, 7, WORDS), (None, ctypes.c_uint, ctypes.c_ulonglong))
    for value in range(250):
        launch(add, stream, (words, value), (None, ctypes.c_uint))
    ok(driver.cuMemcpyDtoDAsync(other, words, 2 * WORDS, stream))
    host = (ctypes.c_uint * WORDS)()
    ok(driver.cuMemcpyDtoHAsync(ctypes.addressof(host), other, 4 * WORDS, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemFreeAsync(other, stream))
    ok(driver.cuMemFree(words))
    ok(driver.cuStreamDestroy(stream))
    return [host[0], host[1], host[WORDS - 1], sum(host)]


def fill_memory():
    blocks = []
    for _ in range(24):
        error, pointer = driver.cuMemAlloc(BLOCK)
        if error.value:
            return blocks, error.name
        blocks.append(pointer)
    return blocks, None


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
attribute = driver.CUdevice_attribute
major, minor = (ok(driver.cuDeviceGetAttribute(a, device)) for a in (
    attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
free, total = ok(driver.cuMemGetInfo())
image = ok(driver.cuModuleLoadData(compile_source(b"sm_%d%d" % (major, minor))))
same = [compute(image), ok(driver.cuDeviceGetName(64, device)).decode().rstrip("\0 "),
        ok(driver.cuDriverGetVersion()), ok(driver.cuDeviceGetUuid(device)).bytes.hex(),
        ok(driver.cuDeviceGetPCIBusId(32, device)).decode().rstrip("\0 ")]
got, refusal = fill_memory()
for each in got:
    ok(driver.cuMemFree(each))
ok(driver.cuModuleUnload(image))
ok(driver.cuDevicePrimaryCtxRelease(device))
print(json.dumps({"same": same, "total": total, "free": free, "blocks": len(got), "block": BLOCK,
                  "refusal": refusal}))
