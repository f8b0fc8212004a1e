#!/usr/bin/env python3
"""What the ledger has for a program is what the device has handed out to it, after each step.

Compared with the device's own books (tests/sim/README.md, "Trace"), asked in the order of the program's
calls; managed memory counts in the ledger from its allocation on, on the device while it is there."""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, check, equal

WAYS = ("cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuArrayCreate_v2", "cuArray3DCreate_v2",
        "cuMipmappedArrayCreate", "cuMemCreate")


def counted_ways():
    """Those that the hooks' table counts."""
    with open(os.path.join(os.environ["REPO"], "hooks/hooks.def")) as file:
        text = file.read()
    found = re.findall(r"^CHARGE\((\w+),", text, re.MULTILINE)
    found += re.findall(r"^SPECIAL\((\w+), (?:charge_|physical_create)", text, re.MULTILINE)
    return [name for name in WAYS if name in found]


def books(worker):
    memory, context, used, orphaned, managed, resident = worker.ok("handed")
    return dict(memory=memory, context=context, used=used, orphaned=orphaned, managed=managed,
                resident=resident)


def check_steps():
    with farm.Farm(MEM_LIMIT=GIB) as place:
        a = place.worker("a")
        base, ledger = books(a), place.tenant("a")["memory_used_bytes"]
        check(base["context"] > 0, "a context costs nothing")
        held, counted = [], counted_ways()
        check("cuMemAlloc_v2" in counted, "rows found in hooks.def: %s" % counted)
        for name in counted:
            held.append(a.ok("alloc %s %d" % (name, 64 * MIB))[0])
            now = books(a)
            given = now["memory"] - base["memory"]
            check(given >= len(held) * 64 * MIB, "%s: the device gave %d bytes" % (name, given))
            equal(place.tenant("a")["memory_used_bytes"] - ledger, given, "in the ledger after " + name)
        for number in held:
            a.ok("free %d" % number)
        equal(books(a)["memory"], base["memory"], "the device's memory after the frees")
        equal(place.tenant("a")["memory_used_bytes"], ledger, "the ledger after the frees")


def check_managed():
    with farm.Farm(MEM_LIMIT=GIB) as place:
        a = place.worker("a")
        base = books(a)
        number = a.ok("alloc cuMemAllocManaged %d" % (128 * MIB))[0]
        now = books(a)
        equal(now["managed"], 128 * MIB, "managed memory")
        equal(now["memory"], base["memory"], "memory on the device before a kernel")
        a.ok("spin 1000")
        a.ok("sync")
        equal(books(a)["resident"], 128 * MIB, "managed memory on the device after a kernel")
        a.ok("free %d" % number)
        equal(books(a)["memory"], base["memory"], "memory after the free")
        last = [m for m in place.trace().memory if m.client == "a"][-1]
        equal(last.client_memory + last.client_context, last.client_total, "the trace's sum")


farm.run(check_steps, check_managed)
