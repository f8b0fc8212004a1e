"""Starts CUDA workers on one simulated device under one ring, and reads the device's trace.

A Farm owns a ring directory, a device and its workers; leaving it ends its own workers and nobody
else. Times are nanoseconds of CLOCK_MONOTONIC, the trace's and time.monotonic_ns()'s alike. What a
test compares with is the trace, written by the device alone. Imported by tests/integration too.
"""
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from places import Places

B = os.environ["B"]
REPO = os.environ["REPO"]
SIM = os.environ["SIM"]
LIBRARY = os.environ["CUSLICE_SO"]
TOOL = os.path.join(B, "cuslice")
LINKED = os.path.join(B, "tests/multi/worker")
DOORS = os.path.join(B, "tests/multi/doors")
# A prefix for a worker whose kernel has no futex_waitv (before 5.16, or under an older filter).
WITHOUT_WAITV = (os.path.join(B, "tests/multi/without"), "449", "38")
SAN = os.environ.get("SAN", "")
PLACES = Places(B)

MS = 1000 * 1000
SECOND = 1000 * MS
MIB = 1 << 20
GIB = 1 << 30
SOON = 20  # seconds in which what should come at once has to come, on a busy machine

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 0, 1, 2, 3, 100
NOT_SUPPORTED = 801
ILLEGAL_ADDRESS = 700

# Work that occupies the GPU, and so passes the gate.
GATED = ("kernel", "graph", "memset", "dtod")

_failures = 0


def now():
    return time.monotonic_ns()


def check(good, words):
    global _failures
    if not good:
        _failures += 1
        print("FAILED:", words, flush=True)
    return bool(good)


def equal(found, wanted, words):
    return check(found == wanted, "%s: %r, not %r" % (words, found, wanted))


def between(found, low, high, words):
    return check(low <= found <= high, "%s: %s, not %s to %s" % (words, found, low, high))


STOLEN = 5  # percent of the CPUs' time, which others on the host take: more, and it is they who decide


def ticks():
    """Of all CPUs so far: what a hypervisor took, and all."""
    with open("/proc/stat", encoding="utf-8") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    return fields[7], sum(fields)


def holds(attempt, tries, words):
    """Fails unless `attempt` comes true in one of so many tries. Figures of time that were measured
    while the host took the CPUs away decide nothing: where that was so in each try it is said."""
    least = 100.0
    for _ in range(tries):
        before = ticks()
        if attempt():
            return True
        stolen, whole = (b - a for a, b in zip(before, ticks()))
        least = min(least, 100.0 * stolen / max(1, whole))
    if least > STOLEN:
        print("not judged, since the host took %.0f %% of the CPUs or more: %s" % (least, words),
              flush=True)
        return True
    return check(False, words)


def skip(words):
    print(words)
    sys.exit(77)


def finish():
    """The end of a test: `sys.exit(finish())`."""
    print("%d failures" % _failures)
    return 1 if _failures else 0


def run(*checks):
    """Runs each check; one that breaks off counts as failed and the next goes on."""
    for each in checks:
        begun = time.monotonic()
        try:
            each()
        except (Gone, TimeoutError, AssertionError, ValueError, IndexError, KeyError) as error:
            check(False, "%s broke off: %s: %s" % (each.__name__, type(error).__name__, error))
        print("%s: %.1f s" % (each.__name__, time.monotonic() - begun), flush=True)
    sys.exit(finish())


class Gone(Exception):
    """The worker ended before it answered."""


class Worker:
    """A worker process. `ask` waits for the answer, `post` gives a Future for it."""

    def __init__(self, tag, command, env, log, **popen):
        self.tag = tag
        self.log_path = log
        self.waiting = collections.defaultdict(collections.deque)
        self.lock = threading.Lock()
        self.gone = False
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=errors, env=env, **popen)
        self.pid = self.process.pid
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            number, _, answer = line.decode().rstrip("\n").partition(" ")
            with self.lock:
                future = self.waiting[int(number)].popleft()
            future.set_result(answer)
        with self.lock:
            self.gone = True
            left = [f for futures in self.waiting.values() for f in futures]
            self.waiting.clear()
        for future in left:
            future.set_exception(Gone("%s (%d) ended; it said: %s" % (self.tag, self.pid,
                                                                      self.log())))

    def post(self, words, thread=0):
        future = concurrent.futures.Future()
        with self.lock:
            if self.gone:
                raise Gone("%s (%d) has ended; it said: %s" % (self.tag, self.pid, self.log()))
            self.waiting[thread].append(future)
            try:
                self.process.stdin.write(b"%d %s\n" % (thread, words.encode()))
                self.process.stdin.flush()
            except BrokenPipeError:
                pass  # the reader tells
        return future

    def ask(self, words, thread=0, timeout=SOON):
        try:
            return self.post(words, thread).result(timeout)
        except concurrent.futures.TimeoutError:
            raise TimeoutError("%s: no answer to '%s' within %s s; it said: %s" % (
                self.tag, words, timeout, self.log())) from None

    def numbers(self, words, thread=0, timeout=SOON):
        return numbers(self.ask(words, thread, timeout))

    def ok(self, words, thread=0, timeout=SOON):
        """Asks for what must succeed; the numbers behind the result."""
        found = self.numbers(words, thread, timeout)
        if found[:1] != [SUCCESS]:
            raise AssertionError("%s: '%s' gave %s; it said: %s" % (self.tag, words, found,
                                                                   self.log()))
        return found[1:]

    def log(self):
        """What it wrote to stderr: the library's lines."""
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=SOON):
        status = self.process.wait(timeout)
        self.reader.join(timeout)
        return status

    def end(self, timeout=SOON):
        """Closes its input, so that it returns from main; its exit status."""
        self.process.stdin.close()
        return self.wait(timeout)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SOON)


def numbers(answer):
    try:
        return [int(word) for word in answer.split()]
    except ValueError:
        raise AssertionError("not numbers: %r" % answer) from None


def answered(future, seconds):
    """Whether the answer comes within so many seconds."""
    done, _ = concurrent.futures.wait([future], seconds)
    return bool(done)


def keeper_wakes(pid):
    """How often cuslice's thread has gone to sleep."""
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        if fields["Name"] == "cuslice":
            return int(fields["voluntary_ctxt_switches"])
    raise AssertionError("no thread of cuslice")


def switches(pid):
    """How often the threads of a process have gone to sleep."""
    count = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as file:
            count += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))
    return count


WAITERS, DIED = 1 << 31, 1 << 30


def death_words(place):
    """Process and death word of each slot that names a process, in the ring's file itself; where one
    has had several, of the one that is in use."""
    with open(place.ring_file(), "rb") as file:
        slots = PLACES.each(file.read(), "segment.slot")
    slots.sort(key=lambda slot: PLACES.number(slot, "slot.joined_ns") != 0)
    pairs = [[PLACES.number(slot, name) for name in ("slot.pid", "slot.death")] for slot in slots]
    return {pid: word for pid, word in pairs if pid}


def keeper(pid):
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/comm" % (pid, task), encoding="utf-8") as file:
            if file.read().strip() == "cuslice":
                return int(task)
    raise AssertionError("%d has no keeper" % pid)


class Farm:
    """settings: CUSLICE_ ones of every worker, without the prefix; sim: SIMCUDA_ ones. Code takes no
    device memory unless asked for, so that figures of other memory are round."""

    def __init__(self, sim=None, preload=True, **settings):
        self.place = tempfile.mkdtemp(prefix="farm-")
        self.ring = os.path.join(self.place, "ring")
        self.device = os.path.join(self.place, "sim")
        os.mkdir(self.ring)
        os.chmod(self.ring, 0o1777)
        os.mkdir(self.device)
        self.sim = dict({"LINGER": "500ms", "CODE": 0}, **(sim or {}))
        self.settings = settings
        self.preload = preload
        self.workers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.kill()
        return False

    def environment(self, tag, sim=None, preload=None, **settings):
        """Settings of None are left out; a worker's tenant is its tag unless told otherwise."""
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("CUSLICE_", "SIMCUDA_")) and k != "LD_PRELOAD"}
        mine = dict({"DIR": self.ring, "TENANT": tag}, **self.settings)
        mine.update(settings)
        env.update({"CUSLICE_" + k: str(v) for k, v in mine.items() if v is not None})
        device = dict({"DIR": self.device, "TAG": tag}, **self.sim)
        device.update(sim or {})
        env.update({"SIMCUDA_" + k: str(v) for k, v in device.items() if v is not None})
        env["LD_LIBRARY_PATH"] = SIM
        if self.preload if preload is None else preload:
            env["LD_PRELOAD"] = LIBRARY if preload in (None, True) else preload
        if "address" in SAN:
            env["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0"
        return env

    def worker(self, tag, door="linked", opened=True, sim=None, preload=None, prefix=(), log=None,
               popen=None, **settings):
        """A worker, ready to launch when `opened`. `prefix`: a command to start it with."""
        program = LINKED if door == "linked" else DOORS
        env = self.environment(tag, sim, preload, **settings)
        log = log or os.path.join(self.place, "%s.%d.log" % (tag, len(self.workers)))
        worker = Worker(tag, [*prefix, program, door], env, log, **(popen or {}))
        self.workers.append(worker)
        if opened:
            worker.ok("open")
        return worker

    def status(self):
        """`cuslice status --json`."""
        done = subprocess.run([TOOL, "status", "--json", "--dir", self.ring], text=True,
                              capture_output=True, timeout=SOON)
        if done.returncode:
            raise AssertionError("cuslice status: %s" % (done.stderr or done.stdout))
        return json.loads(done.stdout)

    def gpu(self):
        return self.status()["gpus"][0]

    def tenant(self, key):
        return {t["key"]: t for t in self.gpu()["tenants"]}[key]

    def ring_file(self):
        names = [n for n in os.listdir(self.ring) if n.endswith(".ring")]
        if len(names) != 1:
            raise AssertionError("rings: %s" % names)
        return os.path.join(self.ring, names[0])

    def trace(self):
        """Everything that the device has written, after what is on its way has come."""
        time.sleep(0.06)
        return Trace(self.sim.get("TRACE") or os.path.join(self.device, "trace"))

    def trace_until(self, good, words, seconds=SOON):
        """The trace as soon as `good(trace)`; fails when it does not come to be."""
        until = time.monotonic() + seconds
        while True:
            trace = self.trace()
            if good(trace):
                return trace
            if time.monotonic() > until:
                raise TimeoutError("the trace never shows " + words)


Run = collections.namedtuple("Run", "start end device client pid context stream kind name submit "
                             "seq piece last")
Memory = collections.namedtuple("Memory", "time device client pid op bytes client_total "
                                "device_total client_memory client_context orphaned managed")
Event = collections.namedtuple("Event", "time client pid event")
Fault = collections.namedtuple("Fault", "time device client pid name error")
Turn = collections.namedtuple("Turn", "client start end")


class Trace:
    def __init__(self, path):
        self.runs, self.memory, self.events, self.faults = [], [], [], []
        try:
            with open(path, errors="replace") as file:
                for line in file:
                    if line.endswith("\n"):
                        self._add(line.rstrip("\n").split("\t"))
        except FileNotFoundError:
            pass

    def _add(self, f):
        if f[0] == "X":
            self.runs.append(Run(int(f[1]), int(f[2]), int(f[3]), f[4], int(f[5]), int(f[6]),
                                 int(f[7]), f[8], f[9], int(f[10]), int(f[11]),
                                 int(f[12].rstrip("$")), f[12].endswith("$")))
        elif f[0] == "M":
            self.memory.append(Memory(int(f[1]), int(f[2]), f[3], int(f[4]), f[5], int(f[6]),
                                      *(int(n) for n in f[7:13])))
        elif f[0] == "C":
            self.events.append(Event(int(f[1]), *f[2:3], int(f[3]), f[4]))
        elif f[0] == "F":
            self.faults.append(Fault(int(f[1]), int(f[2]), f[3], int(f[4]), f[5], int(f[6])))

    def of(self, client, kinds=GATED):
        return [r for r in self.runs if r.client == client and r.kind in kinds]

    def commands(self, kinds=GATED):
        """One Run per submission, from its first piece's start to its last one's end."""
        whole = {}
        for r in self.runs:
            if r.kind not in kinds:
                continue
            key = (r.client, r.pid, r.context, r.stream, r.kind, r.seq, r.submit)
            old = whole.get(key)
            whole[key] = r if old is None else old._replace(
                start=min(old.start, r.start), end=max(old.end, r.end), last=old.last or r.last)
        return sorted(whole.values(), key=lambda r: r.start)

    def turns(self):
        """Runs of one client's work without another's between."""
        turns = []
        for r in sorted((r for r in self.runs if r.kind in GATED), key=lambda r: r.start):
            if turns and turns[-1].client == r.client:
                turns[-1] = turns[-1]._replace(end=max(turns[-1].end, r.end))
            else:
                turns.append(Turn(r.client, r.start, r.end))
        return turns


def occupancy(turns, start, end):
    """Nanoseconds of each client's turns within a window."""
    sums = collections.Counter()
    for turn in turns:
        sums[turn.client] += max(0, min(turn.end, end) - max(turn.start, start))
    return sums


def shares(turns, start, end):
    sums = occupancy(turns, start, end)
    whole = sum(sums.values()) or 1
    return {client: 100.0 * ns / whole for client, ns in sums.items()}


def window(trace, clients, margin=500 * MS):
    """The time in which all of them had work, without its edges."""
    firsts, lasts = [], []
    for client in clients:
        runs = trace.of(client)
        if not runs:
            raise AssertionError("no work of %s in the trace" % client)
        firsts.append(min(r.start for r in runs))
        lasts.append(max(r.end for r in runs))
    return max(firsts) + margin, min(lasts) - margin


def idle(trace, start, end):
    """Nanoseconds within the window in which no gated work ran."""
    at, free = start, 0
    for r in sorted((r for r in trace.runs if r.kind in GATED), key=lambda r: r.start):
        if r.end <= start or r.start >= end:
            continue
        free += max(0, r.start - at)
        at = max(at, r.end)
    return free + max(0, end - at)


def overlaps(commands, tolerance=0):
    """Pairs of different clients' commands of which the later was submitted while the earlier was
    still on the GPU or queued: (nanoseconds, earlier, later). Fixed slices mean that there is none,
    whatever the device does with contexts that compete."""
    found, open_ = [], {}
    for c in sorted(commands, key=lambda c: c.submit):
        for client, other in open_.items():
            if client != c.client and other.end > c.submit + tolerance:
                found.append((other.end - c.submit, other, c))
        if c.client not in open_ or open_[c.client].end < c.end:
            open_[c.client] = c
    return found


def describe(overlap):
    ns, earlier, later = overlap
    return "%.3f ms: %s %s submitted %d ended %d, %s %s submitted %d" % (
        ns / MS, earlier.client, earlier.name, earlier.submit, earlier.end, later.client,
        later.name, later.submit)


def together(posts, timeout):
    """Waits for [(worker, words)] that run at once; their numbers."""
    futures = [worker.post(words) for worker, words in posts]
    until = time.monotonic() + timeout
    results = []
    for (worker, words), future in zip(posts, futures):
        if not answered(future, max(0, until - time.monotonic())):
            raise TimeoutError("%s: no end of '%s'; it said: %s" % (worker.tag, words,
                                                                    worker.log()))
        results.append(numbers(future.result()))
    return results
