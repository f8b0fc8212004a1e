#!/usr/bin/env python3
"""Signal handlers that jump out of a launch (siglongjmp): from the closed gate, from the driver's own
call, from the driver's calls that cuslice makes behind a launch. The program launches again, its turns end
when they should, and its neighbour has its share."""
# timeout: 180
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check, equal

ALLOWANCE = 20  # seconds: what a turn takes that does not end
LONGEST = 500  # milliseconds without work of one of two busy clients
JUMPS = 5
TRIES = 4  # somebody else's burst on the same CPUs must not decide; what stays broken does


def leave(worker, words, wait=0.03, where=""):
    """A launch of thread 1 that is left by a jump."""
    jump = worker.post("jump 1000 8 " + where, thread=1)
    time.sleep(wait)
    while not jump.done():
        worker.ok("nudge", thread=2)
        time.sleep(0.0007)
    equal(farm.numbers(jump.result(farm.SOON)), [0, 1], words + ": left by a jump")


def longest_wait(trace, tag, start, end):
    ran = sorted((r.start, r.end) for r in trace.of(tag) if r.end > start and r.start < end)
    at = [start, *(e for _, e in ran)]
    return max(s - e for e, s in zip(at, [*(s for s, _ in ran), end])) / MS


def work(place, words, thread):
    """Both work at once for two seconds; where in time they did."""
    a, b = place.workers[:2]
    loops = [a.post("loop 2000 500000 8", thread=thread), b.post("loop 2000 500000 8")]
    begun = farm.now()
    for loop in loops:
        equal(farm.numbers(loop.result(2 * ALLOWANCE))[0], 0, words + ": launches")
    took = (farm.now() - begun) / farm.SECOND
    check(took < ALLOWANCE / 2, "%s: a turn does not end: 2 s took %.1f" % (words, took))
    return begun


def take_turns(place, words, thread=1):
    """`a` works in the thread that has jumped, or in another one, and its neighbour as much."""
    for _ in range(TRIES):
        begun = work(place, words, thread)
        trace = place.trace()
        start, end = begun + 800 * MS, begun + 1900 * MS
        share = farm.shares(trace.turns(), start, end)
        waits = max(longest_wait(trace, tag, start, end) for tag in "ab")
        if waits < LONGEST and all(40 < share.get(tag, 0) < 60 for tag in "ab"):
            break
    found = farm.overlaps([c for c in trace.commands() if c.submit > begun])
    print("%s: shares %.1f and %.1f, %.0f ms without work at most, %d overlaps" % (
        words, share.get("a", 0), share.get("b", 0), waits, len(found)))
    check(waits < LONGEST, "%s: %.0f ms without work" % (words, waits))
    for tag in "ab":
        farm.between(share.get(tag, 0), 40, 60, "%s: the share of %s" % (words, tag))
    equal(sum(t["revocations"] for t in place.gpu()["tenants"]), 0, words + ": revocations")


def opened(place, **sim):
    a, b = place.worker("a", sim=sim), place.worker("b")
    for worker in (a, b):
        worker.ok("spin 1000", thread=1)
        worker.ok("sync", thread=1)
    return a, b


def check_gate():
    """Out of the wait at the closed gate, and back into it."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="%ds" % ALLOWANCE) as place:
        a, b = opened(place)
        b.ok("hold")
        for i in range(JUMPS):
            leave(a, "gate")
        b.ok("release")
        a.ok("spin 1000", thread=1)
        take_turns(place, "from the gate")


def check_cancelled():
    """A thread that has left the wait like that can be cancelled as before, once it has launched."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="%ds" % ALLOWANCE) as place:
        a, b = opened(place)
        b.ok("hold")
        leave(a, "gate")
        b.ok("release")
        a.ok("spin 1000", thread=1)
        b.ok("hold")
        gone = a.post("leave cancel 1000", thread=1)
        time.sleep(0.03)
        a.ok("nudge", thread=2)
        b.ok("release")
        check(not farm.answered(gone, 1), "the thread cannot be cancelled any more")


def check_gate_gone():
    """Nobody wants the turn any more that is given for the wait that was left."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="%ds" % ALLOWANCE) as place:
        a, b = opened(place)
        b.ok("hold")
        leave(a, "gate")
        b.ok("release")
        begun = farm.now()
        equal(b.numbers("loop 1000 500000 8", timeout=2 * ALLOWANCE)[0], 0, "launches")
        took = (farm.now() - begun) / farm.SECOND
        print("a turn that nobody wants: 1 s of the neighbour takes %.1f" % took)
        check(took < ALLOWANCE / 2, "nobody passes the turn on for %.1f s" % took)
        take_turns(place, "another thread", thread=3)


def check_driver(fail="cuLaunchKernel=slow:400ms@2", words="from the driver", rest=()):
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="%ds" % ALLOWANCE) as place:
        a, b = opened(place, FAIL=fail)
        leave(a, words)
        for line in rest:
            a.ok(line, thread=1)
        take_turns(place, words)


def check_driver_alone():
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="%ds" % ALLOWANCE) as place:
        a = place.worker("a", sim={"FAIL": "cuLaunchKernel=slow:400ms@2"})
        a.ok("spin 1000", thread=1)
        leave(a, "alone")
        place.worker("b")
        take_turns(place, "from the driver, alone")


def check_driver_below():
    check_driver(words="from the driver, then from below", rest=("jump 1000 16",))


def check_marker():
    """Out of the driver's call that puts a marker behind the launch."""
    check_driver(fail="cuEventRecord=slow:400ms@2", words="from a marker")


def ask_and_leave(a):
    a.ok("loop 300 60000000 1", thread=1)
    a.ok("spin 60000000 2", thread=1)
    leave(a, "a question", wait=0.005, where="driver")


def check_question():
    """Out of the driver's answer whether the work before the launch is done: on to another launch, or
    to the end of the context without one."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="%ds" % ALLOWANCE) as place:
        a, b = opened(place, FAIL="cuEventQuery=slow:1ms")
        ask_and_leave(a)
        a.ok("sync", thread=1)
        take_turns(place, "from a question")
        ask_and_leave(a)
        a.ok("context reset", thread=1)


farm.run(check_gate, check_cancelled, check_gate_gone, check_driver, check_driver_alone,
         check_driver_below, check_marker, check_question)
