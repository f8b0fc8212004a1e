#!/usr/bin/env python3
"""Launches that are interrupted, entered again, or left by an exception, a jump or the end of their
thread: the program goes on as without the library, its books are right, and no mark stays up behind
them. One that does would hold up the neighbour, who then waits for the allowance. Counts the
instructions of a launch on its fast way on the side."""
# timeout: 120
import os
import platform
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import check, equal

DRIVER = os.path.join(farm.B, "tests/integration/frames")
ALLOWANCE = 40  # seconds: what a mark left up costs the neighbour
MOST_INSTRUCTIONS = 28
LEAST_INSTRUCTIONS = 20  # fewer are seen of a hook that goes on to the slow way
# Single steps, and the assembly that they are about.
STEPS = platform.machine() == "x86_64" and not os.environ.get("SAN")
# Its runtime takes neither an exception of a library loaded later nor a thread that ends inside.
ADDRESS = "address" in os.environ.get("SAN", "")


class Frames:
    """Clients of one ring on the driver that calls back."""

    def __init__(self):
        self.place = farm.Farm(ALLOWANCE="%ds" % ALLOWANCE)

    def __enter__(self):
        self.place.__enter__()
        return self

    def __exit__(self, *reason):
        return self.place.__exit__(*reason)

    def client(self, tag, *words, preload=None):
        return program.Program(self.place, tag, "frames_client", *words, preload=preload,
                               library_path=DRIVER)

    def launches(self, tag):
        """According to the ring's books."""
        return self.place.tenant(tag)["launches"]


def last_launch(client):
    """Reads what a client says up to its number of launches; that, and what came before."""
    before = []
    while True:
        line = client.said()
        if line.startswith("launches "):
            return int(line.split()[1]), before
        before.append(line)


def one(*words, alike=True):
    """One client bare, then with the library beside a neighbour; what it said. `alike`: it does as
    much without the library."""
    with Frames() as frames:
        bare, _ = last_launch(frames.client("bare", *words, preload=False))
        a = frames.client("a", *words)
        launches, said = last_launch(a)
        if alike:
            equal(launches, bare, "%s: launches, with and without the library" % words[0])
        begun = time.monotonic()
        probe = frames.client("b", "probe")
        equal(last_launch(probe)[0], 1, "the neighbour's launches")
        took = time.monotonic() - begun
        print("%s: %d launches, the neighbour's after %.2f s" % (words[0], launches, took))
        check(took < ALLOWANCE / 2, "%s: a mark stays up: %.1f s" % (words[0], took))
        equal(frames.launches("a"), launches, "%s: launches in the books" % words[0])
        for client in (a, probe):
            status, _ = client.finish()
            equal(status, 0, "%s: exit status" % words[0])
        equal(a.log(), "", words[0] + ": what it said on stderr")
        return said


def check_arguments():
    one("arguments")


def check_step():
    if not STEPS:
        return
    said = one("step")
    found = [int(line.split()[1]) for line in said if line.startswith("instructions ")]
    print("%s instructions" % found)
    if check(len(found) == 1, "no instructions counted: %s" % said):
        farm.between(found[0], LEAST_INSTRUCTIONS, MOST_INSTRUCTIONS, "instructions of a launch")


def check_nested():
    one("nested")


def check_turns():
    """Those that wait inside of another launch wait for their turn, and do not hold up the other
    client's."""
    with Frames() as frames:
        clients = {tag: frames.client(tag, "turns") for tag in ("a", "b")}
        found = {tag: last_launch(client) for tag, client in clients.items()}
        gpu = frames.place.gpu()
        for tag, (launches, said) in found.items():
            late = int(said[0].split()[1])
            print("turns: %s: %d launches, %d ms late" % (tag, launches, late))
            check(late < 5000, "turns: %s ends %d ms late" % (tag, late))
            equal(clients[tag].finish()[0], 0, "turns: exit status")
            equal(frames.launches(tag), launches, "turns: launches in the books")
        check(gpu["handovers"] > 5, "only %d turns" % gpu["handovers"])
        equal(sum(tenant["revocations"] for tenant in gpu["tenants"]), 0, "revocations")


def check_signals():
    if STEPS:
        one("signals", alike=False)


def check_throw():
    compiler = shutil.which("g++") or shutil.which("clang++")
    if ADDRESS or not compiler:
        print("no exceptions: no C++ compiler, or one of a sanitizer")
        return
    library = os.path.join(os.environ["TMPDIR"], "throw.so")
    source = os.path.join(farm.REPO, "tests/integration/frames/throw.cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    one("throw", library)


def check_jump():
    one("jump")


def check_exit():
    if not ADDRESS:
        one("exit")


def check_fork():
    one("fork")


farm.run(check_arguments, check_step, check_nested, check_turns, check_signals, check_throw,
         check_jump, check_exit, check_fork)
