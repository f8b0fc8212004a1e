#!/usr/bin/env python3
"""The figures that a program sees under a cap, and the memory that comes back: cuMemGetInfo and
cuDeviceTotalMem, missing outputs, both ways to free, kinds of memory left as asked."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, OUT_OF_MEMORY, check, equal

CAP = 256 * MIB
DEVICE = 8 * GIB


def check_figures():
    with farm.Farm(sim={"MEMORY": DEVICE}) as place:
        a = place.worker("a", MEM_LIMIT=CAP)
        equal(a.ok("info"), [CAP, CAP], "free and total at the start")
        equal(a.ok("total"), [CAP], "cuDeviceTotalMem")
        number = a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 4))[0]
        equal(a.ok("info"), [CAP - CAP // 4, CAP], "free and total with a quarter in use")
        equal(a.numbers("alloc cuMemAlloc_v2 %d" % CAP)[0], OUT_OF_MEMORY, "too much")
        equal(a.ok("info"), [CAP - CAP // 4, CAP], "after a refusal")
        a.ok("free %d" % number)
        equal(a.ok("info"), [CAP, CAP], "after the free")
        equal(place.tenant("a")["memory_limit_bytes"], CAP, "the cap in status")


def check_unmasked():
    """Without a cap a program sees what the driver says, to the byte."""
    with farm.Farm(sim={"MEMORY": DEVICE}) as place:
        a, bare = place.worker("a"), place.worker("bare", preload=False)
        equal(a.ok("total"), bare.ok("total"), "cuDeviceTotalMem")
        equal(a.ok("info"), bare.ok("info"), "cuMemGetInfo")


def check_real_free_is_less():
    """Where the device has less left than the cap allows, that is what is free."""
    with farm.Farm(sim={"MEMORY": GIB}) as place:
        other = place.worker("other", preload=False)
        a = place.worker("a", MEM_LIMIT=512 * MIB)
        left = other.ok("info")[0]
        other.ok("alloc cuMemAlloc_v2 %d" % (left - 100 * MIB))
        real = other.ok("info")[0]
        equal(a.ok("info"), [real, 512 * MIB], "free and total")
        check(real < 512 * MIB, "the device has %d bytes free" % real)


def check_two_see_their_sum():
    """Case: one container, two processes, one cap."""
    with farm.Farm(MEM_LIMIT=1000 * MIB, TENANT="pod") as place:
        a, b = place.worker("a"), place.worker("b")
        a.ok("alloc cuMemAlloc_v2 %d" % (600 * MIB))
        equal(b.ok("info"), [400 * MIB, 1000 * MIB], "what the other sees")
        equal(b.numbers("alloc cuMemAlloc_v2 %d" % (400 * MIB + 1))[0], OUT_OF_MEMORY, "their sum")
        b.ok("alloc cuMemAlloc_v2 %d" % (400 * MIB))
        for each in (a, b):
            equal(each.ok("info"), [0, 1000 * MIB], "%s with all in use" % each.tag)
        equal(a.end(), 0, "a's end")
        equal(b.ok("info")[1], 1000 * MIB, "total after the other's end")
        b.ok("alloc cuMemAlloc_v2 %d" % (600 * MIB))


def check_missing_outputs():
    with farm.Farm() as place:
        bare = place.worker("bare", preload=False).ask("nulls")
        equal(place.worker("a", MEM_LIMIT=CAP).ask("nulls"), bare, "answers to NULL, capped")
        equal(place.worker("b").ask("nulls"), bare, "answers to NULL, without a cap")


def check_both_frees():
    """Each way to free gives back what each way to allocate took."""
    with farm.Farm(MEM_LIMIT=CAP) as place:
        a = place.worker("a")
        for name in ("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
                     "cuMemAllocFromPoolAsync", "cuMemAllocManaged", "cuMemAllocPitch_v2"):
            for how in ("sync", "async"):
                if how == "async" and "Async" not in name:
                    continue
                before = place.tenant("a")["memory_used_bytes"]
                number = a.ok("alloc %s %d" % (name, CAP // 8))[0]
                check(place.tenant("a")["memory_used_bytes"] > before, name + " is not counted")
                equal(a.ask("free %d %s" % (number, how)), "0", "%s, %s free" % (name, how))
                a.ok("sync")
                found = place.tenant("a")["memory_used_bytes"]
                equal(found, before, "counted after %s and an %s free" % (name, how))


def check_kinds():
    """A capped program gets the kind of memory that it asked for."""
    with farm.Farm() as place:
        a, bare = place.worker("a", MEM_LIMIT=CAP), place.worker("bare", preload=False)
        for name in ("cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocAsync"):
            found = [w.ask("kind %d" % w.ok("alloc %s %d" % (name, MIB))[0]) for w in (a, bare)]
            equal(found[0], found[1], "kind of %s" % name)


farm.run(check_figures, check_unmasked, check_real_free_is_less, check_two_see_their_sum,
         check_missing_outputs, check_both_frees, check_kinds)
