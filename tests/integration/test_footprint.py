#!/usr/bin/env python3
# timeout: 170
"""What contexts cost on the device is estimated, shown apart, counted against the caps, charged once.

Compared with the device's own books: what it has handed out to each process for its contexts beside
what calls asked for (`handed`, tests/sim/README.md, "Trace")."""
import collections
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, OUT_OF_MEMORY, check, equal

CONTEXT = 256 * MIB
HEAP, PRINTF = 2, 1  # CU_LIMIT_MALLOC_HEAP_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE
Books = collections.namedtuple("Books", "memory context used orphaned managed resident")


def room(sim=None, **settings):
    return farm.Farm(sim=dict({"CODE": 1}, **(sim or {})), **settings)


def device(worker, ordinal=0):
    return Books(*worker.ok("handed %d" % ordinal))


def charged(place, tag, gpu=0):
    """What the ring has for the contexts of the tenant; without clients nothing is charged."""
    tenants = {t["key"]: t for t in place.status()["gpus"][gpu]["tenants"]}
    return tenants[tag]["context_bytes"] if tag in tenants else 0


def until(found, wanted, words, seconds=8):
    """Idle clients take over once a second what others have learnt."""
    end = time.monotonic() + seconds
    while found() != wanted and time.monotonic() < end:
        time.sleep(0.1)
    return equal(found(), wanted, words)


def agree(place, worker, words):
    return until(lambda: charged(place, worker.tag), device(worker).context, words)


def join(place, tag, look=True, **more):
    """A client that is ready. `look`: it asks how much memory there is, so that the books are known
    for who comes next."""
    worker = place.worker(tag, **more)
    if look:
        worker.ok("info")
    return worker


def learnt(place, count=4, **more):
    return [join(place, "w%d" % i, **more) for i in range(count)]


def check_three_joins():
    with room() as place:
        a, b, c = learnt(place, 3)
        for worker in (a, b, c):
            check(device(worker).context > CONTEXT, "a context and its code: %s" % (device(worker),))
            check(charged(place, worker.tag) < 8 * MIB, "%s: a context is charged after two differences"
                  % worker.tag)
        d = join(place, "d")
        for worker in (a, b, c, d):
            agree(place, worker, worker.tag + " after three differences")
        free, total = d.ok("info")
        handed = device(d)
        equal(total - free, handed.used, "without a cap the device's own figures are shown")
        e = join(place, "e")
        agree(place, e, "who joins later")
        e.ok("alloc cuMemAlloc_v2 %d" % (64 * MIB))
        equal(place.tenant("e")["memory_used_bytes"], device(e).memory, "what calls asked for, apart")


def check_seen_by_itself():
    """Without anybody asking: the keepers look once the books are still."""
    with room() as place:
        workers = []
        for tag in "abcd":
            workers.append(join(place, tag, look=False))
            workers[-1].ok("alloc cuMemAlloc_v2 %d" % (32 * MIB))
            time.sleep(3.2)
        for worker in workers:
            agree(place, worker, worker.tag)


def check_disturbed():
    """Another client allocates while clients join: nothing is learnt from that."""
    with room() as place:
        a = join(place, "a")
        for i in range(6):
            a.ok("alloc cuMemAlloc_v2 %d" % (16 * MIB))
            join(place, "d%d" % i, look=False)
            a.ok("info")
            a.ok("alloc cuMemAlloc_v2 %d" % MIB)
        time.sleep(1.2)
        for i in range(6):
            check(charged(place, "d%d" % i) < 8 * MIB, "charged after disturbed differences")
        busy = a.post("race 6000 %d" % (4 * MIB), thread=1)
        for i in range(6):
            join(place, "e%d" % i)
        busy.result(farm.SOON)
        for i in range(6):
            found, real = charged(place, "e%d" % i), CONTEXT
            check(found < 8 * MIB or real <= found < real + 8 * MIB,
                  "beside a client that never rests: %d charged" % found)


def check_together():
    """Clients that start at once disturb each other: nobody is found to cost nothing."""
    with room() as place:
        first = join(place, "a")
        crowd = [place.worker("c%d" % i, opened=False) for i in range(4)]
        for future in [w.post("open") for w in crowd]:
            equal(future.result(farm.SOON), "0", "open")
        for worker in crowd:
            found = charged(place, worker.tag)
            check(found < 8 * MIB or found >= CONTEXT, "%s: %d charged" % (worker.tag, found))
        later = [join(place, "l%d" % i) for i in range(4)]
        for worker in [first] + later:
            agree(place, worker, worker.tag)


def check_code():
    """Modules, functions loaded when asked for, heaps and buffers raised and lowered."""
    with room() as place:
        a = learnt(place)[-1]
        agree(place, a, "before")
        base = device(a).context
        for words, grows in (("module load 1 %d" % (24 * MIB), True), ("module function 1", False),
                             ("limit %d %d" % (HEAP, 72 * MIB), True),
                             ("limit %d %d" % (PRINTF, 16 * MIB), True),
                             ("limit %d %d" % (HEAP, 8 * MIB), False),
                             ("limit %d %d" % (PRINTF, MIB), False), ("module unload 1", False)):
            before = device(a).context
            a.ok(words)
            if grows:
                check(device(a).context > before, words + ": the device gave nothing")
            equal(charged(place, "w3"), device(a).context, words)
        equal(device(a).context, base, "after all of it")


def check_first_function():
    """A context's first function makes the driver take room for code."""
    with room() as place:
        workers = learnt(place)
        a = workers[0]
        a.ok("context make 1")
        a.ok("module load 1 8")
        before = device(a).context
        a.ok("module function 1")
        check(device(a).context > before, "no room for code was taken")
        agree(place, a, "a function in a second context")
        a.ok("module function 1 1000")
        agree(place, a, "asked for again")


def check_contexts():
    """Each context once; ended and reset ones give it back."""
    with room() as place:
        workers = learnt(place)
        a = workers[1]
        for step in ("context make 1", "context make 2", "module load 1 %d" % (8 * MIB), "context end 2",
                     "context use 0", "context end 1", "context reset"):
            a.ok(step)
            agree(place, a, step)
        equal(device(a).context, 0, "the device's figure after a reset")
        agree(place, workers[2], "another client, afterwards")
        workers[2].kill()
        until(lambda: charged(place, "w2"), 0, "a killed client's contexts")
        agree(place, workers[3], "who is left")
        join(place, "late")
        until(lambda: charged(place, "late") >= CONTEXT, True, "who joins after a death")


def check_ended_unseen():
    """A context that ends before enough is known changes what no books explain: no difference over
    that, and none while a dead client's memory is on its way back."""
    with room(REAP_WAIT="1s", sim={"TEARDOWN": "300ms"}) as place:
        a = join(place, "a")
        a.ok("context make 1")
        a.ok("info")
        a.ok("context end 1")
        b = join(place, "b")
        b.kill()
        join(place, "c")
        join(place, "d")
        until(lambda: charged(place, "b"), 0, "a killed client's code")
        time.sleep(1.2)
        a.ok("context use 0")
        a.ok("info")
        for tag in "efgh":
            join(place, tag)
        for worker in [a] + place.workers[2:]:
            agree(place, worker, worker.tag)


def check_cap():
    """What a client may have is its cap less its contexts; a cap below these refuses and breaks
    nothing."""
    with room() as place:
        learnt(place)
        a = join(place, "a", MEM_LIMIT=GIB)
        agree(place, a, "under a cap")
        cost = device(a).context
        equal(a.ok("info"), [GIB - cost, GIB], "cuMemGetInfo")
        rc = a.numbers("alloc cuMemAlloc_v2 %d" % (GIB - cost + MIB))[0]
        equal(rc, OUT_OF_MEMORY, "more than is left")
        a.ok("alloc cuMemAlloc_v2 %d" % (GIB - cost))
        equal(device(a).memory + device(a).context, GIB, "on the device")
        b = join(place, "b", look=False, MEM_LIMIT=64 * MIB)
        equal(b.ok("info"), [0, 64 * MIB], "a cap smaller than a context")
        equal(b.numbers("alloc cuMemAlloc_v2 4096")[0], OUT_OF_MEMORY, "then")
        check("mem-refused" in b.log(), "no line: %r" % b.log())
        b.ok("spin 1000")
        b.ok("sync")
        equal(b.end(), 0, "its end")


def check_version():
    """Another version of the driver starts afresh."""
    with room() as place:
        old = learnt(place, sim={"DRIVER_VERSION": "12090"})
        for worker in old:
            agree(place, worker, worker.tag)
        old[0].ok("info")
        new = [join(place, "n%d" % i) for i in range(2)]
        for worker in new:
            check(charged(place, worker.tag) < 8 * MIB, "charged by another driver's figure")
        new.append(join(place, "n2"))
        check(charged(place, "n2") >= CONTEXT, "nothing charged after three differences")
        for worker in new:
            agree(place, worker, worker.tag)
        for worker in old:
            agree(place, worker, worker.tag + " afterwards")


def check_two_devices():
    with room(sim={"DEVICES": 2}) as place:
        first = learnt(place)
        for worker in first:
            agree(place, worker, worker.tag)
        second = []
        for i in range(4):
            second.append(place.worker("s%d" % i, opened=False))
            second[-1].ok("open 1")
            second[-1].ok("info")
        gpus = place.status()["gpus"]
        for worker in second:
            figures = [device(worker, ordinal).context for ordinal in (0, 1)]
            equal(figures[0], 0, "the other device's figure")
            until(lambda w=worker: sorted(charged(place, w.tag, gpu) for gpu in (0, 1)),
                  sorted(figures), worker.tag + " on two devices")
        equal(len(gpus), 2, "rings")


def check_managed():
    """Managed memory comes and goes unseen: nothing is learnt beside it, and nothing wrong."""
    with room() as place:
        a = join(place, "a")
        a.ok("alloc cuMemAllocManaged %d" % (512 * MIB))
        a.ok("spin 1000")
        a.ok("sync")
        a.ok("info")
        a.ok("free 0")
        for i in range(4):
            join(place, "w%d" % i)
        for i in range(4):
            check(charged(place, "w%d" % i) < 8 * MIB, "learnt beside managed memory")


def check_capture():
    """What loads code while a stream is being captured does not break the capture."""
    with room() as place:
        a = learnt(place)[0]
        a.ok("capture thread 4")
        a.ok("module load 2 8", thread=1)
        a.ok("module function 2", thread=1)
        equal(a.ok("recording 4"), [1], "still capturing")
        a.ok("captured 4")


def check_strangers():
    """A process without the library makes contexts while code is loaded: they are not the client's."""
    with room() as place:
        a = join(place, "a", MEM_LIMIT=128 * MIB)
        bare = place.worker("bare", preload=False)
        worst = 0
        for round_ in range(40):
            made = bare.post("context make %d" % (1 + round_ % 8))
            for number in range(4):
                a.ok("module load %d 8" % number)
                a.ok("module unload %d" % number)
            equal(made.result(farm.SOON), "0", "a context of another process")
            bare.ok("context end %d" % (1 + round_ % 8))
            worst = max(worst, charged(place, "a"))
        check(worst < 64 * MIB, "charged for a stranger: %d" % worst)
        a.ok("alloc cuMemAlloc_v2 %d" % (64 * MIB))


CHECKS = (check_strangers, check_three_joins, check_seen_by_itself, check_disturbed, check_together, check_code,
          check_first_function, check_contexts, check_ended_unseen, check_cap, check_version,
          check_two_devices, check_managed, check_capture)
wanted = sys.argv[1:]
farm.run(*[c for c in CHECKS if not wanted or c.__name__ in wanted])
