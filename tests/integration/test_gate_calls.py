#!/usr/bin/env python3
"""Every call that submits work waits for its turn, on every kind of stream. The calls are the rows
of hooks/hooks.def; a row that the worker cannot call is a failure."""
# timeout: 120
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import NOT_SUPPORTED, SUCCESS, check, equal

# Not there in drivers of today, nor in the simulated one: they may fail, but not pass the gate.
OLD = {"cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync", "cuLaunchCooperativeKernelMultiDevice"}
# Forms with 32-bit addresses, from before CUDA 3.2.
OLD |= {"cuMemsetD%s%d" % (d, bits) for d in ("", "2D") for bits in (8, 16, 32)}
OLD |= {"cuMemcpy" + way for way in ("DtoD", "AtoD", "DtoA", "AtoA", "DtoDAsync")}
# What NULL means depends on the call's flavour; 8 and 9 are the legacy and the per-thread stream by
# name, 1 a blocking stream, 4 a non-blocking one.
STREAMS = (0, 1, 4, 8, 9)
QUIET = 0.04  # seconds in which a launch that is not gated would have returned


def rows():
    with open(os.path.join(farm.REPO, "hooks/hooks.def")) as file:
        text = file.read()
    found = re.findall(r"^(?:GATE|GRAPH)\((\w+), (.*?), (LEGACY|PER_THREAD)", text,
                       re.MULTILINE)
    check(len(found) > 30, "%d rows found in hooks.def" % len(found))
    return [(name, stream != "NULL") for name, stream, _ in found]


def wait_for_turn(holder, a, words):
    """Whether a call waits while the holder's kernel runs, and how it ends."""
    holder.ok("hold")
    waiting = a.post(words)
    waited = not farm.answered(waiting, QUIET)
    released = farm.now()
    holder.ok("release")
    holder.ok("sync")
    if not farm.answered(waiting, farm.SOON):
        raise TimeoutError("'%s' waits on: %s" % (words, a.log()))
    result = farm.numbers(waiting.result())
    a.ask("sync")
    return waited and result[2] >= released, result[0]


def make_graph(a):
    a.ok("capture relaxed 4")
    a.ok("spin 100000 2 4")
    a.ok("captured 4")


def check_each(place, holder, a):
    for name, takes_stream in rows():
        for stream in STREAMS if takes_stream else (0,):
            waited, result = wait_for_turn(holder, a, "call %s %d" % (name, stream))
            check(waited, "%s on stream %d goes past the gate" % (name, stream))
            if name in OLD:
                check(result in (SUCCESS, NOT_SUPPORTED), "%s: %d" % (name, result))
            else:
                equal(result, SUCCESS, "%s on stream %d" % (name, stream))


def check_calls():
    with farm.Farm(ALLOWANCE="30s") as place:
        holder, a = place.worker("holder"), place.worker("a")
        a.ok("pad")
        make_graph(a)
        check_each(place, holder, a)
        trace = place.trace()
        for overlap in farm.overlaps(trace.commands()):
            check(False, "submitted before the holder's work was done: " + farm.describe(overlap))
        kinds = {r.kind for r in trace.of("a")}
        check({"kernel", "graph", "memset", "dtod"} <= kinds, "kinds of work seen: %s" % kinds)


def check_bare():
    """Without the library the same calls return at once: waiting is what the library does."""
    with farm.Farm(preload=False) as place:
        holder, a = place.worker("holder"), place.worker("a")
        a.ok("pad")
        make_graph(a)
        for words in ("call cuLaunchKernel 0", "call cuMemsetD32Async 4", "call cuGraphLaunch 4"):
            waited, result = wait_for_turn(holder, a, words)
            check(not waited, "'%s' waits without the library" % words)
            equal(result, SUCCESS, words)


def check_copies_pass():
    """Host-device copies use engines of their own: they do not wait for the holder's kernel."""
    with farm.Farm(ALLOWANCE="30s") as place:
        holder, a = place.worker("holder"), place.worker("a")
        a.ok("pad")
        holder.ok("hold")
        for words in ("copy htod 4096", "copy dtoh 4096"):
            copied = a.post(words)
            if check(farm.answered(copied, 5), "'%s' waits for the holder" % words):
                equal(farm.numbers(copied.result())[0], SUCCESS, words)
        holder.ok("release")
        holder.ok("sync")


def check_threads():
    """Each thread of a process waits for itself, whatever it launches into."""
    with farm.Farm(ALLOWANCE="30s") as place:
        holder, a = place.worker("holder"), place.worker("a")
        holder.ok("hold")
        waiting = [a.post("spin 1000 1 %d" % (thread % 3 * 4), thread) for thread in range(8)]
        for thread, future in enumerate(waiting):
            check(not farm.answered(future, 0.02), "thread %d goes past the gate" % thread)
        holder.ok("release")
        holder.ok("sync")
        for thread, future in enumerate(waiting):
            check(farm.answered(future, farm.SOON), "thread %d waits on" % thread)
        equal(farm.overlaps(place.trace().commands()), [], "work beside the holder's")


farm.run(check_calls, check_copies_pass, check_threads, check_bare)
