#!/usr/bin/env python3
"""Beginnings and ends at awkward moments beside a neighbour that waits for its turns: nobody
crashes, hangs or is left waiting, and the neighbour goes on within a quantum."""
# timeout: 240
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import MS, check, equal

QUANTUM = 20 * MS
NOISE = 150 * MS  # what a busy machine of two processors adds
TEARDOWN = 50 * MS  # after which the device ends a dead client's kernels


def client(place, *words, **settings):
    return program.Program(place, "a", "lifecycle_client", *words, **settings)


def exclusive(place, words):
    found = farm.overlaps(place.trace().commands())
    counted = sum(tenant["overruns"] for tenant in place.gpu()["tenants"])
    print("%s: %d overlaps, %d counted overruns" % (words, len(found), counted))
    check(len(found) <= counted, "%s: %s" % (words, [farm.describe(o) for o in found[:3]]))


def longest_wait(place, since, until):
    """The longest time in which the neighbour, always at work, had nothing on the GPU."""
    at, longest = since, 0
    for run in sorted(place.trace().of("neighbour"), key=lambda run: run.start):
        if run.end > since and run.start < until:
            longest = max(longest, run.start - at)
            at = max(at, run.end)
    return max(longest, until - at)


def beside(words, seconds, *command, sim=None):
    """A client that ends by itself beside a neighbour; what it printed last, as numbers."""
    with farm.Farm(QUANTUM="5ms", sim=sim) as place:
        neighbour = place.worker("neighbour")
        busy = neighbour.post("loop %d 500000 4" % (seconds * 1000))
        a = client(place, *command)
        equal(a.said(), "ready", words)
        status, lines = a.finish(seconds + 30)
        equal(status, 0, "%s: exit status: %s %s" % (words, lines[-2:], a.log()))
        equal(farm.numbers(busy.result(seconds + farm.SOON))[0], 0, words + ": the neighbour")
        equal(a.log(), "", words + ": what it said")
        exclusive(place, words)
        equal(place.gpu()["unreaped"], 0, words + ": slots left")
        equal(place.gpu()["reaped"], 0, words + ": live clients taken for dead")
        turns = [turn for turn in place.trace().turns() if turn.client == "neighbour"]
        check(len(turns) > 20, "%s: the neighbour had %d turns" % (words, len(turns)))
        return farm.numbers(lines[-1])


def churn(words, sim=None):
    contexts, resets, streams, steady = beside(words, 5, "churn", 4000, sim=sim)
    print("%s: %d contexts, %d resets, %d streams, %d kernels" % (words, contexts, resets, streams,
                                                                 steady))
    check(contexts > 5 and resets > 5 and streams > 20 and steady > 20,
          words + ": something hardly went on")


def check_churn():
    churn("churn")


def check_churn_of_an_older_driver():
    """Without cuCtxRecordEvent the drain knows the streams by name; a destroyed one's work too."""
    churn("churn on a driver of 12.4", {"DRIVER_VERSION": 12040})


def check_cancelled():
    equal(beside("cancel", 4, "cancel", 40), [40], "rounds")


def check_forks():
    rounds, kernels = beside("forks", 4, "forks", 500)
    equal(rounds, 500, "children")
    check(kernels > 100, "forks: only %d kernels ran beside them" % kernels)


def end_one(how, wanted, kernel):
    """Ends a client in the middle of a slice; how long the neighbour then waits at most."""
    with farm.Farm() as place:
        neighbour = place.worker("neighbour")
        busy = neighbour.post("loop 2500 1000000 4")
        a = client(place, "end", how, kernel)
        equal(a.said(), "ready", how)
        time.sleep(0.5)
        cut = farm.now()
        a.process.stdin.write("end\n")
        a.process.stdin.flush()
        status, _ = a.finish(10)
        took = farm.now() - cut
        equal(status, wanted, how + ": exit status")
        equal(a.log(), "", how + ": what it said")
        check(took < 2000 * MS, "%s: took %.0f ms to end" % (how, took / MS))
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, how + ": the neighbour")
        waited = longest_wait(place, cut, cut + 1000 * MS)
        bound = 2 * QUANTUM + 4 * kernel + TEARDOWN + NOISE
        if how == "main":
            bound += QUANTUM  # it works on for a while
        print("%s: ended after %.0f ms, the neighbour waited %.1f ms at most" % (
            how, took / MS, waited / MS))
        check(waited < bound, "%s: the neighbour waited %.1f ms" % (how, waited / MS))
        check(len(place.trace().of("a")) > 5, how + ": it did not work before its end")
        equal([c["pid"] for c in place.gpu()["clients"]], [neighbour.pid], how + ": clients left")


def check_ends():
    for how, status in (("exit", 3), ("quick_exit", 3), ("_exit", 3), ("thread", 3), ("main", 3),
                        ("abort", -signal.SIGABRT), ("term", -signal.SIGTERM), ("exec", 3),
                        ("late", 3), ("early", 3)):
        end_one(how, status, MS)


def check_ends_in_a_long_kernel():
    """The process ends while its keeper drains a kernel that outlasts the slice."""
    for how, status in (("exit", 3), ("_exit", 3), ("exec", 3), ("thread", 3)):
        end_one(how, status, 60 * MS)


def unload(place, **settings):
    run = program.Program(place, "a", "unload",
                          os.path.join(os.environ["REPO"], "tests/kernels/kernels.ptx"), **settings)
    status, lines = run.finish()
    equal(status, 0, "unload: exit status: %s" % run.log())
    return lines


def check_unloaded_driver():
    """The program's handle of the driver is not what keeps the library's turns and caps alive."""
    with farm.Farm(MEM_LIMIT="64Mi") as place:
        neighbour = place.worker("neighbour", MEM_LIMIT=None)
        busy = neighbour.post("loop 2000 1000000 4")
        lines = unload(place)
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "unload: the neighbour")
        for line in lines:
            equal(line.rsplit(" ", 1)[1], "2" if "cap" in line else "0", line)
        equal(len(lines), 12, "unload: steps")
        ran = len([c for c in place.trace().commands() if c.client == "a"])
        equal(ran, 220, "unload: kernels")
        exclusive(place, "unload")


farm.run(check_churn, check_churn_of_an_older_driver, check_cancelled, check_forks, check_ends,
         check_ends_in_a_long_kernel, check_unloaded_driver)
