#!/usr/bin/env python3
"""No time is given away: a client alone runs as without the library, and what one does not use the
others get."""
# timeout: 180
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check


def busy(place, tag, seconds):
    """Percent of the window in which the client's work ran."""
    trace = place.trace()
    start, end = farm.window(trace, [tag], 200 * MS)
    check(end - start > seconds * 0.6e9, "only %.1f s to look at" % ((end - start) / 1e9))
    return 100.0 - 100.0 * farm.idle(trace, start, end) / (end - start)


TRIES = 3  # somebody else's burst on the same CPUs must not decide


def close(figures, points):
    """Whether the library costs no more than that. What late wake-ups take from a bare client they may
    take once more from one that wakes more often."""
    return figures[True] > figures[False] - points - (100 - figures[False])


def alone(words):
    """How busy the device is kept, bare and under the library."""
    figures = {}
    for preload in (False, True):
        with farm.Farm(preload=preload) as place:
            place.worker("a").ok(words, timeout=30)
            figures[preload] = busy(place, "a", 3)
    print("'%s' alone: busy %.2f %% of the time, bare %.2f %%" % (words, figures[True],
                                                                figures[False]), flush=True)
    return close(figures, 3)


def check_alone():
    """Alone there is no slice: the device is never idle while work is queued."""
    for words in ("loop 3000 1000000 0", "loop 3000 20000 100", "loop 3000 1000000 1"):
        farm.holds(lambda: alone(words), TRIES, "'%s' under the library" % words)


def beside_idle():
    """How busy one keeps the device beside clients that are there and do nothing, and bare."""
    words, figures = "loop 3000 1000000 4", {}
    for preload in (False, True):
        with farm.Farm(preload=preload) as place:
            for tag in "bcdef" if preload else "":
                other = place.worker(tag)
                other.ok("spin 1000")
                other.ok("sync")
            place.worker("a").ok(words, timeout=30)
            figures[preload] = busy(place, "a", 3)
    print("beside five idle clients: busy %.2f %%, bare %.2f %%" % (figures[True], figures[False]),
          flush=True)
    return close(figures, 5)


def check_idle_neighbours():
    """Clients that are there and do nothing cost nothing."""
    farm.holds(beside_idle, TRIES, "beside five idle clients")


def pauses():
    """While one pauses after a synchronise, the other's kernels run, and they begin at once."""
    with farm.Farm() as place:
        a, b = place.worker("a"), place.worker("b")
        farm.together([(a, "bursts 5000 1000000 5 40000"), (b, "loop 5000 1000000 0")], 30)
        trace = place.trace()
        start, end = farm.window(trace, "ab")
        free = 100.0 * farm.idle(trace, start, end) / (end - start)
        share = farm.shares(trace.turns(), start, end)
        print("a pauses 40 ms between bursts of 5 ms: a %.1f %%, b %.1f %%, %.2f %% idle" % (
            share["a"], share["b"], free))
        gaps = early_release(trace, start, end)
        middle = sorted(gaps)[len(gaps) // 2]
        print("b's next kernel starts %.3f ms (median of %d) after a's burst" % (middle / MS,
                                                                                len(gaps)))
        return free < 12 and share["b"] > 80 and middle < 4 * MS


def check_pauses():
    farm.holds(pauses, TRIES, "b does not get, or not at once, what a leaves")


def early_release(trace, start, end):
    """From the end of a's turns to the start of b's."""
    turns = [t for t in trace.turns() if start <= t.start <= end]
    gaps = [second.start - first.end for first, second in zip(turns, turns[1:])
            if (first.client, second.client) == ("a", "b")]
    if len(gaps) < 10:
        raise AssertionError("only %d turns of a" % len(gaps))
    return gaps


def unsynchronised_pauses():
    """The same without a synchronise: the end of the work is noticed all the same."""
    with farm.Farm() as place:
        a, b = place.worker("a"), place.worker("b")
        busy_b = b.post("loop 4000 1000000 0")
        for _ in range(40):
            a.ok("spin 1000000 3")
            a.ok("sleep 60")
        busy_b.result(30)
        trace = place.trace()
        start, end = farm.window(trace, "ab")
        free = 100.0 * farm.idle(trace, start, end) / (end - start)
        gaps = early_release(trace, start, end)
        middle = sorted(gaps)[len(gaps) // 2]
        print("without a synchronise: %.2f %% idle, b goes on after %.3f ms (median)" % (
            free, middle / MS))
        return middle < 10 * MS and free < 15


def check_unsynchronised_pauses():
    farm.holds(unsynchronised_pauses, TRIES, "b does not get, or not at once, what a leaves")


farm.run(check_alone, check_idle_neighbours, check_pauses, check_unsynchronised_pauses)
