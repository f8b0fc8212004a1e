#!/usr/bin/env python3
"""Contexts, streams and threads that go while their work is under way, beside a working neighbour:
a stale handle makes the simulated driver abort, as real ones crash, so none may be touched."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import check, equal


def survives(words, rounds):
    with farm.Farm(QUANTUM="5ms") as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        busy = neighbour.post("loop 5000 500000 3")
        equal(a.numbers("%s %d" % (words, rounds), timeout=60), [0, rounds], words)
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, words + ": the neighbour")
        a.ok("spin 1000 10")
        a.ok("sync")
        trace = place.trace()
        kernels = len([c for c in trace.commands() if c.client == "a"])
        check(kernels >= 3 * rounds, "%s: only %d kernels ran" % (words, kernels))
        found = farm.overlaps(trace.commands())
        counted = sum(place.tenant(tag)["overruns"] for tag in ("a", "neighbour"))
        print("%s: %d kernels, %d overlaps, %d counted overruns" % (words, kernels, len(found),
                                                                    counted))
        if len(found) > counted:
            check(False, "%s: %s" % (words, [farm.describe(o) for o in found[:3]]))
        equal(a.log(), "", words + ": what it said")


def check_contexts():
    survives("contexts", 100)


def check_resets():
    survives("resets", 100)


def check_streams():
    survives("streams", 500)


def check_moths():
    survives("moths", 150)


farm.run(check_contexts, check_resets, check_streams, check_moths)
