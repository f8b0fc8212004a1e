"""numba-cuda: kernels compiled from Python by NVVM, streams, an event, pinned arrays."""
import json

import numpy as np
from numba import cuda

COUNT = 4096
BLOCK = 48 << 20


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def smooth(x, y):
    tile = cuda.shared.array(258, dtype=np.float32)
    i, j = cuda.grid(1), cuda.threadIdx.x + 1
    if i < x.size:
        tile[j] = x[i]
    cuda.syncthreads()
    if 0 < i < x.size - 1:
        y[i] = (tile[j - 1] + tile[j] + tile[j + 1]) / 3


def compute():
    host = np.arange(COUNT, dtype=np.float32)
    x, y = cuda.to_device(host), cuda.to_device(host[::-1].copy())
    for _ in range(100):
        axpy[COUNT // 256, 256](2.0, x, y)
        smooth[COUNT // 256, 256](x, y)
    return [float(x.copy_to_host().sum()), float(y.copy_to_host()[0])]


def compute_streams():
    """Pinned memory and two streams, the copies between them in order of their events."""
    host = cuda.pinned_array(COUNT, dtype=np.float32)
    host[:] = np.arange(COUNT)
    streams, event = [cuda.stream(), cuda.stream()], cuda.event()
    first = cuda.to_device(host, stream=streams[0])
    axpy[COUNT // 256, 256, streams[0]](1.0, first, first)
    event.record(streams[0])
    event.wait(streams[1])
    second = cuda.device_array(COUNT, dtype=np.float32, stream=streams[1])
    second.copy_to_device(first, stream=streams[1])
    back = second.copy_to_host(stream=streams[1])
    streams[1].synchronize()
    return float(back.sum())


def fill_memory():
    blocks = []
    try:
        for _ in range(24):
            blocks.append(cuda.device_array(BLOCK, dtype=np.uint8))
    except Exception as error:  # what it raises is what is compared
        return blocks, str(error)
    return blocks, None


info = cuda.current_context().get_memory_info()
gpu = cuda.get_current_device()
same = [compute(), compute_streams(), gpu.name, list(gpu.compute_capability), gpu.uuid,
        gpu.MULTIPROCESSOR_COUNT]
got, refusal = fill_memory()
print(json.dumps({"same": [str(s) for s in same], "total": info.total, "free": info.free,
                  "blocks": len(got), "block": BLOCK, "refusal": refusal}))
