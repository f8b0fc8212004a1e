#!/usr/bin/env python3
"""The simulated management library: configured devices without a device process (and none started by
asking), the driver's identities, memory and processes as they are, structure versions, refusals.
Needs B (the build directory). timeout: 60
"""
import ctypes
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("B", os.path.join(HERE, "..", "..", "build"))
SIM = os.path.join(BUILD, "sim")
PTX = os.path.join(HERE, "..", "kernels", "kernels.ptx")
GIB = 1 << 30
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE, MISMATCH = 1, 2, 3, 7, 25

failures = 0


def expect(condition, text):
    global failures
    if not condition:
        failures += 1
        print("wrong:", text)


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(name, ctypes.c_ulonglong) for name in (
        "total", "reserved", "free", "used")]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong),
                ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


def text_of(nvml, call, device):
    text = ctypes.create_string_buffer(96)
    expect(getattr(nvml, call)(device, text, len(text)) == 0, call)
    return text.value.decode()


def memory_of(nvml, device):
    memory = Memory()
    expect(nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0, "memory info")
    expect(memory.free + memory.used == memory.total, "free and used do not add up")
    return memory


def processes_of(nvml, device):
    count, list_ = ctypes.c_uint(16), (Process * 16)()
    expect(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), list_) == 0,
           "the list of processes")
    return {list_[i].pid: list_[i].bytes for i in range(count.value)}


def handle(nvml, index):
    device = ctypes.c_void_p()
    result = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    return device if result == 0 else None


def check_alone(nvml):
    count = ctypes.c_uint()
    expect(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == UNINITIALIZED, "asked before init")
    expect(nvml.nvmlInit_v2() == 0, "init")
    expect(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 2, "two devices")
    device = handle(nvml, 1)
    memory = memory_of(nvml, device)
    expect((memory.total, memory.used) == (2 * GIB, 0), "the configured memory, unused")
    expect(not processes_of(nvml, device), "a process where there is none")
    expect(handle(nvml, 2) is None, "a third device")
    expect(not os.listdir(os.environ["SIMCUDA_DIR"]), "asking has left something behind")


def check_refusals(nvml, device):
    memory = MemoryV2(version=0)
    expect(nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory)) == MISMATCH,
           "a structure without version")
    memory.version = ctypes.sizeof(memory) | 2 << 24
    expect(nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory)) == 0 and
           memory.total == 2 * GIB, "memory info, second version")
    expect(nvml.nvmlDeviceGetMemoryInfo(ctypes.c_void_p(16), ctypes.byref(Memory())) ==
           INVALID_ARGUMENT, "a handle of nobody's")
    expect(nvml.nvmlDeviceGetName(device, ctypes.create_string_buffer(4), 4) == INSUFFICIENT_SIZE,
           "a place too small")
    for name in ("nvmlDeviceGetMigMode", "nvmlDeviceGetSerial", "nvmlDeviceGetDriverModel"):
        expect(getattr(nvml, name)(device, None, None, None) == NOT_SUPPORTED, name)


def client():
    """Holds a gigabyte of device 1 and keeps it busy until its input ends."""
    cuda = ctypes.CDLL(os.path.join(SIM, "libcuda.so.1"))
    context, module, spin = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    uuid, bus = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
    ns, address = ctypes.c_uint64(1500 * 1000000), ctypes.c_uint64()
    params = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
    calls = (cuda.cuInit(0), cuda.cuDeviceGetUuid_v2(uuid, 1),
             cuda.cuDeviceGetPCIBusId(bus, len(bus), 1),
             cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1),
             cuda.cuCtxSetCurrent(context),
             cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(GIB)),
             cuda.cuModuleLoad(ctypes.byref(module), PTX.encode()),
             cuda.cuModuleGetFunction(ctypes.byref(spin), module, b"spin_ns"),
             cuda.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, None, params, None))
    print("failed" if any(calls) else "%s %s" % (bytes(uuid).hex(), bus.value.decode()), flush=True)
    sys.stdin.read()
    return any(calls)


def check_beside(nvml, device):
    with subprocess.Popen([sys.executable, __file__, "client"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as other:
        words = other.stdout.readline().split()
        expect(len(words) == 2, "the client failed")
        expect(text_of(nvml, "nvmlDeviceGetUUID", device).replace("-", "") == "GPU" + words[0],
               "driver and management library give two UUIDs")
        place, same = ctypes.create_string_buffer(68), ctypes.c_void_p()
        expect(nvml.nvmlDeviceGetPciInfo_v3(device, place) == 0 and
               place.value.decode() == words[1], "they give two places on the bus")
        expect(nvml.nvmlDeviceGetHandleByPciBusId_v2(words[1].encode(), ctypes.byref(same)) == 0 and
               same.value == device.value, "the device is not found by its place")
        time.sleep(1.2)
        load = Utilization()
        expect(nvml.nvmlDeviceGetUtilizationRates(device, ctypes.byref(load)) == 0 and
               load.gpu > 80, "a busy device is told %d %% busy" % load.gpu)
        used = processes_of(nvml, device)
        expect(list(used) == [other.pid] and used[other.pid] >= GIB,
               "process %d is not told with its memory: %s" % (other.pid, used))
        expect(memory_of(nvml, device).used == sum(used.values()), "memory used by nobody")
        expect(not processes_of(nvml, handle(nvml, 0)), "the process is told on the other device")
        few = ctypes.c_uint(0)
        expect(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(few), None) ==
               INSUFFICIENT_SIZE and few.value == 1, "too little room is not told")
        other.stdin.close()
        expect(other.wait() == 0, "the client failed later")


def main():
    if sys.argv[1:] == ["client"]:
        return client()
    with tempfile.TemporaryDirectory() as directory:
        os.environ.update(SIMCUDA_DIR=directory, SIMCUDA_DEVICES="2", SIMCUDA_MEMORY="2Gi",
                          SIMCUDA_LINGER="100ms")
        nvml = ctypes.CDLL(os.path.join(SIM, "libnvidia-ml.so.1"))
        check_alone(nvml)
        device = handle(nvml, 1)
        check_refusals(nvml, device)
        check_beside(nvml, device)
        expect(nvml.nvmlShutdown() == 0 and nvml.nvmlShutdown() == UNINITIALIZED, "shutdown")
    print("FAILED" if failures else "ok: devices, memory, load and processes are told as they are")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
