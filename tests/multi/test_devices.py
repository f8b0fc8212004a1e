#!/usr/bin/env python3
"""Two devices: each has a ring of its own. Clients of one do not wait for those of the
other; those of the same one take turns."""
# timeout: 60
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import check, equal

TRIES = 3  # somebody else's burst on the same CPUs must not decide


def worker(place, tag, device, **settings):
    started = place.worker(tag, opened=False, **settings)
    started.ok("open %d" % device)
    return started


def on(trace, device):
    trace.runs = [r for r in trace.runs if r.device == device]
    return trace


def check_apart():
    """A kernel that does not end on one device holds nobody up on the other."""
    with farm.Farm(sim={"DEVICES": 2}, ALLOWANCE="30s") as place:
        a, b, c = worker(place, "a", 0), worker(place, "b", 1), worker(place, "c", 0)
        a.ok("hold")
        check(farm.answered(b.post("spin 100000 50"), 5), "a launch waits for the other device")
        waiting = c.post("spin 1000")
        check(not farm.answered(waiting, 0.2), "a launch does not wait for its own device")
        a.ok("release")
        a.ok("sync")
        check(farm.answered(waiting, farm.SOON), "the waiting one waits on")
        equal(len(place.status()["gpus"]), 2, "rings")


def apart_in_time():
    with farm.Farm(sim={"DEVICES": 2}) as place:
        a, b, c = (worker(place, "a", 0, WEIGHT=30), worker(place, "b", 1),
                   worker(place, "c", 0, WEIGHT=70))
        results = farm.together([(w, "loop 5000 1000000 0") for w in (a, b, c)], 40)
        equal([r[0] for r in results], [0, 0, 0], "results")
        first, second = on(place.trace(), 0), on(place.trace(), 1)
        equal(farm.overlaps(first.commands())[:3], [], "overlaps on device 0")
        start, end = farm.window(first, "ac")
        share = farm.shares(first.turns(), start, end)["a"]
        start, end = farm.window(second, "b")
        free = 100.0 * farm.idle(second, start, end) / (end - start)
    print("device 0: %.2f : %.2f; device 1 alone: %.2f %% idle" % (share, 100 - share, free), flush=True)
    return 27 < share < 33 and free < 5


def check_shares():
    farm.holds(apart_in_time, TRIES, "weights of 30 and 70 share one device, and one is alone on another")


def check_alone():
    """A process that nobody else is beside queues as much as it likes, though it sees several devices. Who
    comes then waits for that once, and nobody is blamed for it."""
    with farm.Farm(sim={"DEVICES": 2}) as place:
        a = worker(place, "a", 1)
        queued = a.post("spin 5000000 18")
        check(farm.answered(queued, 0.05), "queueing 90 ms of work takes longer than 50 ms")
        c = worker(place, "c", 1)
        c.ok("spin 1000000")
        for one in (a, c):
            one.ok("sync")
        equal(farm.overlaps(place.trace().commands())[:3], [], "overlaps")
        tenants = [t for gpu in place.status()["gpus"] for t in gpu["tenants"]]
        equal([t["overruns"] + t["revocations"] for t in tenants], [0] * 4, "overruns and revocations")
        queued = a.post("spin 5000000 18")
        check(not farm.answered(queued, 0.05), "90 ms of work are queued beside another client")
        check(farm.answered(queued, farm.SOON), "the queueing one does not go on")


def check_idle():
    """A process that sees many devices and does nothing is left asleep."""
    with farm.Farm(sim={"DEVICES": 16}) as place:
        a = worker(place, "a", 0)
        a.ok("spin 1000")
        a.ok("sync")
        time.sleep(1.2)
        before = farm.keeper_wakes(a.pid)
        time.sleep(2)
        count = farm.keeper_wakes(a.pid) - before
        print("idle with 16 devices: %d wake-ups in 2 s" % count)
        if tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2]) >= (5, 16):
            check(count < 40, "an idle process is woken %d times in 2 s" % count)


farm.run(check_apart, check_alone, check_shares, check_idle)
