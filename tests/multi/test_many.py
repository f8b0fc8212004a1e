#!/usr/bin/env python3
"""Many processes: five of one tenant do not earn five shares; a crowd that initialises at once is
not queued behind a lock."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import time

import concurrent.futures

import farm
from farm import MS, check, equal

CROWD = 64


def check_five_against_one():
    with farm.Farm() as place:
        five = [place.worker("five%d" % i, TENANT="five") for i in range(5)]
        one = place.worker("one", TENANT="one")
        results = farm.together([(w, "loop 8000 1000000 0") for w in [*five, one]], 40)
        equal([r[0] for r in results], [0] * 6, "results")
        trace = place.trace()
        start, end = farm.window(trace, [w.tag for w in [*five, one]])
        share = farm.shares(trace.turns(), start, end)
        print("five processes %.2f %% (%s), one %.2f %%" % (
            100 - share["one"], ", ".join("%.1f" % share[w.tag] for w in five), share["one"]))
        farm.between(share["one"], 48, 52, "the single process's share")
        for worker in five:
            farm.between(share[worker.tag], 6, 14, "the share of %s within its tenant" % worker.tag)
        found = farm.overlaps(trace.commands())
        check(not found, "overlaps: %s" % [farm.describe(o) for o in found[:3]])


def initialise(place, count):
    """Starts so many workers, then has all of them call cuInit at once; each one's seconds."""
    workers = [place.worker("w%d" % i, opened=False) for i in range(count)]
    for worker in workers:
        worker.ask("pid")
    begun = time.monotonic()
    futures = {worker.post("init"): worker for worker in workers}
    took = []
    for future in concurrent.futures.as_completed(futures, 60):
        took.append(time.monotonic() - begun)
        equal(future.result(), "0", "cuInit of one of %d" % count)
    return workers, took


def check_crowd():
    figures = {}
    for preload in (False, True):
        with farm.Farm(preload=preload) as place:
            first = place.worker("first")  # the device's own start is not measured
            workers, took = initialise(place, CROWD)
            figures[preload] = took[-1]
            if preload:
                equal(len(place.gpu()["clients"]), CROWD + 1, "clients")
                slots = [c["slot"] for c in place.gpu()["clients"]]
                equal(len(set(slots)), CROWD + 1, "slots")
                equal(place.gpu()["reaped"], 0, "live clients taken for dead")
                for worker in workers[:8]:
                    equal(worker.log(), "", "what a client said")
            first.end()
    print("%d at once: the last one's cuInit after %.2f s, bare %.2f s" % (CROWD, figures[True],
                                                                       figures[False]))
    check(figures[True] < 3 * figures[False] + 2, "the last of %d after %.2f s, bare %.2f s" % (
        CROWD, figures[True], figures[False]))


def check_crowd_works():
    """Sixteen at once: everybody gets turns, nobody waits beyond what I3 allows."""
    with farm.Farm(QUANTUM="5ms") as place:
        workers = [place.worker("w%d" % i) for i in range(16)]
        results = farm.together([(w, "loop 6000 500000 0") for w in workers], 60)
        equal([r[0] for r in results], [0] * 16, "results")
        trace = place.trace()
        start, end = farm.window(trace, [w.tag for w in workers])
        turns = [t for t in trace.turns() if start <= t.start <= end]
        share = farm.shares(trace.turns(), start, end)
        longest = longest_wait(turns)
        print("sixteen clients: %.2f to %.2f %% each, longest wait %.1f ms, %.2f %% idle" % (
            min(share.values()), max(share.values()), longest / MS,
            100.0 * farm.idle(trace, start, end) / (end - start)))
        check(len(share) == 16 and min(share.values()) > 4, "the smallest share: %s" % share)
        # 15 slices of others, each at most a quantum, a kernel and a hand-over; and noise.
        check(longest < 15 * 8 * MS + 200 * MS, "the longest wait: %.1f ms" % (longest / MS))


def longest_wait(turns):
    last, longest = {}, 0
    for turn in turns:
        if turn.client in last:
            longest = max(longest, turn.start - last[turn.client])
        last[turn.client] = turn.end
    return longest


farm.run(check_five_against_one, check_crowd, check_crowd_works)
