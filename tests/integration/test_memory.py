#!/usr/bin/env python3
"""Every way to get device memory: after each step the program's own figure is what the device has
handed out to it, and the device never gives it more than its cap. memory_client has the steps."""
# timeout: 240
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import GIB, MIB, check, equal

# Managed memory counts as if it were on the device, so here it is taken when it is allocated.
SIM = {"CONCURRENT_MANAGED": 0}
FAMILIES = ["linear", "pitch", "managed", "array", "tiles", "pool", "pools", "captured", "graph",
            "physical", "segments", "multicast"]
STEPS = 2500


def over(trace, pid, cap):
    """The moments at which the device had given a process more than its cap."""
    return [m for m in trace.memory if m.pid == pid and m.client_memory > cap]


def run(place, tag, *words, cap, status=0):
    run_ = program.Program(place, tag, "memory_client", *words, MEM_LIMIT=cap)
    got, lines = run_.finish(timeout=120)
    equal(got, status, "memory_client %s: %s %s" % (" ".join(map(str, words)), lines[-2:],
                                                    run_.log()[-600:]))
    return run_, lines


def check_families():
    with farm.Farm(sim=SIM) as place:
        for family in FAMILIES:
            run(place, family, family, cap=2 * GIB)


def check_random():
    """Near the cap, over all families and several streams, with refusals in between."""
    with farm.Farm(sim=SIM) as place:
        for seed, cap in ((1, 300 * MIB), (2, 150 * MIB), (3, 1000 * MIB)):
            done, lines = run(place, "seed%d" % seed, "random", seed, STEPS, cap=cap)
            found = over(place.trace(), done.pid, cap)
            check(not found, "seed %d: over the cap %d times, first %s" % (seed, len(found), found[:1]))
            check("mem-refused" in done.log(), "seed %d: no refusal was said" % seed)
            print("seed %d: %s" % (seed, lines[-1]))


def check_uncapped():
    """Without the library the client sees the whole device, so its steps cannot agree."""
    with farm.Farm(preload=False) as place:
        run(place, "bare", "linear", cap=2 * GIB, status=1)


farm.run(check_families, check_random, check_uncapped)
