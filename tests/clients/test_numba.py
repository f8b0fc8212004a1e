#!/usr/bin/env python3
"""Numba: kernels written in Python, compiled by NVVM and linked by nvJitLink, loaded as cubins."""
# timeout: 300
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room

room.need()


def check_numba():
    room.compare(room.python("run_numba.py"), "OUT_OF_MEMORY", least=200)


room.farm.run(check_numba)
