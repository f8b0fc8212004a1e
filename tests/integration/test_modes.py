#!/usr/bin/env python3
"""Modes: observe counts and refuses nothing and gates nothing; off is as if nothing were there."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MIB, check, equal

CAP = 64 * MIB


def check_observe_refuses_nothing():
    with farm.Farm(MODE="observe", MEM_LIMIT=CAP) as place:
        a = place.worker("a")
        a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
        number = a.ok("alloc cuMemAlloc_v2 %d" % (4 * CAP))[0]
        seen = place.tenant("a")
        equal(seen["mode"], "observe", "the mode in status")
        equal(seen["memory_used_bytes"], 4 * CAP + CAP // 2, "what is counted")
        equal((seen["refusals"], seen["would_refuse"]), (0, 1), "refusals and would-be ones")
        a.ok("free %d" % number)
        equal(place.tenant("a")["memory_used_bytes"], CAP // 2, "counted after the free")


def check_observe_shows_the_device():
    """A program under observation sees what it would see without."""
    with farm.Farm(MODE="observe", MEM_LIMIT=CAP) as place:
        a, bare = place.worker("a"), place.worker("bare", preload=False)
        equal(a.ok("info"), bare.ok("info"), "cuMemGetInfo")


def check_observe_gates_nothing():
    """Beside a kernel that does not end the observed one's launches go through, and are counted."""
    with farm.Farm(ALLOWANCE="30s") as place:
        holder = place.worker("holder")
        a = place.worker("a", MODE="observe")
        holder.ok("hold")
        done = a.post("spin 100000 20")
        check(farm.answered(done, 5), "a launch in observe mode waits for the holder")
        check(farm.answered(a.post("sync"), 5), "its work waits for the holder's kernel")
        trace = place.trace()
        equal(len([r for r in trace.of("a") if r.last]), 20, "kernels that ran beside the holder")
        holder.ok("release")
        a.end()
        check(place.tenant("a")["launches"] >= 20, "launches counted: %d" %
              place.tenant("a")["launches"])


def check_off():
    with farm.Farm(MODE="off", MEM_LIMIT=CAP) as place:
        a, bare = place.worker("a"), place.worker("bare", preload=False)
        equal(a.ok("info"), bare.ok("info"), "cuMemGetInfo")
        a.ok("alloc cuMemAlloc_v2 %d" % (2 * CAP))
        a.ok("spin 1000 10")
        a.ok("sync")
        equal(place.status()["gpus"], [], "rings of a program in mode off")
        names = open("/proc/%d/task/%d/comm" % (a.pid, a.pid)).read().strip()
        equal(threads(a.pid), threads(bare.pid), "threads (%s)" % names)
        equal(a.log(), "", "what it said")


def threads(pid):
    names = []
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/comm" % (pid, task)) as file:
            names.append(file.read().strip())
    return sorted(names)


def check_enforce_has_one_thread():
    with farm.Farm() as place:
        a, bare = place.worker("a"), place.worker("bare", preload=False)
        own = threads(a.pid)
        equal(own.count("cuslice"), 1, "threads called cuslice among %s" % own)
        own.remove("cuslice")
        equal(own, threads(bare.pid), "the other threads")
        equal(a.log(), "", "what it said")


farm.run(check_observe_refuses_nothing, check_observe_shows_the_device, check_observe_gates_nothing,
         check_off, check_enforce_has_one_thread)
