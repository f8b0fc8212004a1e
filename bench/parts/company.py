"""What clients of different paces do to one another, on the simulated device.

What ran when is the device's trace; a client says only when it launched, on the same clock. Each
load runs under cuslice and, in the same round, by the device's own time-slicing or without company.
"""
import bisect
import collections
import os
import time

from parts.report import percentile
from parts.ring import Passes, RingFile
from parts.stage import Failed
from parts.trace import busy, common, ends, gaps, read_simulated, shares, turns

MS = 1000000
QUANTUM_MS = 20  # the default
WARM_S = 0.2
IDLE = None
TRAINER = "steady %g 250000 8"  # kernels of 0.25 ms, eight queued


class Company:
    """Clients on a device of their own that obey one line each, all at once; those whose line is
    IDLE are there and told nothing. `bare` ones are without cuslice. `said` has the answers, `runs`
    what the trace says from then on, `found` what `meanwhile` gives, called while they run."""

    def __init__(self, stage, lines, ring=None, meanwhile=None, settings=None, bare=(), **device):
        self.place, self.ring = stage.directory(), ring
        self.device = dict({"SWITCH": "0"}, **device)
        self.clients = {n: self.start(stage, n, ring and n not in bare, (settings or {}).get(n, {}))
                        for n in lines}
        for client in self.clients.values():
            client.ready()
        began = time.monotonic_ns()
        told = {n: line for n, line in lines.items() if line is not IDLE}
        for name, line in told.items():
            self.clients[name].tell(line)
        self.found = meanwhile(self) if meanwhile else None
        self.said = {n: self.clients[n].hear(60) for n in told}
        stage.end()
        self.runs = [r for r in read_simulated(os.path.join(self.place, "trace"))
                     if r.start >= began]
        if {r.who for r in self.runs} != set(told):
            raise Failed("the device has no record of some client's work")

    def start(self, stage, name, preload, settings):
        more = {"SIMCUDA_" + k: v for k, v in self.device.items()}
        more.update(SIMCUDA_DIR=self.place, SIMCUDA_LINGER="0ms", SIMCUDA_TAG=name)
        if preload:
            more.update({"CUSLICE_" + k: str(v) for k, v in dict({"TENANT": name}, **settings).items()})
        return stage.client([stage.program("pace_client")],
                            stage.environment("sim", self.ring if preload else None, **more))

    def window(self, warm_s=WARM_S):
        return common(self.runs, warm_s * 1e9)

    def idle(self):
        """Milliseconds of each second in which nothing ran although a client always wanted to."""
        return 10 * (100 - busy(self.runs, self.window()))

    def idle_between(self):
        """Those of them between one client's turn and the next one's."""
        window = self.window()
        return 1000 * sum(gaps(self.runs, window)) / (window[1] - window[0])

    def turn_changes(self):
        window = self.window()
        return len(gaps(self.runs, window)) * 1e9 / (window[1] - window[0])

    def share(self, who):
        return shares(turns(self.runs), *self.window()).get(who, 0)

    def times(self, name):
        return [int(word) for word in self.said[name].split()]


def both(stage, lines, rounds, seconds, stock_seconds=1.0):
    """Rounds under cuslice and by the device's own time-slicing, in turn: two lists. `lines` has %g
    where the seconds go."""
    ours, stock = [], []
    for _ in range(rounds):
        ours.append(Company(stage, {n: line % seconds for n, line in lines.items()},
                            stage.directory()))
        stock.append(Company(stage, {n: line % stock_seconds for n, line in lines.items()}))
    return ours, stock


def add_both(report, name, unit, pair, figure, bound=None):
    report.add(name, unit, [figure(load) for load in pair[0]], [figure(load) for load in pair[1]],
               "difference", bound=bound)


# ---- Beside a bursty client ----------------------------------------------------------------------

def latencies(load):
    """From a burst's launch, by its client's clock, to the end of its kernel in the trace, in ms."""
    launched, ended = load.times("b"), ends(load.runs, "b")
    if not launched or len(ended) != len(launched):
        raise Failed("%d bursts, %d kernels of them in the trace" % (len(launched), len(ended)))
    return [(end - start) / MS for start, end in zip(launched, ended)]


def measure_bursty(stage, report):
    """All kernels are of 1 ms, so that "one kernel" is both what runs when the slice ends and the
    burst's own."""
    lines = {"a": "steady %%g %d 8" % MS, "b": "bursts %%g %d 1 %d" % (MS, 4 * MS)}
    pair = both(stage, lines, 4, 3.0)
    add_both(report, "the GPU used", "%", pair, lambda load: busy(load.runs, load.window()),
             (">=", 97))
    most = 1.1 * (QUANTUM_MS + 1)
    for name, part, bound in (("median", 0.5, None), ("99th percentile", 0.99, ("<=", most))):
        add_both(report, "a burst, launch to end, %s" % name, "ms", pair,
                 lambda load, part=part: percentile(latencies(load), part), bound)
    every, other = ([ms for load in loads for ms in latencies(load)] for loads in pair)
    report.add("99th percentile of all rounds together, %d bursts" % len(every), "ms",
               [percentile(every, 0.99)], [percentile(other, 0.99)], "difference",
               bound=("<=", most))


# ---- Inference beside a trainer, an LLM's gaps ----------------------------------------------------

def measure_inference(stage, report):
    """The trainer always wants the GPU: whatever is idle is lost. The pauses are sleeps, so that the
    CPUs are the device's."""
    pair = both(stage, {"a": "bursts %%g %d 10 %d" % (MS, 40 * MS), "t": TRAINER}, 4, 1.8)
    add_both(report, "idle although wanted, of each second", "ms", pair, Company.idle, ("<=", 5))
    add_both(report, "of it between two clients' turns", "ms", pair, Company.idle_between)
    add_both(report, "the inference client's part of the occupied time", "%", pair,
             lambda load: load.share("a"))


def measure_decoding(stage, report):
    pair = both(stage, {"a": "bursts %%g %d 1 %d" % (MS, MS // 5), "t": TRAINER}, 4, 1.5)
    add_both(report, "its part of the occupied time, 50 % asked", "%", pair,
             lambda load: load.share("a"))
    slices = 1000 // QUANTUM_MS
    add_both(report, "hand-overs a second, of which slices make %d" % slices, "", pair,
             Company.turn_changes)


# ---- A client alone ------------------------------------------------------------------------------

NEIGHBOURS = 255
SOLE_ROUNDS = 23


class Sole:
    """A client under cuslice and a bare one on one device, told by turns, so that what the device and
    the CPUs have to do for the `idle` attached ones beside them is in both figures."""

    def __init__(self, stage, idle):
        self.stage = stage
        self.ring = stage.directory()
        self.device = {"SIMCUDA_DIR": stage.directory(), "SIMCUDA_LINGER": "0ms",
                       "SIMCUDA_CONTEXT_BYTES": "2Mi"}
        self.arms = {"bare": self.start(None), "ours": self.start("a")}
        for _ in range(idle):
            self.start("b")

    def start(self, tenant):
        more = dict(self.device, CUSLICE_TENANT=tenant) if tenant else self.device
        client = self.stage.client(
            [self.stage.program("pace_client")],
            self.stage.environment("sim", self.ring if tenant else None, **more))
        client.ready()
        return client

    def ask(self, arm, line):
        return [float(word) for word in self.arms[arm].ask(line).split()]


def measure_sole(stage, report):
    """Short rounds and many: the figure is a small difference. A step's median leaves out what the
    CPUs were taken away for."""
    devices = {"alone": Sole(stage, 0), "beside %d idle clients" % NEIGHBOURS: Sole(stage, NEIGHBOURS)}
    queued, rate, step = ([collections.defaultdict(list) for _ in range(3)])
    for _ in range(SOLE_ROUNDS):
        for text, device in devices.items():
            for arm in device.arms:
                queued[text, arm] += device.ask(arm, "steady 0.12 250000 8")
            for arm in device.arms:
                found = device.ask(arm, "steps 0.12 250000")
                rate[text, arm].append(found[0])
                step[text, arm].append(found[1] / 1000)
    stage.end()
    for text in devices:
        for got, unit, what, bound in (
                (queued, "", "kernels a second, kept queued", (">=", -0.2, "percent")),
                (rate, "", "kernels a second, synchronised one by one", (">=", -0.2, "percent")),
                (step, "µs", "one such step, median", ("<=", 0.2, "percent"))):
            report.add("%s, %s" % (what, text), unit, got[text, "ours"], got[text, "bare"],
                       "percent", bound=bound)


# ---- Waiting -------------------------------------------------------------------------------------

WAITING_S = (0.5, 2.0)  # until all is under way, and then
WAITING_ROUNDS = 4


def cpu_ns(pid):
    """CPU time of a process's threads, by the scheduler's own count."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, task), encoding="utf-8") as file:
            total += int(file.read().split()[0])
    return total


def switches(pid):
    """How often its threads have gone to sleep."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task), encoding="utf-8") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("voluntary"))
    return total


def watch(load):
    """CPU time and sleeps of each process, by name, in a second: (µs, count); and from when to when
    that was."""
    pids = {n: client.process.pid for n, client in load.clients.items()}

    def look():
        return {n: (cpu_ns(pid) / 1000, switches(pid)) for n, pid in pids.items()}
    time.sleep(WAITING_S[0])
    began, before = time.monotonic_ns(), look()
    time.sleep(WAITING_S[1])
    after, ended = look(), time.monotonic_ns()
    return {n: [(b - a) * 1e9 / (ended - began) for a, b in zip(before[n], after[n])]
            for n in pids}, began, ended


def wait_a_while(stage):
    """What `watch` found of a client that waited all the time, and of others; None when it had a
    turn after all, because neither of the other two had anything to do at some moment."""
    seconds = sum(WAITING_S) + 0.5
    lines = {"a": TRAINER % seconds, "b": TRAINER % seconds, "w": "steps %g %d" % (seconds, MS),
             "i": IDLE, "n": IDLE}
    settings = {"a": {"WEIGHT": 10000}, "b": {"WEIGHT": 10000}, "w": {"WEIGHT": 1}}
    load = Company(stage, lines, stage.directory(), watch, settings, bare="n")
    figures, began, ended = load.found
    had = any(r.who == "w" and began < r.end and r.start < ended for r in load.runs)
    return None if had else figures


def measure_waiting(stage, report):
    """Two clients hand over in ordinary slices. One waits behind them all the time: by its weight a
    turn of it is worth thousands of theirs. One is attached and wants nothing, one is bare and
    blocked in a read."""
    tries = [wait_a_while(stage) for _ in range(WAITING_ROUNDS)]
    rounds = [figures for figures in tries if figures]
    if not rounds:
        raise Failed("the client that should wait had a turn in each of %d rounds" % len(tries))
    if len(rounds) < len(tries):
        report.note("Waiting: in %d of %d rounds the client that should wait had a turn; they are "
                    "left out." % (len(tries) - len(rounds), len(tries)))
    for name, text, most in (("w", "one that waits at the gate", None),
                             ("i", "one that is attached and idle", ("<=", 1))):
        for i, what, unit, bound in ((0, "CPU time of %s, of each second", "µs", None),
                                     (1, "wake-ups a second of %s", "", most)):
            report.add(what % text, unit, [r[name][i] for r in rounds], [r["n"][i] for r in rounds],
                       "difference", bound=bound)


# ---- A limit -------------------------------------------------------------------------------------

LIMIT = 25
LIMIT_GAP_NS = MS  # a client that submits its next kernel so soon has occupied the GPU meanwhile


def stretches(runs, who):
    """[start, end] of its work without longer gaps, nor another's work between."""
    found, before = [], None
    for run in runs:
        if run.who == who:
            if before == who and run.start - found[-1][1] <= LIMIT_GAP_NS:
                found[-1][1] = max(found[-1][1], run.end)
            else:
                found.append([run.start, run.end])
        before = run.who
    return found


def occupied(pieces, start, end):
    return 100 * sum(max(0, min(e, end) - max(s, start)) for s, e in pieces) / (end - start)


def seconds_of(pieces, step_ns=25 * MS):
    """The percentage of every second of the whole time."""
    start, end = pieces[0][0], pieces[-1][1]
    found = [occupied(pieces, at, at + 1000 * MS)
             for at in range(start, end - 1000 * MS, step_ns)]
    if not found:
        raise Failed("less than a second of work")
    return found


def measure_limit(stage, report):
    seconds = 2.5
    limited = {"a": {"LIMIT": LIMIT}}
    for text, company in (("alone", {}), ("beside a busy one", {"t": TRAINER % seconds})):
        lines = dict({"a": TRAINER % seconds}, **company)
        means, least, most = [], [], []
        for _ in range(3):
            load = Company(stage, lines, stage.directory(), settings=limited)
            pieces = stretches(load.runs, "a")
            found = seconds_of(pieces)
            means.append(occupied(pieces, pieces[0][0], pieces[-1][1]))
            least.append(min(found))
            most.append(max(found))
        asked = [LIMIT] * len(means)
        report.add("occupied, %s" % text, "%", means, asked, "difference")
        report.add("the least of any second, %s" % text, "%", least, asked, "difference")
        report.add("the most of any second, %s" % text, "%", most, asked, "difference",
                   bound=("<=", LIMIT + 1))


# ---- The end of a drain --------------------------------------------------------------------------

DRAIN_ROUNDS, DRAIN_S = 5, 2
LOOK_S = 0.008  # less than a slice, so that no pass is missed


def noticed(runs, passes):
    """From the last end of work before each pass to the pass, in µs, and whether the CPUs were
    crowded. Passes that have no other's work behind them are none between the two."""
    last = [r.end for r in runs]
    found = []
    for passed, crowded in passes:
        i = bisect.bisect_right(last, passed)
        if 0 < i < len(runs) and runs[i - 1].who != runs[i].who:
            found.append(((passed - last[i - 1]) / 1000, crowded))
    return found


def seen_by_polling(stage, seconds):
    """The same for a program that asks its event without a pause: from the end in the trace until
    it has seen it."""
    load = Company(stage, {"p": "polls %g %d" % (seconds, MS)})
    ended, seen = ends(load.runs, "p"), load.times("p")
    if not seen or len(ended) != len(seen):
        raise Failed("%d ends seen, %d in the trace" % (len(seen), len(ended)))
    return [(at - end) / 1000 for at, end in zip(seen, ended)]


def drain(stage):
    """Two busy clients: what `noticed` finds, and percent of a core that went into close looks."""
    lines = {"a": TRAINER % DRAIN_S, "b": TRAINER % DRAIN_S}

    def look(load):
        ring = RingFile(load.ring, stage.build)
        before, begun = ring.word("close_ns"), time.monotonic_ns()
        with Passes(ring, LOOK_S) as passes:
            time.sleep(DRAIN_S - 0.1)
        spent, lasted = ring.word("close_ns") - before, time.monotonic_ns() - begun
        return passes.times, 100 * spent / lasted

    load = Company(stage, lines, stage.directory(), look)
    found = noticed(load.runs, load.found[0])
    if len(found) < 20:
        raise Failed("only %d hand-overs in %g s" % (len(found), DRAIN_S))
    return found, load.found[1]


def measure_drain(stage, report):
    ours, polled = [], []
    for _ in range(DRAIN_ROUNDS):
        ours.append(drain(stage))
        polled.append(seen_by_polling(stage, 0.3))
    for name, part, bound in (("median", 0.5, ("<=", 10)), ("90th percentile", 0.9, None)):
        report.add("last end to the pass, %s" % name, "µs",
                   [percentile([us for us, _ in found], part) for found, _ in ours],
                   [percentile(r, part) for r in polled], "difference", bound=bound)
    free = [us for found, _ in ours for us, crowded in found if not crowded]
    every = sum(len(found) for found, _ in ours)
    name = "median of the %d of %d passes at which close looks were not off" % (len(free), every)
    if free:
        report.add(name, "µs", [percentile(free, 0.5)],
                   [percentile([us for r in polled for us in r], 0.5)], "difference",
                   bound=("<=", 10))
    else:
        report.miss(name, "the CPUs were too crowded for close looks at all of them")
    report.part("close looks for a hand-over, all of them", "–")
    report.add("CPU time, of one core, slices of %d ms" % QUANTUM_MS, "%",
               [cpu for _, cpu in ours], None, None)
