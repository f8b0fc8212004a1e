#!/usr/bin/env python3
"""What may be written for a cap and what it comes to; what may not, and how that is told."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import re

import farm
from farm import GIB, MIB, SUCCESS, check, equal

DEVICE = 8 * GIB
UUID = re.compile(r"GPU-[0-9a-f-]{36}")
LINE = re.compile(r"cuslice\[\d+\] (error|warn|info|debug): \S.* \[[a-z0-9-]+\]")


def cap_of(place, text, **settings):
    """The total that a program sees under this cap."""
    worker = place.worker("w", MEM_LIMIT=text, **settings)
    total = worker.ok("total", timeout=farm.SOON)[0]
    equal(worker.log(), "", "lines about the good cap '%s'" % text)
    worker.end()
    return total


def check_forms():
    with farm.Farm(sim={"MEMORY": DEVICE}) as place:
        for text, wanted in (("4Gi", 4 * GIB), ("4GiB", 4 * GIB), ("4G", 4 * GIB),
                             ("4096m", 4 * GIB), ("4096Mi", 4 * GIB), ("4194304k", 4 * GIB),
                             ("4294967296", 4 * GIB), ("1.5Gi", 3 * GIB // 2), ("25%", 2 * GIB),
                             ("100%", DEVICE), ("99999999999G", DEVICE), ("0:1Gi,1:2Gi", GIB),
                             ("0:3Gi", 3 * GIB), ("none", DEVICE)):
            equal(cap_of(place, text), wanted, "the cap '%s'" % text)
        equal(cap_of(place, "auto", REPLICAS=4), 2 * GIB, "auto of four")
        uuid = UUID.search(place.ring_file()).group()
        equal(cap_of(place, uuid + ":5Gi"), 5 * GIB, "a cap by UUID")
        equal(cap_of(place, "0:1Gi,%s:5Gi" % uuid), 5 * GIB, "UUID and index")


def check_nothing():
    """0 means no device memory at all."""
    with farm.Farm() as place:
        for text in ("0", "0m"):
            worker = place.worker("zero", MEM_LIMIT=text)
            equal(worker.numbers("alloc cuMemAlloc_v2 1")[0], farm.OUT_OF_MEMORY, "one byte")
            equal(worker.ok("info"), [0, 0], "free and total")
            worker.ok("spin 1000")
            worker.ok("sync")
            worker.end()


def check_bad():
    with farm.Farm() as place:
        for name in ("MEM_LIMIT", "PROCESS_MEM_LIMIT"):
            for text in ("abc", "-1", "12 apples", "1e3", "4Gi,", "0:4Gi,0:5Gi", "101x", "", " ",
                         "%", "1Gi,2Gi"):
                worker = place.worker("bad", opened=False, **{name: text})
                result = worker.numbers("init")[0]
                check(result != SUCCESS, "cuInit with CUSLICE_%s='%s' succeeds" % (name, text))
                lines = worker.log().splitlines()
                equal(len(lines), 1, "lines about '%s': %s" % (text, lines))
                said = "".join(lines)
                check("CUSLICE_" + name in said, "'%s': the setting is not told: %s" % (text, said))
                check(text in said, "'%s': the value is not told: %s" % (text, said))
                check("4Gi" in said and "25%" in said, "the accepted forms are not told: " + said)
                check(LINE.fullmatch(said), "the line's form: " + said)
                worker.end()


def check_other_settings_warn():
    with farm.Farm() as place:
        for name, text in (("WEIGHT", "0"), ("WEIGHT", "heavy"), ("QUANTUM", "20 apples"),
                           ("QUANTUM", "11s"), ("ALLOWANCE", "1ms"), ("MODE", "hard"),
                           ("ON_ERROR", "maybe"), ("REPLICAS", "-3"), ("LOG", "loud")):
            worker = place.worker("warned", **{name: text})
            lines = worker.log().splitlines()
            said = "\n".join(lines)
            equal(len(lines), 1, "lines about CUSLICE_%s=%s: %s" % (name, text, said))
            check("CUSLICE_" + name in said and text in said, "what is wrong is not told: " + said)
            check(LINE.fullmatch(said) and " warn: " in said, "the line's form: " + said)
            worker.ok("spin 1000")
            worker.ok("sync")
            worker.end()


def check_bad_weight_is_the_default():
    with farm.Farm() as place:
        a = place.worker("a", WEIGHT="heavy", QUANTUM="0")
        equal(place.tenant("a")["weight"], 100, "weight")
        equal(place.gpu()["quantum_seconds"], 0.02, "quantum")
        a.end()


def check_per_device():
    with farm.Farm(sim={"DEVICES": 2, "MEMORY": DEVICE}) as place:
        a = place.worker("a", opened=False, MEM_LIMIT="0:1Gi,1:2Gi")
        a.ok("open 0")
        equal(a.ok("total 0"), [GIB], "total of device 0")
        equal(a.ok("total 1"), [2 * GIB], "total of device 1")
        equal(a.numbers("alloc cuMemAlloc_v2 %d" % (GIB + 1))[0], farm.OUT_OF_MEMORY, "device 0")
        a.ok("alloc cuMemAlloc_v2 %d" % GIB)
        a.ok("open 1")
        equal(a.ok("info"), [2 * GIB, 2 * GIB], "device 1 is not charged for device 0")
        equal(a.numbers("alloc cuMemAlloc_v2 %d" % (2 * GIB + 1))[0], farm.OUT_OF_MEMORY,
              "device 1")
        a.ok("alloc cuMemAlloc_v2 %d" % (2 * GIB))
        used = sorted(g["memory_used_bytes"] for g in place.status()["gpus"])
        equal(used, [GIB, 2 * GIB], "the two rings' figures")


farm.run(check_forms, check_nothing, check_bad, check_other_settings_warn,
         check_bad_weight_is_the_default, check_per_device)
