#!/usr/bin/env python3
"""Every door by which a program finds the driver leads to the hooks: shown by the cap, by the
figures, by the counted launches, and by a neighbour for which one must wait."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MIB, OUT_OF_MEMORY, SUCCESS, check, equal

CAP = 64 * MIB
# linked: called through the program's own linkage. handle: dlopen and dlsym. default, next:
# RTLD_DEFAULT and RTLD_NEXT of the program. proc: as the CUDA runtime does it. proc1: the older
# look-up, found through the newer one. old: the older look-up by its own symbol.
DOORS = ("linked", "handle", "default", "next", "proc", "proc1", "old")


def check_cap_through_each():
    with farm.Farm(MEM_LIMIT=CAP) as place:
        for door in DOORS:
            a = place.worker("d-" + door, door)
            found = a.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0]
            equal(found, OUT_OF_MEMORY, "more than the cap through " + door)
            equal(a.numbers("alloc cuMemAllocAsync_ptsz %d" % (CAP + 1))[0], OUT_OF_MEMORY,
                  "the per-thread flavour through " + door)
            equal(a.ok("info"), [CAP, CAP], "figures through " + door)
            a.ok("spin 1000 100")
            a.ok("pad")
            equal(a.numbers("call cuLaunchKernel_ptsz")[0], SUCCESS, "a per-thread launch")
            a.ok("sync")
            a.end()
            equal(place.tenant("d-" + door)["launches"], 101, "launches counted through " + door)


def check_driver_versions():
    """Drivers of several CUDA versions, each giving the variants that it has."""
    for version in (11040, 12000, 12090, 13000):
        with farm.Farm(MEM_LIMIT=CAP, sim={"DRIVER_VERSION": version}) as place:
            for door in ("handle", "old", "proc", "proc1")[:4 if version >= 12000 else 2]:
                a = place.worker("v-" + door, door)
                words = "through %s of a driver %d" % (door, version)
                for name in ("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"):
                    equal(a.numbers("alloc %s %d" % (name, CAP + 1))[0], OUT_OF_MEMORY,
                          "%s beyond the cap %s" % (name, words))
                a.ok("pad")
                for name in ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemsetD8Async"):
                    equal(a.numbers("call %s" % name)[0], SUCCESS, "%s %s" % (name, words))
                a.ok("sync")
                a.end()
                equal(place.tenant("v-" + door)["launches"], 3, "launches counted " + words)


def check_gate_through_each():
    with farm.Farm(ALLOWANCE="30s") as place:
        holder = place.worker("holder")
        for door in DOORS:
            a = place.worker("g-" + door, door)
            holder.ok("hold")
            waiting = a.post("spin 1000")
            check(not farm.answered(waiting, 0.1), "a launch through %s does not wait" % door)
            holder.ok("release")
            holder.ok("sync")
            check(farm.answered(waiting, farm.SOON), "a launch through %s waits on" % door)
            a.ok("sync")
            a.end()


def check_bare():
    """Without the preload no door refuses anything: what the other checks see is the library."""
    with farm.Farm(preload=False, MEM_LIMIT=CAP) as place:
        for door in DOORS:
            a = place.worker("b-" + door, door)
            a.ok("alloc cuMemAlloc_v2 %d" % (CAP + 1))
            a.end()
        equal(place.status()["gpus"], [], "rings")


farm.run(check_cap_through_each, check_driver_versions, check_gate_through_each, check_bare)
