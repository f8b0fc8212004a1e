"""PyCUDA: a context of its own, streams, events, page-locked memory, a pool, prepared calls."""
import json

import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from cuda.bindings import nvrtc
from pycuda.tools import DeviceMemoryPool

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
GRID, BLOCK_SHAPE = (WORDS // 256, 1), (256, 1, 1)
BLOCK = 48 << 20


def compile_source(capability):
    """PTX by NVRTC, as PyCUDA itself would call nvcc."""
    _, program = nvrtc.nvrtcCreateProgram(SOURCE, b"client.cu", 0, [], [])
    architecture = b"--gpu-architecture=compute_%d%d" % capability
    error, = nvrtc.nvrtcCompileProgram(program, 1, [architecture])
    assert not error.value, error
    ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, ptx)
    return cuda.module_from_buffer(ptx, options=[(cuda.jit_option.MAX_REGISTERS, 32)])


def compute(module):
    """Prepared calls and ordinary ones on a stream, timed by events, with page-locked memory."""
    fill, add = (module.get_function(name) for name in ("fill_u32", "add_u32"))
    add.prepare("PI")
    stream, begin, end = cuda.Stream(), cuda.Event(), cuda.Event()
    words = cuda.mem_alloc(4 * WORDS)
    host = cuda.pagelocked_empty(WORDS, np.uint32)
    begin.record(stream)
    fill(words, np.uint32(7), np.uint64(WORDS), grid=GRID, block=BLOCK_SHAPE, stream=stream)
    for value in range(250):
        add.prepared_async_call(GRID, BLOCK_SHAPE, stream, words, value)
    end.record(stream)
    cuda.memcpy_dtoh_async(host, words, stream)
    stream.synchronize()
    return [int(host[0]), int(host[1]), int(host.sum()), end.time_since(begin) >= 0.3 * 251]


def compute_arguments(module):
    """Arrays that PyCUDA copies there and back around the call; memory from its pool."""
    add, pool = module.get_function("add_u32"), DeviceMemoryPool()
    host, copy = np.arange(WORDS, dtype=np.uint32), np.zeros(WORDS, np.uint32)
    for value in range(20):
        add(cuda.InOut(host), np.uint32(value), grid=GRID, block=BLOCK_SHAPE)
    first, second = pool.allocate(host.nbytes), pool.allocate(host.nbytes)
    cuda.memcpy_htod(first, host)
    cuda.memset_d32(int(second), 5, WORDS)
    cuda.memcpy_dtod(second, first, host.nbytes // 2)
    cuda.memcpy_dtoh(copy, second)
    first.free()
    second.free()
    return [int(copy[0]), int(copy.sum()), pool.active_blocks, pool.held_blocks > 0]


def change_context(device):
    """A second context on top of the first, and away again with what was in it."""
    first = cuda.Context.get_current()
    second = device.make_context()
    words = cuda.mem_alloc(4 * WORDS)
    cuda.memset_d32(words, 9, WORDS)
    host = np.zeros(WORDS, np.uint32)
    cuda.memcpy_dtoh(host, words)
    words.free()
    second.pop()
    second.detach()
    return [int(host.sum()), cuda.Context.get_current() == first]


def fill_memory():
    blocks = []
    try:
        for _ in range(24):
            blocks.append(cuda.mem_alloc(BLOCK))
    except cuda.MemoryError as error:
        return blocks, str(error)
    return blocks, None


gpu = pycuda.autoinit.device
free, total = cuda.mem_get_info()
image = compile_source(gpu.compute_capability())
same = [compute(image), compute_arguments(image), change_context(gpu), gpu.name(),
        gpu.pci_bus_id(), list(gpu.compute_capability()), cuda.get_driver_version(),
        gpu.total_memory() == total]
got, refusal = fill_memory()
print(json.dumps({"same": same, "total": total, "free": free, "blocks": len(got), "block": BLOCK,
                  "refusal": refusal}))
