#!/usr/bin/env python3
"""Taichi: a C++ runtime that Python loads with RTLD_DEEPBIND, so that it looks past a preload; it
opens the driver as libcuda.so and generates its own PTX."""
# timeout: 300
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room

room.need()


def check_taichi():
    room.compare(room.python("run_taichi.py"), "out of memory", least=200, clears=2)


room.farm.run(check_taichi)
