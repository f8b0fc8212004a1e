#!/usr/bin/env python3
"""Waiting at the gate: programs whose work depends on what they do later, faults, signals."""
# timeout: 120
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import ILLEGAL_ADDRESS, MS, check, equal


def check_host_flag():
    """A kernel spins on a word that the launching thread sets after two more launches."""
    with farm.Farm() as place:
        alone = place.worker("alone").numbers("flagged 20", timeout=60)
        equal(alone[0], 0, "alone")
    with farm.Farm() as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        busy = neighbour.post("loop 4000 1000000 0")
        found = a.numbers("flagged 20", timeout=60)
        equal(found[0], 0, "beside a neighbour")
        print("20 rounds: %.1f ms alone, %.1f ms beside a neighbour" % (
            (alone[2] - alone[1]) / MS, (found[2] - found[1]) / MS))
        check(found[2] - found[1] < 20000 * MS, "20 rounds took %.1f s" %
              ((found[2] - found[1]) / 1e9))
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "the neighbour")


def check_fault():
    """The one whose kernel fails gets its error unchanged; its neighbour goes on at once."""
    with farm.Farm(ALLOWANCE="30s") as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        neighbour.ok("spin 1000")
        neighbour.ok("sync")
        busy = neighbour.post("loop 1500 1000000 0")
        time.sleep(0.3)
        found = a.numbers("fault")
        equal(found[0], ILLEGAL_ADDRESS, "the failing program's error")
        equal(a.numbers("sync")[0], ILLEGAL_ADDRESS, "and again")
        equal(a.numbers("spin 1000")[0], ILLEGAL_ADDRESS, "a launch afterwards")
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "the neighbour")
        trace = place.trace()
        equal(len(trace.faults), 1, "faults that the device saw")
        after = [r for r in trace.of("neighbour") if r.start > trace.faults[0].time]
        check(after and after[0].start - trace.faults[0].time < 300 * MS,
              "the neighbour's next kernel: %s" %
              (after and (after[0].start - trace.faults[0].time) / MS))
        equal(place.tenant("a")["faults"], 1, "faults counted")
        equal(place.tenant("neighbour")["faults"], 0, "the neighbour's faults")


def check_signals():
    """A signal during the wait runs its handler; the wait goes on, whatever SA_RESTART says."""
    with farm.Farm(ALLOWANCE="30s") as place:
        holder, a = place.worker("holder"), place.worker("a")
        for kind in ("plain", "restart"):
            equal(a.ask("catch " + kind), "0", "sigaction")
            holder.ok("hold")
            waiting = a.post("spin 1000")
            check(not farm.answered(waiting, 0.1), "the launch does not wait")
            for _ in range(10):
                a.signal(signal.SIGUSR1)
                time.sleep(0.02)
            check(not farm.answered(waiting, 0.1), "a signal ends the wait (%s)" % kind)
            holder.ok("release")
            holder.ok("sync")
            equal(farm.numbers(waiting.result(farm.SOON))[0], 0, "the launch (%s)" % kind)
            caught = int(a.ask("caught"))
            check(5 <= caught <= 10, "handler runs: %d of 10 signals (%s)" % (caught, kind))
            a.ok("sync")
        equal(farm.overlaps(place.trace().commands()), [], "work beside the holder's")


def check_long_wait_is_told():
    with farm.Farm(ALLOWANCE="30s") as place:
        holder, a = place.worker("holder"), place.worker("a")
        holder.ok("hold")
        waiting = a.post("spin 1000")
        time.sleep(7)
        lines = a.log().splitlines()
        equal(len(lines), 1, "lines after 7 s: %s" % lines)
        said = "".join(lines)
        check("waiting 5." in said or "waiting 6." in said, "how long is not told: " + said)
        check("held by holder" in said and "GPU 0" in said, "by whom is not told: " + said)
        holder.ok("release")
        holder.ok("sync")
        equal(farm.numbers(waiting.result(farm.SOON))[0], 0, "the launch")


def waits_behind_two():
    """Sleeps in 2 s of a client that waits behind two that hand over: by its weight, a turn of it is
    worth thousands of theirs. None when it had a turn after all."""
    with farm.Farm() as place:
        a, b = (place.worker(tag, WEIGHT=10000) for tag in "ab")
        w = place.worker("w", WEIGHT=1)
        loops = [worker.post("loop 4500 1000000 3") for worker in (a, b, w)]
        time.sleep(1)
        begun, before = farm.now(), farm.switches(w.pid)
        time.sleep(2)
        slept, ended = farm.switches(w.pid) - before, farm.now()
        for loop in loops:
            equal(farm.numbers(loop.result(farm.SOON))[0], 0, "launches")
        trace = place.trace()
        if any(begun < c.end and c.submit < ended for c in trace.of("w")):
            return None
        turns = len([t for t in trace.turns() if begun < t.start < ended])
        print("beside %d turns of others in 2 s the one that waits slept %d times" % (turns, slept))
        check(turns > 40, "the others did not hand over: %d turns" % turns)
        return slept


def check_waits_asleep():
    """Nobody looks after the holder at short intervals: its guards are told when it dies."""
    for _ in range(4):
        slept = waits_behind_two()
        if slept is not None:
            check(slept <= 40, "sleeps in 2 s: %d" % slept)
            return
    check(False, "it had turns while it should wait")


farm.run(check_host_flag, check_fault, check_signals, check_long_wait_is_told, check_waits_asleep)
