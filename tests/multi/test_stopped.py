#!/usr/bin/env python3
"""A holder that does not move (SIGSTOP), or whose kernel does not end: the others go on after
quantum and allowance, the stopped one queues when it wakes."""
# timeout: 60
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import signal
import time

import farm
from farm import MS, check, equal

QUANTUM, ALLOWANCE, GRACE = 20 * MS, 200 * MS, 10 * MS
NOISE = 150 * MS


def longest_silence(commands, start, end):
    """The longest time without a submission of b or c."""
    times = [start] + sorted(c.submit for c in commands
                             if c.client in ("b", "c") and start < c.submit < end) + [end]
    return max(later - earlier for earlier, later in zip(times, times[1:]))


def check_stopped():
    with farm.Farm(ALLOWANCE="200ms") as place:
        a, b, c = (place.worker(tag) for tag in "abc")
        loops = [w.post("loop 7000 1000000 0") for w in (b, c)]
        own = a.post("loop 7000 300000 0")
        time.sleep(1)
        for _ in range(40):
            a.signal(signal.SIGSTOP)
            if holds(place, a.pid):
                break
            a.signal(signal.SIGCONT)
            time.sleep(0.007)
        stopped = farm.now()
        check(holds(place, a.pid), "it was never caught holding the GPU")
        time.sleep(3)
        woken = farm.now()
        seen = place.tenant("a")
        a.signal(signal.SIGCONT)
        for loop in [*loops, own]:
            equal(farm.numbers(loop.result(30))[0], 0, "launches")
        trace = place.trace()
        commands = trace.commands()
        silence = longest_silence(commands, stopped, woken)
        print("the others' longest wait for the stopped one: %.1f ms" % (silence / MS))
        check(silence < QUANTUM + ALLOWANCE + GRACE + NOISE, "%.1f ms" % (silence / MS))
        check(seen["revocations"] >= 1, "revocations counted: %d" % seen["revocations"])
        check_woken(commands, woken)


def holds(place, pid):
    return any(c["pid"] == pid and c["holds"] for c in place.gpu()["clients"])


def check_woken(commands, woken):
    """One late submission by its one thread may be; then it waits like everybody."""
    found = [o for o in farm.overlaps(commands) if o[1].submit > woken or o[2].submit > woken]
    print("overlaps after it woke: %d, the longest %.3f ms" % (
        len(found), max([o[0] for o in found] or [0]) / MS))
    late = {o[1].submit for o in found if o[1].client == "a"} | {
        o[2].submit for o in found if o[2].client == "a"}
    check(len(late) <= 1, "late submissions of the stopped one: %d" % len(late))
    check(any(c.client == "a" and c.submit > woken + 100 * MS for c in commands),
          "the stopped one gets no turn after it woke")


def check_endless():
    """A kernel that does not end is waited for within the allowance, then the others go on."""
    with farm.Farm(ALLOWANCE="200ms") as place:
        a, b = place.worker("a"), place.worker("b")
        a.ok("hold")
        begun = farm.now()
        waiting = b.post("spin 100000")
        check(farm.answered(waiting, 5), "b waits for ever")
        took = farm.numbers(waiting.result())[2] - begun
        print("beside an endless kernel b goes on after %.1f ms" % (took / MS))
        check(100 * MS < took < QUANTUM + ALLOWANCE + GRACE + NOISE, "b goes on after %.1f ms" %
              (took / MS))
        b.ok("sync")
        seen = place.tenant("a")
        check(seen["overruns"] + seen["revocations"] >= 1, "neither overrun nor revocation counted")
        a.ok("release")
        a.ok("sync")
        a.ok("spin 1000")
        a.ok("sync")


def check_all_stopped():
    """Everybody stops for a while, as on a frozen node: nobody is blamed when they wake."""
    with farm.Farm(ALLOWANCE="200ms") as place:
        workers = [place.worker(tag) for tag in "abc"]
        loops = [w.post("loop 4000 1000000 0") for w in workers]
        time.sleep(1)
        for worker in workers:
            worker.signal(signal.SIGSTOP)
        time.sleep(1.5)
        for worker in workers:
            worker.signal(signal.SIGCONT)
        for loop in loops:
            equal(farm.numbers(loop.result(30))[0], 0, "launches")
        blamed = {w.tag: place.tenant(w.tag)["revocations"] for w in workers}
        equal(sum(blamed.values()), 0, "revocations after a freeze of all: %s" % blamed)


farm.run(check_stopped, check_endless, check_all_stopped)
