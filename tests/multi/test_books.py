#!/usr/bin/env python3
"""The books of turns: overruns and bursts, compared with the device's trace and with the program's
own clock."""
# timeout: 120
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, SECOND, check, equal


TRIES = 3  # somebody else's burst on the same CPUs must not decide


def overrun():
    """A kernel that outlasts quantum and allowance: what of it runs beside the next client."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="100ms") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        a.ok("spin 600000000")
        time.sleep(0.03)
        found = b.numbers("spin 1000000")
        equal(found[0], 0, "the next client's launch")
        passed = found[2]
        check(found[2] - found[1] < 400 * MS, "it waited %.0f ms" % ((found[2] - found[1]) / MS))
        b.ok("sync")
        a.ok("sync")
        time.sleep(0.1)
        trace, books = place.trace(), place.tenant("a")
        end = max(r.end for r in trace.of("a"))
        truth = (end - passed) / SECOND
        print("a kernel ran %.3f s beside the next client; the books say %.3f s, %d overruns" % (
            truth, books["overrun_seconds"], books["overruns"]))
        equal(place.tenant("b")["overruns"], 0, "overruns of the other")
        return abs(books["overrun_seconds"] - truth) < 0.05 + 0.1 * truth and books["overruns"] == 1


def check_overrun():
    check(any(overrun() for _ in range(TRIES)), "the overrun is not in the books")


def check_overrun_after_rest():
    """The same after a second without work, in which all was once seen to be done."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="100ms") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (b, a):
            worker.ok("spin 1000")
            worker.ok("sync")
        time.sleep(1.3)
        a.ok("spin 600000000")
        time.sleep(0.03)
        passed = b.ok("spin 1000000")[1]
        b.ok("sync")
        a.ok("sync")
        time.sleep(0.1)
        truth = (max(r.end for r in place.trace().of("a")) - passed) / SECOND
        booked = place.tenant("a")["overrun_seconds"]
        print("after a rest: %.3f s beside the next client, %.3f s in the books" % (truth, booked))
        check(abs(booked - truth) < 0.05 + 0.1 * truth, "overrun_seconds after a rest")


def check_endless():
    """A kernel that does not end does not keep its process awake, and its overrun is booked."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="100ms") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        a.ok("hold")
        passed = b.ok("spin 1000")[1]
        time.sleep(1)
        before = farm.keeper_wakes(a.pid)
        time.sleep(1)
        count = farm.keeper_wakes(a.pid) - before
        a.ok("release")
        a.ok("sync")
        time.sleep(0.2)
        truth = (max(r.end for r in place.trace().of("a")) - passed) / SECOND
        booked = place.tenant("a")["overrun_seconds"]
        print("an endless kernel: %d wake-ups in a second; %.3f s beside the next client, %.3f s in "
              "the books" % (count, truth, booked))
        check(count < 250, "its process is woken %d times in a second" % count)
        check(abs(booked - truth) < 0.05 + 0.1 * truth, "overrun_seconds")


def check_queued_alone():
    """What was queued before anybody else was there is no overrun, however long it takes."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="100ms") as place:
        a = place.worker("a")
        a.ok("spin 50000000 12")
        b = place.worker("b")
        equal(b.numbers("spin 1000")[0], 0, "the second client's launch")
        b.ok("sync")
        a.ok("sync")
        equal(place.tenant("a")["overruns"], 0, "overruns of who was alone")
        equal(place.tenant("a")["overrun_seconds"], 0, "overrun_seconds of who was alone")
        # From then on it is one client of two.
        b.ok("spin 1000")
        b.ok("sync")
        a.ok("spin 400000000")
        time.sleep(0.03)
        b.ok("spin 1000")
        check(place.tenant("a")["overruns"] == 1, "a later overrun is counted")


def check_bursts():
    """From the first launch after a pause to the end of the synchronise, and what of it is waiting."""
    with farm.Farm(QUANTUM="20ms") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        before = place.tenant("a")
        busy = b.post("loop 2500 1000000 0")
        bursts, waits = [], []
        for _ in range(30):
            launched = a.numbers("spin 2000000")
            done = a.numbers("sync")
            bursts.append((done[2] - launched[1]) / SECOND)
            waits.append((launched[2] - launched[1]) / SECOND)
            time.sleep(0.03)
        busy.result(30)
        after = place.tenant("a")
    for name, truth in (("burst", bursts), ("burst_wait", waits)):
        count = after[name]["count"] - before[name]["count"]
        total = after[name]["sum_seconds"] - before[name]["sum_seconds"]
        print("%s: %d, %.4f s in all; the program's clock: %d, %.4f s" % (
            name, count, total, len(truth), sum(truth)))
        check(len(truth) - 3 <= count <= len(truth), "%s: %d of %d" % (name, count, len(truth)))
        check(abs(total - sum(truth)) < 0.02 + 0.15 * sum(truth), "%s: the sum" % name)


farm.run(check_overrun, check_overrun_after_rest, check_endless, check_queued_alone,
         check_bursts)
