#!/usr/bin/env python3
"""cuda-python's low-level half: kernels compiled by NVRTC, results compared word by word."""
# timeout: 300
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import equal

room.need()


def check_bindings():
    bare, _ = room.compare(room.python("run_bindings.py"), "CUDA_ERROR_OUT_OF_MEMORY", least=250)
    first = 7 + sum(range(250))
    whole = first + 2047 * 7 + 2048 * 5
    equal(bare.answer["same"][0], [first, 7, 5, whole], "the kernels' results")


room.farm.run(check_bindings)
