#!/usr/bin/env python3
"""cuda-python's object layer: streams, events, a captured graph, stream-ordered memory."""
# timeout: 300
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import equal

room.need()


def check_core():
    bare, _ = room.compare(room.python("run_core.py"), "OUT_OF_MEMORY", least=300)
    if bare.answer:
        equal(bare.answer["same"][0][0], sum(range(150)), "the kernels' results")
        equal(bare.answer["same"][1], 180, "the graph's results")


room.farm.run(check_core)
