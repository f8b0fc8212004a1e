#!/usr/bin/env python3
"""All clients of a GPU are frozen for ten seconds and go on again, as with a suspended node or a paused
pod: nobody is blamed, and the shares are what they were. By signals, and by the kernel's freezer."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import signal
import time

import farm
from farm import MS, SECOND, check, equal

FROZEN = 10
WEIGHTS = {"a": 50, "b": 30, "c": 20}
BEFORE, AFTER = 1.5, 5


class Stops:
    """Stopped at once, woken one after the other, some milliseconds apart."""

    def __init__(self, workers):
        self.workers = workers

    def freeze(self):
        for worker in self.workers:
            worker.signal(signal.SIGSTOP)

    def thaw(self):
        for worker in self.workers:
            worker.signal(signal.SIGCONT)
            time.sleep(0.03)

    def end(self):
        self.thaw()


class Freezer:
    """A control group of the workers' own, of version 1 or 2."""

    def __init__(self, workers):
        self.path, self.name, self.on, self.off = self.make()
        for worker in workers:
            self.write("cgroup.procs", str(worker.pid))

    @staticmethod
    def make():
        name = "cuslice-test-%d" % os.getpid()
        for top, file, on, off in (("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
                                   ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
                                   ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0")):
            path = os.path.join(top, name)
            try:
                os.mkdir(path)
            except OSError:
                continue
            if os.path.exists(os.path.join(path, file)):
                return path, file, on, off
            os.rmdir(path)
        return None, None, None, None

    @classmethod
    def permitted(cls):
        path = cls.make()[0]
        if path:
            os.rmdir(path)
        return path is not None

    def write(self, name, words):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(words)

    def freeze(self):
        self.write(self.name, self.on)

    def thaw(self):
        self.write(self.name, self.off)

    def end(self):
        """Its processes have ended, which takes a moment to show."""
        self.thaw()
        until = time.monotonic() + farm.SOON
        while os.path.exists(self.path):
            try:
                os.rmdir(self.path)
            except OSError:
                if time.monotonic() > until:
                    raise AssertionError("the control group %s stays" % self.path) from None
                time.sleep(0.05)


def frozen(kind):
    with farm.Farm(ALLOWANCE="200ms", QUANTUM="10ms") as place:
        place.worker("first").end()  # starts the device, which must not freeze with the others
        workers = {tag: place.worker(tag, WEIGHT=weight) for tag, weight in WEIGHTS.items()}
        way = kind(workers.values())
        try:
            length = 1000 * (BEFORE + FROZEN + AFTER)
            loops = [w.post("loop %d 1000000 0" % length) for w in workers.values()]
            time.sleep(BEFORE)
            way.freeze()
            asleep = farm.now()
            time.sleep(FROZEN)
            awake = farm.now()
            way.thaw()
            for loop in loops:
                equal(farm.numbers(loop.result(30))[0], 0, "launches")
            check_after(place, workers, asleep, awake, kind.__name__)
        finally:
            for worker in workers.values():
                worker.kill()
            way.end()


def check_after(place, workers, asleep, awake, words):
    trace = place.trace()
    submits = [c.submit for c in trace.commands()]
    equal(len([s for s in submits if asleep + 100 * MS < s < awake]), 0,
          words + ": launches while all are frozen")
    blame = {tag: {what: place.tenant(tag)[what] for what in ("revocations", "overruns", "faults")}
             for tag in workers}
    check(not any(n for each in blame.values() for n in each.values()),
          "%s: somebody is blamed: %s" % (words, blame))
    equal((place.gpu()["reaped"], len(place.gpu()["clients"])), (0, len(workers)),
          words + ": live clients taken for dead, clients")
    first = {tag: min(c.submit for c in trace.commands() if c.client == tag and c.submit > awake)
             for tag in workers}
    late = max(first.values()) - awake
    end = min(max(r.end for r in trace.of(tag)) for tag in workers) - 200 * MS
    share = farm.shares(trace.turns(), awake + 200 * MS, end)
    print("%s: all at work again after %.0f ms; shares since: %s" % (
        words, late / MS, ", ".join("%s %.1f" % (t, share[t]) for t in sorted(share))))
    check(late < SECOND, "%s: somebody is at work again after %.0f ms only" % (words, late / MS))
    for tag, weight in WEIGHTS.items():
        farm.between(share[tag], weight - 3, weight + 3, "%s: the share of %s" % (words, tag))
    found = farm.overlaps(trace.commands())
    check(not found, "%s: overlaps: %s" % (words, [farm.describe(o) for o in found[:3]]))
    for tag, worker in workers.items():
        equal(worker.log(), "", "%s: what %s said" % (words, tag))


def check_stopped():
    frozen(Stops)


def check_freezer():
    if Freezer.permitted():
        frozen(Freezer)
    else:
        print("control groups are not permitted here: the kernel's freezer is not tried")


farm.run(check_stopped, check_freezer)
