"""Asks NVML, and the driver when told to, one line of standard input at a time; a line of JSON for
each. A program of nobody's in particular: ctypes, no cuslice. LIBRARY names the NVML to open.

    memory | memory2 [VERSION] | list FUNCTION FIELDS [ROOM] | details [VERSION] | nulls | wrong
    cuda BYTES | info | free    the driver: a context and an allocation; what it says of memory
    threads N | errno           the different answers to so many threads; what a call leaves there
    look                        threads, descriptors, locks, mappings of rings, children of ours
    sub LINE | fork LINE        another process like this one, or a child of it, answers the line
    device N                    the device that is asked from now on
"""
import ctypes
import json
import os
import subprocess
import sys
import threading

U32, U64 = ctypes.c_uint, ctypes.c_ulonglong


def structure(*fields):
    return type("Structure", (ctypes.Structure,), {"_fields_": list(fields)})


Memory = structure(*((name, U64) for name in ("total", "free", "used")))
Memory2 = structure(("version", U32), *((n, U64) for n in ("total", "reserved", "free", "used")))
ENTRY = (("pid", U32), ("bytes", U64), ("gi", U32), ("ci", U32), ("protected", U64))
Details = structure(("version", U32), ("mode", U32), ("count", U32), ("list", ctypes.c_void_p))

nvml = ctypes.CDLL(os.environ.get("LIBRARY", "libnvidia-ml.so.1"), use_errno=True)
device = ctypes.c_void_p()
held = {}


def use(number):
    return nvml.nvmlDeviceGetHandleByIndex_v2(int(number), ctypes.byref(device))


def memory():
    m = Memory()
    rc = nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(m))
    return [rc, m.total, m.free, m.used]


def memory2(version=ctypes.sizeof(Memory2) | 2 << 24):
    m = Memory2(version=int(version))
    rc = nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(m))
    return [rc, m.total, m.reserved, m.free, m.used]


def entries(kind, count):
    return [[getattr(e, name) for name, *_ in e._fields_] for e in kind[:count]]


def listed(function, fields, room=64):
    kind = (structure(*ENTRY[:int(fields)]) * max(int(room), 1))()
    count = U32(int(room))
    rc = getattr(nvml, function)(device, ctypes.byref(count), kind if int(room) else None)
    return [rc, count.value, entries(kind, count.value if rc == 0 else 0)]


def details(version=ctypes.sizeof(Details) | 1 << 24):
    kind = (structure(*ENTRY) * 64)()
    d = Details(version=int(version), count=64, list=ctypes.addressof(kind))
    rc = nvml.nvmlDeviceGetRunningProcessDetailList(device, ctypes.byref(d))
    return [rc, d.count, entries(kind, d.count if rc == 0 else 0)]


LISTS = ["nvmlDeviceGet%sRunningProcesses%s" % (kind, version)
         for kind in ("Compute", "Graphics", "MPSCompute") for version in ("", "_v2", "_v3")]


def nulls():
    some, count = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24), U32(4)
    found = []
    for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        function = getattr(nvml, name)
        found += [function(device, None), function(None, ctypes.byref(some)), function(None, None)]
    for name in LISTS:
        function = getattr(nvml, name)
        found += [function(device, None, None), function(device, ctypes.byref(count), None),
                  function(None, ctypes.byref(count), None)]
    return found + [nvml.nvmlDeviceGetRunningProcessDetailList(device, None), count.value]


def wrong():
    """Structures of no version, of another one, of another size; before there is an init."""
    found = [memory2(v) for v in (0, ctypes.sizeof(Memory2) | 1 << 24, 48 | 2 << 24, 48 | 3 << 24)]
    found += [details(v) for v in (0, ctypes.sizeof(Details) | 2 << 24)]
    nvml.nvmlShutdown()
    found += [memory(), memory2(), listed(LISTS[2], 4)]
    nvml.nvmlInit_v2()
    return found


def cuda(size):
    driver = held["cuda"] = ctypes.CDLL("libcuda.so.1")
    context, pointer, number = ctypes.c_void_p(), U64(), ctypes.c_int()
    calls = [driver.cuInit(0), driver.cuDeviceGet(ctypes.byref(number), 0)]
    if "context" not in held:
        calls += [driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number),
                  driver.cuCtxSetCurrent(context)]
        held["context"] = context
    if int(size):
        calls.append(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(size))))
        held.setdefault("pointers", []).append(pointer)
    return calls


def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    rc = held["cuda"].cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return [rc, total.value, free.value, total.value - free.value]


def free():
    return held["cuda"].cuMemFree_v2(held["pointers"].pop())


def threads(count):
    found = []
    begin = threading.Barrier(int(count))

    def ask():
        begin.wait()
        found.extend(memory() for _ in range(50))
    group = [threading.Thread(target=ask) for _ in range(int(count))]
    for thread in group:
        thread.start()
    for thread in group:
        thread.join()
    return [list(answer) for answer in {tuple(answer) for answer in found}]


def errno():
    ctypes.set_errno(18)
    memory()
    memory2()
    listed(LISTS[2], 4)
    return ctypes.get_errno()


def look():
    fds = [os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd")
           if os.path.exists("/proc/self/fd/" + n)]
    with open("/proc/self/maps") as maps, open("/proc/locks") as locks:
        return {"tasks": len(os.listdir("/proc/self/task")),
                "fds": sorted(f for f in fds if "ring" in f or f == "/dev/null"),
                "maps": [m.split()[-1] for m in maps if ".ring" in m],
                "locks": [l for l in locks if " %d " % os.getpid() in l]}


def sub(*words):
    done = subprocess.run([sys.executable, __file__], input=" ".join(words) + "\n", text=True,
                          capture_output=True, timeout=30)
    return json.loads(done.stdout) if not done.stderr else done.stderr


def fork(name, *words):
    answers, answer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(answer, json.dumps(CALLS[name](*words)).encode())
        os._exit(0)
    os.close(answer)
    with open(answers) as file:
        found = json.load(file)
    os.waitpid(pid, 0)
    return found


CALLS = {"memory": memory, "memory2": memory2, "list": listed, "details": details, "nulls": nulls,
         "wrong": wrong, "cuda": cuda, "info": info, "free": free, "threads": threads,
         "errno": errno, "look": look, "sub": sub, "fork": fork, "device": use}


def main():
    if nvml.nvmlInit_v2() or use(0):
        sys.exit("no device")
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps(CALLS[name](*words)), flush=True)


main()
