#!/usr/bin/env python3
"""The token goes to a client that dies, ends, or loses its waiting thread at that very instant: whoever
waits behind it goes on in time, and what is left of the client neither holds the GPU nor is given
it in vain."""
# timeout: 150
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import time

import farm
from farm import MS, check, equal

ROUNDS = 40 * int(os.environ.get("SCALE") or 1)
# The hand-over takes tens of microseconds on a quiet machine and some hundred on a busy one.
STEP = 25e-6
SPREAD = 24
BOUND, NOISE = 10 * MS, 100 * MS
TEARDOWN = 20 * MS  # of a dead client's kernel; before that nothing else starts


def spin_until(when):
    while time.monotonic() < when:
        pass


class Round:
    """The holder's kernel is about to end; the victim is next, the neighbour comes after it."""

    def __init__(self, place, number):
        self.holder, self.neighbour = place.holder, place.neighbour
        self.victim = place.worker("v%d" % number, WEIGHT=10000)
        self.holder.ok("hold")

    def wait_at_the_gate(self, words):
        self.posted = self.victim.post(words, thread=1)
        check(not farm.answered(self.posted, 0.01), "the victim does not wait")
        self.behind = self.neighbour.post("spin 100000 3")
        time.sleep(0.01)

    def hand_over(self, number, act):
        """Lets the holder's kernel end, and acts a little later or earlier."""
        offset = STEP * (number % SPREAD - 4)
        if offset < 0:
            act()
            spin_until(time.monotonic() - offset)
        released = time.monotonic()
        self.holder.post("release")
        if offset >= 0:
            spin_until(released + offset)
            act()
        return farm.now()

    def finish(self):
        """How late the neighbour was, and whether the victim had its turn before."""
        if not farm.answered(self.behind, farm.SOON):
            raise TimeoutError("the neighbour hangs")
        self.holder.ok("sync")
        self.neighbour.ok("sync")
        return farm.numbers(self.behind.result())[2]


def prepared(words):
    place = farm.Farm(ALLOWANCE="30s", QUANTUM="10ms", sim={"TEARDOWN": "%dns" % TEARDOWN})
    place.holder, place.neighbour = place.worker("holder"), place.worker("neighbour", WEIGHT=1)
    for worker in (place.holder, place.neighbour):
        worker.ok("spin 1000")
        worker.ok("sync")
    place.words = words
    return place


def judge(place, late, turns):
    late.sort()
    print("%s: the next one goes on after %.2f ms, worst %.2f ms; in %d of %d rounds the victim had its turn"
          % (place.words, late[len(late) // 2] / MS, late[-1] / MS, turns, len(late)))
    check(late[len(late) // 2] < BOUND + TEARDOWN, "%s: median %.2f ms" % (
        place.words, late[len(late) // 2] / MS))
    check(late[-1] < BOUND + TEARDOWN + NOISE, "%s: worst %.2f ms" % (place.words, late[-1] / MS))
    found = farm.overlaps([c for c in place.trace().commands() if c.client in ("holder", "neighbour")])
    check(not found, "%s: overlaps: %s" % (place.words, [farm.describe(o) for o in found[:3]]))
    equal(place.tenant("neighbour")["revocations"] + place.tenant("holder")["revocations"], 0,
          place.words + ": revocations of the others")
    for worker in (place.holder, place.neighbour):
        equal(worker.log(), "", "%s: what %s said" % (place.words, worker.tag))


def gone(words, act):
    """The victim's process ends."""
    with prepared(words) as place:
        late = []
        for number in range(ROUNDS):
            each = Round(place, number)
            each.wait_at_the_gate("spin 100000")
            acted = each.hand_over(number, lambda: act(each.victim))
            late.append(max(0, each.finish() - acted))
            each.victim.wait()
            equal(each.victim.log(), "", words + ": what it said")
        worked = {c.client for c in place.trace().commands() if c.client.startswith("v")}
        judge(place, late, len(worked))
        equal({c["pid"] for c in place.gpu()["clients"]}, {place.holder.pid, place.neighbour.pid},
              words + ": clients left")


def check_killed():
    gone("killed", lambda victim: victim.process.kill())


def check_ends():
    for how in ("exit", "_exit"):
        gone("ends by " + how, lambda victim: victim.post("end %s 0" % how))


def left(how):
    """The victim's process lives, but the thread that waited is gone."""
    words = "its thread leaves by " + how
    with prepared(words) as place:
        late, ran, stayed = [], [], 0
        for number in range(ROUNDS // 2):
            each = Round(place, number)
            each.wait_at_the_gate("leave %s 100000" % how)
            acted = each.hand_over(2 * number, lambda: each.victim.post("nudge"))
            late.append(max(0, each.finish() - acted))
            stayed += farm.answered(each.posted, 0) and each.posted.result() == "0"
            ran.append(rest(place, each))
        judge(place, late, stayed)
        ran.sort()
        print("%s: the neighbour then runs for %.1f ms in 60 (median, at least %.1f)" % (
            words, ran[len(ran) // 2] / MS, ran[0] / MS))
        check(ran[len(ran) // 2] > 25 * MS, words + ": the neighbour is held up")


def rest(place, each):
    """The victim's other threads have their turns; for how long the neighbour ran before, which is not
    held up by what is left."""
    since = farm.now()
    count = each.neighbour.numbers("loop 60 200000 1")
    equal(count[0], 0, place.words + ": the neighbour")
    ran = sum(c.end - c.start for c in place.trace().of("neighbour") if c.start > since)
    each.victim.ok("spin 100000 3", thread=2)
    each.victim.ok("sync", thread=2)
    equal(each.victim.end(), 0, place.words + ": the victim's end")
    equal(each.victim.log(), "", place.words + ": what it said")
    return ran


def check_loses_its_thread():
    for how in ("exit", "cancel"):
        left(how)


farm.run(check_killed, check_ends, check_loses_its_thread)
