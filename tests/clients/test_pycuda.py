#!/usr/bin/env python3
"""PyCUDA: C++ linked to the driver, contexts of its own, which it pops and detaches at exit."""
# timeout: 600
import collections
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import check, equal

room.need()
room.bring("pycuda", room.PLACE)


def check_pycuda():
    more = {"PYTHONPATH": os.path.join(room.PLACE, "pycuda/site")}
    bare, capped = room.compare(room.python("run_pycuda.py"), "cuMemAlloc failed: out of memory",
                                least=270, more=more)
    if not bare.answer:
        return
    first = 7 + sum(range(250))
    equal(bare.answer["same"][0], [first, 7, first + 4095 * 7, True], "the kernels' results")
    half = sum(range(2048)) + sum(range(20)) + 2048 * 5
    equal(bare.answer["same"][1], [sum(range(20)), half, 0, True], "copies and the pool")
    equal(bare.answer["same"][2], [9 * 4096, True], "the second context")
    for each in (bare, capped):
        said = [w for w in each.errors.splitlines() if not w.startswith("cuslice[")]
        check(not said, "at exit it said: %s" % said)
        ops = collections.Counter(m.op for m in each.trace.memory if m.client == "client")
        equal((ops["context"], ops["context-end"], ops["teardown"]), (2, 2, 0),
              "contexts made, ended by itself, and left to the driver")


room.farm.run(check_pycuda)
