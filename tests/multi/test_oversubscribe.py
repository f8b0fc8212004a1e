#!/usr/bin/env python3
"""CUSLICE_OVERSUBSCRIBE=1: two tenants whose memory does not fit together take turns that are long
enough to page, and both finish; it is said, refused where the device cannot, and off by default.

What memory is managed, where it is, and what the device did when, comes from the device's own books
and trace (tests/sim/README.md, "Paging"). timeout: 120, beside one"""
import os
import signal
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
KERNEL = MS
PLAIN, PITCH, MANAGED = "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged"


def take(worker, call, pieces=PIECES):
    return [worker.ok("alloc %s %d" % (call, PIECE))[0] for _ in range(pieces)]


def managed(worker):
    """Bytes of managed memory, by the device's books."""
    return worker.ok("handed")[4]


def said(worker, word):
    return worker.log().count("[%s]" % word)


def work(place, call, words, **weights):
    """Two workers with 600 MiB each do the same; their useful parts of the time in which both do,
    the part that went into paging, and the trace."""
    workers = [place.worker(tag, **({"WEIGHT": weights[tag]} if weights else {})) for tag in "ab"]
    for worker in workers:
        take(worker, call)
    farm.together([(w, words) for w in workers], 60)
    trace = place.trace()
    start, end = farm.window(trace, "ab", 0)
    inside = [r for r in trace.runs if r.start >= start and r.end <= end]
    useful = {t: sum(r.end - r.start for r in inside if r.client == t and r.kind == "kernel")
              for t in "ab"}
    paging = sum(r.end - r.start for r in inside if r.kind == "page")
    if place.preload:
        for tag in "ab":
            equal(place.tenant(tag)["revocations"], 0, "turns taken away from " + tag)
    for worker in workers:
        equal(worker.end(), 0, "exit status")
    return {t: ns / (end - start) for t, ns in useful.items()}, paging / (end - start), trace


def compare(words):
    """The same work under cuslice and by the device's own slices of 2 ms."""
    with farm.Farm(sim=SIM, preload=False) as place:
        bare, bare_paging, _ = work(place, MANAGED, words)
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1) as place:
        ours, paging, trace = work(place, PLAIN, words)
    print("useful work %.0f %% in turns (a %.0f, b %.0f; %.0f %% paging), %.0f %% by the device's own "
          "slices (%.0f %% paging)" % (100 * sum(ours.values()), 100 * ours["a"], 100 * ours["b"],
                                      100 * paging, 100 * sum(bare.values()), 100 * bare_paging))
    check(sum(ours.values()) >= 2 * sum(bare.values()), "not twice the useful work")
    between(paging, 0.02, 0.4, "part of the time that goes into paging")
    between(ours["a"] / (ours["a"] + ours["b"]), 0.3, 0.7, "a's part of the useful work")
    turns = [t.end - t.start for t in trace.turns()]
    check(sum(t > 80 * MS for t in turns) >= 4, "turns of %s ms" % [t // MS for t in turns])
    print("turns: median %.0f ms" % (statistics.median(turns) / MS))


def check_turns():
    compare("loop 1500 %d 16" % KERNEL)


def check_pauses():
    """Pauses that are shorter than the pages' way are no reason to send them away."""
    compare("bursts 2000 %d 10 6000" % KERNEL)


def check_weights():
    """Long turns are charged like others, and taken away from nobody although the allowance is short."""
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1, ALLOWANCE="50ms") as place:
        ours, _, _ = work(place, PLAIN, "loop 4000 %d 16" % KERNEL, a=300, b=100)
    part = 100 * ours["a"] / (ours["a"] + ours["b"])
    print("weights 300 to 100: a has %.0f %% of the useful work" % part)
    between(part, 62, 88, "a's part")


def check_hostages():
    """A client that is stopped in its long turn loses it after that turn and the allowance; one that is
    killed, at once. The other goes on."""
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1, ALLOWANCE="100ms") as place:
        a, b = place.worker("a"), place.worker("b")
        for worker in (a, b):
            take(worker, PLAIN)
        futures = [w.post("loop 4000 %d 16" % KERNEL) for w in (a, b)]
        for number, words in ((signal.SIGSTOP, "stopped"), (signal.SIGKILL, "killed")):
            at = farm.now()
            place.trace_until(lambda trace: [r for r in trace.of("a") if r.start > at], "work of a")
            a.signal(number)
            at = farm.now()
            trace = place.trace_until(lambda trace: [r for r in trace.of("b") if r.submit > at + SECOND],
                                      "work of b a second after a was " + words)
            waited = min(r.start for r in trace.of("b") if r.submit > at) - at
            print("a was %s: b waited %.0f ms" % (words, waited / MS))
            between(waited / MS, 0, 900, "b's wait after a was " + words)
            if number == signal.SIGSTOP:
                a.signal(signal.SIGCONT)
        equal(farm.numbers(futures[1].result(farm.SOON))[:1], [0], "b's end")


def check_room():
    """While everything fits, turns are a quantum long and nothing moves."""
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1) as place:
        workers = [place.worker(tag) for tag in "ab"]
        for worker in workers:
            take(worker, PLAIN, 4)
        farm.together([(w, "loop 800 %d 16" % KERNEL) for w in workers], 60)
        trace = place.trace()
        turns = [t.end - t.start for t in trace.turns()][1:-1]
        check(statistics.median(turns) < 60 * MS, "turns of %s ms" % [t // MS for t in turns])
        equal([m for m in trace.memory if m.op == "page-out"], [], "pages that left")


def check_kinds():
    """The first 32nd of the device stays plain, more is managed and said once; frees give all back."""
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1) as place:
        a = place.worker("a")
        ledger = place.tenant("a")["memory_used_bytes"]
        small = a.ok("alloc %s %d" % (PLAIN, FIXED // 2))[0]
        equal(a.ok("kind %d" % small)[1], 0, "memory within the plain part is managed")
        equal((managed(a), said(a, "oversubscribe")), (0, 0), "managed bytes, lines")
        large = [a.ok("alloc %s %d" % (call, PIECE))[0] for call in (PLAIN, PITCH, MANAGED)]
        equal([a.ok("kind %d" % n)[1] for n in large], [1, 1, 1], "managed ones")
        equal(managed(a), 3 * PIECE, "managed bytes")
        equal(said(a, "oversubscribe"), 1, "lines that say so")
        again = a.ok("alloc %s %d" % (PLAIN, FIXED // 4))[0]
        equal(a.ok("kind %d" % again)[1], 0, "what still fits into the plain part is managed")
        found = place.tenant("a")
        equal(found["memory_used_bytes"] - ledger, 3 * PIECE + FIXED // 2 + FIXED // 4, "counted")
        equal(found["memory_paged_bytes"], 3 * PIECE, "counted as what may be paged out")
        for number in (small, again, *large):
            a.ok("free %d" % number)
        equal(managed(a), 0, "managed bytes after the frees")
        found = place.tenant("a")
        equal((found["memory_used_bytes"] - ledger, found["memory_paged_bytes"]), (0, 0), "counted")
        array = a.ok("alloc cuArrayCreate_v2 %d" % PIECE)[0]
        equal(managed(a), 0, "an array is managed memory")
        a.ok("free %d" % array)


def check_no_room():
    """What the driver has no room for is managed although it is within the plain part."""
    with farm.Farm(sim=SIM) as place:
        b, a = place.worker("b"), place.worker("a", OVERSUBSCRIBE=1)
        free = b.ok("info")[0]
        b.ok("alloc %s %d" % (PLAIN, free - 4 * MIB))
        number = a.ok("alloc %s %d" % (PLAIN, FIXED // 2))[0]
        equal(a.ok("kind %d" % number)[1], 1, "memory that there is no room for is managed")
        equal(said(a, "oversubscribe"), 1, "lines that say so")
        b.ok("info")
        equal(b.ask("alloc %s %d" % (PLAIN, PIECE)).split()[0], str(OUT_OF_MEMORY), "b asks for more")
        equal(said(b, "oversubscribe"), 0, "b's lines")


def check_caps():
    """Caps hold as ever; without one a tenant has as much as the device."""
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1) as place:
        cap = 8 * PIECE + 8 * MIB
        a, b = place.worker("a", MEM_LIMIT=cap), place.worker("b")
        equal(a.ok("info")[1], cap, "the cap as the program sees it")
        while a.ask("alloc %s %d" % (PLAIN, PIECE)).split()[0] == "0":
            pass
        have = place.tenant("a")
        left = cap - have["memory_used_bytes"] - have.get("context_bytes", 0)
        a.ok("alloc %s %d" % (PLAIN, left // 512 * 512))
        equal(a.ask("alloc %s 512" % PLAIN).split()[0], str(OUT_OF_MEMORY), "512 bytes more")
        check(said(a, "mem-refused") >= 1, "refusals were not said")
        between(managed(a), cap - 32 * MIB - FIXED - PIECE, cap, "managed bytes of a")
        free, total = b.ok("info")
        equal(total, MEMORY, "the device as b sees it")
        between(free, MEMORY - 64 * MIB, MEMORY, "free as b sees it, beside a")
        take(b, PLAIN, free // PIECE)
        equal(b.ask("alloc %s %d" % (PLAIN, PIECE)).split()[0], str(OUT_OF_MEMORY), "beyond the device")


def check_context_gone():
    """What was managed in a context goes with it."""
    with farm.Farm(sim=SIM, OVERSUBSCRIBE=1) as place:
        a = place.worker("a")
        take(a, PLAIN, 3)
        check(place.tenant("a")["memory_paged_bytes"] >= 2 * PIECE, "nothing may be paged out")
        a.ok("resets 1")
        equal(place.tenant("a")["memory_paged_bytes"], 0, "counted after the context's end")


def check_off():
    """Off by default; said and without effect where the device cannot page, and in observe mode."""
    with farm.Farm(sim=SIM) as place:
        a, b = place.worker("a"), place.worker("b")
        take(a, PLAIN)
        pieces = 0
        while b.ask("alloc %s %d" % (PLAIN, PIECE)).split()[0] == "0":
            pieces += 1
        check(pieces < PIECES, "600 MiB twice on a device of 1 GiB")
        equal((managed(a), managed(b)), (0, 0), "managed bytes without the setting")
    for sim, settings, lines in (({"CONCURRENT_MANAGED": 0}, {}, 1), ({}, {"MODE": "observe"}, 0)):
        with farm.Farm(sim=dict(SIM, **sim), OVERSUBSCRIBE=1, **settings) as place:
            a = place.worker("a")
            number = a.ok("alloc %s %d" % (PLAIN, PIECE))[0]
            equal(a.ok("kind %d" % number)[1], 0, "managed all the same")
            equal(a.ask("alloc %s %d" % (PLAIN, MEMORY)).split()[0], str(OUT_OF_MEMORY), "too much")
            equal(said(a, "oversubscribe-off"), lines, "lines that say that it has no effect")
            equal(said(a, "oversubscribe"), 0, "lines that say otherwise")


farm.run(check_turns, check_pauses, check_weights, check_hostages, check_room, check_kinds, check_no_room,
         check_caps, check_context_gone, check_off)
