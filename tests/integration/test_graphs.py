#!/usr/bin/env python3
"""Captures and graphs beyond test_capture: per-thread streams, threads at work beside a capture,
one that ends otherwise than by its end call, updates, child graphs, graphs longer than a quantum,
and what many of them cost."""
# timeout: 240
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import MS, between, check, equal

MODES = ("global", "thread", "relaxed")
NOISE = 150 * MS


def client(place, *words, **settings):
    """Started, with CUDA open; it goes on at begin()."""
    run = program.Program(place, "a", "graphs_client", *words, **settings)
    equal(run.said(), "ready", " ".join(str(word) for word in words))
    return run


def begin(run):
    run.process.stdin.write("go\n")
    run.process.stdin.flush()


def done(run, words):
    """What it printed last, as numbers."""
    status, lines = run.finish()
    equal(status, 0, "%s: exit status: %s %s" % (words, lines[-2:], run.log()))
    equal(run.log(), "", words + ": what it said")
    return farm.numbers(lines[-1]) if status == 0 else [0]


def exclusive(place, words):
    trace = place.trace()
    found = farm.overlaps(trace.commands())
    counted = sum(tenant["overruns"] for tenant in place.gpu()["tenants"])
    if found:
        print("%s: %d overlaps, %d counted overruns" % (words, len(found), counted))
    check(len(found) <= counted, "%s: %s" % (words, [farm.describe(o) for o in found[:3]]))
    return trace


def capture_beside(mode, stream, preload):
    """Rounds of capture and replay beside two working threads and, from its middle on, a second
    client that comes, waits and goes again."""
    words = "capture %s %s%s" % (mode, stream, "" if preload else ", bare")
    with farm.Farm(QUANTUM="5ms", preload=preload) as place:
        first = place.worker("first")
        a = client(place, "capture", mode, stream, 1200)
        busy = first.post("loop 500 500000 4")
        begin(a)
        time.sleep(0.4)
        comer = place.worker("comer")
        waiting = comer.post("loop 400 500000 4")
        rounds = done(a, words)[0]
        equal((farm.numbers(busy.result(farm.SOON))[0], farm.numbers(waiting.result(farm.SOON))[0]),
              (0, 0), words + ": the neighbours")
        check(rounds > 5, "%s: only %d rounds" % (words, rounds))
        trace = exclusive(place, words) if preload else place.trace()
        graphs = len([c for c in trace.commands() if c.client == "a" and c.kind == "graph"])
        equal(graphs, 3 * rounds, words + ": graphs that ran")
        print("%s: %d rounds" % (words, rounds))


def check_captures():
    for mode in MODES:
        for stream in ("free", "blocking", "thread", "ptsz"):
            capture_beside(mode, stream, True)


def check_captures_bare():
    """The programs are right: bare, they do the same."""
    for stream in ("free", "ptsz"):
        capture_beside("global", stream, False)


def abandoned(how):
    """A capture that ended without its end call is no capture any more: hand-overs go on at their
    pace, with work in two streams, which only a drain of the context can cover."""
    with farm.Farm(QUANTUM="5ms") as place:
        neighbour = place.worker("neighbour")
        a = client(place, "abandon", how, 1500)
        begin(a)
        equal(a.said(), "abandoned", how)
        since = farm.now()
        busy = neighbour.post("loop 1500 500000 0")
        count = done(a, "abandon " + how)[0]
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, how + ": the neighbour")
        trace = exclusive(place, "abandon " + how)
        turns = [t for t in trace.turns() if t.client == "neighbour" and t.start > since]
        print("abandon %s: %d kernels, the neighbour had %d turns" % (how, count, len(turns)))
        check(len(turns) > 50, "abandon %s: the neighbour had %d turns in 1.5 s of 5 ms each" % (
            how, len(turns)))


def check_abandoned():
    for how in ("stream", "context", "primary", "thread", "invalid", "unjoined"):
        abandoned(how)


def check_left():
    """The process exits in the middle of a capture, with other threads at work."""
    with farm.Farm() as place:
        neighbour = place.worker("neighbour")
        a = client(place, "leave")
        busy = neighbour.post("loop 1500 1000000 4")
        begin(a)
        status, _ = a.finish(10)
        cut = farm.now()
        equal(status, 3, "leave: exit status: %s" % a.log())
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "leave: the neighbour")
        trace = place.trace()
        starts = [run.start for run in trace.of("neighbour") if run.start > cut]
        check(starts and min(starts) - cut < 40 * MS + NOISE, "leave: the neighbour goes on after "
              "%.1f ms" % ((min(starts) - cut) / MS if starts else -1))
        check(len(trace.of("a")) > 50, "leave: nothing ran beside the capture")
        equal([c["pid"] for c in place.gpu()["clients"]], [neighbour.pid], "leave: clients left")


def check_kinds():
    """Uploads, updates and child graphs compute what they should and keep to their turns."""
    with farm.Farm(QUANTUM="5ms") as place:
        neighbour = place.worker("neighbour")
        a = client(place, "kinds", 2000)
        busy = neighbour.post("loop 2000 500000 0")
        begin(a)
        rounds = done(a, "kinds")[0]
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "kinds: the neighbour")
        trace = exclusive(place, "kinds")
        graphs = len([c for c in trace.commands() if c.client == "a" and c.kind == "graph"])
        equal(graphs, 3 * rounds, "kinds: graphs that ran")
        check(rounds > 50, "kinds: only %d rounds" % rounds)


def check_long():
    """A graph six times as long as a quantum is waited for, and owed: the shares are equal."""
    with farm.Farm(QUANTUM="10ms") as place:
        neighbour = place.worker("neighbour")
        a = client(place, "long", 60 * MS, 8000)
        busy = neighbour.post("loop 8500 500000 0")
        begin(a)
        done(a, "long")
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "long: the neighbour")
        trace = exclusive(place, "long")
        longest = max(c.end - c.start for c in trace.commands() if c.client == "a")
        between(longest / MS, 59, 75, "long: milliseconds of a graph")
        start, end = farm.window(trace, ("a", "neighbour"))
        share = farm.shares(trace.turns(), start, end)
        print("long: %.2f : %.2f" % (share["a"], share["neighbour"]))
        between(share["a"], 45, 55, "long: the share of the graph's client")


def many():
    """By how much the last of ten thousand executable graphs costs more than the first, at most, in terms
    of what that is for the same program bare, or of once as much."""
    found, most = {}, 0
    for words, preload, company in (("bare", False, False), ("alone", True, False),
                                    ("in company", True, True)):
        with farm.Farm(preload=preload) as place:
            if company:
                place.worker("neighbour").ok("spin 1000")
            a = client(place, "many", 10000)
            begin(a)
            found[words] = done(a, "many")
            print("many, %s: launch %d ns, then %d; instantiate %d ns, then %d" % (
                words, *found[words]))
    for words in ("alone", "in company"):
        for what, one, all_ in (("launch", 0, 1), ("instantiation", 2, 3)):
            bare = max(1, found["bare"][all_] / found["bare"][one])
            ratio = found[words][all_] / found[words][one]
            print("many, %s: the last %s costs %.1f times the first" % (words, what, ratio), flush=True)
            most = max(most, ratio / bare)
    return most


def check_many():
    """The ten-thousandth executable graph costs what the first one does, generously."""
    farm.holds(lambda: many() < 3, 3, "the last of many graphs costs more than the first")


farm.run(check_captures, check_captures_bare, check_abandoned, check_left, check_kinds, check_long,
         check_many)
