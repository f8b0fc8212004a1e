#!/usr/bin/env python3
"""Caps of several devices: by index as the program counts them, by UUID, whatever
CUDA_VISIBLE_DEVICES says and in whatever order; percent; a process's and a tenant's; changed under
programs that go on allocating. Who got how much on which device is the device's record."""
# timeout: 90
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, OUT_OF_MEMORY, check, equal

# What contexts cost counts too; here it would only move the figures.
SIM = {"DEVICES": 2, "MEMORY": 4 * GIB, "CONTEXT_BYTES": 0}
SMALL, LARGE = 64 * MIB, 160 * MIB


def uuids(place):
    """Of the devices, in the board's order: one client on each says where its ring is."""
    found = []
    for i in (0, 1):
        before = {g["uuid"] for g in place.status()["gpus"]} if os.listdir(place.ring) else set()
        worker = place.worker("look%d" % i, prefix=("env", "CUDA_VISIBLE_DEVICES=%d" % i))
        found += [g["uuid"] for g in place.status()["gpus"] if g["uuid"] not in before]
        worker.end()
    return found


def opened(place, tag, ordinal, visible=None, **settings):
    prefix = ("env", "CUDA_VISIBLE_DEVICES=" + visible) if visible is not None else ()
    worker = place.worker(tag, opened=False, prefix=prefix, **settings)
    worker.ok("open %d" % ordinal)
    return worker


def cap_is(place, worker, cap, device, words):
    """The cap to the byte, and by the record on which device."""
    equal(worker.ok("info"), [cap, cap], words + ": free and total")
    equal(worker.numbers("alloc cuMemAlloc_v2 %d" % (cap + 1))[0], OUT_OF_MEMORY, words + ": more")
    worker.ok("alloc cuMemAlloc_v2 %d" % cap)
    got = [m for m in place.trace().memory if m.client == worker.tag and m.bytes == cap]
    equal([m.device for m in got], [device], words + ": where")
    worker.end()


def check_devices():
    with farm.Farm(sim=SIM) as place:
        first, second = uuids(place)
        check(first != second, "two devices have one UUID")
        by_index = "0:%d,1:%d" % (SMALL, LARGE)
        by_uuid = "%s:%d,%s:%d" % (second, LARGE, first, SMALL)
        for n, (visible, ordinal, caps, cap, device) in enumerate((
                (None, 0, by_index, SMALL, 0), (None, 1, by_index, LARGE, 1),
                ("0,1", 1, by_index, LARGE, 1), ("1,0", 0, by_index, SMALL, 1),
                ("1,0", 1, by_index, LARGE, 0), ("1", 0, by_index, SMALL, 1),
                (None, 0, by_uuid, SMALL, 0), (None, 1, by_uuid, LARGE, 1),
                ("1,0", 0, by_uuid, LARGE, 1), ("1,0", 1, by_uuid, SMALL, 0),
                (second, 0, by_uuid, LARGE, 1), (second + "," + first, 1, by_uuid, SMALL, 0),
                (second, 0, by_index, SMALL, 1), ("1,7,0", 0, by_uuid, LARGE, 1))):
            worker = opened(place, "n%d" % n, ordinal, visible, MEM_LIMIT=caps)
            cap_is(place, worker, cap, device, "%s, ordinal %d, %s" % (visible, ordinal, caps))
        for visible, count in (("1,7,0", "0 1"), ("0,0", "0 1"), ("", "100"), ("9", "100")):
            worker = place.worker("c", opened=False, prefix=(
                "env", "CUDA_VISIBLE_DEVICES=" + visible))
            rc = worker.ask("init")
            equal(rc if rc != "0" else worker.ask("count"), count, "devices of '%s'" % visible)
            worker.end()


def check_kinds():
    """Percent, a process's own, and both on two devices at once."""
    with farm.Farm(sim=SIM) as place:
        cap_is(place, opened(place, "p", 1, MEM_LIMIT="25%"), GIB, 1, "percent")
        both = dict(TENANT="t", MEM_LIMIT="0:%d,1:%d" % (2 * SMALL, 2 * LARGE),
                    PROCESS_MEM_LIMIT="0:%d,1:75%%" % SMALL)
        a, b = opened(place, "a", 0, **both), opened(place, "b", 0, **both)
        c = opened(place, "c", 1, **both)
        for worker in (a, b):
            equal(worker.numbers("alloc cuMemAlloc_v2 %d" % (SMALL + 1))[0], OUT_OF_MEMORY, "own")
            worker.ok("alloc cuMemAlloc_v2 %d" % SMALL)
        d = opened(place, "d", 0, **both)
        equal(d.numbers("alloc cuMemAlloc_v2 1")[0], OUT_OF_MEMORY, "the tenant's on device 0")
        equal(c.numbers("alloc cuMemAlloc_v2 %d" % (2 * LARGE + 1))[0], OUT_OF_MEMORY, "the tenant's")
        c.ok("alloc cuMemAlloc_v2 %d" % (2 * LARGE))


def set_cap(place, cap):
    done = subprocess.run([farm.TOOL, "set", "--dir", place.ring, "--tenant", "t", "--mem", cap],
                          capture_output=True, text=True, timeout=20)
    equal(done.returncode, 0, "cuslice set: " + done.stderr)
    return farm.now()


def check_live():
    """Lowered and raised while four processes allocate as fast as they can."""
    with farm.Farm(sim=dict(SIM, DEVICES=1), TENANT="t", MEM_LIMIT=GIB) as place:
        workers = [place.worker("p%d" % i) for i in range(4)]
        racing = [w.post("race 4000 %d" % (100 * MIB)) for w in workers]
        times = []
        for cap in ("350m", "150m", "900m", "100m", "250m"):
            time.sleep(0.5)
            times.append((set_cap(place, cap), int(cap[:-1]) * MIB))
        results = [farm.numbers(f.result(30)) for f in racing]
        equal([r[0] for r in results], [0] * 4, "results")
        check(sum(r[2] for r in results) > 100, "hardly ever refused")
        memory, now, seen = place.trace().memory, {}, {}
        for m in memory:
            now[m.pid] = m.client_memory
            for (start, cap), (end, _) in zip(times, times[1:] + [(times[-1][0] + 10 ** 10, 0)]):
                # What was being taken when the cap changed is given back by then.
                if start + 300 * farm.MS < m.time < end - 20 * farm.MS:
                    seen[start] = max(seen.get(start, 0), sum(now.values()))
        for start, cap in times:
            check(min(cap, 400 * MIB) - 100 * MIB < seen.get(start, -1) <= cap, "under %d MiB they had %d MiB" % (
                cap // MIB, seen.get(start, -1) // MIB))


farm.run(check_devices, check_kinds, check_live)
