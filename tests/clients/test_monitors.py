#!/usr/bin/env python3
"""nvidia-ml-py, nvitop and gpustat, which watch and never launch: they say under the preload what
they say without, and join no ring."""
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


def check_capped():
    """Under a cap they run all the same, and show the device's size or the cap."""
    with room.farm.Farm(sim={"MEMORY": room.DEVICE}) as place:
        place.worker("neighbour")
        command = room.python("run_monitors.py")
        status, words, errors = room.start(place, command, True, MEM_LIMIT=room.CAP)
        check(status == 0, "exit %d: %s" % (status, errors[-1500:]))
        check(room.read_answer(words).get("total") in (room.DEVICE, room.CAP), "size: %s" % words)


room.farm.run(check_monitors, check_capped)
