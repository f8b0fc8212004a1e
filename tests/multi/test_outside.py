#!/usr/bin/env python3
"""Streams that wait for something outside hold up nobody: neither the end of a slice, nor an early
release, nor the client whose turn it takes to end the wait."""
# timeout: 180, beside one
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check, equal

TRIES = 3  # somebody else's burst on the same CPUs must not decide


def longest_wait(trace, tag, start, end):
    """The longest time in the window in which nothing of the client's ran, in milliseconds."""
    at, longest = start, 0
    for run in sorted(trace.of(tag), key=lambda r: r.start):
        if run.end < start or run.start > end:
            continue
        longest = max(longest, run.start - at)
        at = max(at, run.end)
    return max(longest, end - at) / MS


def beside(prepare, busy):
    """How long a busy neighbour waits at most while `a` does `busy` and a stream of it waits."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="2s") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        prepare(a)
        time.sleep(0.05)
        posts = [b.post("loop 1500 1000000 0")]
        if busy:
            posts.append(a.post(busy, thread=1))
        begun = farm.now()
        time.sleep(1.3)
        waited = longest_wait(place.trace(), "b", begun + 50 * MS, farm.now() - 100 * MS)
        a.ok("release")
        for post in posts:
            equal(farm.numbers(post.result(farm.SOON))[0], 0, "a result")
        a.ok("sync")
        return waited, place.trace()


def check_quiet():
    """Nothing but the waiting stream: its client has nothing on the GPU that could be waited for."""
    def prepare(a):
        a.ok("await 4")
        a.ok("spin 200000 3 4")

    best = min(beside(prepare, None)[0] for _ in range(2))
    print("beside a client whose stream waits: the neighbour pauses %.1f ms at most" % best)
    check(best < 60, "the neighbour is kept from the GPU for %.1f ms" % best)


def check_busy():
    """The same client has other work and takes its turns: each ends in time."""
    def prepare(a):
        a.ok("await 4")
        a.ok("spin 200000 3 4")

    waits, trace = beside(prepare, "loop 1200 300000 0 5")
    for _ in range(TRIES - 1):
        if waits > 60:
            waits, trace = beside(prepare, "loop 1200 300000 0 5")
    ran = [r for r in trace.of("a") if r.kind == "kernel"]
    print("beside a busy client one of whose streams waits: the neighbour pauses %.1f ms at most; "
          "%d kernels of the client ran" % (waits, len(ran)))
    check(waits < 60, "the neighbour is kept from the GPU for %.1f ms" % waits)
    check(len(ran) > 500, "the client itself ran %d kernels" % len(ran))


def check_host_function():
    """A host function that takes long is no work on the GPU."""
    def prepare(a):
        a.ok("hostfn 4 1400")
        a.ok("spin 200000 3 4")

    best = min(beside(prepare, None)[0] for _ in range(2))
    print("beside a client whose host function runs: the neighbour pauses %.1f ms at most" % best)
    check(best < 60, "the neighbour is kept from the GPU for %.1f ms" % best)


def check_other_process():
    """A stream waits for another process's event, which needs a turn of that process."""
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="5s") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        b.ok("await 4")
        words = b.ask("share 4").split()
        equal(words[0], "0", "an event for other processes")
        equal(a.numbers("follow 4 " + words[1])[0], 0, "to wait for it")
        a.ok("spin 200000 1 4")  # holds the token, and waits for b
        turn = b.post("spin 300000 1 5", thread=1)
        check(farm.answered(turn, 2), "the event's owner does not get its turn")
        start, end = farm.numbers(turn.result(farm.SOON))[1:3]
        print("the event's owner has its turn after %.1f ms" % ((end - start) / MS))
        check(end - start < 300 * MS, "the event's owner waited %.1f ms" % ((end - start) / MS))
        check(not [r for r in place.trace().of("a") if r.end - r.start >= 200000],
              "the work behind the event ran before it")
        b.ok("release")
        a.ok("sync")
        ran = place.trace_until(lambda t: any(r.end - r.start >= 200000 for r in t.of("a")),
                                "the work behind the event")
        check(ran, "the work behind the event")


def check_two_at_once():
    """Two streams begin to wait while the keeper asks about streams that wait: each is remembered."""
    slow = {"FAIL": "cuEventRecord=slow:60ms"}
    with farm.Farm(QUANTUM="10ms", ALLOWANCE="3s") as place:
        a, b = place.worker("a", sim=slow), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        a.ok("spin 500000000 1 6")
        turn = b.post("spin 1000")  # a's turn ends, but for its kernel
        time.sleep(0.05)
        waits = [a.post("await 4", thread=1)]
        time.sleep(0.03)
        waits.append(a.post("await 5", thread=2))
        for future in waits + [turn]:
            equal(farm.numbers(future.result(farm.SOON))[0], 0, "a result")
        a.ok("spin 200000 1 4")
        begun = farm.now()
        equal(b.numbers("loop 300 1000000 0")[0], 0, "the neighbour")
        lasted = (farm.now() - begun) / MS
        print("two streams that began to wait at once: 300 ms of the neighbour took %.0f" % lasted)
        check(lasted < 1500, "the neighbour waits for one of them")
        a.ok("release")
        a.ok("sync")


def check_unknown():
    """Work that nothing tells of, since its marker failed, behind work that is known, beside a stream
    that waits: it has its time once what is known is done, and holds up nobody for long."""
    marker = {"FAIL": "cuEventRecord=999@4"}  # behind the last of: spin, await, spin, spin
    with farm.Farm(QUANTUM="40ms", ALLOWANCE="2s") as place:
        a, b = place.worker("a", sim=marker), place.worker("b")
        for worker in (a, b):
            worker.ok("spin 1000")
            worker.ok("sync")
        a.ok("await 4")
        begun = farm.now()
        a.ok("spin 80000000 1 5")
        a.ok("spin 5000000 1 5")
        b.ok("spin 1000")
        trace = place.trace_until(lambda t: [r for r in t.of("b") if r.submit > begun], "its turn")
        commands = [c for c in trace.commands() if c.submit > begun]
        after = (commands[-1].submit - commands[-2].end) / MS
        print("work that nothing tells of: the neighbour goes on %.1f ms after it" % after)
        equal([c.client for c in commands], ["a", "a", "b"], "what ran")
        check(0 < after < 300, "the neighbour goes on %.1f ms after it" % after)
        a.ok("release")
        a.ok("sync")


def check_after():
    """Once the wait is over the stream's work is gated and drained like any other."""
    with farm.Farm(QUANTUM="10ms") as place:
        a, b = place.worker("a"), place.worker("b")
        a.ok("spin 1000")
        a.ok("sync")
        b.ok("spin 1000")
        b.ok("sync")
        a.ok("await 4")
        a.ok("release")
        a.ok("sync 4")
        farm.together([(a, "loop 1500 500000 0 4"), (b, "loop 1500 500000 0")], 30)
        trace = place.trace()
        found = farm.overlaps([c for c in trace.commands() if c.end - c.start > 100000])
        print("afterwards: %d turns, %d overlaps" % (len(trace.turns()), len(found)))
        check(len(trace.turns()) > 50, "only %d turns" % len(trace.turns()))
        check(len(found) <= sum(place.tenant(t)["overruns"] for t in "ab"), "work overlaps")


farm.run(check_quiet, check_busy, check_host_function, check_other_process, check_two_at_once,
         check_unknown, check_after)
