"""tinygrad on its CUDA backend: copies, and a step that TinyJit replays as a CUDA graph."""
import ctypes
import hashlib
import json

import numpy as np
from tinygrad import Device, Tensor, TinyJit
from tinygrad.runtime.autogen import cuda
from tinygrad.runtime.ops_cuda import check

BLOCK = 48 << 20
ROWS = 64


@TinyJit
def step(x, w):
    h = (x @ w).relu()
    loss = (h * h).mean()
    return (w - h.T @ x * 0.01).realize(), loss.realize()


def copy():
    """Through the device and back."""
    host = np.arange(ROWS * ROWS, dtype=np.float32).reshape(ROWS, ROWS)
    back = Tensor(host, device="CUDA").realize().numpy()
    return hashlib.sha256(back.tobytes()).hexdigest(), bool((host == back).all())


def compute():
    x = Tensor(np.ones((ROWS, ROWS), np.float32), device="CUDA").realize()
    w = Tensor(np.full((ROWS, ROWS), 0.5, np.float32), device="CUDA").realize()
    for _ in range(60):
        new, loss = step(x, w)
    for _ in range(40):
        (x + w).contiguous().realize()
    return list(new.shape), list(loss.shape), float(loss.numpy())


def memory_info():
    figures = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuMemGetInfo_v2(*(ctypes.byref(f) for f in figures)))
    return [f.value for f in figures]


def fill_memory():
    blocks = []
    try:
        for _ in range(24):
            blocks.append(Tensor.empty(BLOCK // 4, device="CUDA").uop.buffer.allocate())
    except Exception as error:  # what it raises is what is compared
        return blocks, "%s: %s" % (type(error).__name__, error)
    return blocks, None


gpu = Device["CUDA"]
free, total = memory_info()
same = [copy(), compute(), gpu.count()]
got, refusal = fill_memory()
print(json.dumps({"same": same, "total": total, "free": free, "blocks": len(got), "block": BLOCK,
                  "refusal": refusal}))
