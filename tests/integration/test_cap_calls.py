#!/usr/bin/env python3
"""Caps over every call that takes device memory: what fits is had to the last byte, what does not
is refused before the driver is asked and leaves nothing behind, a smaller request succeeds.
The calls are the rows of hooks/hooks.def; a row that the worker cannot call is a failure."""
# timeout: 120
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MIB, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, check, equal

CAP = 64 * MIB
UNIT = 2 * MIB  # a size that every kind of allocation gives without rounding
UNKNOWN = 2 ** 32 - 1
# 32-bit entry points of CUDA 3 and earlier: they cannot address a device of today.
OLD = {"cuMemAlloc", "cuMemAllocPitch", "cuArrayCreate", "cuArray3DCreate"}
# Before these, an array like the one that is asked for is made and unmade, to learn its size.
ASKED = {"cuArray3DCreate_v2", "cuMipmappedArrayCreate"}
GRAIN = 512  # what the device hands out is a multiple of it
POOLS = re.compile("Async")


def rows():
    with open(os.path.join(farm.REPO, "hooks/hooks.def")) as file:
        text = file.read()
    found = re.findall(r"^(?:CHARGE|POOL)\((\w+),", text, re.MULTILINE)
    found += re.findall(r"^SPECIAL\((\w+), (?:charge_|physical_create)", text, re.MULTILINE)
    check("cuMemAlloc_v2" in found and len(found) >= 12, "rows found in hooks.def: %s" % found)
    return [name for name in found if name not in OLD]


def taken(worker):
    """What the ledger has for the worker's tenant."""
    return worker.farm.tenant(worker.tag)["memory_used_bytes"]


def had_by_device(trace, pid, skipped):
    """The most that the device gave the process beyond what it had before."""
    most = held = 0
    for m in trace.memory[skipped:]:
        if m.pid != pid or m.op not in ("alloc", "free"):
            continue
        held += m.bytes if m.op == "alloc" else -m.bytes
        most = max(most, held)
    return most


def refused(worker, name, size, words):
    found = worker.numbers("alloc %s %d" % (name, size))
    equal(found[0], OUT_OF_MEMORY, "%s: %s" % (name, words))
    if found[0] == OUT_OF_MEMORY:
        equal(found[1], 0, "%s: an output of a refused request was written" % name)
    else:
        worker.ask("free %d" % found[1])


def check_row(place, name):
    worker = place.worker("w-" + name, MEM_LIMIT=CAP)
    worker.farm = place
    before = len(place.trace().memory)
    first = worker.numbers("alloc %s %d" % (name, CAP // 2))
    if first[0] == NOT_SUPPORTED:
        check(False, "%s: the simulated driver lacks it" % name)
        return
    if not check(first[0] == SUCCESS, "%s: half of the cap: %s" % (name, first)):
        return
    equal(taken(worker), CAP // 2, name + ": what is counted")
    refused(worker, name, CAP, "the whole cap beside its half")
    refused(worker, name, CAP // 2 + UNIT, "a little more than what is left")
    equal(taken(worker), CAP // 2, name + ": what is counted after the refusals")
    rest = worker.numbers("alloc %s %d" % (name, CAP // 2 - (UNIT if POOLS.search(name) else 0)))
    equal(rest[0], SUCCESS, name + ": exactly what is left")
    if rest[0] == SUCCESS:
        refused(worker, name, UNIT + (UNIT if POOLS.search(name) else 0), "more than the cap")
        equal(worker.ask("free %d" % rest[1]), "0", name + ": free")
    worker.ok("sync")
    again = worker.numbers("alloc %s %d" % (name, CAP // 4))
    equal(again[0], SUCCESS, name + ": after a free")
    trace = place.trace()
    most = had_by_device(trace, worker.pid, before)
    check(CAP // 2 <= most <= CAP, "%s: the device gave %d bytes under a cap of %d" % (name, most,
                                                                                      CAP))
    worker.end()


def check_exact():
    with farm.Farm() as place:
        for name in rows():
            check_row(place, name)


def check_to_the_grain():
    with farm.Farm() as place:
        worker = place.worker("a", MEM_LIMIT=CAP + GRAIN)
        equal(worker.numbers("alloc cuMemAlloc_v2 %d" % (CAP + GRAIN + 1))[0], OUT_OF_MEMORY,
              "a byte more than the cap")
        number = worker.ok("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0]
        equal(worker.numbers("alloc cuMemAlloc_v2 1")[0], OUT_OF_MEMORY, "one byte more")
        worker.ok("free %d" % number)
        worker.ok("alloc cuMemAlloc_v2 1")
        equal(worker.numbers("alloc cuMemAlloc_v2 %d" % CAP)[0], SUCCESS, "all but one grain")


def check_driver_fails():
    """The driver fails after the reservation: its error passes unchanged and nothing leaks."""
    # No waiting for the memory of those who ended before: the first answer is the last.
    with farm.Farm(REAP_WAIT="0s") as place:
        for error in (OUT_OF_MEMORY, 999):
            for name in rows():
                tag = "f%d-%s" % (error, name)
                worker = place.worker(tag, MEM_LIMIT=CAP, sim={
                    "FAIL": "%s=%d@%d" % (name, error, 2 if name in ASKED else 1)})
                worker.farm = place
                equal(worker.numbers("alloc %s %d" % (name, CAP // 2))[0], error,
                      "%s: the driver's own error" % name)
                equal(taken(worker), 0, "%s: left behind by a failure" % name)
                equal(worker.numbers("alloc %s %d" % (name, CAP - UNIT))[0], SUCCESS,
                      "%s: after the driver's failure" % name)
                worker.end()


def check_bare():
    """Without the library nothing of this is refused: the test can tell the difference."""
    with farm.Farm(preload=False) as place:
        worker = place.worker("bare", MEM_LIMIT=CAP)
        for name in rows():
            equal(worker.numbers("alloc %s %d" % (name, 2 * CAP))[0], SUCCESS, name + " bare")


def check_process_cap():
    """CUSLICE_PROCESS_MEM_LIMIT holds for each process, the tenant's for their sum."""
    with farm.Farm(MEM_LIMIT=3 * CAP, PROCESS_MEM_LIMIT=2 * CAP, TENANT="t") as place:
        a, b = place.worker("a"), place.worker("b")
        equal(a.numbers("alloc cuMemAlloc_v2 %d" % (2 * CAP + 1))[0], OUT_OF_MEMORY, "own cap")
        a.ok("alloc cuMemAlloc_v2 %d" % (2 * CAP))
        equal(b.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0], OUT_OF_MEMORY, "the tenant's cap")
        b.ok("alloc cuMemAlloc_v2 %d" % CAP)
        equal(a.numbers("alloc cuMemAlloc_v2 1")[0], OUT_OF_MEMORY, "both used up")


farm.run(check_to_the_grain, check_exact, check_driver_fails, check_process_cap, check_bare)
