#!/usr/bin/env python3
"""kill -9 of the client that holds the GPU: its neighbours go on within milliseconds, the ring
stays exclusive, and children that a dead parent left do not keep its place."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import signal
import time

import farm
from farm import GIB, MIB, MS, check, equal

# 10 ms from the kernel's dropping of the lock, and what a busy machine of two processors adds.
BOUND = 10 * MS
NOISE = 60 * MS
ROUNDS = 20


def next_submission(place, tag, since):
    trace = place.trace_until(
        lambda t: any(c.client == tag and c.submit > since for c in t.commands()),
        "work of %s after the kill" % tag, 5)
    return min(c.submit for c in trace.commands() if c.client == tag and c.submit > since)


def late_by(place, victim, waiter, words):
    """Kills the victim, which holds the GPU; how long until the waiter's next submission."""
    victim.ok("hold")
    waiting = waiter.post("spin 100000 3")
    check(not farm.answered(waiting, 0.03), words + ": the waiter does not wait")
    killed = farm.now()
    victim.kill()
    check(farm.answered(waiting, 10), words + ": the waiter hangs")
    return next_submission(place, waiter.tag, killed) - killed


def check_holder(prefix=()):
    with farm.Farm(ALLOWANCE="30s") as place:
        waiter = place.worker("waiter", prefix=prefix)
        late = []
        for i in range(ROUNDS):
            victim = place.worker("v%d" % i, prefix=prefix)
            late.append(late_by(place, victim, waiter, "round %d" % i))
            waiter.ok("sync")
        late.sort()
        print("from the kill to the neighbour's next submission: median %.2f ms, worst %.2f ms" % (
            late[ROUNDS // 2] / MS, late[-1] / MS))
        check(late[ROUNDS // 2] < BOUND, "median %.2f ms" % (late[ROUNDS // 2] / MS))
        check(late[-1] < BOUND + NOISE, "worst %.2f ms" % (late[-1] / MS))
        equal(place.gpu()["reaped"], ROUNDS, "clients reaped")
        equal(len(place.gpu()["clients"]), 1, "clients left")


def check_holder_untold():
    """Where the kernel tells of no death, looks find it."""
    check_holder(farm.WITHOUT_WAITV)


def check_word():
    """A client's word names its keeper; one that leaves takes it back, one that is killed cannot, and
    the kernel marks it."""
    with farm.Farm() as place:
        leaver, victim = place.worker("leaver"), place.worker("victim")
        for worker in (leaver, victim):
            worker.ok("spin 1000")
            equal(farm.death_words(place)[worker.pid], farm.WAITERS | farm.keeper(worker.pid),
                  worker.tag + "'s word")
        leaver.end()
        equal(farm.death_words(place)[leaver.pid], 0, "the word of one that has left")
        victim.kill()
        equal(farm.death_words(place)[victim.pid], farm.WAITERS | farm.DIED, "the word of the killed")


def check_guards_stopped():
    """The two before the victim in the order of slots, which are to look after it, have been stopped
    for long: the one before them is told."""
    with farm.Farm(ALLOWANCE="30s") as place:
        waiter, *stopped = [place.worker(tag) for tag in ("waiter", "b", "c")]
        for worker in stopped:
            worker.signal(signal.SIGSTOP)
        time.sleep(3)
        late = []
        for i in range(ROUNDS // 2):
            late.append(late_by(place, place.worker("v%d" % i), waiter, "beside stopped ones, %d" % i))
            waiter.ok("sync")
        late.sort()
        print("behind stopped ones: median %.2f ms, worst %.2f ms" % (
            late[len(late) // 2] / MS, late[-1] / MS))
        check(late[len(late) // 2] < 2 * BOUND, "median %.2f ms" % (late[len(late) // 2] / MS))
        check(late[-1] < BOUND + NOISE, "worst %.2f ms" % (late[-1] / MS))
        equal(place.gpu()["reaped"], ROUNDS // 2, "clients reaped")
        for worker in stopped:
            worker.signal(signal.SIGCONT)
            worker.ok("spin 1000")


def check_any_moment():
    """Killed wherever it happens to be, in its own turn or the others'."""
    with farm.Farm(QUANTUM="5ms") as place:
        b, c = place.worker("b"), place.worker("c")
        loops = [w.post("loop 8000 500000 0") for w in (b, c)]
        kills = []
        for i in range(ROUNDS):
            victim = place.worker("v%d" % i)
            victim.post("loop 60000 300000 0")
            time.sleep(0.08 + 0.0137 * (i % 7))
            kills.append((farm.now(), victim.pid))
            victim.kill()
        for loop in loops:
            equal(farm.numbers(loop.result(30))[0], 0, "the neighbours' launches")
        trace = place.trace()
        longest = quiet_after(trace, kills)
        print("longest silence after a kill: %.2f ms" % (longest / MS))
        # A dead client's running kernel and its queue go on until the driver has torn it down; what
        # is between those who live is what must not overlap.
        alive = [x for x in trace.commands() if x.client in "bc"]
        found = farm.overlaps(alive)
        check(not found, "overlaps between the living: %s" % [farm.describe(o) for o in found[:3]])
        check(longest < BOUND + NOISE, "longest silence after a kill: %.2f ms" % (longest / MS))


def quiet_after(trace, kills):
    """The longest time from a kill to the next submission of a living client."""
    submits = sorted(c.submit for c in trace.commands() if c.client in ("b", "c"))
    longest = 0
    for when, _ in kills:
        later = [s for s in submits if s > when]
        if later:
            longest = max(longest, later[0] - when)
    return longest


def check_orphans():
    """A parent with children that never call CUDA is killed: its turn and bytes are free at once,
    although the children live on; also those that were made behind libc's back."""
    for how in ("fork", "clone"):
        orphans(how)


def orphans(how):
    with farm.Farm(ALLOWANCE="30s", MEM_LIMIT=GIB, TENANT="t") as place:
        waiter, parent = place.worker("waiter"), place.worker("parent")
        parent.ok("alloc cuMemAlloc_v2 %d" % (900 * MIB))
        children = [int(word) for word in parent.ask("idlers 4 20000 " + how).split()]
        equal(len(children), 4, "children")
        try:
            late = late_by(place, parent, waiter, "orphans by " + how)
            print("%s: from the parent's death to the neighbour's submission: %.2f ms" % (how, late / MS))
            check(late < BOUND + NOISE, "%.2f ms" % (late / MS))
            waiter.ok("alloc cuMemAlloc_v2 %d" % (900 * MIB))
            for child in children:
                check(os.path.exists("/proc/%d" % child), "a child has ended: nothing was tried")
            equal(len(place.gpu()["clients"]), 1, "clients")
        finally:
            for child in children:
                os.kill(child, 9)


farm.run(check_word, check_holder, check_holder_untold, check_guards_stopped, check_any_moment, check_orphans)
