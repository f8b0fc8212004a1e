#!/usr/bin/env python3
"""A thousand clients are killed, each at a random moment of its life (loading, joining, waiting, in its
turn, leaving), while new ones join: nobody hangs or crashes, those who live stay exclusive and in
their shares, and nothing leaks. SCALE=10 makes it ten thousand."""
# timeout: 120
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import random
import subprocess
import time

import farm
from farm import MIB, MS, SECOND, check, equal

KILLS = 1000 * int(os.environ.get("SCALE") or 1)
CROWD = 6  # beside the two that live
YOUNG, OLD = 12, 150  # ms: half of them die within so long, the others by then
CAP = 64 * MIB
QUANTUM = 5 * MS
# What one that is killed leaves: the kernel that runs until its context is torn down, and what the
# living wait for at most: everybody else's slice, twice, on a busy machine.
LONGEST = 500 * MS


class Victim:
    """A client that nobody listens to, with the moment of its death."""

    def __init__(self, place, number, chance):
        way = chance.random()
        orders = ["open", "alloc cuMemAlloc_v2 %d" % (MIB * chance.randint(1, 60))]
        if way < 0.1:
            orders = ["open", "end exit 0"]
        elif way < 0.2:
            orders = ["open", "spin 300000 4", "end exit 0"]
        else:
            orders.append("loop 60000 %d %d" % (chance.choice((50000, 300000, 2000000)), chance.choice((0, 3))))
        env = place.environment("v%d" % (number % 3), LOG="error")
        self.process = subprocess.Popen([farm.LINKED, "linked"], stdin=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
        self.process.stdin.write("".join("0 %s\n" % order for order in orders).encode())
        self.process.stdin.flush()
        self.end = time.monotonic() + chance.uniform(0, YOUNG if chance.random() < 0.5 else OLD) / 1000

    def kill(self):
        """Its exit status, and what it said."""
        self.process.kill()
        said = self.process.stderr.read().decode(errors="replace")
        self.process.stderr.close()
        self.process.stdin.close()
        return self.process.wait(farm.SOON), said


def kill_them(place):
    """Kills so many, one after the other; the moments, and how many ended otherwise."""
    chance = random.Random(4711)
    victims, kills, ended = [], [], 0
    for number in range(KILLS + CROWD):
        if len(victims) == CROWD:
            victim = min(victims, key=lambda v: v.end)
            time.sleep(max(0, victim.end - time.monotonic()))
            victims.remove(victim)
            status, said = victim.kill()
            kills.append(farm.now())
            ended += status != -9
            check(status in (-9, 0), "victim %d ended with %d: %s" % (number, status, said))
            equal(said, "", "what victim %d said" % number)
        victims.append(Victim(place, number, chance))
    for victim in victims:
        victim.kill()
    return kills, ended


def silence(trace, tag, start, end):
    times = [start, *sorted(c.submit for c in trace.commands()
                            if c.client == tag and start < c.submit < end), end]
    return max(later - earlier for earlier, later in zip(times, times[1:]))


def check_thousand():
    length = 20 + KILLS // 8
    # What a context costs is learnt on the way and would count against the cap.
    with farm.Farm(QUANTUM="5ms", ALLOWANCE="20s", MEM_LIMIT=CAP, sim={"CONTEXT_BYTES": 0}) as place:
        living = {tag: place.worker(tag, WEIGHT=weight) for tag, weight in (("a", 200), ("b", 100))}
        for worker in living.values():
            worker.post("loop %d 500000 3" % (length * 1000))
        time.sleep(0.3)
        begun = farm.now()
        kills, ended = kill_them(place)
        over = farm.now()
        print("%d clients in %.1f s, %d of them ended by themselves" % (
            len(kills), (over - begun) / SECOND, ended))
        check((over - begun) / SECOND < length - 5, "the living ended before the last kill")
        check_living(place, living, begun, over)
        check_left(place, living)
        for worker in living.values():
            worker.kill()


def check_living(place, living, begun, over):
    trace = place.trace()
    longest = {tag: silence(trace, tag, begun, over) for tag in living}
    ran = {tag: len([c for c in trace.commands() if c.client == tag]) for tag in living}
    worked = {c.pid for c in trace.commands() if c.client.startswith("v")}
    print("the longest time without work: %s; %d of the killed had worked" % (
        ", ".join("%s %.0f ms" % (tag, ns / MS) for tag, ns in longest.items()), len(worked)))
    check(len(worked) > KILLS // 8, "only %d of those killed had ever worked" % len(worked))
    for tag, worker in living.items():
        check(longest[tag] < LONGEST, "%s waited %.0f ms" % (tag, longest[tag] / MS))
        equal(worker.process.poll(), None, "the end of " + tag)
        equal(worker.log(), "", "what %s said" % tag)
    found = farm.overlaps([c for c in trace.commands() if c.client in living])
    check(not found, "overlaps between the living: %s" % [farm.describe(o) for o in found[:3]])
    share = farm.occupancy(trace.turns(), begun, over)
    check(1.6 < share["a"] / share["b"] < 2.4, "a has %.2f times of b, not twice" % (share["a"] / share["b"]))
    print("kernels: %s; a has %.2f times of b" % (ran, share["a"] / share["b"]))


def check_left(place, living):
    """Nothing of the dead: places, bytes, records; nobody alive was taken for dead or blamed."""
    until = time.monotonic() + farm.SOON
    while len(place.gpu()["clients"]) > len(living) and time.monotonic() < until:
        subprocess.run([farm.TOOL, "reap", "--dir", place.ring], capture_output=True, timeout=farm.SOON)
    seen = place.gpu()
    equal(sorted(c["pid"] for c in seen["clients"]), sorted(w.pid for w in living.values()), "clients left")
    equal(sum(t["memory_used_bytes"] for t in seen["tenants"]), 0, "bytes left")
    equal(sum(t["revocations"] for t in seen["tenants"]), 0, "revocations")
    equal(len(seen["tenants"]), 5, "tenants: %s" % [t["key"] for t in seen["tenants"]])
    equal(os.listdir(place.ring), [os.path.basename(place.ring_file())], "files in the ring's directory")
    late = place.worker("late")
    late.ok("alloc cuMemAlloc_v2 %d" % CAP)
    late.ok("spin 1000 10")
    late.ok("sync")
    late.end()


farm.run(check_thousand)
