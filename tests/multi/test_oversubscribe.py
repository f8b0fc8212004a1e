#!/usr/bin/env python3
"""CUSLICE_OVERSUBSCRIBE=1: two tenants whose memory does not fit together take turns that are long
enough to page, and both finish; it is said, refused where the device cannot, and off by default.

What memory is managed, where it is, and what the device did when, comes from the device's own books
and trace (tests/sim/README.md, "Paging"). timeout: 120"""
import os
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, MS, OUT_OF_MEMORY, SECOND, between, check, equal

MEMORY = GIB
SIM = {"MEMORY": MEMORY, "CONTEXT_BYTES": 32 * MIB}
FIXED = MEMORY // 32  # what stays plain of each process
PIECE = 60 * MIB
PIECES = 10  # 600 MiB each: two do not fit
KERNELS = 400
KERNEL = MS


def take(worker, call="cuMemAllocManaged"):
    return [worker.ok("alloc %s %d" % (call, PIECE))[0] for _ in range(PIECES)]


def work(place, call, each=False):
    """Two workers with 600 MiB each run as many kernels; kernels per second while both do, the part
    of that time that went into paging, and the trace."""
    workers = [place.worker(tag) for tag in "ab"]
    for worker in workers:
        take(worker, call)
    words = "bursts 1500 %d 4 300" % KERNEL if each else "loop 1500 %d 16" % KERNEL
    farm.together([(w, words) for w in workers], 60)
    trace = place.trace()
    start, end = farm.window(trace, "ab", 0)
    inside = [r for r in trace.runs if r.start >= start and r.end <= end]
    useful = {t: sum(r.end - r.start for r in inside if r.client == t and r.kind == "kernel")
              for t in "ab"}
    paging = sum(r.end - r.start for r in inside if r.kind == "page")
    for worker in workers:
        equal(worker.end(), 0, "exit status")
    return {t: ns / (end - start) for t, ns in useful.items()}, paging / (end - start), trace


def compare(each):
    """The same work under cuslice and by the device's own slices of 2 ms."""
    with farm.Farm(sim=SIM, preload=False) as place:
        bare, bare_paging, _ = work(place, "cuMemAllocManaged", each)
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1) as place:
        ours, paging, trace = work(place, "cuMemAlloc_v2", each)
    print("useful work %.0f %% in turns (a %.0f, b %.0f; %.0f %% paging), %.0f %% by the device's own "
          "slices (%.0f %% paging)" % (100 * sum(ours.values()), 100 * ours["a"], 100 * ours["b"],
                                      100 * paging, 100 * sum(bare.values()), 100 * bare_paging))
    check(sum(ours.values()) >= 2 * sum(bare.values()), "not twice the useful work")
    between(paging, 0.02, 0.4, "part of the time that goes into paging")
    between(ours["a"] / (ours["a"] + ours["b"]), 0.3, 0.7, "a's part of the useful work")
    turns = [t.end - t.start for t in trace.turns()]
    long = [t for t in turns if t > 100 * MS]
    check(len(long) >= 4, "turns of %s ms" % [t // MS for t in turns])
    print("turns: median %.0f ms" % (statistics.median(turns) / MS))


def check_turns():
    compare(each=False)


def check_pauses():
    """Short pauses at each synchronise are no reason to send the pages away."""
    compare(each=True)


farm.run(check_turns, check_pauses)
