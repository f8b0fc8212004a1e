#!/usr/bin/env python3
"""Green contexts and graphs with conditional nodes beside a neighbour: what runs in a green context's
streams is gated, and waited for at the end of a slice, whatever context is current and when the
green context has ended meanwhile; graphs whose bodies run or do not are launched as ever."""
# timeout: 240
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import MS, check, equal


def beside(mode, ms=2000, preload=True, sim=None):
    """The mode beside a neighbour that is always at work; (what it counted, the trace)."""
    words = "%s%s%s" % (mode, "" if preload else ", bare", "" if not sim else ", %s" % sim)
    with farm.Farm(QUANTUM="5ms", preload=preload, sim=sim) as place:
        neighbour = place.worker("neighbour")
        a = program.Program(place, "a", "green_client", mode, ms)
        equal(a.said(), "ready", words)
        busy = neighbour.post("loop %d 500000 4" % ms)
        a.process.stdin.write("go\n")
        a.process.stdin.flush()
        status, lines = a.finish()
        equal(status, 0, "%s: exit status: %s %s" % (words, lines[-2:], a.log()))
        equal(a.log(), "", words + ": what it said")
        equal(farm.numbers(busy.result(farm.SOON))[0], 0, words + ": the neighbour")
        trace = place.trace()
        found = farm.overlaps(trace.commands())
        turns = [turn for turn in trace.turns() if turn.client == "neighbour"]
        counted = sum(t["overruns"] for t in place.gpu()["tenants"]) if preload else 0
        count = farm.numbers(lines[-1])[0] if lines else 0
        print("%s: %d launches, %d overlaps, %d counted overruns, %d turns of the neighbour" % (
            words, count, len(found), counted, len(turns)))
        if preload:
            check(len(found) <= counted, "%s: %s" % (words, [farm.describe(o) for o in found[:3]]))
            check(len(turns) > 40, "%s: the neighbour had %d turns" % (words, len(turns)))
        return count, trace


def kernels(mode, **more):
    count, trace = beside(mode, **more)
    ran = [c for c in trace.commands() if c.client == "a" and c.kind == "kernel"]
    equal(len(ran), count, mode + ": kernels that ran")
    check(count > 200, "%s: only %d kernels" % (mode, count))


def check_streams():
    kernels("streams")


def check_current():
    kernels("current")


def check_destroyed():
    kernels("destroyed")


def check_last():
    kernels("last")


def check_plain():
    """A driver that has no event for a whole context."""
    kernels("streams", sim={"FAIL": "cuCtxRecordEvent=801"})
    kernels("destroyed", sim={"FAIL": "cuCtxRecordEvent=801"})


def check_devices():
    """With several devices, whose a stream or a green context is has to be asked for."""
    kernels("current", sim={"DEVICES": "2"})
    kernels("destroyed", sim={"DEVICES": "2"})
    kernels("last", sim={"DEVICES": "2"})


def check_bare():
    """The programs are right: bare, they do the same."""
    for mode in ("streams", "current", "destroyed", "last"):
        kernels(mode, ms=1000, preload=False)


def check_conditional():
    """One kernel of half a millisecond, and as many of them as the body runs."""
    for preload in (True, False):
        count, trace = beside("conditional", preload=preload, sim={"ROUNDS": "3"})
        took = [round((c.end - c.start) / MS, 3) for c in trace.commands()
                if c.client == "a" and c.kind == "graph"]
        equal(len(took), count, "conditional: graphs that ran")
        if preload:
            wrong = [t for t in zip(took[0::3], took[1::3], took[2::3]) if t != (0.5, 1.0, 2.0)]
            equal(wrong, [], "conditional: how long the graphs took")


farm.run(check_streams, check_current, check_destroyed, check_last, check_plain, check_devices,
         check_bare, check_conditional)
