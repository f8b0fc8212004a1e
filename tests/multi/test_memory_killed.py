#!/usr/bin/env python3
"""Clients killed in the middle of taking and giving back memory: their tenant's books are right at
once, what the living have stays under the cap, the device has all of it back in the end, and who
asks for what is still on its way back gets it."""
# timeout: 150
import os
import random
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import GIB, MIB, OUT_OF_MEMORY, check, equal

KILLS = 200
CAP = GIB
CONTEXT = 256 * MIB


def start(place, number):
    client = program.Program(place, "k%d" % number, "storm_client", number + 1, 4, 100000000,
                             "lmavxpq", 24 * MIB, 24, TENANT="t", MEM_LIMIT=CAP)
    client.said()
    client.process.stdin.write("go\n")
    client.process.stdin.flush()
    return client


def most_of_the_living(memory, killed):
    """The most that the device had given to clients that nobody had killed yet."""
    now, most = {}, 0
    left = sorted((when, pid) for pid, when in killed.items())
    for m in memory:
        while left and left[0][0] <= m.time:
            now.pop(left.pop(0)[1], None)
        if m.pid not in killed or m.time < killed[m.pid]:
            now[m.pid] = m.client_memory
        most = max(most, sum(now.values()))
    return most


def clients(place):
    gpu = place.gpu()
    return gpu, sorted(c["pid"] for c in gpu["clients"])


def check_storm():
    dice = random.Random(7)
    with farm.Farm(sim={"CONCURRENT_MANAGED": 0, "MEMORY": 12 * GIB, "CONTEXT_BYTES": 0}, REAP_WAIT="5s") as place:
        watch = place.worker("watch", TENANT="w")
        alive, killed = [start(place, i) for i in range(3)], {}
        for i in range(KILLS):
            time.sleep(dice.random() * 0.03)
            victim = alive.pop(dice.randrange(len(alive)))
            killed[victim.pid] = farm.now()
            victim.kill()
            wanted = sorted([c.pid for c in alive] + [watch.pid])
            # Its memory, and with it the lock, may outlast it while somebody reads /proc/PID/maps.
            until = time.monotonic() + 0.2
            gpu, pids = clients(place)
            while pids != wanted and time.monotonic() < until:
                gpu, pids = clients(place)
            equal(pids, wanted, "kill %d: the living%s" % (i, "".join(
                "; %d has ended: %s" % (c.pid, c.log()) for c in alive if c.process.poll() is not None)))
            tenant = [t for t in gpu["tenants"] if t["key"] == "t"][0]
            check(tenant["memory_used_bytes"] <= CAP, "kill %d: more than the cap" % i)
            alive.append(start(place, len(killed) + 3))
        for client in alive:
            killed[client.pid] = farm.now()
            client.kill()
        equal(place.tenant("t")["memory_used_bytes"], 0, "used by nobody")
        until = time.monotonic() + 10
        while watch.ok("handed")[2] > CONTEXT + 64 * MIB and time.monotonic() < until:
            time.sleep(0.02)
        used = watch.ok("handed")[2]
        check(used <= CONTEXT + 64 * MIB, "the device never had it back: %d in use" % used)
        memory = [m for m in place.trace().memory if m.pid in killed]
        most = most_of_the_living(memory, killed)
        check(CAP // 2 < most <= CAP, "the living had %d under a cap of %d" % (most, CAP))
        print("%d kills, %d records, the living had at most %.1f MiB" % (KILLS, len(memory),
                                                                       most / MIB))


def rows():
    with open(os.path.join(farm.REPO, "hooks/hooks.def")) as file:
        text = file.read()
    found = re.findall(r"^(?:CHARGE|POOL)\((\w+),", text, re.MULTILINE)
    found += re.findall(r"^SPECIAL\((\w+), (?:charge_|physical_create)", text, re.MULTILINE)
    old = {"cuMemAlloc", "cuMemAllocPitch", "cuArrayCreate", "cuArray3DCreate"}
    return [name for name in found if name not in old]


def after_death(name, wait):
    """What the next client gets for a request that fits once the dead one's memory is back."""
    with farm.Farm(sim={"MEMORY": GIB // 2, "TEARDOWN": "150ms", "CONCURRENT_MANAGED": 0,
                        "CONTEXT_BYTES": 0},
                   TENANT="t", MEM_LIMIT=GIB // 2, REAP_WAIT=wait) as place:
        next_, victim = place.worker("next"), place.worker("victim")
        victim.ok("alloc cuMemAlloc_v2 %d" % (320 * MIB))
        victim.kill()
        begun = time.monotonic()
        result = next_.numbers("alloc %s %d" % (name, 240 * MIB))[0]
        return result, time.monotonic() - begun, next_.log()


def check_graph():
    """A graph's launch takes memory too."""
    with farm.Farm(sim={"MEMORY": 768 * MIB, "TEARDOWN": "150ms", "CONTEXT_BYTES": 0}, MEM_LIMIT=500 * MIB,
                   REAP_WAIT="5s") as place:
        next_ = program.Program(place, "next", "odd_client", "launch", 440 * MIB)
        victim = place.worker("victim")
        equal(next_.said(), "ready", "the next")  # its own figure is the cap's until here
        victim.ok("alloc cuMemAlloc_v2 %d" % (480 * MIB))
        victim.kill()
        status, lines = next_.finish()
        equal(status, 0, "a graph's launch while memory is on its way back: %s" % lines)
        check("[reap-wait]" in next_.log(), "nothing was waited for: " + next_.log())


def check_reap_wait():
    for name in rows():
        result, seconds, log = after_death(name, "5s")
        equal(result, 0, "%s while memory is on its way back" % name)
        check("[reap-wait]" in log, "%s: nothing was waited for: %s" % (name, log))
        check(seconds < 4, "%s: took %.1f s" % (name, seconds))


def check_no_wait():
    for name in rows():
        result, seconds, log = after_death(name, "0s")
        equal(result, OUT_OF_MEMORY, "%s without waiting" % name)
        check("[reap-wait]" not in log, "%s: waited" % name)


farm.run(check_storm, check_graph, check_reap_wait, check_no_wait)
