#!/usr/bin/env python3
"""Copies whose direction is only known at the call: those within the device wait for their turn, those
from or to the host do not, unless CUSLICE_GATE_COPIES=1. Every COPY row of hooks.def, every way."""
# timeout: 120
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import NOT_SUPPORTED, SUCCESS, check, equal

SOURCE = os.path.join(farm.REPO, "tests/integration/doors/copies.c")
PROGRAM = os.path.join(os.environ["TMPDIR"], "copies")
QUIET = 0.03  # seconds in which a copy that is not gated would have returned

# What the simulated driver does not have; it refuses after the gate.
OLD = re.compile(r"^cuMemcpy(2D|2DUnaligned|2DAsync|3D|3DAsync|[DHA]to[DHA]|[DHA]to[DHA]Async)$|3DBatch")
PLAIN = {"uu": True, "uv": False, "vu": False, "vv": False}
DESCRIBED = {"dd": True, "dh": False, "hd": False, "hh": False, "uu": True, "ud": True, "uv": False,
             "vu": False, "da": True, "aa": True, "ah": False}


def rows():
    """(name, its ways: whether each stays within the device)."""
    with open(os.path.join(farm.REPO, "hooks/hooks.def")) as file:
        found = re.findall(r"^COPY\((\w+),\s*(\w+)", file.read(), re.MULTILINE)
    check(len(found) > 50, "%d COPY rows found in hooks.def" % len(found))
    for name, within in found:
        if within == "false":
            yield name, {"--": False}
        elif within == "COPIES_WITHIN" and OLD.search(name):
            # No unified address fits into 32 bits.
            yield name, {way: where for way, where in DESCRIBED.items() if not set("uv") & set(way)}
        elif within == "COPIES_WITHIN":
            yield name, DESCRIBED
        else:
            yield name, PLAIN


def build():
    with open(os.path.join(farm.B, "cuda.mk")) as file:
        include = re.search(r"CUDA_INCLUDE\s*:?=\s*(\S*)", file.read()).group(1)
    done = subprocess.run([os.environ["CC"], "-std=gnu11", "-D_GNU_SOURCE", "-w",
                           "-D__CUDA_API_VERSION_INTERNAL",
                           *(["-fsanitize=" + farm.SAN] if farm.SAN else []),
                           *(["-I" + include] if include else []),
                           SOURCE, "-o", PROGRAM, os.path.join(farm.SIM, "libcuda.so.1")],
                          text=True, capture_output=True)
    if done.returncode:
        raise AssertionError(done.stderr[-800:])


def start(place, tag, **settings):
    log = os.path.join(place.place, tag + ".log")
    a = farm.Worker(tag, [PROGRAM], place.environment(tag, **settings), log)
    place.workers.append(a)
    a.ok("open")
    return a


def check_one(holder, a, name, way, gated):
    """Free copies are made while the holder's kernel runs; gated ones wait until it has ended."""
    copied = a.post("copy %s %s" % (name, way))
    waited = not farm.answered(copied, QUIET if gated else 5)
    check(waited == gated, "%s %s %s" % (name, way, "waits" if waited else "does not wait"))
    if waited:
        holder.ok("release")
        holder.ok("sync")
    if not farm.answered(copied, farm.SOON):
        raise TimeoutError("%s %s waits on: %s" % (name, way, a.log()))
    result = farm.numbers(copied.result())[0]
    check(result == SUCCESS or (OLD.search(name) and result == NOT_SUPPORTED),
          "%s %s: %d" % (name, way, result))
    if waited:
        a.ok("sync")
        holder.ok("hold")


def check_ways(place, gate_all, **settings):
    holder, a = place.worker("holder"), start(place, "a", **settings)
    holder.ok("hold")
    count = 0
    for name, ways in rows():
        for way, within in ways.items():
            check_one(holder, a, name, way, within or gate_all)
            count += 1
    holder.ok("release")
    holder.ok("sync")
    print("%d copies" % count)


def check_directions():
    with farm.Farm(ALLOWANCE="30s") as place:
        check_ways(place, False)
        trace = place.trace()
        check({"dtod", "dtoh", "htod"} <= {r.kind for r in trace.runs if r.client == "a"}, "kinds")
        equal(farm.overlaps(trace.commands()), [], "work beside the holder's")


def check_gate_copies():
    with farm.Farm(ALLOWANCE="30s", GATE_COPIES=1) as place:
        check_ways(place, True)


def check_freed():
    """An address whose allocation is gone counts as the host's again."""
    with farm.Farm(ALLOWANCE="30s") as place:
        holder, a = place.worker("holder"), start(place, "a")
        holder.ok("hold")
        a.ok("free")
        check(farm.answered(a.post("copy cuMemcpyAsync uu"), 5), "a copy within freed memory waits")
        holder.ok("release")
        holder.ok("sync")


def check_bare():
    with farm.Farm(preload=False) as place:
        holder, a = place.worker("holder"), start(place, "a")
        holder.ok("hold")
        for words in ("copy cuMemcpyAsync uu", "copy cuMemcpy2DAsync_v2 dd"):
            copied = a.post(words)
            check(farm.answered(copied, 5), "'%s' waits without the library" % words)
            equal(farm.numbers(copied.result())[0], SUCCESS, words)
        holder.ok("release")
        holder.ok("sync")


build()
farm.run(check_directions, check_gate_copies, check_freed, check_bare)
