#!/usr/bin/env python3
"""Captured streams beside a working neighbour: no capture is disturbed, in all three modes, and
every replay of a graph passes the gate."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, between, check, equal

NEIGHBOUR = "loop %d 1000000 0"
MODES = ("global", "thread", "relaxed")


def undisturbed(place, a, neighbour, mode):
    """Records, ends and replays while the neighbour's turns fall on every part of it."""
    busy = neighbour.post(NEIGHBOUR % 2500)
    rounds = a.numbers("record 30 %s" % mode, timeout=60)
    equal(rounds, [0, 30], "rounds of capture and replay in mode " + mode)
    busy.result(farm.SOON)


def check_modes():
    with farm.Farm() as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        for mode in MODES:
            undisturbed(place, a, neighbour, mode)
        trace = place.trace()
        equal(len([c for c in trace.commands() if c.client == "a" and c.kind == "graph"]),
              30 * 5 * len(MODES), "graph launches in the trace")
        equal(len(trace.of("a", ("kernel",))), 0, "kernels that ran although only recorded")


def check_begun_before_the_turn():
    """A capture that began under the token and goes on after it has left, and one that begins while
    the neighbour has it."""
    with farm.Farm() as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        for mode in MODES:
            a.ok("spin 100000 3 4")
            a.ok("capture %s 4" % mode)
            busy = neighbour.post(NEIGHBOUR % 400)
            a.ok("spin 100000 3 4")
            a.ok("sleep 100")
            begun = farm.now()
            a.ok("spin 100000 3 4")
            check(farm.now() - begun < 300 * MS, "a recorded launch waits for the neighbour")
            equal(a.ok("recording 4"), [1], "the capture in mode %s is active" % mode)
            equal(a.ok("captured 4"), [6], "nodes recorded in mode " + mode)
            a.ok("capture %s 4" % mode)
            a.ok("spin 100000 2 4")
            equal(a.ok("captured 4"), [2], "nodes of one begun meanwhile, in mode " + mode)
            a.ok("replay 50 1 4")
            busy.result(farm.SOON)


def check_other_threads():
    """While one thread captures, another one launches, waits at the gate and synchronises its own
    stream; cuslice's own calls on its behalf disturb nobody."""
    for preload in (False, True):
        for mode in MODES:
            with farm.Farm(preload=preload) as place:
                words = "in mode %s beside a launching thread%s" % (
                    mode, "" if preload else ", bare")
                a, neighbour = place.worker("a"), place.worker("neighbour")
                for stream in (5, 4):
                    a.ok("spin 1000 1 %d" % stream)
                    a.ok("sync %d" % stream)
                busy = neighbour.post(NEIGHBOUR % 1500)
                other = a.post("loop 1300 300000 8 5", thread=1)
                equal(a.numbers("record 10 %s" % mode, timeout=60), [0, 10], "rounds " + words)
                equal(farm.numbers(other.result(farm.SOON))[0], 0, "the other thread " + words)
                busy.result(farm.SOON)


def check_slow_queries():
    """Another thread's launches are marked, and the driver asked about the markers in front, all
    the time: no question is under way when a capture begins that it would break."""
    slow = {"FAIL": "cuEventQuery=slow:3ms"}
    with farm.Farm() as place:
        a, neighbour = place.worker("a", sim=slow), place.worker("neighbour")
        for stream in (5, 4):
            a.ok("spin 1000 1 %d" % stream)
            a.ok("sync %d" % stream)
        neighbour.ok("spin 1000")
        other = a.post("loop 1500 2000000 0 5", thread=1)
        a.ok("sleep 100")
        equal(a.numbers("record 30 global", timeout=60), [0, 30], "rounds beside slow queries")
        equal(farm.numbers(other.result(farm.SOON))[0], 0, "the other thread")


def check_replay_is_gated():
    with farm.Farm() as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        a.ok("capture relaxed 4")
        a.ok("spin 200000 5 4")
        a.ok("captured 4")
        for batch in (1, 1000000):
            farm.together([(a, "replay 3000 %d" % batch), (neighbour, "loop 3000 1000000 1")], 60)
        trace = place.trace()
        for overlap in farm.overlaps(trace.commands())[:5]:
            check(False, "a graph beside the neighbour's work: " + farm.describe(overlap))
        start, end = farm.window(trace, ("a", "neighbour"))
        share = farm.shares(trace.turns(), start, end)
        print("replay and kernels share the GPU %.2f : %.2f" % (share["a"], share["neighbour"]))
        between(share["a"], 45, 55, "the replaying client's share")
        seen = place.tenant("a")
        check(seen["charged_seconds"] > 1, "replays charged: %s s" % seen["charged_seconds"])


def check_retuned_replay():
    """After nodes' parameters were changed in the executable graph, their new time counts."""
    with farm.Farm() as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        a.ok("capture relaxed 4")
        a.ok("spin 100000 5 4")
        a.ok("captured 4")
        a.ok("replay 20 1")
        equal(a.ok("retune 2000000"), [5], "nodes retuned")
        farm.together([(a, "replay 3000 1"), (neighbour, "loop 3000 1000000 1")], 60)
        trace = place.trace()
        longest = max(c.end - c.start for c in trace.commands() if c.kind == "graph")
        between(longest / MS, 9.9, 12, "milliseconds of a retuned replay")
        equal(farm.overlaps(trace.commands())[:3], [], "replays beside the neighbour's work")
        start, end = farm.window(trace, ("a", "neighbour"))
        share = farm.shares(trace.turns(), start, end)
        print("retuned replay and kernels share the GPU %.2f : %.2f" % (share["a"],
                                                                       share["neighbour"]))
        between(share["a"], 45, 55, "the replaying client's share")


farm.run(check_modes, check_begun_before_the_turn, check_other_threads, check_slow_queries,
         check_replay_is_gated, check_retuned_replay)
