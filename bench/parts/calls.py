"""What a call of the driver costs: launches, allocations; the start of a program without CUDA."""
import os
import re
import shutil
import statistics

from parts.stage import Failed, output

# Many short rounds: most of them then run without another program's turn on the CPU in between.
LAUNCH_ROUNDS = 101
MEMORY_ROUNDS = 31
GPU_LAUNCH_ROUNDS = 15
THREAD_ROUNDS = 51
FLAT_ROUNDS = 301  # short ones: the figure is a small difference
FLAT_LIMIT_NS = 0.5
THREADS = (1, 2, 4, 8, 16)
NEIGHBOURS = 255
VARIABLES = 200
START_COUNT = 400
START_LIMIT_MS = 0.3
LIVE = (1, 1000, 100000)
PAIRS = 200000  # enough for caches to be warm in most of a round
PAIRS_MANY = 20000  # with many processes in the tenant
MEMORY_THREADS = 8
TENANTS = (8, 256)
MEMORY_NS, MEMORY_NS_MANY_LIVE = 40, 60  # asked of what is added, in tenants of up to 8


def cpus():
    return sorted(os.sched_getaffinity(0))


class Launches:
    """One of them per way of running the client; all alive at once, each with a ring of its own."""

    def __init__(self, stage, preload, neighbours=0, pinned=True, theirs="b", **variables):
        driver = "gpu" if stage.gpu else "stub"
        ring = stage.directory() if preload else None
        command = [stage.program("call_client")]
        self.client = stage.client(
            command, stage.environment(driver, ring, CUSLICE_TENANT="a", **variables),
            cpu=cpus()[-1] if pinned else None)
        self.client.ready()
        for _ in range(neighbours):
            idle = stage.client(command, stage.environment(driver, ring, CUSLICE_TENANT=theirs),
                                cpu=cpus()[0])
            idle.ready()

    def launch(self, way, count, batch):
        return int(self.client.ask("launch %s %d %d" % (way, count, batch))) / count

    def threads(self, n, count):
        return int(self.client.ask("threads %d %d" % (n, count))) / count / n

    def memory_threads(self, n, live, count):
        """Of CPU time, and of time."""
        answer = self.client.ask("memory-threads %d %d %d" % (n, live, count))
        return [int(word) / count / n for word in answer.split()]

    def memory(self, live, count):
        return int(self.client.ask("memory %d %d" % (live, count))) / count


def measure_launches(stage, report):
    """On hardware in batches that fit the launch queue, so that no launch waits for the device."""
    count, batch = (8192, 256) if stage.gpu else (100000, 100000)
    bare, alone = Launches(stage, False), Launches(stage, True)
    beside = Launches(stage, True, neighbours=1)
    ways = {"direct": "linked", "looked-up": "by cuGetProcAddress"}
    got = {}
    for _ in range(GPU_LAUNCH_ROUNDS if stage.gpu else LAUNCH_ROUNDS):
        for way in ways:
            for name, arm in (("bare", bare), ("alone", alone), ("beside", beside)):
                fewer = 8 if name == "beside" and not stage.gpu else 1
                got.setdefault((name, way), []).append(
                    arm.launch(way, count // fewer, min(batch, count // fewer)))
    stage.end()
    for name, text in (("alone", "no other client"), ("beside", "beside an idle client")):
        for way, how in ways.items():
            report.add("a launch, %s, %s" % (how, text), "ns", got[name, way], got["bare", way],
                       "difference")


def measure_flatness(stage, report):
    """What must not cost more the more of it there is."""
    variables = {"BENCH_VARIABLE_%d" % i: "a value of some length" for i in range(VARIABLES)}
    arms = (("alone", Launches(stage, True), 20000),
            ("variables", Launches(stage, True, **variables), 20000),
            ("one", Launches(stage, True, neighbours=1), 2500),
            ("many", Launches(stage, True, neighbours=NEIGHBOURS), 2500))
    got = {}
    for _ in range(FLAT_ROUNDS):
        for name, arm, count in arms:
            got.setdefault(name, []).append(arm.launch("direct", count, count))
    stage.end()
    report.add("a launch, no other client, %d environment variables" % VARIABLES, "ns",
               got["variables"], got["alone"], "difference", FLAT_LIMIT_NS)
    report.add("a launch beside %d idle clients" % NEIGHBOURS, "ns", got["many"], got["one"],
               "difference", FLAT_LIMIT_NS)


def measure_threads(stage, report):
    """In CPU time, so that more threads than CPUs do not wait for one another in the figure."""
    bare, alone = (Launches(stage, preload, pinned=False) for preload in (False, True))
    got = {}
    for _ in range(THREAD_ROUNDS):
        for n in THREADS:
            for name, arm in (("bare", bare), ("alone", alone)):
                got.setdefault((name, n), []).append(arm.threads(n, 100000))
    stage.end()
    for n in THREADS:
        report.add("a launch in each of %d threads, no other client" % n, "ns of CPU",
                   got["alone", n], got["bare", n], "difference")


def instructions(stage, ring, count):
    """All instructions of a client that makes so many launches on the fast way; None where they
    cannot take it."""
    environment = stage.environment("stub", ring)
    if ring:
        environment["CUSLICE_LOG"] = "info"
    said = output(
        ["sh", "-c", "exec valgrind --tool=cachegrind --cache-sim=no"
         " --cachegrind-out-file=/dev/null \"$0\" 2>&1", stage.program("call_client")], environment,
        told="launch direct %d %d\n" % (count, count))
    found = re.search(r"I +refs: +([0-9,]+)", said)
    if not found or (ring and not os.listdir(ring)):
        raise Failed("valgrind: no count, or no ring\n" + said)
    if "membarrier" in said:
        return None
    return int(found.group(1).replace(",", ""))


def measure_instructions(stage, report):
    name = "instructions of a launch, linked, no other client"
    if not shutil.which("valgrind"):
        report.miss(name, "there is no valgrind")
        return
    few, many = 10000, 210000
    got = []
    for preload in (False, True):
        ring = stage.directory() if preload else None
        counts = [instructions(stage, ring, count) for count in (few, many)]
        if None in counts:
            report.miss(name, "this valgrind refuses membarrier: there is no fast way under it")
            return
        got.append([(counts[1] - counts[0]) / (many - few)])
    report.add(name, "", got[1], got[0], "difference")


def measure_memory(stage, report):
    """In steady state: each round frees and allocates until the caches are warm."""
    cap = {"CUSLICE_MEM_LIMIT": "4Gi"}
    bare = Launches(stage, False)
    arms = [("no cap", Launches(stage, True), PAIRS),
            ("cap 4Gi", Launches(stage, True, **cap), PAIRS)]
    arms += [("cap 4Gi, a tenant of %d processes" % n,
              Launches(stage, True, neighbours=n - 1, theirs="a", **cap),
              PAIRS if n <= 8 else PAIRS_MANY) for n in TENANTS]
    for live in LIVE:
        got = {}
        for _ in range(MEMORY_ROUNDS):
            got.setdefault("bare", []).append(bare.memory(live, PAIRS))
            for name, arm, pairs in arms:
                got.setdefault(name, []).append(arm.memory(live, pairs))
        for name, _, _ in arms:
            most = MEMORY_NS_MANY_LIVE if live > 1000 else MEMORY_NS
            report.add("a free and an allocation, {:,} live, {}".format(live, name), "ns",
                       got[name], got["bare"], "difference",
                       bound=None if "256" in name else ("<=", most, "difference"))
    stage.end()
    measure_memory_threads(stage, report)


def measure_memory_threads(stage, report):
    """In CPU time, as launches of threads are; and how long one of all takes, one with another."""
    bare = Launches(stage, False, pinned=False)
    capped = Launches(stage, True, pinned=False, CUSLICE_MEM_LIMIT="4Gi")
    for live in (1, 1000):
        got = {"bare": [], "capped": []}
        for _ in range(MEMORY_ROUNDS):
            for name, arm in (("bare", bare), ("capped", capped)):
                got[name].append(arm.memory_threads(MEMORY_THREADS, live, PAIRS // 4))
        name = "a free and an allocation in each of %d threads, %s live in each, cap 4Gi" % (
            MEMORY_THREADS, format(live, ","))
        for k, unit in enumerate(("ns of CPU", "ns elapsed")):
            report.add(name, unit, [g[k] for g in got["capped"]], [g[k] for g in got["bare"]],
                       "difference", bound=("<=", MEMORY_NS, "difference"))
    stage.end()


def measure_start(stage, report):
    libraries = [os.path.join(stage.build, "bench/stub/empty.so"), stage.library]
    lines = output([stage.program("start"), str(START_COUNT), "/bin/true"] + libraries)
    taken = {}
    for line in lines.splitlines():
        number, ns = line.split()
        taken.setdefault(int(number), []).append(int(ns) / 1e6)
    # Tenths of the run as rounds: each has all three in turn.
    tenth = START_COUNT // 10
    rounds = {n: [statistics.median(v[i:i + tenth]) for i in range(0, START_COUNT, tenth)]
              for n, v in taken.items()}
    report.add("the start of /bin/true", "ms", rounds[2], rounds[0], "difference", START_LIMIT_MS)
    report.add("the same, against an empty library preloaded", "ms", rounds[2], rounds[1],
               "difference")
