#!/usr/bin/env python3
"""Eight processes of one tenant ask for 60 % of its cap as fast as they can: the device never gives
it to two at once, by its own record, and what fits is not refused."""
# timeout: 60, beside others
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import collections

import farm
from farm import GIB, MIB, check, equal

CAP = GIB
ASK = CAP * 6 // 10 // MIB * MIB
PROCESSES = 8


def most_at_once(trace, size):
    """The most pieces of this size that were out at once, and how often each process had one."""
    out = most = 0
    taken = collections.Counter()
    for m in trace.memory:
        if m.bytes != size or m.op not in ("alloc", "free"):
            continue
        out += 1 if m.op == "alloc" else -1
        taken[m.pid] += m.op == "alloc"
        most = max(most, out)
    return most, taken


def race(seconds, ask, processes, **settings):
    device = {"MEMORY": 16 * GIB, "CONTEXT_BYTES": 0}  # eight contexts alone are more than the cap
    with farm.Farm(sim=device, TENANT="t", MEM_LIMIT=CAP, **settings) as place:
        workers = [place.worker("p%d" % i) for i in range(processes)]
        results = farm.together([(w, "race %d %d" % (seconds * 1000, ask)) for w in workers],
                                seconds + 30)
        equal([r[0] for r in results], [0] * processes, "results")
        equal(place.tenant("t")["memory_used_bytes"], 0, "left in the ledger")
        return (*most_at_once(place.trace(), ask), results)


def check_sixty_percent():
    most, taken, results = race(6, ASK, PROCESSES)
    print("had %d times by %d processes, refused %d times, never more than %d at once" % (
        sum(taken.values()), len(taken), sum(r[2] for r in results), most))
    equal(most, 1, "pieces of 60 %% of the cap out at once")
    check(sum(taken.values()) > 500, "had only %d times: nothing was raced for" %
          sum(taken.values()))
    check(sum(r[2] for r in results) > 500, "hardly ever refused: nothing was raced for")
    equal(sum(r[1] for r in results), sum(taken.values()), "the workers' count and the device's")
    check(len(taken) > 1, "only %d process ever had it" % len(taken))


def check_what_fits():
    """Pieces that all fit at once are never refused, however many ask at the same instant."""
    ask = CAP // PROCESSES // MIB * MIB
    most, taken, results = race(3, ask, PROCESSES)
    refused = sum(r[2] for r in results)
    print("an eighth each: had %d times, %d at once at most, refused %d times" % (
        sum(taken.values()), most, refused))
    equal(refused, 0, "refusals of what fits")
    check(most >= 2, "never two at once: nothing was raced for")


def check_uncapped():
    """Without a cap two have it at once: the test can tell."""
    with farm.Farm(sim={"MEMORY": 16 * GIB}) as place:
        workers = [place.worker("p%d" % i) for i in range(4)]
        farm.together([(w, "race 1000 %d" % ASK) for w in workers], 30)
        most, _ = most_at_once(place.trace(), ASK)
        check(most >= 2, "without a cap at most %d at once" % most)


farm.run(check_sixty_percent, check_what_fits, check_uncapped)
