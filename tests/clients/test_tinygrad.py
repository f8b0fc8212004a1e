#!/usr/bin/env python3
"""tinygrad: the driver API by ctypes, kernels by NVRTC, TinyJit's steps as CUDA graphs."""
# timeout: 300
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import check

room.need()


def check_tinygrad():
    bare, _ = room.compare(room.python("run_tinygrad.py"), "MemoryError", least=90)
    graphs = sum(n for (kind, _), n in room.work(bare.trace).items() if kind == "graph")
    check(graphs >= 50, "only %d graph launches" % graphs)


room.farm.run(check_tinygrad)
