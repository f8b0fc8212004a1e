#!/usr/bin/env python3
"""Clients in PID and IPC namespaces of their own, with equal process ids, share the ring: nobody is
taken for dead, each namespace is a tenant of its own."""
# timeout: 60
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import subprocess
import time

import farm
from farm import MIB, check, equal

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc")
CAP = 256 * MIB


def permitted():
    try:
        return subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def container(place, tag, **settings):
    return place.worker(tag, prefix=CONTAINER, **dict({"TENANT": None}, **settings))


def check_equal_pids():
    with farm.Farm(MEM_LIMIT=CAP) as place:
        first = place.worker("outside")  # so that the device belongs to no container
        a, b = container(place, "a"), container(place, "b")
        equal([a.ask("pid"), b.ask("pid")], ["1", "1"], "process ids inside")
        a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
        equal(b.ok("info"), [CAP, CAP], "what the other container sees")
        b.ok("alloc cuMemAlloc_v2 %d" % CAP)
        results = farm.together([(w, "loop 4000 1000000 0") for w in (a, b)], 30)
        equal([r[0] for r in results], [0, 0], "results")
        seen = place.gpu()
        equal(len(seen["clients"]), 3, "clients")
        equal(sorted(c["pid"] for c in seen["clients"])[:2], [1, 1], "process ids in the ring")
        equal(len([t for t in seen["tenants"] if t["key"].startswith("pidns:")]), 2,
              "tenants: %s" % [t["key"] for t in seen["tenants"]])
        equal((seen["reaped"], seen["unreaped"]), (0, 0), "live neighbours taken for dead")
        trace = place.trace()
        equal(farm.overlaps(trace.commands()), [], "overlaps")
        start, end = farm.window(trace, "ab")
        share = farm.shares(trace.turns(), start, end)["a"]
        print("two containers: %.2f : %.2f" % (share, 100 - share))
        farm.between(share, 48, 52, "the first one's share")
        first.end()


def check_killed_container():
    """The whole container is killed in its turn; the other one goes on."""
    with farm.Farm(ALLOWANCE="30s") as place:
        place.worker("outside")
        a, b = container(place, "a"), container(place, "b")
        a.ok("hold")
        waiting = b.post("spin 1000")
        check(not farm.answered(waiting, 0.1), "b does not wait")
        killed = farm.now()
        a.kill()
        check(farm.answered(waiting, 10), "b hangs")
        took = farm.numbers(waiting.result())[2] - killed
        print("after a container's death the other goes on after %.1f ms" % (took / farm.MS))
        check(took < 300 * farm.MS, "%.1f ms" % (took / farm.MS))
        b.ok("sync")


def check_one_namespace_is_one_tenant():
    """Two processes in one container are one tenant by themselves."""
    with farm.Farm() as place:
        place.worker("outside")
        a = container(place, "a")
        status, answers = a.ask("spawn open;alloc,cuMemAlloc_v2,1048576;pid").split()
        equal(status, "0", "the second process: " + answers)
        time.sleep(0.1)
        keys = [t for t in place.gpu()["tenants"] if t["key"].startswith("pidns:")]
        equal(len(keys), 1, "tenants of one container: %s" % [t["key"] for t in keys])


if not permitted():
    farm.skip("namespaces are not permitted here")
farm.run(check_equal_pids, check_killed_container, check_one_namespace_is_one_tenant)
