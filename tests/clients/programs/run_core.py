"""cuda.core: the object layer over the driver; programs, streams, events, graphs, memory."""
import json

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, launch

SOURCE = """
extern "C" __global__ void add_u32(unsigned *p, unsigned v)
{
    if (blockIdx.x + threadIdx.x == 0)
        *p += v;
}
template <typename T> __global__ void scale(T *p, T by, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] *= by;
}
"""
WORDS = 1024
BLOCK = 32 << 20  # a whole number of the pool's growth steps, which are not counted


def compute(device):
    options = ProgramOptions(std="c++17", arch="sm_%d%d" % device.compute_capability)
    module = Program(SOURCE, code_type="c++", options=options).compile(
        "cubin", name_expressions=("scale<float>", "add_u32"))
    scale, add = module.get_kernel("scale<float>"), module.get_kernel("add_u32")
    stream = device.create_stream()
    words = device.allocate(4 * WORDS, stream=stream)
    words.fill(0, stream=stream)
    config = LaunchConfig(grid=WORDS // 256, block=256)
    begin = stream.record(options=EventOptions(timing_enabled=True))
    for value in range(150):
        launch(stream, config, add, words, np.uint32(value))
        launch(stream, config, scale, words, np.float32(1.5), np.uint32(WORDS))
    end = stream.record(options=EventOptions(timing_enabled=True))
    end.sync()
    took = end - begin
    stream.sync()
    host = np.zeros(WORDS, np.uint32)
    error, = driver.cuMemcpyDtoH(host.ctypes.data, int(words.handle), 4 * WORDS)
    words.close(stream)
    return [int(host[0]), int(host.sum()), int(error), took >= 0.3 * 300]


def compute_graph(device):
    """The same through a captured graph."""
    options = ProgramOptions(arch="sm_%d%d" % device.compute_capability)
    module = Program(SOURCE, code_type="c++", options=options).compile(
        "cubin", name_expressions=("add_u32",))
    add = module.get_kernel("add_u32")
    stream = device.create_stream()
    words = device.allocate(4, stream=stream)
    words.fill(0, stream=stream)
    stream.sync()
    builder = stream.create_graph_builder()
    builder.begin_building()
    for value in (1, 2, 3):
        launch(builder, LaunchConfig(grid=1, block=1), add, words, np.uint32(value))
    graph = builder.end_building().complete()
    for _ in range(30):
        graph.launch(stream)
    stream.sync()
    host = np.zeros(1, np.uint32)
    driver.cuMemcpyDtoH(host.ctypes.data, int(words.handle), 4)
    words.close(stream)
    return int(host[0])


def fill_memory(device):
    blocks, stream = [], device.create_stream()
    try:
        for _ in range(24):
            blocks.append(device.allocate(BLOCK, stream=stream))
    except Exception as error:  # what it raises is what is compared
        return blocks, stream, str(error)
    return blocks, stream, None


gpu = Device(0)
gpu.set_current()
_, free, total = driver.cuMemGetInfo()
same = [compute(gpu), compute_graph(gpu), gpu.name, gpu.uuid, list(gpu.compute_capability)]
got, queue, refusal = fill_memory(gpu)
count = len(got)
for each in got:
    each.close(queue)
queue.sync()
print(json.dumps({"same": same, "total": total, "free": free, "blocks": count, "block": BLOCK,
                  "refusal": refusal}))
