#!/usr/bin/env python3
"""A ring's file that is removed or replaced under running clients: they notice, say so, and meet
again in the new one, with their bytes."""
# timeout: 120
import os
import shutil
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MIB, OUT_OF_MEMORY, check, equal

CAP = 256 * MIB


def met(place, workers):
    """Whether the ring of that name has exactly these clients."""
    try:
        return {c["pid"] for c in place.gpu()["clients"]} == {w.pid for w in workers}
    except (AssertionError, IndexError):
        return False


def wait_until_met(place, workers, words):
    until = time.monotonic() + farm.SOON
    while not met(place, workers):
        if time.monotonic() > until:
            raise TimeoutError("%s: the clients never meet" % words)
        time.sleep(0.1)


def moves(words, change):
    with farm.Farm(MEM_LIMIT=CAP) as place:
        a, b = place.worker("a"), place.worker("b")
        a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
        b.ok("alloc cuMemAlloc_v2 %d" % (CAP // 4))
        # Synchronised now and then: who is the first in a new ring is alone there for a while, and
        # what it queues in that time is nobody's overrun.
        loops = [w.post("loop 6000 1000000 4") for w in (a, b)]
        time.sleep(0.5)
        change(place)
        begun = time.monotonic()
        wait_until_met(place, (a, b), words)
        took = time.monotonic() - begun
        print("%s: the clients met again after %.1f s" % (words, took))
        check(took < 8, "%s: %.1f s" % (words, took))
        equal([place.tenant(w.tag)["memory_used_bytes"] for w in (a, b)], [CAP // 2, CAP // 4],
              words + ": their bytes")
        moved = farm.now()
        for loop in loops:
            equal(farm.numbers(loop.result(farm.SOON))[0], 0, words + ": launches")
        for worker in (a, b):
            equal(farm.death_words(place)[worker.pid], farm.WAITERS | farm.keeper(worker.pid),
                  words + ": what the kernel tells of in the new ring")
        commands = [c for c in place.trace().commands() if c.submit > moved + 200 * farm.MS]
        for overlap in farm.overlaps(commands)[:3]:
            check(False, words + ": not exclusive in the new ring: " + farm.describe(overlap))
        equal(a.numbers("alloc cuMemAlloc_v2 %d" % (CAP // 2 + 1))[0], OUT_OF_MEMORY,
              words + ": the cap in the new ring")
        a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
        for worker in (a, b):
            lines = [line for line in worker.log().splitlines() if "[ring-moved]" in line]
            equal(len(lines), 1, "%s: lines of %s: %s" % (words, worker.tag, worker.log()))


def remove(place):
    os.unlink(place.ring_file())


def replace(place):
    """By a file that a later client made, as after somebody's clean-up of the directory."""
    os.unlink(place.ring_file())
    place.worker("later").end()


def replace_by_copy(place):
    path = place.ring_file()
    shutil.copy(path, path + ".new")
    os.chmod(path + ".new", 0o666)
    os.rename(path + ".new", path)


def check_removed():
    moves("removed", remove)


def check_replaced():
    moves("replaced", replace)


def check_copied():
    moves("replaced by a copy", replace_by_copy)


def check_directory_removed():
    def change(place):
        shutil.rmtree(place.ring)

    moves("directory removed", change)


farm.run(check_removed, check_replaced, check_copied, check_directory_removed)
