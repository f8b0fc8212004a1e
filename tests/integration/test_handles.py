#!/usr/bin/env python3
"""Contexts, streams and threads that go while their work is under way, beside a working neighbour:
a stale handle makes the simulated driver abort, as real ones crash, so none may be touched."""
# timeout: 120
import os
import sys
import time

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


def check_captures():
    """A context that goes in the middle of a capture: nothing is being captured any more, so turns
    end as they did."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="100ms") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        a.ok("capture relaxed 4")
        a.ask("resets 1")  # refused, and ends the capture's validity
        a.ok("resets 1")
        a.ok("spin 400000000")  # an overrun: the next drains ask the driver about everything
        b.ok("spin 1000")
        a.ok("sync")
        b.ok("sync")
        farm.together([(w, "loop 1500 300000 0") for w in (a, b)], 30)
        turns = place.trace().turns()
        print("after a capture that its context did not outlive: %d turns" % len(turns))
        check(len(turns) > 50, "only %d turns" % len(turns))


def check_release():
    """A release that is under way while the context goes and comes again, and outlives it: the new
    one is looked after like any other."""
    slow = {"FAIL": "cuDevicePrimaryCtxRelease_v2=slow:500ms@2"}  # the first is the library's
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="100ms") as place:
        a, b = place.worker("a", sim=slow), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        releasing = a.post("unretain", thread=2)
        time.sleep(0.1)
        a.ok("resets 1", thread=1)
        a.ok("open", thread=1)
        check(not releasing.done(), "the release was over too soon")
        equal(farm.numbers(releasing.result(farm.SOON)), [0], "the release")
        for future in (a.post("loop 1500 300000 0", thread=1), b.post("loop 1500 300000 0")):
            equal(farm.numbers(future.result(farm.SOON))[0], 0, "a loop")
        turns = place.trace().turns()
        print("after a release beside a reset: %d turns" % len(turns))
        check(len(turns) > 50, "only %d turns" % len(turns))


farm.run(check_contexts, check_resets, check_streams, check_moths, check_captures,
         check_release)
