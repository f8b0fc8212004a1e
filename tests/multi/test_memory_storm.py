#!/usr/bin/env python3
"""Processes and threads of one tenant take and give back memory of all kinds near their cap: by the
device's own record they never have more than it together, nothing is left in the end, and what was
refused did not fit. SCALE=10 makes ten times as many steps."""
# timeout: 200
import os
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration"))
import program
import farm
from farm import GIB, MIB, check, equal

SCALE = float(os.environ.get("SCALE", "1"))
SIM = {"CONCURRENT_MANAGED": 0, "MEMORY": 16 * GIB, "CONTEXT_BYTES": 0}
PROCESSES, THREADS = 8, 8
STEP = 32 * MIB  # of the simulated pools
RECORD = struct.Struct("<QQqQ")


class Storm:
    """Runs the clients of a tenant to their end; checks what must hold of any of them."""

    def __init__(self, place, words, kinds, largest, places, steps, cap, processes=PROCESSES,
                 threads=THREADS, log=False):
        self.cap = cap
        self.logs = [os.path.join(place.place, "log.%s.%d" % (words, i)) for i in range(processes)]
        steps = int(steps * SCALE)
        self.clients = [program.Program(
            place, "%s%d" % (words, i), "storm_client", i + 1, threads, steps, kinds, largest,
            places, *([self.logs[i]] if log else []), TENANT=words, MEM_LIMIT=cap)
            for i in range(processes)]
        for client in self.clients:
            client.said()
        self.tell("go")
        self.said = [self.done(client) for client in self.clients]
        self.check(place, words, steps * threads * processes)
        self.tell("end")
        for client in self.clients:
            equal(client.finish()[0], 0, words + ": status; it said " + client.log()[-300:])

    def tell(self, word):
        for client in self.clients:
            client.process.stdin.write(word + "\n")
            client.process.stdin.flush()

    def done(self, client):
        line = client.said()
        if not line.startswith("done "):
            raise AssertionError("%s: %s; %s" % (client.tag, line, client.process.stdout.read()))
        return [int(word) for word in line.split()[1:]]

    def check(self, place, words, steps):
        taken, refused = (sum(s[i] for s in self.said) for i in (0, 1))
        equal([s[2] for s in self.said], [0] * len(self.said), words + ": left on the device")
        equal(place.tenant(words)["memory_used_bytes"], 0, words + ": left in the ledger")
        self.pids = {c.pid for c in self.clients}
        self.memory = [m for m in place.trace().memory if m.pid in self.pids]
        most = self.most()
        check(most <= self.cap, "%s: the device gave %d under a cap of %d" % (words, most, self.cap))
        print("%s: %d steps, %d taken, %d refused, at most %.1f of %.1f MiB" % (
            words, steps, taken, refused, most / MIB, self.cap / MIB), flush=True)
        self.refused = refused

    def most(self):
        """The most that the device had given to all of them at any instant."""
        now, total, most = {}, 0, 0
        for m in self.memory:
            total += m.client_memory - now.get(m.pid, 0)
            now[m.pid] = m.client_memory
            most = max(most, total)
        return most

    def refusals_that_fitted(self):
        """Of the refusals those at whose time, and by what may have been counted at any instant of
        it, there was room. A request counts from its call to the return of what gives it back."""
        changes, refused = [], []
        for path in self.logs:
            with open(path, "rb") as file:
                for start, end, given, asked in RECORD.iter_unpack(file.read()):
                    if given > 0:
                        changes.append((start, given))
                    elif given < 0:
                        changes.append((end, given))
                    else:
                        refused.append((start, end, asked))
        changes.sort()
        refused.sort()
        return [r for r, most in peaks(changes, refused) if most + r[2] <= self.cap]


def peaks(changes, spans):
    """For each span the highest sum of the changes within it."""
    import bisect
    times = [t for t, _ in changes]
    sums, now = [0], 0
    for _, change in changes:
        now += change
        sums.append(now)
    for span in spans:
        first = bisect.bisect_left(times, span[0])
        last = bisect.bisect_right(times, span[1])
        yield span, max(sums[first:last + 1])


def check_exact():
    """Kinds whose bytes are known before the call."""
    with farm.Farm(sim=SIM) as place:
        storm = Storm(place, "exact", "lmavx", 24 * MIB, 24, 6000, GIB, log=True)
        check(storm.refused > 100, "hardly anything was refused: the cap was never near")
        wrong = storm.refusals_that_fitted()
        check(not wrong, "%d of %d refusals fitted, first %s" % (len(wrong), storm.refused, wrong[:2]))


def check_all():
    """Pools among them."""
    with farm.Farm(sim=SIM) as place:
        storm = Storm(place, "all", "lmavxpq", 24 * MIB, 24, 2500, 3 * GIB // 2)
        check(storm.refused > 100, "hardly anything was refused: the cap was never near")


def check_pools_fit():
    """What a pool takes fits with one step of growth to spare, whatever others have under way: it is
    waited for a little, so on a busy machine a refusal in a thousand requests is let pass."""
    with farm.Farm(sim=SIM) as place:
        storm = Storm(place, "fit", "p", 2 * MIB, 4, 1000, (PROCESSES + 1) * STEP, threads=4)
        check(storm.most() >= (PROCESSES - 2) * STEP, "the pools never had much at once")
        check(storm.refused <= 10, "%d refused with a step to spare" % storm.refused)


def check_threads():
    """One process; small pieces, side by side in the address space, given back by other threads."""
    with farm.Farm(sim=SIM) as place:
        Storm(place, "small", "l", 3000, 20000, 24000, GIB, processes=1)
        storm = Storm(place, "tight", "llla", 64 << 10, 4000, 20000, 48 * MIB, processes=1, log=True)
        check(storm.refused > 100, "hardly anything was refused: the cap was never near")
        equal(len(storm.refusals_that_fitted()), 0, "refusals of what fitted")


def check_uncapped():
    """Without a cap they have more: the test can tell."""
    with farm.Farm(sim=SIM) as place:
        clients = [program.Program(place, "u%d" % i, "storm_client", i + 1, 2, 200, "l", 24 * MIB,
                                   24, TENANT="u") for i in range(4)]
        for client in clients:
            client.said()
            client.process.stdin.write("go\nend\n")
            client.process.stdin.flush()
        for client in clients:
            client.finish()
        now, most = {}, 0
        for m in place.trace().memory:
            now[m.pid] = m.client_memory
            most = max(most, sum(now.values()))
        check(most > 256 * MIB, "without a cap at most %d" % most)


farm.run(check_exact, check_all, check_pools_fit, check_threads, check_uncapped)
