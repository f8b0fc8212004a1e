#!/usr/bin/env python3
"""What programs do with themselves: fork, exec, closing descriptors, every way to end. Each process
is its own client, its parent keeps its place, and a neighbour goes on."""
# timeout: 90
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, MS, check, equal

IN_CHILD = "open;alloc,cuMemAlloc_v2,1048576;spin,1000,5;sync"


def clients(place):
    return {c["pid"]: c for c in place.gpu()["clients"]}


def check_fork_before_cuda():
    with farm.Farm() as place:
        a = place.worker("a", opened=False)
        status, answers = a.ask("fork " + IN_CHILD).split()
        parts = [p.split(",") for p in answers.rstrip(";").split(";")]
        equal(status, "0", "the child's end")
        equal([p[0] for p in parts], ["0"] * 4, "the child's calls: %s" % answers)
        equal(place.tenant("a")["launches"], 5, "launches of the child, which ended by exit")
        equal(len(place.gpu()["clients"]), 0, "clients after the child's end")
        a.ok("open")
        a.ok("spin 1000")
        a.ok("sync")
        equal(list(clients(place)), [a.pid], "clients")


def results(answers):
    """The results alone, without times."""
    return [part.split(",")[0] for part in answers.split(";")]


def check_fork_after_cuda():
    """The driver refuses the child of a process that initialised it; so it does under the library,
    and the parent keeps its slot, its bytes and its turn."""
    with farm.Farm() as place:
        answers = {}
        for tag, preload in (("bare", False), ("a", True)):
            worker = place.worker(tag, preload=preload)
            worker.ok("alloc cuMemAlloc_v2 %d" % MIB)
            answers[tag] = worker.ask("fork init;info;spin,1000;sync")
        equal(results(answers["a"]), results(answers["bare"]), "what the child is told")
        mine = clients(place)
        equal(list(mine), [worker.pid], "clients")
        equal(mine[worker.pid]["memory_used_bytes"], MIB, "the parent's bytes")
        place.worker("b").end()
        worker.ok("spin 1000 10")
        worker.ok("sync")
        equal(clients(place)[worker.pid]["slot"], mine[worker.pid]["slot"], "the parent's slot")
        equal(place.gpu()["reaped"], 0, "live clients taken for dead")


def check_spawned():
    """fork and exec of a process that uses CUDA: the new program is a client of its own."""
    with farm.Farm() as place:
        a = place.worker("a")
        a.ok("spin 1000")
        slot = clients(place)[a.pid]["slot"]
        status, answers = a.ask("spawn " + IN_CHILD).split()
        equal(status, "0", "the child's end")
        parts = [p.split(",") for p in answers.rstrip(";").split(";")]
        equal([p[1] for p in parts], ["0"] * 4, "the child's calls: %s" % answers)
        equal({p: c["slot"] for p, c in clients(place).items()}, {a.pid: slot}, "clients")
        a.ok("spin 1000")
        a.ok("sync")


def check_exec_in_a_slice():
    """exec ends the client; the program that follows joins anew under the same process id."""
    with farm.Farm() as place:
        a, neighbour = place.worker("a"), place.worker("neighbour")
        busy = neighbour.post("loop 2500 1000000 0")
        a.ok("alloc cuMemAlloc_v2 %d" % MIB)
        a.post("loop 60000 1000000 0", thread=1)
        time.sleep(0.5)
        a.waiting.clear()
        a.process.stdin.write(b"0 exec linked\n")
        a.process.stdin.flush()
        cut = farm.now()
        a.ok("open")
        equal(clients(place)[a.pid]["memory_used_bytes"], 0, "bytes of the new program")
        a.ok("spin 1000")
        a.ok("sync")
        busy.result(farm.SOON)
        goes_on(place, "neighbour", cut, "exec")


def goes_on(place, tag, since, words, bound=400 * MS):
    """Whether a client's work goes on within the bound after some moment."""
    starts = [c.start for c in place.trace().commands() if c.client == tag and c.submit > since]
    if check(starts, "%s: no work of %s afterwards" % (words, tag)):
        late = (min(starts) - since) / MS
        print("%s: %s goes on after %.1f ms" % (words, tag, late))
        check(min(starts) - since < bound, "%s: %s goes on after %.1f ms" % (words, tag, late))


def check_ends():
    """The exit status is the program's own and the neighbour goes on, however a slice ends."""
    with farm.Farm() as place:
        neighbour = place.worker("neighbour")
        busy = neighbour.post("loop 9000 1000000 4")
        for how, status in (("exit 3", 3), ("_exit 4", 4), ("abort", -signal.SIGABRT)):
            a = place.worker("e-" + how.split()[0])
            a.post("loop 60000 1000000 0", thread=1)
            time.sleep(0.4)
            cut = farm.now()
            a.post("end " + how)
            equal(a.wait(), status, "exit status after " + how)
            took = (farm.now() - cut) / MS
            check(took < 2000, "%s took %.0f ms" % (how, took))
            time.sleep(0.5)
            check(place.trace().of(a.tag), "%s: it had no work before it ended" % how)
            goes_on(place, "neighbour", cut, how)
            equal(a.log(), "", "what it said at " + how)
        a = place.worker("e-return")
        a.ok("spin 1000000 20")
        cut = farm.now()
        equal(a.end(), 0, "exit status after a return from main")
        time.sleep(0.5)
        goes_on(place, "neighbour", cut, "return from main")
        equal(place.gpu()["unreaped"], 0, "slots left")
        busy.result(farm.SOON)


def check_closed_descriptors():
    """A program that closes every descriptor from 3 on keeps its place and its cap."""
    with farm.Farm(MEM_LIMIT=64 * MIB) as place:
        a = place.worker("a")
        a.ok("alloc cuMemAlloc_v2 %d" % (32 * MIB))
        before = clients(place)[a.pid]["slot"]
        a.ask("close")
        b = place.worker("b", TENANT="a")
        seen = clients(place)
        equal(seen[a.pid]["slot"], before, "its slot")
        equal(seen[a.pid]["memory_used_bytes"], 32 * MIB, "its bytes")
        equal(len(seen), 2, "clients")
        equal(b.numbers("alloc cuMemAlloc_v2 %d" % (33 * MIB))[0], farm.OUT_OF_MEMORY,
              "the tenant's cap")
        b.ok("alloc cuMemAlloc_v2 %d" % (32 * MIB))
        time.sleep(1.5)
        equal(place.gpu()["reaped"], 0, "live clients taken for dead")
        a.kill()
        check(wait_for(lambda: place.gpu()["reaped"] == 1 or len(clients(place)) == 1),
              "the closed one's place is not given back with its death")


def wait_for(good, seconds=farm.SOON):
    until = time.monotonic() + seconds
    while not good():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def check_killed_bytes():
    """kill -9 gives the bytes back to the tenant at once."""
    with farm.Farm(MEM_LIMIT=GIB, TENANT="t") as place:
        for _ in range(5):
            a, b = place.worker("a"), place.worker("b")
            a.ok("alloc cuMemAlloc_v2 %d" % (900 * MIB))
            equal(b.numbers("alloc cuMemAlloc_v2 %d" % (900 * MIB))[0], farm.OUT_OF_MEMORY, "both")
            a.kill()
            begun = farm.now()
            b.ok("alloc cuMemAlloc_v2 %d" % (900 * MIB))
            took = (farm.now() - begun) / MS
            check(took < 300, "the dead one's bytes came back after %.1f ms" % took)
            b.end()


def check_killed_memory_returns_late():
    """The device gets a killed client's memory later than the ledger: the call waits for it."""
    with farm.Farm(MEM_LIMIT=GIB, TENANT="t",
                   sim={"MEMORY": 1500 * MIB, "TEARDOWN": "400ms"}) as place:
        b, a = place.worker("b"), place.worker("a")
        left = min(GIB, a.ok("info")[0])
        a.ok("alloc cuMemAlloc_v2 %d" % (left - 100 * MIB))
        a.kill()
        begun = farm.now()
        b.ok("alloc cuMemAlloc_v2 %d" % (left - 100 * MIB))
        took = (farm.now() - begun) / MS
        print("the memory came back after %.0f ms" % took)
        check(took > 100, "the device had the memory at once: nothing was tried")
        lines = [line for line in b.log().splitlines() if "[reap-wait]" in line]
        equal(len(lines), 1, "lines about the wait: %s" % b.log())


def check_errno():
    """errno after each call is what the driver alone would leave."""
    with farm.Farm(MEM_LIMIT=64 * MIB) as place:
        answers = {}
        other = place.worker("other")
        for tag, preload in (("bare", False), ("a", True)):
            worker = place.worker(tag, opened=False, preload=preload)
            first = worker.ask("errno_init")
            worker.ok("open")
            worker.ask("errno %d" % (16 << 40))
            answers[tag] = first + worker.ask("errno %d" % (16 << 40))
        equal(answers["a"], answers["bare"], "results and errno")
        busy = other.post("loop 1000 1000000 0")
        time.sleep(0.2)
        wanted = answers["bare"].partition("10=")[2].split(" ", 1)[1]
        equal(worker.ask("errno %d" % (16 << 40)), wanted, "the same with waits at the gate")
        busy.result(farm.SOON)


farm.run(check_fork_before_cuda, check_fork_after_cuda, check_spawned, check_exec_in_a_slice,
         check_ends, check_closed_descriptors, check_killed_bytes, check_killed_memory_returns_late,
         check_errno)
