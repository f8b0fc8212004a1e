#!/usr/bin/env python3
"""One client's work at a time: nothing is submitted while another client's work is still on the GPU
or queued, whatever mixture of work the clients have; only counted overruns may be."""
# timeout: 90
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, check, equal


def exclusive(words, place, tags, seconds):
    trace = place.trace()
    commands = trace.commands()
    found = farm.overlaps(commands)
    overruns = sum(place.tenant(tag)["overruns"] + place.tenant(tag)["revocations"] for tag in tags)
    turns = len(trace.turns())
    print("%s: %d commands in %d turns, %d overlaps, the longest %.3f ms; %d counted overruns" % (
        words, len(commands), turns, len(found), max([o[0] for o in found] or [0]) / MS, overruns),
        flush=True)
    check(turns > seconds * 5, "%s: only %d turns" % (words, turns))
    if len(found) > overruns:
        for overlap in found[:3]:
            check(False, words + ": " + farm.describe(overlap))
    return trace


def check_kernels():
    with farm.Farm() as place:
        workers = [place.worker(tag) for tag in "abcd"]
        slack = [w.ok("slack") for w in workers]
        farm.together([(w, "loop 5000 %d %d" % (ns, batch)) for w, ns, batch in
                       zip(workers, (50000, 300000, 1000000, 4000000), (0, 7, 0, 1))], 40)
        exclusive("four clients", place, "abcd", 5)
        equal([w.ok("slack") for w in workers], slack, "what slack the threads' timers have")


def check_threads():
    """Eight threads with a stream each against one."""
    with farm.Farm() as place:
        a, b = place.worker("a"), place.worker("b")
        results = farm.together([(a, "crowd 5000 200000 5 8"), (b, "loop 5000 200000 0")], 40)
        equal([r[0] for r in results], [0, 0], "results")
        equal(results[0][2], 8, "threads")
        trace = exclusive("eight threads", place, "ab", 5)
        start, end = farm.window(trace, "ab")
        share = farm.shares(trace.turns(), start, end)["a"]
        print("the eight threads have %.2f %%" % share)
        farm.between(share, 47, 53, "the share of eight threads against one")


def check_bursts():
    """Clients that pause, with and without a synchronise before."""
    with farm.Farm() as place:
        a, b, c = (place.worker(tag) for tag in "abc")
        farm.together([(a, "bursts 5000 500000 10 3000"), (b, "bursts 5000 100000 3 500"),
                       (c, "loop 5000 1000000 0")], 40)
        exclusive("bursts", place, "abc", 5)


def check_concurrent_streams():
    """A device that runs many kernels at once: still one client's only."""
    with farm.Farm(sim={"CAPACITY": 128}) as place:
        a, b = place.worker("a"), place.worker("b")
        farm.together([(a, "crowd 4000 500000 0 4"), (b, "crowd 4000 500000 3 4")], 40)
        exclusive("concurrent streams", place, "ab", 4)


def check_bare():
    """Without the library the same work does overlap: what is measured is the library."""
    with farm.Farm(preload=False) as place:
        a, b = place.worker("a"), place.worker("b")
        farm.together([(w, "loop 1000 1000000 4") for w in (a, b)], 40)
        found = farm.overlaps(place.trace().commands())
        check(len(found) > 100, "bare: only %d overlaps" % len(found))


farm.run(check_kernels, check_threads, check_bursts, check_concurrent_streams, check_bare)
