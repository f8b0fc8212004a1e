"""What happens to the device when several clients share it: hand-overs, shares, throughput."""
import os
import time

from parts.report import percentile
from parts.stage import Failed, output
from parts.trace import (busy, common, gaps, ideal_error, read_simulated, read_stamps, share_error)

KERNEL_MS = 0.25
AHEAD = 8
WARM_S = 0.2
RUN_S = 0.8
ROUNDS = {False: 4, True: 3}  # on the simulated device, on hardware
SWITCHES = ("0", "100us")

HANDOVER_ROUNDS, HANDOVER_COUNT, HANDOVER_WORK_US = 6, 400, 100
IDLE_COUNT, IDLE_PAUSE_US, IDLE_RATIO = 60, 10000, 2.2  # two wake-ups, and what is between
# The most clients of a ring, and how often each has a turn: as many hand-overs as of two.
CROWD, CROWD_COUNT, CROWD_ROUNDS, CROWD_GROWTH = 256, 6, 5, 1.15
DEATH_ROUNDS, DEATH_COUNT, DEATH_MIB, DEATH_LIMIT = 4, 16, (0, 64), 1.5

ASKED = {"a": 50, "b": 30, "c": 20}
# Two clients' memory and a device that has room for one, in MiB; long enough for some turns.
HELD_MIB, DEVICE_MIB, PAGED_S = 600, 1024, 2.5
SLICES = 100
SHARE_QUANTUM_MS = 10


class Load:
    """Busy clients, begun together on a device of their own; `runs` is what it did for them."""

    def __init__(self, stage, names, seconds, ring=None, switch=None, held=(), **settings):
        self.stage = stage
        self.held = held
        self.seconds = seconds
        self.place = stage.directory()
        self.simulated = {} if stage.gpu else {
            "SIMCUDA_DIR": self.place, "SIMCUDA_LINGER": "0ms", "SIMCUDA_SWITCH": switch or "100us"}
        self.clients = {n: self.start(n, ring, settings.get(n, {})) for n in names}
        for client in self.clients.values():
            client.ready()
        for client in self.clients.values():
            client.tell("go")
        for client in self.clients.values():
            client.hear(seconds + 60)
        stage.end()
        self.runs = self.read()

    def stamps(self, name):
        return os.path.join(self.place, "stamps." + name)

    def start(self, name, ring, settings):
        stage = self.stage
        command = [stage.program("load_client"), str(KERNEL_MS), str(AHEAD), str(self.seconds)]
        more = dict(self.simulated, **settings)
        if stage.gpu:
            command.append(self.stamps(name))
        else:
            more["SIMCUDA_TAG"] = name
            command += ["-", *self.held] if self.held else []
        if ring:
            more["CUSLICE_TENANT"] = name
        return stage.client(command, stage.environment("gpu" if stage.gpu else "sim", ring, **more))

    def read(self):
        if self.stage.gpu:
            files = {name: self.stamps(name) for name in self.clients}
            runs = read_stamps(files, KERNEL_MS * 1e6)
        else:
            runs = read_simulated(os.path.join(self.place, "trace"))
        if {run.who for run in runs} != set(self.clients):
            raise Failed("the device has no record of some client's work")
        return runs

    def window(self):
        return common(self.runs, WARM_S * 1e9)


def names(count):
    return [chr(ord("a") + i) for i in range(count)]


def run_load(stage, clients, quantum_ms, switch):
    """Under the preload when there is a quantum."""
    if quantum_ms is None:
        return Load(stage, names(clients), RUN_S, switch=switch)
    quantum = {"CUSLICE_QUANTUM": "%dms" % quantum_ms}
    return Load(stage, names(clients), RUN_S, stage.directory(), switch,
                **{n: quantum for n in names(clients)})


# ---- Hand-over -----------------------------------------------------------------------------------

def handover_samples(stage, cpu_pair, count=HANDOVER_COUNT, clients=2):
    """Lists of microseconds by way."""
    found = {"ring": [], "futex": []}
    text = output([stage.program("handover"), stage.directory(), str(cpu_pair[0]), str(cpu_pair[1]),
                   "1", str(count), str(HANDOVER_WORK_US), str(clients)])
    for line in text.splitlines():
        way, ns = line.split()
        found[way].append(int(ns) / 1000)
    return found


def idle_samples(stage, clients, bare, cpu_pair):
    """Microseconds of a launch that has to wake the idle holder first, beyond a bare one's; and of a
    bare wake-up in the like of its surroundings. Every process has slept for a while each time."""
    ours, without = [], []
    for i in range(IDLE_COUNT):
        time.sleep(IDLE_PAUSE_US / 1e6)
        ours.append(int(clients[i % 2].ask("first")) / 1000)
        without.append(int(bare.ask("first")) / 1000)
    text = output([stage.program("wake"), str(cpu_pair[0]), str(cpu_pair[1]), str(IDLE_COUNT),
                   str(IDLE_PAUSE_US)])
    return {"ring": percentile(ours, 0.5) - percentile(without, 0.5),
            "futex": percentile([int(line) / 1000 for line in text.split()], 0.5)}


def idle_rounds(stage, cpu_pair):
    driver, ring = "gpu" if stage.gpu else "stub", stage.directory()
    command = [stage.program("call_client")]
    clients = [stage.client(command, stage.environment(driver, ring, CUSLICE_TENANT=tenant), cpu=cpu)
               for tenant, cpu in zip("ab", cpu_pair)]
    bare = stage.client(command, stage.environment(driver), cpu=cpu_pair[0])
    for client in clients + [bare]:
        client.ready()
    rounds = [idle_samples(stage, clients, bare, cpu_pair) for _ in range(HANDOVER_ROUNDS)]
    stage.end()
    return rounds


def measure_handover(stage, report):
    cpus = sorted(os.sched_getaffinity(0))
    pair = (cpus[0], cpus[1 % len(cpus)])
    rounds = [handover_samples(stage, pair) for _ in range(HANDOVER_ROUNDS)]
    for name, part, most in (("median", 0.5, 1.10), ("99th percentile", 0.99, 1.25)):
        report.add("pass to claim, %s" % name, "µs", [percentile(r["ring"], part) for r in rounds],
                   [percentile(r["futex"], part) for r in rounds], "ratio",
                   bound=("<=", most, "ratio"))
    idle = idle_rounds(stage, pair)
    report.add("the launch of a client while an idle one holds the token, median", "µs",
               [r["ring"] for r in idle], [r["futex"] for r in idle], "ratio",
               bound=("<=", IDLE_RATIO, "ratio"))


def handover_medians(stage, cpu_pair, *more):
    return {way: percentile(us, 0.5)
            for way, us in handover_samples(stage, cpu_pair, *more).items()}


def measure_growth(stage, report):
    """Whoever is passed to by 256 has slept for as many turns: its bare word grows too, which is
    what the kernel and cold caches make of it."""
    cpus = sorted(os.sched_getaffinity(0))
    pair = (cpus[0], cpus[1 % len(cpus)])
    few, many = [], []
    for _ in range(CROWD_ROUNDS):
        few.append(handover_medians(stage, pair))
        many.append(handover_medians(stage, pair, CROWD_COUNT, CROWD))
    for way, text, bound in (("ring", "pass to claim, median", ("<=", CROWD_GROWTH, "ratio")),
                             ("futex", "bare futex words, median", None)):
        report.add(text, "µs", [r[way] for r in many], [r[way] for r in few], "ratio", bound=bound)
    report.add("the first in terms of the second", "", [r["ring"] / r["futex"] for r in many],
               [r["ring"] / r["futex"] for r in few], "ratio")


# ---- Death ---------------------------------------------------------------------------------------

def death_medians(stage, cpu_pair, mib):
    """Microseconds by way: the median of one round."""
    found = {}
    text = output([stage.program("death"), stage.directory(), str(cpu_pair[0]), str(cpu_pair[1]),
                   str(DEATH_COUNT), str(mib)])
    for line in text.splitlines():
        way, ns = line.split()
        found.setdefault(way, []).append(int(ns) / 1000)
    return {way: percentile(values, 0.5) for way, values in found.items()}


def measure_death(stage, report):
    """Small processes and larger ones, since a lock falls when the kernel has taken its holder apart."""
    cpus = sorted(os.sched_getaffinity(0))
    pair = (cpus[0], cpus[1 % len(cpus)])
    got = {mib: [death_medians(stage, pair, mib) for _ in range(DEATH_ROUNDS)] for mib in DEATH_MIB}

    def add(mib, ours, yardstick, limit=None):
        report.add("%s, holder of %s" % ("told" if ours == "ring" else "by looks alone",
                                         "%d MiB" % mib if mib else "little memory"), "µs",
                   [r[ours] for r in got[mib]], [r[yardstick] for r in got[mib]], "ratio", limit)

    for mib in DEATH_MIB:
        add(mib, "ring", "lock", DEATH_LIMIT)
        add(mib, "looks", "lock")
    report.part("the same beside a robust futex", "a robust futex, which comes before the lock falls")
    for mib in DEATH_MIB:
        add(mib, "ring", "robust")


# ---- Throughput, and the hand-over as the device sees it -----------------------------------------

def combinations():
    yield 1, None
    yield 1, 20
    for clients in (2, 4):
        for quantum in (None, 10, 20):
            yield clients, quantum


def throughput_name(clients, quantum):
    many = "one client" if clients == 1 else "%d clients" % clients
    if quantum is None:
        return "%s, the device's own time-slicing" % many
    return "%s, %s" % (many, "alone" if clients == 1 else "slices of %d ms" % quantum)


def measure_throughput(stage, report):
    switches = (None,) if stage.gpu else SWITCHES
    got, gap = {}, {}
    for _ in range(ROUNDS[stage.gpu]):
        for switch in switches:
            for clients, quantum in combinations():
                load = run_load(stage, clients, quantum, switch)
                key = (switch, clients, quantum)
                got.setdefault(key, []).append(busy(load.runs, load.window()))
                if clients == 2 and quantum != 20:
                    gap.setdefault((switch, quantum), []).append(
                        [ns / 1000 for ns in gaps(load.runs, load.window())])
    for switch in switches:
        report_throughput(report, switch, got)
    for switch in switches:
        report_gaps(report, switch, gap)


def costs(switch):
    return "" if switch is None else "; a switch costs %s" % switch


def report_throughput(report, switch, got):
    report.part("GPU busy, of wall time" + costs(switch), "one client, no preload")
    alone = got[switch, 1, None]
    for clients, quantum in combinations():
        if (clients, quantum) != (1, None):
            report.add(throughput_name(clients, quantum), "%", got[switch, clients, quantum], alone,
                       "ratio")


def report_gaps(report, switch, gap):
    """A round without a single hand-over has no figure; that is said, not hidden."""
    ours, stock = gap[switch, 10], gap[switch, None]
    report.part("idle between two clients' turns, 10 ms slices" + costs(switch),
                "the device's own time-slicing")
    if not all(ours):
        report.miss("idle between turns" + costs(switch), "there was no hand-over in some round")
        return
    for name, part in (("median", 0.5), ("99th percentile", 0.99)):
        report.add(name, "µs", [percentile(r, part) for r in ours],
                   [percentile(r, part) for r in stock] if all(stock) else None, "difference")
    report.note("Hand-overs per round behind the line above%s: %s." %
                (costs(switch), ", ".join(str(len(r)) for r in ours)))


# ---- Memory that does not fit ---------------------------------------------------------------------

def measure_oversubscription(stage, report):
    """Kernels' part of the time when two clients' memory does not fit together: plain under cuslice,
    managed by the client itself without."""
    device = {"SIMCUDA_MEMORY": "%dMi" % DEVICE_MIB, "SIMCUDA_CONTEXT_BYTES": "32Mi"}
    ours, stock = [], []
    for _ in range(ROUNDS[False]):
        load = Load(stage, names(2), PAGED_S, stage.directory(), held=(str(HELD_MIB), "plain"),
                    **{n: dict(device, CUSLICE_OVERSUBSCRIBE="1") for n in names(2)})
        ours.append(busy(load.runs, load.window()))
        load = Load(stage, names(2), PAGED_S, held=(str(HELD_MIB), "managed"),
                    **{n: device for n in names(2)})
        stock.append(busy(load.runs, load.window()))
    report.add("2 clients of %d MiB, device of %d MiB" % (HELD_MIB, DEVICE_MIB), "%", ours, stock,
               "ratio")


# ---- Shares --------------------------------------------------------------------------------------

def measure_shares(stage, report):
    """Twice as long as the slices counted take, so that later errors are seen too."""
    seconds = 2.0 * SLICES * SHARE_QUANTUM_MS / 1000
    settings = {n: {"CUSLICE_WEIGHT": str(part), "CUSLICE_QUANTUM": "%dms" % SHARE_QUANTUM_MS}
                for n, part in ASKED.items()}
    ours, stock = [], []
    for _ in range(ROUNDS[stage.gpu]):
        for found, ring in ((stock, None), (ours, stage.directory())):
            load = Load(stage, list(ASKED), seconds, ring, **(settings if ring else {}))
            worst = share_error(load.runs, ASKED, SLICES, SHARE_QUANTUM_MS * 1e6)
            if worst is None:
                raise Failed("fewer than %d slices in %.1f s" % (SLICES, seconds))
            found.append(worst)
    ideal = ideal_error(ASKED, SLICES, 2 * SLICES)
    report.add("against the ideal: equal slices, the least served by weight first", "points", ours,
               [ideal] * len(ours), "difference")
    report.add("against the device's own time-slicing", "points", ours, stock, "ratio")
