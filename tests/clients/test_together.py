#!/usr/bin/env python3
"""Five strangers on one GPU at once, each with its own runtime around the driver: each answers what
it answers without the library, and nobody's work meets another's."""
# timeout: 300
import concurrent.futures
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/clients"))
import room
import test_ffmpeg
from farm import check, describe, equal, overlaps

room.need("ffmpeg")

COMMANDS = {
    "bindings": room.python("run_bindings.py"), "core": room.python("run_core.py"),
    "numba": room.python("run_numba.py"), "taichi": room.python("run_taichi.py"),
    "ffmpeg": test_ffmpeg.COMMAND,
}


def answer(words):
    """What must not change: a program's own word for it, or all that it printed."""
    return room.read_answer(words).get("same") or words.splitlines()


def run_all(place, preload, settings):
    with concurrent.futures.ThreadPoolExecutor(len(COMMANDS)) as pool:
        futures = {tag: pool.submit(room.start, place, command, preload, tag=tag, **settings)
                   for tag, command in COMMANDS.items()}
        return {tag: future.result() for tag, future in futures.items()}


def everybody(preload, **settings):
    """Exit statuses and answers, the trace, and how many overruns the books have."""
    device = {"MEMORY": room.DEVICE, "CONTEXT_BYTES": room.CONTEXT, "KERNEL_DEFAULT": room.KERNEL}
    with room.farm.Farm(sim=device, preload=preload, QUANTUM="5ms") as place:
        busy = place.worker("busy")  # so that each meets somebody, however slowly it starts
        endless = busy.post("loop %d 1000000 4" % (3 * room.DEADLINE * 1000))
        found = {tag: (status, answer(words))
                 for tag, (status, words, _) in run_all(place, preload, settings).items()}
        tenants = place.gpu()["tenants"] if preload else []
        check(not endless.done(), "the busy worker's work ended: %s" % busy.log())
        return found, place.trace(), sum(t["overruns"] + t["revocations"] for t in tenants)


def check_together():
    bare, free, _ = everybody(False)
    shared, gated, counted = everybody(True, MEM_LIMIT=room.CAP)
    for tag in COMMANDS:
        equal(bare[tag][0], 0, "%s's exit status, bare" % tag)
        equal(shared[tag], bare[tag], tag)
    most, found = len(overlaps(free.commands())), overlaps(gated.commands())
    print("overlaps: %d bare, %d gated (%d counted overruns); %d turns" % (
        most, len(found), counted, len(gated.turns())), flush=True)
    check(most > 0, "nothing overlaps without the library")
    if len(found) > min(counted, most // 10):
        for overlap in found[:3]:
            check(False, describe(overlap))


room.farm.run(check_together)
