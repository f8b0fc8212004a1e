#!/usr/bin/env python3
"""CUSLICE_PRIORITY: how long a high client waits beside low ones, what these keep, and that classes
above and below do not mix up the shares within a class. Waits are measured by the program, shares
in the device's trace."""
# timeout: 240
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check

TRIES = 3
RUN_AHEAD = 1 * MS
# What two threads that have to be woken may take on a busy machine of two processors.
LATE = 3 * MS


def measure(once):
    """`once()` says what is wrong; it is done again, since a busy machine is late."""
    for _ in range(TRIES):
        wrong = once()
        if not wrong:
            return
    check(False, wrong)


def waits(worker, count, pause):
    """How long launches wait that come after a pause, sorted."""
    found = []
    for _ in range(count):
        time.sleep(pause)
        rc, before, after = worker.numbers("spin 1000000")[:3]
        farm.equal(rc, farm.SUCCESS, "spin")
        found.append(after - before)
        worker.ok("sync")
    return sorted(found)


def beside_low(kernel, lows, quantum="20ms"):
    def once():
        with farm.Farm(QUANTUM=quantum) as place:
            high = place.worker("high", PRIORITY="high")
            workers = [place.worker("low%d" % i, PRIORITY="low") for i in range(lows)]
            ran = [w.post("loop 3500 %d 0" % kernel) for w in workers]
            time.sleep(0.3)
            found = waits(high, 60, 0.03)
            for each in ran:
                farm.numbers(each.result(30))
            middle, most = found[30], found[54]
            print("high beside %d low with kernels of %.1f ms, slices of %s: waits %.2f ms in the "
                  "middle, nine of ten below %.2f, all below %.2f" % (
                      lows, kernel / MS, quantum, middle / MS, most / MS, found[-1] / MS))
            if middle > kernel + RUN_AHEAD + MS or most > kernel + RUN_AHEAD + MS + LATE:
                return "high waits %.2f and %.2f ms beside kernels of %.1f ms" % (
                    middle / MS, most / MS, kernel / MS)
            for w in [high] + workers:
                farm.equal(w.log(), "", "what %s said" % w.tag)
            return ""
    measure(once)


def check_high_waits_for_a_kernel():
    beside_low(500000, 1)
    beside_low(1000000, 2)
    beside_low(5000000, 2, "100ms")


def check_no_longer_than_the_allowance():
    """A low kernel of 900 ms is waited for until the allowance is over."""
    def once():
        with farm.Farm(ALLOWANCE="100ms") as place:
            high, low = place.worker("high", PRIORITY="high"), place.worker("low", PRIORITY="low")
            found = []
            for _ in range(3):
                low.ok("spin 900000000")
                time.sleep(0.03)
                rc, before, after = high.numbers("spin 1000000")[:3]
                farm.equal(rc, farm.SUCCESS, "spin")
                found.append(after - before)
                high.ok("sync")
                low.ok("sync")
            found.sort()
            print("beside a kernel of 900 ms, allowance 100 ms: waits %s ms" % [
                "%.1f" % (ns / MS) for ns in found])
            return "" if 95 * MS < found[1] < 101 * MS + LATE else "waits %s" % found
    measure(once)


def check_without_it():
    """The same with equals: it waits for the rest of a slice. So there is something to see."""
    with farm.Farm(QUANTUM="100ms") as place:
        a, others = place.worker("a"), [place.worker(tag) for tag in ("b", "c")]
        ran = [worker.post("loop 2500 5000000 0") for worker in others]
        time.sleep(0.3)
        found = waits(a, 12, 0.03)
        for each in ran:
            farm.numbers(each.result(30))
        print("among equals, slices of 100 ms: waits %.1f ms in the middle" % (found[6] / MS))
        check(found[6] > 15 * MS, "among equals the wait is %.1f ms" % (found[6] / MS))


def shares(loops, seconds, **settings):
    """{tag: (priority, weight, words)}: each client's share, and the percentage of idle time."""
    with farm.Farm(**settings) as place:
        workers = {tag: place.worker(tag, PRIORITY=priority, WEIGHT=weight)
                   for tag, (priority, weight, _) in loops.items()}
        farm.together([(workers[tag], words % (seconds * 1000))
                       for tag, (_, _, words) in loops.items()], seconds + 40)
        trace = place.trace()
        start, end = farm.window(trace, loops)
        idle = 100.0 * farm.idle(trace, start, end) / (end - start)
        found = farm.shares(trace.turns(), start, end)
        print("%s, %.2f %% idle" % (", ".join("%s %.2f %%" % (tag, found.get(tag, 0))
                                             for tag in loops), idle), flush=True)
        for worker in workers.values():
            farm.equal(worker.log(), "", "what %s said" % worker.tag)
        return found


def check_low_keeps_two_percent():
    def once(kernel):
        found = shares({"a": ("high", 60, "loop %d 1000000 0"),
                        "b": ("high", 40, "loop %d 1000000 0"),
                        "low": ("low", 5000, "loop %%d %d 0" % kernel)}, 8)
        low, a = found.get("low", 0), found["a"]
        if not 1.2 <= low <= 2.6:
            return "low keeps %.2f %%" % low
        return "" if abs(a - 0.6 * (100 - low)) < 2 else "a has %.2f %% of 60" % a
    measure(lambda: once(200000))
    measure(lambda: once(5000000))


def check_three_classes():
    """The two lower classes have their part together, and neither starves."""
    def once():
        found = shares({"high": ("high", 100, "loop %d 1000000 0"),
                        "normal": ("normal", 100, "loop %d 1000000 0"),
                        "low": ("low", 100, "loop %d 1000000 0")}, 9)
        lower = [found.get(tag, 0) for tag in ("normal", "low")]
        good = 1.2 <= sum(lower) <= 2.6 and min(lower) >= 0.4
        return "" if good else "normal and low have %s" % lower
    measure(once)


def check_a_pause_is_given_away():
    """A high client that is idle leaves the GPU to low ones."""
    def once():
        with farm.Farm() as place:
            high = place.worker("high", PRIORITY="high")
            low = place.worker("low", PRIORITY="low")
            farm.together([(high, "bursts 5000 1000000 5 15000"), (low, "loop 5000 500000 0")], 40)
            trace = place.trace()
            start, end = farm.window(trace, ["high", "low"])
            used = farm.occupancy(trace.turns(), start, end)["low"] / (end - start)
            print("low beside one that pauses three quarters: %.1f %%" % (100 * used))
            return "" if 0.55 < used < 0.80 else "low has %.1f %%" % (100 * used)
    measure(once)


farm.run(check_high_waits_for_a_kernel, check_no_longer_than_the_allowance, check_without_it, check_low_keeps_two_percent,
         check_three_classes, check_a_pause_is_given_away)
