#!/usr/bin/env python3
"""Containers with equal process ids share the ring: nobody is taken for dead, each is a tenant of its
own. First with PID and IPC namespaces of their own; then as a node has them: PID, mount, IPC, UTS,
user and time namespaces, another user for each, and nothing in common but the ring's directory and
the device."""
# timeout: 120
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


# The whole container: its init is the worker. Outside a user of its own, inside root.
POD = ("setpriv", "--reuid={uid}", "--regid={uid}", "--clear-groups", "unshare", "--user",
       "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--ipc", "--uts",
       "--time", "--monotonic", "{ahead}")
# Its own /dev/shm and nothing of the farm's place, but for two directories: the ring's and the GPU.
INSIDE = """set -e
hostname "$1"
mount -t tmpfs none /dev/shm
mkdir /dev/shm/cuslice /dev/shm/gpu
mount --bind "$2/ring" /dev/shm/cuslice
mount --bind "$2/sim" /dev/shm/gpu
mount -t tmpfs none "$2"
shift 2
exec "$@"
"""


def permitted(*command):
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def pods_permitted():
    command = [word.format(uid=20001, ahead=1000) for word in POD]
    return os.getuid() == 0 and permitted(*command, "test", "-x", farm.LINKED)


class Node(farm.Farm):
    """A farm whose workers can be pods: each with a user, a clock and namespaces of its own."""

    def __init__(self, **settings):
        super().__init__(**settings)
        os.chmod(self.place, 0o755)
        self.pods = 0
        self.first = self.worker("outside")  # so that the device belongs to no container
        os.chmod(self.device, 0o777)
        for name in os.listdir(self.device):
            os.chmod(os.path.join(self.device, name), 0o666)

    def pod(self, tag, **settings):
        self.pods += 1
        words = [word.format(uid=20000 + self.pods, ahead=self.pods * self.pods * 50000) for word in POD]
        return self.worker(tag, prefix=(*words, "sh", "-c", INSIDE, "pod", "pod-" + tag, self.place),
                           sim={"DIR": "/dev/shm/gpu"},
                           **dict({"TENANT": None, "DIR": "/dev/shm/cuslice"}, **settings))


def check_pods():
    """Three pods: the clock's offset, users and namespaces differ; turns and caps are as on one host."""
    weights = {"a": 50, "b": 30, "c": 20}
    with Node(MEM_LIMIT=CAP, ALLOWANCE="200ms") as node:
        pods = {tag: node.pod(tag, WEIGHT=weight) for tag, weight in weights.items()}
        inside = [pod.ask("pid") for pod in pods.values()]
        equal(inside, ["1"] * 3, "process ids inside")
        clocks = sorted(pod.numbers("spin 1000")[1] - farm.now() for pod in pods.values())
        check(all(later - earlier > 90000 * farm.SECOND for earlier, later in zip(clocks, clocks[1:])),
              "the pods' clocks are the host's: %s" % clocks)
        pods["a"].ok("alloc cuMemAlloc_v2 %d" % CAP)
        equal(pods["a"].numbers("alloc cuMemAlloc_v2 1048576")[0], farm.OUT_OF_MEMORY, "beyond its cap")
        equal(pods["b"].ok("info"), [CAP, CAP], "what another pod sees")
        pods["b"].ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
        status, answers = pods["b"].ask("spawn open;alloc,cuMemAlloc_v2,%d;info" % (CAP // 2 + 1)).split()
        equal((status, answers.split(";")[1].split(",")[1]), ("0", str(farm.OUT_OF_MEMORY)),
              "a second process of one pod, for more than what is left: " + answers)
        results = farm.together([(pod, "loop 7000 1000000 0") for pod in pods.values()], 40)
        equal([r[0] for r in results], [0] * 3, "results")
        check_shares(node, weights)
        check_books(node, pods)


def check_shares(node, weights):
    trace = node.trace()
    start, end = farm.window(trace, weights)
    share = farm.shares([t for t in trace.turns() if t.client in weights], start, end)
    print("three pods: %s" % ", ".join("%s %.2f %%" % (tag, share[tag]) for tag in weights))
    for tag, weight in weights.items():
        farm.between(share[tag], weight - 3.5, weight + 3.5, "the share of pod " + tag)
    found = farm.overlaps(trace.commands())
    check(not found, "overlaps: %s" % [farm.describe(o) for o in found[:3]])


def check_books(node, pods):
    seen = node.gpu()
    tenants = [t for t in seen["tenants"] if t["key"].startswith("pidns:")]
    equal(len({t["key"] for t in tenants}), 3, "tenants: %s" % [t["key"] for t in tenants])
    equal(sorted(t["display"] for t in tenants), ["pod-a", "pod-b", "pod-c"], "their names")
    equal(sorted(t["memory_used_bytes"] for t in tenants), [0, CAP // 2, CAP], "their bytes")
    equal(sum(t["revocations"] + t["overruns"] for t in tenants), 0, "revocations and overruns")
    equal([c["pid"] for c in seen["clients"]].count(1), 3, "clients with the process id 1")
    equal((seen["reaped"], seen["unreaped"]), (0, 0), "live neighbours taken for dead")
    for tag, pod in pods.items():
        other = [line for line in pod.log().splitlines() if "[mem-refused]" not in line]
        equal(other, [], "what pod %s said but for what was refused" % tag)


def check_killed_pod():
    """A pod's init is killed in its turn, with all that the pod runs; the others go on, and its bytes
    are no longer counted."""
    with Node(ALLOWANCE="30s", QUANTUM="10ms") as node:
        b, c = node.pod("b"), node.pod("c")
        loops = [pod.post("loop 8000 500000 0") for pod in (b, c)]
        late = []
        for i in range(5):
            a = node.pod("a%d" % i)
            a.ok("alloc cuMemAlloc_v2 %d" % (1 << 30))
            a.ask("idlers 2 60000")
            a.ok("hold")
            time.sleep(0.05 + 0.007 * i)
            killed = farm.now()
            a.kill()
            trace = node.trace_until(
                lambda t: {"b", "c"} <= {r.client for r in t.commands() if r.submit > killed},
                "the others after a pod's death")
            late.append(min(r.submit for r in trace.commands()
                            if r.client in "bc" and r.submit > killed) - killed)
        print("after a pod's death the others go on after %s ms" % ", ".join(
            "%.1f" % (ns / farm.MS) for ns in late))
        check(sorted(late)[2] < 60 * farm.MS, "median %.1f ms" % (sorted(late)[2] / farm.MS))
        check(max(late) < 300 * farm.MS, "worst %.1f ms" % (max(late) / farm.MS))
        for loop in loops:
            equal(farm.numbers(loop.result(30))[0], 0, "launches of the others")
        seen = node.gpu()
        equal(len(seen["clients"]), 3, "clients left")
        equal(sum(t["memory_used_bytes"] for t in seen["tenants"]), 0, "bytes left")


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


if not permitted(*CONTAINER, "true"):
    farm.skip("namespaces are not permitted here")
checks = [check_equal_pids, check_killed_container, check_one_namespace_is_one_tenant]
if pods_permitted():
    checks += [check_pods, check_killed_pod]
else:
    print("user or time namespaces are not permitted here, or the build is not readable: no pods")
farm.run(*checks)
