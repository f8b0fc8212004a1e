"""nvidia-ml-py and nvitop's interface to it: what they say of the device and of who is on it."""
import json

import pynvml
from nvitop import Device

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
same = {
    "count": pynvml.nvmlDeviceGetCount(), "driver": pynvml.nvmlSystemGetDriverVersion(),
    "cuda": pynvml.nvmlSystemGetCudaDriverVersion(), "name": pynvml.nvmlDeviceGetName(handle),
    "uuid": pynvml.nvmlDeviceGetUUID(handle), "bus": pynvml.nvmlDeviceGetPciInfo(handle).busId,
    "processes": [(p.pid, p.usedGpuMemory)
                  for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)],
}
pynvml.nvmlShutdown()
with Device(0).oneshot():
    device = Device(0)
    same["nvitop"] = [device.name(), device.uuid(), device.cuda_compute_capability(),
                      {pid: process.gpu_memory() for pid, process in device.processes().items()}]
print(json.dumps({"same": same, "total": memory.total, "used": memory.used}))
