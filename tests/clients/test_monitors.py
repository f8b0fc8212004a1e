#!/usr/bin/env python3
"""nvidia-ml-py, nvitop and gpustat, which watch and never launch: without a cap they say under the
preload what they say without; beside a tenant with a cap, what cuMemGetInfo says in it; and they
join no ring."""
# timeout: 300
import json
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import MIB, check, equal

room.need()
HELD = 200 * MIB


def both(place, command):
    """The command's answers without and with the preload; nothing changes on the device between."""
    found = []
    for preload in (False, True):
        status, words, errors = room.start(place, command, preload)
        check(status == 0, "%s: exit %d, preload %s: %s" % (command, status, preload, errors))
        check("cuslice" not in errors, "%s: %s" % (command[-1], errors[-500:]))
        found.append(words)
    return found


def check_library(place, neighbour):
    command = room.python("run_monitors.py")
    bare, preloaded = (room.read_answer(words) for words in both(place, command))
    equal(preloaded, bare, "what NVML and nvitop say")
    equal([pid for pid, _ in bare["same"]["processes"]], [neighbour.pid], "who is on the GPU")
    check(bare["used"] >= HELD, "only %d bytes in use" % bare["used"])


def stable(words):
    """gpustat's answer without what moves."""
    gpu = json.loads(words)["gpus"][0]
    for name in ("utilization.gpu", "power.draw", "temperature.gpu"):
        gpu.pop(name, None)
    for process in gpu["processes"]:
        process.pop("cpu_percent", None)
        process.pop("cpu_memory_usage", None)
    return gpu


def check_gpustat(place, neighbour):
    bare, preloaded = (stable(words) for words in both(place, ["gpustat", "--json"]))
    equal(preloaded, bare, "what gpustat says")
    equal([p["pid"] for p in bare["processes"]], [neighbour.pid], "gpustat's processes")


def table(words):
    """nvitop's table of devices and its processes' ids; loads and times move."""
    devices = [line for line in words.splitlines() if "Driver Version" in line or "simcuda" in line]
    return devices, re.findall(r"^\W*0\s+(\d+) C\s+(\w+)\s+([\d.]+MiB)", words, re.MULTILINE)


def check_nvitop(place, neighbour):
    bare, preloaded = (table(words) for words in both(place, ["nvitop", "--once", "--ascii"]))
    equal(preloaded, bare, "nvitop's table")
    check(bare[0], "no device in nvitop's table")
    equal([int(pid) for pid, *_ in bare[1]], [neighbour.pid], "nvitop's processes")


def check_monitors():
    with room.farm.Farm(sim={"MEMORY": room.DEVICE}) as place:
        neighbour = place.worker("neighbour")
        neighbour.ok("alloc cuMemAlloc_v2 %d" % HELD)
        for each in (check_library, check_gpustat, check_nvitop):
            each(place, neighbour)
        equal([t["key"] for t in place.gpu()["tenants"]], ["neighbour"], "who joined the ring")


def says(place, command, **settings):
    """What one of them prints under the preload."""
    status, words, errors = room.start(place, command, True, **settings)
    check(status == 0 and "cuslice" not in errors, "%s: exit %d: %s" % (
        command, status, errors[-1500:]))
    return words


def check_figures(place, total, used, entries, **settings):
    """All three show these bytes, and these per process of those that are on the GPU."""
    answer = room.read_answer(says(place, room.python("run_monitors.py"), **settings))
    equal((answer["total"], answer["used"]), (total, used), "nvidia-ml-py's figures")
    equal(dict(answer["same"]["processes"]), entries, "nvidia-ml-py's processes")
    equal({int(pid): size for pid, size in answer["same"]["nvitop"][3].items()}, entries,
          "nvitop's processes")
    gpu = stable(says(place, ["gpustat", "--json"], **settings))
    equal((gpu["memory.total"], gpu["memory.used"]), (total // MIB, used // MIB),
          "gpustat's figures")
    equal({p["pid"]: p["gpu_memory_usage"] for p in gpu["processes"]},
          {pid: size // MIB for pid, size in entries.items()}, "gpustat's processes")
    words = says(place, ["nvitop", "--once", "--ascii"], **settings)
    shown = re.search(r"([\d.]+)(?:MiB|B) / ([\d.]+)MiB", words)
    if check(shown, "no memory in nvitop's table: %s" % words):
        for text, figure in zip(shown.groups(), (used, total)):
            check(abs(float(text) - figure / MIB) < 0.1, "nvitop's figures: %s" % shown.group())


def check_capped():
    """The figures of their tenant, whose sum is that of two processes; of a tenant of nobody, the
    cap of their own."""
    with room.farm.Farm(sim={"MEMORY": room.DEVICE}, MEM_LIMIT=room.CAP) as place:
        first, second = (place.worker(name, TENANT="pod") for name in ("first", "second"))
        stranger = place.worker("stranger", preload=False)
        stranger.ok("alloc cuMemAlloc_v2 %d" % HELD)
        for held in (100 * MIB, 150 * MIB):
            first.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
            second.ok("alloc cuMemAlloc_v2 %d" % (held - 100 * MIB or MIB))
            free, total = first.ok("info")
            equal((total, free), (room.CAP, second.ok("info")[0]), "cuMemGetInfo in both")
            whole = {c["pid"]: c["memory_used_bytes"] + c["context_bytes"]
                     for c in place.gpu()["clients"]}
            bare = room.start(place, room.python("run_monitors.py"), False)[1]
            device = dict(room.read_answer(bare)["same"]["processes"])
            check(whole.keys() == {first.pid, second.pid} and whole.keys() < device.keys(),
                  "clients %s of %s" % (whole, device))
            check_figures(place, total, total - free, {**device, **whole}, TENANT="pod")
        check_figures(place, room.CAP, 0, device, TENANT="alone")
        equal([t["key"] for t in place.gpu()["tenants"]], ["pod"], "who joined the ring")


room.farm.run(check_monitors, check_capped)
