"""Taichi's CUDA backend: fields, kernels from Python, copies to and from NumPy."""
import ctypes
import json

import numpy as np
import taichi as ti

BLOCK = 32 << 20  # a whole number of the pool's growth steps, which are not counted
COUNT = 4096

ti.init(arch=ti.cuda, offline_cache=False, device_memory_GB=0.1, log_level=ti.ERROR, random_seed=1)


@ti.kernel
def scale(x: ti.types.ndarray(), by: ti.f32):
    for i in x:
        x[i] = x[i] * by


def compute():
    host = np.arange(COUNT, dtype=np.float32)
    field, array = ti.field(ti.f32, shape=COUNT), ti.ndarray(ti.f32, shape=COUNT)
    field.from_numpy(host)
    array.from_numpy(host)
    for _ in range(200):
        scale(array, 1.25)
    ti.sync()
    return float(field.to_numpy().sum()), float(array.to_numpy().sum()), str(ti.cfg.arch)


def memory_info():
    """Asked of the driver that Taichi has loaded."""
    driver, figures = ctypes.CDLL("libcuda.so.1"), (ctypes.c_size_t(), ctypes.c_size_t())
    assert driver.cuMemGetInfo_v2(*(ctypes.byref(f) for f in figures)) == 0
    return [f.value for f in figures]


def fill_memory():
    blocks = []
    try:
        for _ in range(24):
            blocks.append(ti.ndarray(ti.u8, shape=BLOCK))
    except Exception as error:  # what it raises is what is compared
        return blocks, "%s: %s" % (type(error).__name__, error)
    return blocks, None


free, total = memory_info()
same = compute()
got, refusal = fill_memory()
print(json.dumps({"same": same, "total": total, "free": free, "blocks": len(got), "block": BLOCK,
                  "refusal": refusal}))
