#!/usr/bin/env python3
"""Clients whose time of day jumps two hours back and forth: turns, shares, waits and ends go by the
monotonic clock alone, and nobody is blamed."""
# timeout: 60
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check, equal

SHIM = os.path.join(os.environ["TMPDIR"], "jumps.so")
ENDS = 10


def build():
    source = os.path.join(farm.REPO, "tests/integration/clock/jumps.c")
    done = subprocess.run([os.environ["CC"], "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-O1",
                           "-fPIC", "-shared", source, "-o", SHIM], text=True, capture_output=True)
    if done.returncode:
        raise AssertionError(done.stderr[-800:])


def jumping(place, tag, **settings):
    return place.worker(tag, preload=SHIM + ":" + farm.LIBRARY, **settings)


def check_shim():
    """Whether it jumps at all."""
    look = "import time; print(*[int(time.time()) for _ in range(4)], int(time.monotonic()))"
    times = {}
    for name in ("", SHIM):
        done = subprocess.run([sys.executable, "-c", look], env=dict(os.environ, LD_PRELOAD=name),
                              text=True, capture_output=True, timeout=farm.SOON)
        times[name] = farm.numbers(done.stdout)
    *jumped, monotonic = times[SHIM]
    for earlier, later in zip(jumped, jumped[1:]):
        farm.between(abs(later - earlier), 7190, 7210, "seconds between two looks at the time of day")
    farm.between(monotonic - times[""][-1], 0, farm.SOON, "the monotonic clock")


def check_turns():
    with farm.Farm(QUANTUM="5ms", ALLOWANCE="200ms") as place:
        workers = {tag: jumping(place, tag, WEIGHT=weight) for tag, weight in (("a", 70), ("b", 30))}
        results = farm.together([(w, "loop 5000 500000 8") for w in workers.values()], 30)
        equal([r[0] for r in results], [0, 0], "results")
        trace = place.trace()
        start, end = farm.window(trace, workers)
        share = farm.shares(trace.turns(), start, end)["a"]
        turns = [t for t in trace.turns() if start <= t.start <= end]
        longest = max(t.end - t.start for t in turns)
        print("share %.2f %% of 70, %d turns, the longest %.1f ms" % (share, len(turns), longest / MS))
        farm.between(share, 66, 74, "the share of 70")
        check(len(turns) > 100, "only %d turns" % len(turns))
        found = farm.overlaps(trace.commands())
        check(not found, "overlaps: %s" % [farm.describe(o) for o in found[:3]])
        for tag, worker in workers.items():
            equal(place.tenant(tag)["revocations"], 0, "revocations of " + tag)
            equal(worker.log(), "", "what %s said" % tag)


def check_ends():
    """Who ends in the middle of its turn passes it on itself: nobody has to find it dead."""
    with farm.Farm() as place:
        neighbour = jumping(place, "neighbour")
        busy = neighbour.post("loop 4000 500000 4")
        for i in range(ENDS):
            a = jumping(place, "e%d" % i)
            a.ok("spin 100000 20")
            cut = farm.now()
            equal(a.end(), 0, "exit status")
            check(farm.now() - cut < 1000 * MS, "the end took %.0f ms" % ((farm.now() - cut) / MS))
            equal(a.log(), "", "what it said")
        equal(place.gpu()["reaped"], 0, "clients that ended without passing their turn on")
        equal([c["pid"] for c in place.gpu()["clients"]], [neighbour.pid], "clients left")
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "the neighbour")


build()
farm.run(check_shim, check_turns, check_ends)
