#!/usr/bin/env python3
"""CUSLICE_LIMIT: a ceiling on a tenant's occupancy of any second, measured in the device's trace:
alone, beside others, for several processes together, with kernels that cost more than there is, and
with pauses."""
# timeout: 240
import bisect
import mmap
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MS, PLACES, SECOND, check

WINDOW = 1 * SECOND
STEP = 25 * MS
# A client that submits its next kernel so soon has occupied the GPU meanwhile.
GAP = 1 * MS
# Points of the window: what one second may be above the limit. Half a point is the budget that may
# be saved; the rest, what a slice of the others does to the edges of a window.
OVER = 1.0
# Points that the mean may be above: the machine is late, never the limit generous.
ABOVE = 0.5
# The mean of a busy machine of two processors is lower, since the client is kept from running: the
# part of the limit that may be missing, and how often it is tried.
BELOW = 0.08
TRIES = 3


def stretches(trace, client):
    """[start, end] of a client's work without longer gaps than GAP, nor another's work between."""
    found = []
    for r in sorted((r for r in trace.runs if r.kind in farm.GATED), key=lambda r: r.start):
        if r.client != client:
            if found and found[-1][2]:
                found[-1][2] = False
            continue
        if found and found[-1][2] and r.start - found[-1][1] <= GAP:
            found[-1][1] = max(found[-1][1], r.end)
        else:
            found.append([r.start, r.end, True])
    return [(start, end) for start, end, _ in found]


class Occupied:
    """Time occupied up to any instant."""

    def __init__(self, pieces):
        self.starts = [start for start, _ in pieces]
        self.pieces = pieces
        self.before = [0]
        for start, end in pieces:
            self.before.append(self.before[-1] + end - start)

    def until(self, at):
        i = bisect.bisect_right(self.starts, at)
        if i == 0:
            return 0
        start, end = self.pieces[i - 1]
        return self.before[i - 1] + min(at, end) - start

    def percent(self, start, end):
        return 100.0 * (self.until(end) - self.until(start)) / (end - start)

    def windows(self, start, end):
        return [self.percent(at, at + WINDOW) for at in range(start, end - WINDOW, STEP)]


def look(words, trace, clients, limit, kernel, start=None, end=None, over=OVER):
    """What is wrong with the clients' work together: its mean, and each second of it."""
    pieces = sorted(p for c in clients for p in stretches(trace, c))
    begun, ended = farm.window(trace, clients, 0)
    start, end = start or begun, end or ended
    found = Occupied(pieces)
    mean, seconds = found.percent(start, end), found.windows(start, end)
    most = limit + over + 100.0 * kernel / WINDOW
    print("%s: limit %g %%, mean %.2f %%, seconds %.2f to %.2f %% (%d), %.1f s" % (
        words, limit, mean, min(seconds), max(seconds), len(seconds), (end - start) / 1e9),
        flush=True)
    if max(seconds) > most:
        return "%s: a second with %.2f %%, limit %g %%" % (words, max(seconds), limit)
    if not limit * (1 - BELOW) <= mean <= limit + ABOVE + 100.0 * kernel / (end - start):
        return "%s: %.2f %%, limit %g %%" % (words, mean, limit)
    return ""


def measure(once):
    """`once()` says what is wrong; it is done again, since a busy machine loses turns."""
    said = []

    def fine():
        said.append(once())
        return not said[-1]
    farm.holds(fine, TRIES, said)


def alone(limit, ns, batch, seconds=4):
    def once():
        with farm.Farm() as place:
            a = place.worker("a", LIMIT=limit)
            a.ask("loop %d %d %d" % (seconds * 1000, ns, batch), timeout=seconds + 20)
            farm.equal(a.log(), "", "what it said")
            return look("alone, kernels of %g ms%s" % (ns / MS, ", synchronised" if batch else ""),
                        place.trace(), ["a"], float(limit.rstrip("%")), ns)
    measure(once)


def check_alone():
    alone("25", 500000, 0)
    alone("25%", 1000000, 1)
    alone("90", 200000, 0)
    alone("2.5", 1000000, 1)


def check_beside_a_busy_one():
    """The rest goes to the other; and one whose weight gives it less than its limit loses nothing."""
    def once():
        with farm.Farm() as place:
            a, b = place.worker("a", LIMIT=25), place.worker("b")
            farm.together([(a, "loop 5000 1000000 0"), (b, "loop 5000 1000000 0")], 40)
            trace = place.trace()
            start, end = farm.window(trace, ["a", "b"], 0)
            idle = 100.0 * farm.idle(trace, start, end) / (end - start)
            other = farm.shares(trace.turns(), start, end).get("b", 0)
            print("beside a busy one: the other has %.2f %%, %.2f %% idle" % (other, idle))
            if not 73 <= other <= 77 + idle:
                return "the other has %.2f %% beside a limit of 25 %%" % other
            return look("beside a busy one", trace, ["a"], 25, MS, start, end)

    def unharmed():
        with farm.Farm() as place:
            a, b = place.worker("a", LIMIT=50, WEIGHT=40), place.worker("b", WEIGHT=60)
            farm.together([(a, "loop 5000 1000000 0"), (b, "loop 5000 1000000 0")], 40)
            trace = place.trace()
            found = farm.shares(trace.turns(), *farm.window(trace, ["a", "b"]))
            print("weight 40 of 100, limit 50 %%: %.2f %%" % found["a"])
            return "" if 38 <= found["a"] <= 42 else "%.2f %% by weight 40 of 100" % found["a"]
    measure(once)
    measure(unharmed)


def check_one_limit_for_two():
    def once():
        with farm.Farm(TENANT="t", LIMIT=30) as place:
            workers = [place.worker(tag) for tag in ("a", "b")]
            farm.together([(worker, "loop 4000 1000000 0") for worker in workers], 40)
            trace = place.trace()
            start, end = farm.window(trace, ["a", "b"], 0)
            wrong = look("two of one tenant", trace, ["a", "b"], 30, MS, start, end)
            found = farm.shares(trace.turns(), start, end)
            print("of it a %.2f %%, b %.2f %%" % (found["a"], found["b"]))
            return wrong or ("" if 40 <= found["a"] <= 60 else "a has %.2f %% of it" % found["a"])
    measure(once)


def check_kernels_that_wait_for_their_thread():
    """A kernel spins on a word that its thread sets after two more launches, and the budget ends
    between them: the thread is let through, and owes it."""
    with farm.Farm() as place:
        a = place.worker("a", LIMIT=50)
        took = []
        for _ in range(10):
            rc, start, end = a.numbers("flagged 1", timeout=30)[:3]
            farm.equal(rc, farm.SUCCESS, "flagged")
            took.append((end - start) / MS)
        print("rounds at 50 %%: %s ms" % ", ".join("%.0f" % ms for ms in took))
        check(max(took) < 2000, "a round takes %.0f ms" % max(took))
        time.sleep(0.05)
        rc, start, end = a.numbers("spin 1000000", timeout=30)[:3]
        farm.equal(rc, farm.SUCCESS, "spin")
        runs = sorted(place.trace().of("a"), key=lambda run: run.start)
        used = sum(run.end - run.start for run in runs[:-1])
        lasted = runs[-1].start - runs[0].start
        print("afterwards a launch waits %.0f ms: %.0f ms of %.0f are used then" % (
            (end - start) / MS, used / MS, lasted / MS))
        check(used < lasted / 2 + 50 * MS, "what the rounds took is not owed: %.0f ms of %.0f" % (
            used / MS, lasted / MS))


def check_told():
    """`cuslice status` shows what was asked, and the first client's setting stands."""
    with farm.Farm(TENANT="t") as place:
        place.worker("a", LIMIT="12.5%", PRIORITY="low")
        second = place.worker("b", LIMIT=30)
        found = place.tenant("t")
        farm.equal((found["limit_percent"], found["priority"]), (12.5, "low"), "limit and priority")
        check("already has a limit of 12.5 %; 30 % asked here is not used" in second.log(),
              "what the second one said: %s" % second.log())


def check_debt():
    """Kernels of 200 ms where a second has 100 ms: each is owed back before the next."""
    def once():
        with farm.Farm() as place:
            a = place.worker("a", LIMIT=10)
            a.ask("loop 9000 200000000 1", timeout=40)
            runs = place.trace().of("a")
            every = [(y.start - x.end) / 1e9 for x, y in zip(runs, runs[1:])]
            print("200 ms at 10 %%: pauses of %s s" % ["%.2f" % s for s in every])
            return "" if len(every) > 2 and all(1.75 <= s <= 2.1 for s in every) else \
                "pauses of %s s behind 200 ms at 10 %%" % every
    measure(once)


def check_light_use_is_not_delayed():
    """5 % used where 25 % are allowed: the kernel that ends a pause does not wait."""
    def once():
        with farm.Farm() as place:
            a = place.worker("a", LIMIT=25)
            waits = []
            for _ in range(40):
                rc, before, after = a.numbers("spin 1000000")[:3]
                farm.equal(rc, farm.SUCCESS, "spin")
                waits.append(after - before)
                a.ok("sync")
                time.sleep(0.015)
            waits.sort()
            ran = sum(r.end - r.start for r in place.trace().of("a")) / 1e9
            charged = place.tenant("a")["charged_seconds"]
            print("light use: launches wait %.3f ms in the middle, %.3f at most; %.3f s charged of "
                  "%.3f" % (waits[20] / MS, waits[-1] / MS, charged, ran))
            if waits[20] > 0.3 * MS or waits[36] > 1 * MS or waits[-1] > 6 * MS:
                return "light use waits %s" % waits
            return "" if charged < 1.3 * ran + 0.005 else "%.3f s charged, %.3f s used" % (
                charged, ran)
    measure(once)


def check_waiting_is_sleep():
    """Who waits for its limit, with nobody else there, sleeps: keeper and thread alike."""
    with farm.Farm() as place:
        a = place.worker("a", LIMIT=10)
        a.ok("spin 300000000")
        a.ok("sync")
        ran = a.post("spin 1000000")
        time.sleep(0.2)
        before = farm.switches(a.pid)
        time.sleep(1)
        woken = farm.switches(a.pid) - before
        rc, start, end = farm.numbers(ran.result(30))[:3]
        farm.equal(rc, farm.SUCCESS, "spin")
        check(end - start > 1500 * MS, "it waited %.1f ms" % ((end - start) / MS))
        print("woken %d times in a second of waiting" % woken)
        check(woken < 20, "woken %d times in a second of waiting" % woken)


def first_tenant(place):
    """Its record in the ring's file, as the tool would change it."""
    with open(place.ring_file(), "r+b") as file:
        return PLACES.each(memoryview(mmap.mmap(file.fileno(), 0)), "segment.tenant")[0]


def check_changed_while_running():
    def once():
        with farm.Farm() as place:
            a = place.worker("a", LIMIT=20)
            ran = a.post("loop 7000 1000000 0")
            time.sleep(2.2)
            tenant = first_tenant(place)
            PLACES.put(tenant, "tenant.limit_ppm", 600000)
            first = farm.now()
            time.sleep(2.2)
            PLACES.put(tenant, "tenant.limit_ppm", 1000000)
            second = farm.now()
            farm.numbers(ran.result(40))
            trace = place.trace()
            found = Occupied(stretches(trace, "a"))
            parts = [found.percent(first - 1800 * MS, first), found.percent(first + 1200 * MS, second),
                     found.percent(second + 1200 * MS, second + 2200 * MS)]
            print("20, then 60, then 100 %%: %s" % ["%.1f %%" % p for p in parts])
            good = 18 <= parts[0] <= 21 and 54 <= parts[1] <= 61.5 and parts[2] > 92
            return "" if good else "20, then 60, then 100 %%: %s" % parts
    measure(once)


def check_killed_in_debt():
    """The debt outlives who made it: the tenant's next client waits for it."""
    with farm.Farm(TENANT="t", LIMIT=20) as place:
        a, b = place.worker("a"), place.worker("b")
        a.ok("spin 400000000")
        a.ok("sync")
        ended = farm.now()
        time.sleep(0.1)
        a.kill()
        rc, _, after = b.numbers("spin 1000000", timeout=30)[:3]
        farm.equal(rc, farm.SUCCESS, "the next client")
        farm.between((after - ended) / MS, 1400, 2600, "ms after 400 ms at 20 %")


farm.run(check_told, check_alone, check_beside_a_busy_one, check_one_limit_for_two, check_debt,
         check_waiting_is_sleep, check_light_use_is_not_delayed, check_changed_while_running,
         check_kernels_that_wait_for_their_thread, check_killed_in_debt)
