#!/usr/bin/env python3
"""One library on drivers of CUDA 11.8 to 13.0, each without what is newer: every look-up gives the
variant that the driver chose, wrapped; caps, turns, captures and the drain hold; programs end
cleanly. The same with the library that was compiled with the oldest header."""
# timeout: 300
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/versions"))
import program
import versions
import farm
from farm import MIB, check, equal

DRIVERS = (11080, 12000, 12040, 12090, 13000)
CAP = 64
# Beyond the rows: names with several forms that nobody hooks, the runtime's empty probe, nonsense.
MORE = ("cuStreamGetCaptureInfo", "cuGraphExecUpdate", "cuEventElapsedTime", "cuMemPrefetchAsync",
        "cuNothingAtAll", "")


def place_of(driver, **settings):
    return farm.Farm(sim={"DRIVER_VERSION": driver}, **settings)


def run(place, tag, *words, **settings):
    return program.Program(place, tag, "versions_client", *words, **settings)


def base(name):
    """As cuGetProcAddress takes it."""
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name)


def check_lookups(driver, library):
    """The preloaded program is told what the bare one is told, and finds the symbol of the same
    name, ours where a row has it and the driver's else."""
    rows = versions.rows()
    names = sorted(rows | {base(name) for name in rows}) + list(MORE)
    with place_of(driver) as place:
        bare = run(place, "bare", "look", *names, preload=False)
        hooked = run(place, "hooked", "look", *names, preload=library)
        (status, wanted), (ours, found) = bare.finish(), hooked.finish()
    equal((status, ours), (0, 0), "%d: ends of the look-ups" % driver)
    equal(len(found), len(wanted), "%d: answers" % driver)
    swapped, wrong = 0, []
    for before, after in zip(wanted, found):
        *told, symbol, file = before.rsplit(" ", 2)
        mine = "libcuslice.so" if symbol in rows else file
        swapped += symbol in rows
        if after != " ".join([*told, symbol, mine]):
            wrong.append("%s, not %s from %s" % (after, symbol, mine))
    check(not wrong, "%d: %d look-ups: %s" % (driver, len(wrong), wrong[:5]))
    check(swapped > 500, "%d: only %d answers have a row" % (driver, swapped))
    print("%d: %d look-ups, %d of them hooked" % (driver, len(found), swapped))


def check_forms(driver, library):
    """A program of each toolkit up to the driver's own calls the forms it knows: the same results
    as bare, but for the cap."""
    with place_of(driver, MEM_LIMIT="%dMi" % CAP) as place:
        for toolkit in (version for version in DRIVERS if version <= driver):
            words = "a program of %d on a driver of %d" % (toolkit, driver)
            # One after the other: what the bare one takes while the other loads code would be taken
            # for code (README, "Limits").
            status, wanted = run(place, "bare", "abi", toolkit, preload=False).finish()
            ours, found = run(place, "hooked", "abi", toolkit, preload=library).finish()
            equal((status, ours), (0, 0), words + ": exits")
            for index, line in enumerate(wanted):
                if line.startswith("total "):
                    wanted[index] = "total %d MiB" % CAP
                elif re.match(r"cuMemAlloc(Async)?@", line):
                    equal(line.split()[1], "0", words + ", bare: " + line)
                    wanted[index] = line.split()[0] + " 2"
                elif "@" in line:
                    equal(line.split()[1:], ["0"], words + ", bare")
            equal(found, wanted, words)
        equal(place.gpu()["unreaped"], 0, "%d: slots left" % driver)


def check_work(driver, library):
    """Captures in all modes beside a neighbour, caps, turns, a clean end."""
    with place_of(driver, MEM_LIMIT="%dMi" % CAP, QUANTUM="10ms") as place:
        a = place.worker("a", preload=library)
        neighbour = place.worker("neighbour", preload=library)
        equal(a.numbers("alloc cuMemAlloc_v2 %d" % (CAP * MIB + 1))[0], farm.OUT_OF_MEMORY,
              "%d: above the cap" % driver)
        for mode in ("global", "thread", "relaxed"):
            busy = neighbour.post("loop 600 1000000 0")
            equal(a.numbers("record 4 " + mode, timeout=60), [0, 4],
                  "%d: captures in mode %s" % (driver, mode))
            equal(farm.numbers(busy.result(farm.SOON))[0], 0, "%d: the neighbour" % driver)
        results = farm.together([(a, "loop 1200 500000 0"), (neighbour, "loop 1200 500000 1")], 60)
        equal([r[0] for r in results], [0, 0], "%d: loops" % driver)
        trace = place.trace()
        exclusive(place, trace, driver)
        turns = [t for t in trace.turns() if t.client == "a"]
        check(len(turns) > 40, "%d: only %d turns" % (driver, len(turns)))
        equal((a.end(), neighbour.end()), (0, 0), "%d: exit statuses" % driver)
        equal(place.gpu()["unreaped"], 0, "%d: slots left" % driver)


def exclusive(place, trace, words):
    """No work beside another client's, but for what was counted."""
    found = farm.overlaps(trace.commands())
    counted = sum(tenant["overruns"] for tenant in place.gpu()["tenants"])
    if found:
        print("%s: %d overlaps, %d counted overruns" % (words, len(found), counted))
    check(len(found) <= counted, "%s: %s" % (words, [farm.describe(o) for o in found[:3]]))


def check_drain(driver, library):
    """Every stream of every context is waited for, with cuCtxRecordEvent and without. The neighbour
    is there first: who is alone may queue seconds of work."""
    with place_of(driver, QUANTUM="10ms") as place:
        neighbour = place.worker("neighbour", preload=library)
        busy = neighbour.post("loop 2000 1000000 1")
        a = run(place, "a", "streams", 1500, preload=library)
        status, _ = a.finish(60)
        equal(status, 0, "%d: the end of work in many streams: %s" % (driver, a.log()))
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, "%d: the neighbour" % driver)
        trace = place.trace()
        exclusive(place, trace, driver)
        used = {(run.context, run.stream) for run in trace.of("a")}
        check(len({context for context, _ in used}) == 2, "%d: contexts used" % driver)
        check(len(used) >= 10, "%d: streams used: %d" % (driver, len(used)))
        turns = [turn for turn in trace.turns() if turn.client == "a"]
        check(len(turns) > 20, "%d: only %d turns" % (driver, len(turns)))


def check_drain_bare():
    """Without the library the same work lies beside the neighbour's."""
    with place_of(12040, preload=False) as place:
        busy = place.worker("neighbour").post("loop 1000 1000000 1")
        run(place, "a", "streams", 10)
        busy.result(farm.SOON)
        found = len(farm.overlaps(place.trace().commands()))
        check(found > 100, "bare programs keep out of each other's way: %d overlaps" % found)


def all_drivers(check_one, library=None):
    """For run(), under a name of its own."""
    def each():
        for driver in DRIVERS:
            check_one(driver, library)
    each.__name__ = check_one.__name__ + (" of the oldest header" if library else "")
    return each


def oldest_header():
    """The library compiled with it, or None."""
    found = versions.headers()
    try:
        return versions.library(*found[0]) if found else None
    except subprocess.CalledProcessError as error:
        check(False, "compiling with the header of %s: %s" % (found[0][0], error.stdout[-2000:]))
        return None


checks = [all_drivers(check_lookups), all_drivers(check_forms), all_drivers(check_work),
          all_drivers(check_drain), check_drain_bare]
oldest = oldest_header()
if oldest:
    checks += [all_drivers(check_lookups, oldest), all_drivers(check_forms, oldest)]
else:
    print("no library of the oldest header here: left out")
farm.run(*checks)
