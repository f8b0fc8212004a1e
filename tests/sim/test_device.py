#!/usr/bin/env python3
"""The simulated device against clients that compete, die, stop, close everything, exec, fork and go
mad: what the trace says must hold, and the device must live on. Needs B (the build directory).
timeout: 120
"""
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("B", os.path.join(REPO, "build"))
DRIVER = os.path.join(BUILD, "sim", "libcuda.so.1")
PTX = os.path.join(REPO, "tests", "kernels", "kernels.ptx")
FOR_EVER = 2**64 - 1
MS = 1000000


# --- a client, run as a process of its own: test_device.py ROLE -------------------------------------

class Client:
    def __init__(self):
        self.cuda = ctypes.CDLL(DRIVER)
        self.check("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.check("cuCtxSetCurrent", self.context)
        module = ctypes.c_void_p()
        self.check("cuModuleLoad", ctypes.byref(module), PTX.encode())
        self.spin = ctypes.c_void_p()
        self.check("cuModuleGetFunction", ctypes.byref(self.spin), module, b"spin_ns")

    def check(self, name, *args):
        result = getattr(self.cuda, name)(*args)
        if result:
            sys.exit("%s: %d" % (name, result))

    def launch(self, ns):
        value = ctypes.c_uint64(ns)
        params = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        self.check("cuLaunchKernel", self.spin, 1, 1, 1, 1, 1, 1, 0, None, params, None)

    def alloc(self, size):
        address = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def synchronize(self):
        self.check("cuCtxSynchronize")


def say(word):
    print(word, flush=True)


def role_flood(ns, seconds):
    client = Client()
    client.launch(1000)
    client.synchronize()
    say("ready")
    sys.stdin.readline()
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for _ in range(8):
            client.launch(int(ns))
        client.synchronize()


def role_hold(ns, size):
    client = Client()
    client.alloc(int(size))
    client.launch(int(ns))
    say("ready")
    time.sleep(60)


def role_queue(count, ns):
    client = Client()
    for _ in range(int(count)):
        client.launch(int(ns))
    say("ready")
    time.sleep(60)


def role_once():
    client = Client()
    client.launch(1000)
    client.synchronize()


def role_idle():
    client = Client()
    client.launch(1000)
    client.synchronize()
    say("ready")
    sys.stdin.readline()


def role_closed():
    client = Client()
    os.closerange(3, 1024)
    for _ in range(5):
        client.launch(200000)
        client.synchronize()
        time.sleep(0.02)
    client.alloc(4096)
    say("ready")
    time.sleep(60)


def role_exec():
    client = Client()
    client.alloc(1 << 20)
    client.launch(1000)
    client.synchronize()
    say("ready")
    os.execvp("sleep", ["sleep", "30"])


def role_fork():
    client = Client()
    client.alloc(1 << 20)
    for _ in range(3):
        if not os.fork():
            time.sleep(5)
            os._exit(0)
    client.launch(1000)
    client.synchronize()
    say("ready")
    time.sleep(60)


def role_mad(seed):
    """Writes rubbish over its own side of the shared memory while it works."""
    client = Client()
    dice = random.Random(int(seed))
    with open("/proc/self/maps") as maps:
        line = next(l for l in maps if "simcuda-arena" in l)
    start = int(line.split("-")[0], 16)
    say("ready")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        at = dice.choice([dice.randrange(0x40000), dice.randrange(2800000),
                          0x400000 + dice.randrange(1 << 20)])
        ctypes.c_uint64.from_address(start + at // 8 * 8).value = dice.choice(
            [0, 1, 2**64 - 1, dice.getrandbits(64), dice.getrandbits(16)])
        if dice.random() < 0.1:
            value = ctypes.c_uint64(1000)
            params = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            client.cuda.cuLaunchKernel(client.spin, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    os.kill(os.getpid(), signal.SIGKILL)


# --- the tests ------------------------------------------------------------------------------------

class World:
    """One device with settings of its own, and the clients started on it."""

    def __init__(self, **settings):
        self.directory = tempfile.mkdtemp(prefix="sim-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SIMCUDA_", "LD_"))}
        self.env.update(SIMCUDA_DIR=self.directory, SIMCUDA_LINGER="300ms", **settings)
        self.children = []

    def start(self, *role):
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), *map(str, role)],
                                 env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True, start_new_session=True)
        self.children.append(child)
        return child

    def ready(self, *role):
        child = self.start(*role)
        expect(child.stdout.readline() == "ready\n", "%s did not get ready" % (role,))
        return child

    def trace(self, kind):
        time.sleep(0.03)
        with open(os.path.join(self.directory, "trace")) as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        return [row for row in rows if row[0] == kind]

    def event(self, pid, what, limit=3.0):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            for row in self.trace("C"):
                if int(row[3]) == pid and row[4] == what:
                    return int(row[1])
        raise AssertionError("no '%s' of %d in the trace" % (what, pid))

    def device(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/comm" % pid) as comm, open("/proc/%s/environ" % pid) as env:
                    if comm.read() == "simcuda-device\n" and \
                            "SIMCUDA_DIR=%s\0" % self.directory in env.read():
                        found.append(int(pid))
            except OSError:
                continue
        return found

    def end(self):
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGCONT)
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            child.stdin.close()
            child.stdout.close()
        end = time.monotonic() + 5
        while self.device() and time.monotonic() < end:
            time.sleep(0.05)
        expect(not self.device(), "the device did not end by itself")
        subprocess.run(["rm", "-rf", self.directory], check=True)


def expect(condition, words):
    if not condition:
        raise AssertionError(words)


def runs(world):
    """(pid, start, end) of every stretch, in order."""
    return sorted(((int(r[5]), int(r[1]), int(r[2])) for r in world.trace("X")),
                  key=lambda run: run[1])


def settled(world, words):
    """What the device says is in use is nothing."""
    last = world.trace("M")[-1]
    expect(int(last[8]) == 0, "%s: %s bytes are still in use" % (words, last[8]))


def test_shares(world):
    pair = [world.ready("flood", 500000, 1.5) for _ in range(2)]
    for child in pair:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in pair:
        expect(child.wait(20) == 0, "a client failed")
    stretches = runs(world)
    for before, after in zip(stretches, stretches[1:]):
        expect(after[1] >= before[2], "two contexts ran at the same time: %s %s" % (before, after))
        if before[0] != after[0] and after[1] - before[2] < 100000:
            raise AssertionError("a switch of contexts that cost nothing")
    begin = max(min(s for p, s, e in stretches if p == c.pid and e - s > 9000) for c in pair)
    end = min(max(e for p, s, e in stretches if p == c.pid) for c in pair)
    shares = [sum(min(e, end) - s for p, s, e in stretches if p == c.pid and begin <= s < end)
              for c in pair]
    part = shares[0] / sum(shares)
    expect(0.4 < part < 0.6, "the shares are %s" % shares)
    expect(sum(shares) > 0.8 * (end - begin), "the device idled: %s of %s" % (shares, end - begin))


def test_kill(world):
    victim = world.ready("hold", FOR_EVER, 1 << 30)
    other = world.ready("flood", 500000, 1.0)
    other.stdin.write("go\n")
    other.stdin.flush()
    time.sleep(0.1)
    victim.kill()
    dead = world.event(victim.pid, "dead")
    torn = world.event(victim.pid, "torndown")
    expect(50 * MS <= torn - dead < 150 * MS, "torn down after %d ns" % (torn - dead))
    late = [e for p, s, e in runs(world) if p == victim.pid and e > dead]
    expect(late, "the kernel did not outlive its client")
    expect(max(late) <= torn, "a kernel outlived its context")
    freed = [r for r in world.trace("M") if r[5] == "teardown" and int(r[4]) == victim.pid]
    expect(freed and int(freed[0][6]) > 1 << 30, "the memory did not come back")
    expect(dead <= int(freed[0][1]) and int(freed[0][1]) - dead >= 50 * MS, "it came back too early")
    expect(other.wait(20) == 0, "the other client was harmed")


def test_stop(world):
    child = world.ready("queue", 50, 4 * MS)
    os.kill(child.pid, signal.SIGSTOP)
    stopped = time.monotonic_ns()
    time.sleep(0.35)
    done = [e for p, s, e in runs(world) if p == child.pid and e - s == 4 * MS]
    expect(len(done) == 50, "only %d of 50 kernels ran" % len(done))
    expect(max(done) > stopped, "all was done before the stop")


def test_together(world):
    children = [world.start("once") for _ in range(40)]
    time.sleep(0.3)
    expect(len(world.device()) <= 1, "%d devices" % len(world.device()))
    for child in children:
        expect(child.wait(40) == 0, "a client failed")
    expect(len(runs(world)) == 40, "kernels are missing")
    settled(world, "after 40 clients")


def test_closed(world):
    child = world.ready("closed")
    ran = [1 for p, s, e in runs(world) if p == child.pid]
    expect(len(ran) == 5, "a client without descriptors ran %d of 5 kernels" % len(ran))
    expect(not [r for r in world.trace("C") if r[4] == "dead"], "it was taken for dead")
    child.kill()
    world.event(child.pid, "torndown")
    settled(world, "after its death")


def test_exec(world):
    child = world.ready("exec")
    world.event(child.pid, "dead")
    expect(child.poll() is None, "the process ended")
    world.event(child.pid, "torndown")
    settled(world, "after exec")


def test_fork(world):
    child = world.ready("fork")
    child.kill()
    world.event(child.pid, "dead")
    world.event(child.pid, "torndown")
    settled(world, "while forked children live")


def test_idle(world):
    child = world.ready("idle")
    pid = world.device()[0]

    def used():
        with open("/proc/%d/stat" % pid) as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    time.sleep(0.2)
    before = used()
    time.sleep(1.5)
    expect(used() - before <= 3, "%d ticks of processor time in 1.5 s of nothing" % (used() - before))
    child.stdin.write("end\n")
    child.stdin.flush()
    expect(child.wait(10) == 0, "the client failed")


def test_many_deaths(world):
    dice = random.Random(4711)
    for _ in range(12):
        group = [world.start("flood", dice.choice([1000, 50000, 3 * MS]), 30) for _ in range(3)]
        for child in group:
            child.stdin.write("go\n")
            child.stdin.flush()
        time.sleep(0.05 + dice.random() * 0.25)
        for child in group:
            child.kill()
            child.wait()
    world.start("once").wait(20)
    time.sleep(0.2)
    settled(world, "after 36 deaths")


def test_madness(world):
    sane = world.ready("flood", 100000, 2.5)
    sane.stdin.write("go\n")
    sane.stdin.flush()
    device = world.device()
    for seed in range(10):
        child = world.start("mad", seed)
        try:
            child.wait(1.5)
        except subprocess.TimeoutExpired:
            child.kill() # it waits for what it has destroyed itself
    expect(sane.wait(20) == 0, "the sane client was harmed")
    expect(world.device() == device, "the device is another one")
    expect(world.start("once").wait(20) == 0, "nobody gets in any more")
    time.sleep(0.3)
    settled(world, "after the mad ones")


def main():
    if not os.path.exists(DRIVER):
        print("no simulated driver in", BUILD)
        return 77
    failed = 0
    chosen = sys.argv[2:] if sys.argv[1:2] == ["--only"] else None
    for name, test in sorted(globals().items()):
        if not name.startswith("test_") or (chosen and name[5:] not in chosen):
            continue
        world = World()
        try:
            try:
                test(world)
            finally:
                world.end()
            print("ok", name)
        except AssertionError as error:
            failed += 1
            print("FAILED", name, "-", error)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and "role_" + sys.argv[1] in globals():
        globals()["role_" + sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
