#!/usr/bin/env python3
"""Debian's hashcat: its own loader for driver and NVRTC, kernels compiled from its sources, and the
memory it plans with taken from the driver's figures."""
# timeout: 300
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
from farm import MIB, check, equal

room.need("hashcat")

# The simulated device runs no kernel, so nothing is found and the whole space is searched, which is
# what can be compared. Fixed sizes, as hashcat would otherwise choose them by its kernels' time.
ATTACK = ["hashcat", "--quiet", "--status", "--machine-readable", "--self-test-disable",
          "--potfile-disable", "--backend-ignore-opencl", "--hwmon-disable", "--force",
          "-m", "0", "-a", "3", "-n", "2", "-u", "32", "-T", "64",
          "8743b52063cd84097a65d1633f5c74f5", "?d?d?d?d?d?d?d"]
LOOK = ["hashcat", "-I"]


EXHAUSTED = 1  # hashcat's exit status then


def progress(words):
    """Its status line without speed and time."""
    found = re.search(r"STATUS\t(\d+)\t.*(PROGRESS\t.*\tREJECTED\t\d+)", words)
    return found and found.groups()


def check_attack():
    bare, capped = room.run(ATTACK, False), room.run(ATTACK, True)
    room.compare_text(bare, capped, 100, progress, EXHAUSTED)
    check("PROGRESS\t10000000\t10000000\t" in capped.words, "not all was tried: %s" % capped.words)
    check(room.work(capped.trace)["dtod", "-"] > 0, "it copies nothing within the device")


def memory(words):
    """What `hashcat -I` says of the CUDA device."""
    cuda = words.split("OpenCL Info")[0]
    return [int(line.split(":")[1].split()[0]) for line in cuda.splitlines()
            if "Memory.Total" in line or "Memory.Free" in line]


def check_figures():
    bare, capped = room.run(LOOK, False), room.run(LOOK, True)
    equal(memory(bare.words)[0], room.DEVICE // MIB, "MiB in all, bare")
    equal(memory(capped.words), [room.CAP // MIB] * 2, "MiB in all and free, under the cap")


room.farm.run(check_attack, check_figures)
