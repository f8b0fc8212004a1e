#!/usr/bin/env python3
"""Shares by weight, measured as occupancy in the device's trace: whatever the kernels' lengths and
however often they synchronise."""
# timeout: 240
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check

SECONDS = 9
POINTS = 2.0  # what a share may be off, on a busy machine of two processors
# Percent of the time in which no client's work ran. More means that the clients' threads, which
# always have work, were kept from running: the machine is measured then, and it is done again.
CALM = 1.5


def run_once(words, loops, settings):
    """Each client's share, the percentage of idle time, the length of what was looked at."""
    with farm.Farm(**settings) as place:
        workers = {tag: place.worker(tag, WEIGHT=weight) for tag, (weight, _) in loops.items()}
        farm.together([(workers[tag], loop % (SECONDS * 1000))
                       for tag, (_, loop) in loops.items()], SECONDS + 40)
        trace = place.trace()
        start, end = farm.window(trace, loops)
        found = farm.shares(trace.turns(), start, end)
        free = 100.0 * farm.idle(trace, start, end) / (end - start)
        print("%s: %s of %.1f s, %.2f %% idle, %d turns" % (
            words, ", ".join("%s %.2f %%" % (tag, found.get(tag, 0)) for tag in loops),
            (end - start) / 1e9, free, len([t for t in trace.turns() if start <= t.start <= end])),
            flush=True)
        for worker in workers.values():
            farm.equal(worker.log(), "", "%s: what %s said" % (words, worker.tag))
        return found, free, end - start


def measure(words, loops, bound=POINTS, **settings):
    """loops: {tag: (weight, words of the loop)}."""
    whole = sum(weight for weight, _ in loops.values())
    asked = {tag: 100.0 * weight / whole for tag, (weight, _) in loops.items()}
    for _ in range(3):
        found, free, length = run_once(words, loops, settings)
        wrong = [tag for tag in loops if abs(found.get(tag, 0) - asked[tag]) > bound]
        if not wrong or free < CALM:
            break
    for tag in wrong:
        check(False, "%s: %s has %.2f %%, not %.2f %%" % (words, tag, found.get(tag, 0),
                                                          asked[tag]))
    check(length > (SECONDS - 3) * 1000 * MS, "%s: only %.1f s to look at" % (words, length / 1e9))


def check_three():
    measure("50/30/20", {"a": (50, "loop %d 1000000 0"), "b": (30, "loop %d 1000000 0"),
                         "c": (20, "loop %d 1000000 0")})


def check_steep():
    measure("90/10", {"a": (900, "loop %d 500000 0"), "b": (100, "loop %d 500000 0")})


def check_synchronised():
    measure("30/70, synchronised at each step", {"a": (30, "loop %d 2000000 1"),
                                                 "b": (70, "loop %d 2000000 1")})


def check_lengths():
    measure("30/70, kernels of 0.05 and 20 ms", {"a": (30, "loop %d 50000 0"),
                                                 "b": (70, "loop %d 20000000 0")})


def check_long_kernel():
    """One kernel of 300 ms beside 5 ms ones: waited for, and owed back."""
    measure("300 ms beside 5 ms", {"long": (100, "loop %d 300000000 1"),
                                   "a": (100, "loop %d 5000000 0"), "b": (100, "loop %d 5000000 0"),
                                   "c": (100, "loop %d 5000000 0")}, bound=4.0)


farm.run(check_three, check_steep, check_synchronised, check_lengths, check_long_kernel)
