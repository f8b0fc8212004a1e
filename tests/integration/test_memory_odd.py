#!/usr/bin/env python3
"""Memory in unusual and wrong ways: after each step the program's own figure is what the device has
handed out to it. odd_client has the steps."""
# timeout: 240
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import GIB, check, equal

SIM = {"CONCURRENT_MANAGED": 0, "CONTEXT_BYTES": 0}
PARTS = ["reused", "places", "contexts", "reset", "green", "destroyed", "pools", "unknown", "doubles",
         "capture", "graphs"]
POOLS = 5000
LIVE = 200000


def run(place, tag, *words, cap, timeout=120, **more):
    one = program.Program(place, tag, "odd_client", *words, MEM_LIMIT=cap, **more)
    status, lines = one.finish(timeout=timeout)
    equal(status, 0, "odd_client %s: %s %s" % (" ".join(map(str, words)), lines[-2:],
                                               one.log()[-600:]))
    return one, lines


def check_parts():
    with farm.Farm(sim=SIM) as place:
        for part in PARTS:
            run(place, part, part, cap=2 * GIB)
        run(place, "first", "first", cap=2 * GIB, sim={
            "FAIL": "cuDeviceGetDefaultMemPool=slow:20ms"})  # the threads meet there


def check_many_pools():
    """As many as have room, and never more than the cap; then all that there are."""
    with farm.Farm(sim=dict(SIM, MEMORY=200 * GIB)) as place:
        for cap in (40 * GIB, 190 * GIB):
            one, lines = run(place, "many%d" % (cap // GIB), "many", POOLS, cap=cap)
            print(lines[0])
            had = int(lines[0].split()[0])
            most = max(m.client_memory for m in place.trace().memory if m.pid == one.pid)
            check(most <= cap, "the device gave %d under a cap of %d" % (most, cap))
            check(had * 32 << 20 >= cap - (64 << 20) or had == POOLS,
                  "only %d pools had memory under %d" % (had, cap))


def check_many_live():
    with farm.Farm(sim=SIM) as place:
        run(place, "live", "live", LIVE, cap=2 * GIB)


def check_errors():
    """Missing and wrong arguments: answered as without the library."""
    with farm.Farm(sim=SIM) as place:
        bare, told = run(place, "bare", "errors", cap=None, preload=False)
        hooked, said = run(place, "hooked", "errors", cap=2 * GIB)
        check(len(told) > 60, "only %d answers" % len(told))
        for a, b in zip(told, said):
            equal(b, a, "an answer under the library")
        equal(len(said), len(told), "answers")
        equal(place.tenant("hooked")["memory_used_bytes"] if "hooked" in
              [t["key"] for t in place.gpu()["tenants"]] else 0, 0, "left in the ledger")


if __name__ == "__main__":
    farm.run(check_parts, check_many_pools, check_many_live, check_errors)
