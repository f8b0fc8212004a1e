#!/usr/bin/env python3
"""NVML says what programs under a cap see: in a client the same as cuMemGetInfo, beside one the
same as in it, whatever door NVML is found by; and without a cap, in observe mode, or where the ring
tells nothing, what NVML says itself. A process that only asks leaves nothing behind."""
# timeout: 240
import json
import mmap
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, PLACES, check, equal

SOURCES = os.path.join(farm.REPO, "tests/integration/nvml")
TMP, CC = os.environ["TMPDIR"], os.environ["CC"]
NVML = os.path.join(farm.SIM, "libnvidia-ml.so.1")
DEVICE = 8 * GIB
CAP = 512 * MIB
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc")
MISMATCH = 25
COMPUTE = "list nvmlDeviceGetComputeRunningProcesses_v3 4"

ATTACHED = PLACES["segment.attached"]


class Asker:
    """ask.py with a tenant's settings; `ask` gives its answers."""

    def __init__(self, place, tag, prefix=(), preload=True, library=None, more=None, **settings):
        env = place.environment(tag, preload=preload, **settings)
        env.update(more or {})
        if library:
            env["LIBRARY"] = library
            env["LD_LIBRARY_PATH"] = os.path.dirname(library) + ":" + env["LD_LIBRARY_PATH"]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, os.path.join(SOURCES, "ask.py")], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        place.workers.append(self)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise farm.Gone("%s: %s" % (line, self.process.stderr.read()))
        return json.loads(answer)

    def end(self):
        """What it wrote to stderr."""
        out, errors = self.process.communicate(timeout=farm.SOON)
        check(self.process.returncode == 0 and not out, "exit %d" % self.process.returncode)
        return errors

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Ring:
    """The words of the ring's file."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.memory = memoryview(mmap.mmap(file.fileno(), 0))

    def bytes(self):
        return bytes(self.memory)

    def tenant(self, key):
        wanted = key.encode() + b"\0"
        for tenant in PLACES.each(self.memory, "segment.tenant"):
            if bytes(tenant[PLACES["tenant.key"]]).startswith(wanted):
                return tenant
        raise KeyError(key)

    def limit(self, key, value):
        PLACES.put(self.tenant(key), "tenant.mem_limit", value)

    def slot(self, pid):
        for slot in PLACES.each(self.memory, "segment.slot"):
            if PLACES.number(slot, "slot.host_pid") == pid:
                return slot
        raise KeyError(pid)

    def books(self, pid):
        """What the slot of this host's process counts."""
        slot = self.slot(pid)
        return PLACES.number(slot, "slot.bytes") + PLACES.number(slot, "slot.context_bytes")

    def context(self, pid, value):
        PLACES.put(self.slot(pid), "slot.context_bytes", value)


def agrees(asker, figures, words):
    """Both structures say these [total, free, used]."""
    rc, total, free, used = asker.ask("memory")
    equal([rc, total, free, used], [0, *figures], words)
    equal(free + used, total, words + ": free and used")
    rc, total, reserved, free, used = asker.ask("memory2")
    equal([rc, total, free, reserved + used], [0, *figures], words + ", second version")
    equal(reserved + free + used, total, words + ": what adds up")


def like(worker):
    """cuMemGetInfo of a worker as [total, free, used]."""
    free, total = worker.ok("info")
    return [total, free, total - free]


def place_with(**settings):
    return farm.Farm(sim={"MEMORY": DEVICE}, **settings)


# ---- In a client ----

def check_in_client(settings, words):
    with place_with() as place:
        a, bare = Asker(place, "a", **settings), Asker(place, "bare", preload=False)
        for step in ("cuda 0", "cuda %d" % (100 * MIB), "cuda %d" % (200 * MIB), "free"):
            a.ask(step)
            rc, *seen = a.ask("info")
            equal(rc, 0, words + ": cuMemGetInfo")
            agrees(a, seen, "%s, after '%s'" % (words, step))
        rc, *all_ = bare.ask("memory")
        if settings:
            check(all_ != seen, "%s: NVML itself says %s" % (words, all_))
        else:
            equal(a.ask("memory"), [rc, *all_], "without a cap")
        equal(a.end(), "", words + ": lines")


def check_client():
    for settings, words in (({"MEM_LIMIT": CAP}, "tenant's cap"),
                            ({"PROCESS_MEM_LIMIT": CAP}, "process's cap"),
                            ({"MEM_LIMIT": GIB, "PROCESS_MEM_LIMIT": CAP}, "both caps"),
                            ({"MEM_LIMIT": CAP, "TENANT": None}, "a tenant by itself"),
                            ({"MEM_LIMIT": "25%"}, "a percentage"),
                            ({"MEM_LIMIT": "0:1Gi,1:2Gi"}, "by index"), ({}, "no cap")):
        check_in_client(settings, words)


def check_two_processes():
    """One tenant's cap over two clients, and somebody beside them who only asks."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a, b = Asker(place, "a"), Asker(place, "b")
        beside = Asker(place, "beside", MEM_LIMIT=None)
        for asker, step in ((a, "cuda %d" % (100 * MIB)), (b, "cuda %d" % (150 * MIB)),
                            (a, "cuda %d" % (50 * MIB)), (b, "free")):
            asker.ask(step)
            seen = a.ask("info")[1:]
            check(seen[0] == CAP and seen[2] >= 100 * MIB, "cuMemGetInfo: %s" % seen)
            for each in (a, b, beside):
                agrees(each, seen, "after '%s'" % step)
        # Dead, and nobody has looked yet.
        for each in (a, b):
            each.kill()
        agrees(beside, [CAP, CAP, 0], "when both are dead")


def check_two_devices():
    """The cap of the device that is asked about, in clients and by those who only ask."""
    with farm.Farm(sim={"MEMORY": DEVICE, "DEVICES": 2}, MEM_LIMIT="0:1Gi,1:2Gi") as place:
        a, outside = Asker(place, "a"), Asker(place, "b")
        a.ask("cuda %d" % (100 * MIB))
        first = a.ask("info")[1:]
        check(first[0] == GIB and first[2] >= 100 * MIB, "cuMemGetInfo: %s" % first)
        for number, total, seen in ((1, 2 * GIB, [2 * GIB, 2 * GIB, 0]), (0, GIB, first)):
            for each, figures in ((a, seen), (outside, [total, total, 0])):
                each.ask("device %d" % number)
                agrees(each, figures, "device %d" % number)


def check_lowered():
    """The cap is lowered below what is in use: nothing is free, and all of it is used."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a, beside = Asker(place, "a"), Asker(place, "beside")
        a.ask("cuda %d" % (200 * MIB))
        Ring(place.ring_file()).limit("pod", 128 * MIB)
        equal(a.ask("info"), [0, 128 * MIB, 0, 128 * MIB], "cuMemGetInfo")
        for each in (a, beside):
            agrees(each, [128 * MIB, 0, 128 * MIB], "lowered")


def check_full_device():
    """Where the device has less left than the cap allows, that is what is free."""
    with farm.Farm(sim={"MEMORY": GIB}) as place:
        other = place.worker("other", preload=False)
        a, beside = (Asker(place, t, MEM_LIMIT=CAP, TENANT="pod") for t in ("a", "beside"))
        a.ask("cuda %d" % (10 * MIB))
        other.ok("alloc cuMemAlloc_v2 %d" % (other.ok("info")[0] - 100 * MIB))
        seen = a.ask("info")[1:]
        equal(seen, [CAP, 100 * MIB, CAP - 100 * MIB], "cuMemGetInfo")
        for each in (a, beside):
            agrees(each, seen, "a full device")


# ---- Beside clients ----

def traceless(asker, ring, before, words):
    seen = asker.ask("look")
    equal(seen["tasks"], 1, words + ": threads")
    equal((seen["fds"], seen["maps"], seen["locks"]), ([], [], []), words + ": left open")
    if before is not None:
        equal(ring.bytes()[ATTACHED], before[ATTACHED], words + ": places taken")


def check_beside():
    """A process that only asks sees its tenant's figures, and nobody sees it."""
    with place_with(MEM_LIMIT=CAP) as place:
        a, neighbour = place.worker("a"), place.worker("neighbour", MEM_LIMIT=GIB)
        a.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        neighbour.ok("alloc cuMemAlloc_v2 %d" % (300 * MIB))
        ring = Ring(place.ring_file())
        before, names = ring.bytes(), sorted(os.listdir(place.ring))
        bare = Asker(place, "bare", preload=False).ask("memory")[1:]
        # A cap that cannot be read: no program runs with it, and nothing is changed.
        for cap, figures in ((CAP, like(a)), (None, like(a)), (64 * MIB, like(a)),
                             ("4 pears", bare)):
            asker = Asker(place, "asker", TENANT="a", MEM_LIMIT=cap)
            agrees(asker, figures, "beside, its own cap %s" % cap)
            asker.ask(COMPUTE)
            asker.ask("details")
            traceless(asker, ring, before, "beside, its own cap %s" % cap)
            equal(asker.end(), "", "lines of one that only asks")
        equal(sorted(os.listdir(place.ring)), names, "files")
        asker = Asker(place, "asker", TENANT="neighbour", PROCESS_MEM_LIMIT=400 * MIB)
        used = like(neighbour)[2]
        check(used >= 300 * MIB, "cuMemGetInfo: %d used" % used)
        agrees(asker, [400 * MIB, max(400 * MIB - used, 0), min(used, 400 * MIB)],
               "under a process's cap of its own")
        a.ok("alloc cuMemAlloc_v2 %d" % (50 * MIB))
        equal(a.end(), 0, "a's end")
        agrees(Asker(place, "late", TENANT="a"), [CAP, CAP, 0], "when nobody is left")
        agrees(Asker(place, "late", TENANT="a", MEM_LIMIT=None), [CAP, CAP, 0],
               "when nobody is left, without a cap of its own")
        agrees(Asker(place, "late", TENANT="a", MEM_LIMIT=GIB), [GIB, GIB, 0],
               "when nobody is left, with a new cap")


def check_alone():
    """No ring, no record, no tenant: the caps of its own settings."""
    with place_with() as place:
        bare = Asker(place, "bare", preload=False)
        for settings, total in (({"MEM_LIMIT": CAP}, CAP), ({"PROCESS_MEM_LIMIT": CAP}, CAP),
                                ({"MEM_LIMIT": "50%"}, DEVICE // 2),
                                ({"MEM_LIMIT": "1:1Gi"}, DEVICE),
                                ({"MEM_LIMIT": "auto", "REPLICAS": 4}, DEVICE // 4)):
            for tenant in ("t", None):
                asker = Asker(place, "asker", TENANT=tenant, **settings)
                agrees(asker, [total, total, 0], "alone, %s, tenant %s" % (settings, tenant))
                traceless(asker, None, None, "alone")
        check(not os.listdir(place.ring), "files: %s" % os.listdir(place.ring))
        holder = place.worker("holder", preload=False)
        holder.ok("alloc cuMemAlloc_v2 %d" % (300 * MIB))
        rc, total, free, used = bare.ask("memory")
        check(rc == 0 and used >= 300 * MIB, "the device's use: %d" % used)
        agrees(Asker(place, "x", TENANT=None, MEM_LIMIT=GIB), [GIB, GIB - used, used],
               "of no tenant: the device's use")
        agrees(Asker(place, "x", TENANT=None, MEM_LIMIT=CAP // 4), [CAP // 4, 0, CAP // 4],
               "of no tenant: more in use than the cap")
        agrees(Asker(place, "x", TENANT="x", MEM_LIMIT=GIB), [GIB, GIB, 0], "a tenant of nobody")
        for settings in ({}, {"MODE": "observe", "MEM_LIMIT": CAP},
                         {"MODE": "off", "MEM_LIMIT": CAP}):
            agrees(Asker(place, "x", **settings), [total, free, used], "unmasked, %s" % settings)


def check_without_ring():
    """Where no ring can be had: a client that goes on alone, one that is refused, none at all."""
    with place_with(MEM_LIMIT=CAP, DIR="/proc/nowhere", LOG="error") as place:
        a = Asker(place, "a")
        a.ask("cuda %d" % (100 * MIB))
        rc, *seen = a.ask("info")
        check((rc, seen[0]) == (0, CAP) and seen[2] >= 100 * MIB, "cuMemGetInfo: %s" % seen)
        agrees(a, seen, "a client by itself")
        refused = Asker(place, "b", ON_ERROR="closed")
        check(refused.ask("cuda 0")[0] != 0, "cuInit is not refused")
        for each in (refused, Asker(place, "c")):
            agrees(each, [CAP, CAP, 0], "no client and no ring")


def check_forked():
    """A child of a client is no client, and sees the tenant as one that only asks."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a = Asker(place, "a")
        a.ask("cuda %d" % (100 * MIB))
        seen, attached = a.ask("info"), Ring(place.ring_file()).bytes()[ATTACHED]
        equal(a.ask("fork memory"), seen, "a forked child")
        equal(a.ask("fork look")["maps"], [], "rings in a forked child")
        equal(Ring(place.ring_file()).bytes()[ATTACHED], attached, "places taken")
        agrees(a, seen[1:], "the client, after")


def check_modes():
    """Observe and off: what NVML says, in clients and beside them."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        bare = Asker(place, "bare", preload=False)
        for mode in ("observe", "off"):
            a = Asker(place, "a", MODE=mode, TENANT=mode)
            a.ask("cuda %d" % (100 * MIB))
            for each in (a, Asker(place, "beside", MODE=mode, TENANT=mode)):
                rc, *seen = bare.ask("memory")
                agrees(each, seen, mode)
                equal(each.ask(COMPUTE), bare.ask(COMPUTE), mode + ": who is there")
            a.kill()
            time.sleep(0.1)
        a = Asker(place, "a", MODE="observe")
        a.ask("cuda %d" % MIB)
        agrees(Asker(place, "beside"), bare.ask("memory")[1:], "beside a tenant that is observed")


def check_container():
    """Without a name the PID namespace is the tenant, for those who only ask too."""
    try:
        subprocess.run([*CONTAINER, "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        print("no namespaces here: containers are not tried")
        return
    with place_with() as place:
        place.worker("outside", MEM_LIMIT=GIB).ok("alloc cuMemAlloc_v2 %d" % MIB)
        a = Asker(place, "a", prefix=CONTAINER, TENANT=None, MEM_LIMIT=CAP)
        a.ask("cuda %d" % (100 * MIB))
        rc, *seen = a.ask("info")
        agrees(a, seen, "in the container's client")
        equal(a.ask("sub memory"), [rc, *seen], "of another process in the container")
        b = Asker(place, "b", prefix=CONTAINER, TENANT=None, MEM_LIMIT=CAP)
        agrees(b, [CAP, CAP, 0], "in another container")
        # Which entry is whose cannot be told from in there.
        bare = Asker(place, "bare", preload=False)
        equal(a.ask(COMPUTE), bare.ask(COMPUTE), "who is there, asked from a container")


# ---- Who is there ----

def check_lists():
    """Entries of clients of the tenant have the books' figures; all others are NVML's."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a, b, beside = (Asker(place, t) for t in ("a", "b", "beside"))
        stranger = place.worker("stranger", preload=False)
        neighbour = place.worker("neighbour", TENANT="other")
        bare = Asker(place, "bare", preload=False)
        for each in (a, b):
            each.ask("cuda %d" % (100 * MIB))
        for each in (stranger, neighbour):
            each.ok("alloc cuMemAlloc_v2 %d" % (50 * MIB))
        ring = Ring(place.ring_file())
        ring.context(a.pid, 5 * MIB)
        for ask in ("list nvmlDeviceGetComputeRunningProcesses 2",
                    "list nvmlDeviceGetComputeRunningProcesses_v2 4", COMPUTE, "details"):
            rc, count, plain = bare.ask(ask)
            check(rc == 0 and {e[0] for e in plain} ==
                  {a.pid, b.pid, stranger.pid, neighbour.pid}, "%s: %s" % (ask, plain))
            wanted = [[e[0], ring.books(e[0]) if e[0] in (a.pid, b.pid) else e[1], *e[2:]]
                      for e in plain]
            check(wanted != plain, "the books say what NVML says: nothing to see")
            for each in (a, b, beside):
                equal(each.ask(ask), [rc, count, wanted], ask)
            no_cap = Asker(place, "n", TENANT="none", MEM_LIMIT=None)
            equal(no_cap.ask(ask), [rc, count, plain], ask + " without a cap")
            no_cap.kill()
        equal(a.ask(COMPUTE + " 1")[:2], bare.ask(COMPUTE + " 1")[:2], "too little room")
        for kind in ("Graphics", "MPSCompute"):
            for version in ("", "_v2", "_v3"):
                ask = "list nvmlDeviceGet%sRunningProcesses%s 4" % (kind, version)
                equal(a.ask(ask), bare.ask(ask), ask)


# ---- Odd questions and odd answers ----

def check_threads():
    """Many at once, of which the first ones find the settings unread."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a, beside = Asker(place, "a"), Asker(place, "beside")
        a.ask("cuda %d" % (100 * MIB))
        for each in (beside, a):
            equal(each.ask("threads 8"), [a.ask("info")], "answers to threads")
        traceless(beside, None, None, "threads")


def check_errors():
    with place_with(MEM_LIMIT=CAP) as place:
        bare = Asker(place, "bare", preload=False)
        client, outside = Asker(place, "a"), Asker(place, "b")
        client.ask("cuda 0")
        for each in (client, outside):
            for what in ("nulls", "wrong"):
                equal(each.ask(what), bare.ask(what), what)
        equal(bare.ask("memory2 0")[0], MISMATCH, "a structure without version")


def build_other(*flags):
    place = os.path.join(TMP, "other" + "".join(flags))
    os.makedirs(place, exist_ok=True)
    library = os.path.join(place, "libnvidia-ml.so.1")
    subprocess.run([CC, "-std=gnu11", "-shared", "-fPIC", *flags, "-Wl,-soname,libnvidia-ml.so.1",
                    "-o", library, os.path.join(SOURCES, "other.c")], check=True)
    return library


def check_other_library():
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a = place.worker("a")
        a.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        digits = re.search("GPU(-[0-9a-f-]+)", place.ring_file()).group(1)
        library = build_other()

        def asker(uuid, **settings):
            more = {"OTHER_UUID": uuid, "OTHER_PID": str(a.pid)}
            return Asker(place, "x", library=library, more=more, **settings)
        for kind in ("GPU", "MIG"):
            x = asker(kind + digits)
            agrees(x, like(a), "a device called %s" % (kind + digits))
            equal(x.ask(COMPUTE)[2], [[a.pid, 2 ** 64 - 1, 1, 0],
                                      [a.pid, Ring(place.ring_file()).books(a.pid), 2, 0],
                                      [1, 777, 3, 0]], "entries, one of them not available")
            equal(x.ask("errno"), 18, "errno")
            equal(x.ask("memory2 %d" % (40 | 3 << 24)),
                  [0, 8192 * MIB, 400 * MIB, 6792 * MIB, 1000 * MIB], "a version to come")
        x = asker("GPU" + digits, TENANT="big", MEM_LIMIT=DEVICE)
        agrees(x, [DEVICE, 6792 * MIB, 1400 * MIB], "a cap of the whole device")
        equal(x.ask("memory2")[2], 400 * MIB, "what the device keeps for itself")
        x = asker("MIG" + digits, TENANT="t", MEM_LIMIT="0:1Gi,3:2Gi")
        agrees(x, [GIB, GIB, 0], "the one instance that programs see is their first device")
        x = asker("GPU" + digits, TENANT="t", MEM_LIMIT="0:1Gi,3:2Gi")
        agrees(x, [2 * GIB, 2 * GIB, 0], "one that only asks counts as NVML does")
        x.ask("cuda %d" % (100 * MIB))
        rc, *seen = x.ask("info")
        equal((rc, seen[0]), (0, GIB), "cuMemGetInfo")
        agrees(x, seen, "a client counts as its driver does")
        x.kill()
        for uuid in ("MIG-GPU%s/1/0" % digits, "GPU", "", "GPU%s0" % digits, "x" * 60):
            equal(asker(uuid).ask("memory"), [0, 8192 * MIB, 6792 * MIB, 1400 * MIB],
                  "a device called '%s'" % uuid)


def check_old_library():
    """What an old library lacks stays missing."""
    library = build_other("-DOLD")
    with place_with(MEM_LIMIT=CAP) as place:
        source = "import ctypes, os; n = ctypes.CDLL(os.environ['LIBRARY']); " \
                 "print([hasattr(n, 'nvmlDeviceGetMemoryInfo' + v) for v in ('', '_v2')])"
        env = place.environment("x")
        env["LIBRARY"] = library
        done = subprocess.run([sys.executable, "-c", source], env=env, text=True,
                              capture_output=True, timeout=30)
        equal((done.stdout, done.stderr), ("[True, False]\n", ""), "an old library's functions")


def with_other(ring, name):
    """The ring with something else in that field."""
    other = bytearray(ring)
    other[PLACES[name]] = bytes(byte ^ 0xff for byte in ring[PLACES[name]])
    return other


def noise_behind_head(ring):
    """Nothing in it makes sense but the first tenant, which has a member in every slot."""
    head, tenant = PLACES["segment.quantum_ns"].start, PLACES["segment.tenant[0]"]
    record = bytearray(ring[tenant])
    record[PLACES["tenant.members"]] = b"\xff" * len(record[PLACES["tenant.members"]])
    noise = bytearray(ring[:head] + os.urandom(len(ring) - head))
    noise[tenant] = record
    return noise


def check_garbage():
    """Whatever lies under the ring's name: NVML's figures or the own cap, and no crash."""
    with place_with(TENANT="pod") as place:
        a = place.worker("a", MEM_LIMIT=CAP)
        a.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        path = place.ring_file()
        with open(path, "rb") as file:
            good = file.read()
        a.end()
        asker = Asker(place, "asker", MEM_LIMIT=GIB)
        whole = len(good)
        for words, text in (("empty", b""), ("short", good[:1000]), ("zeros", b"\0" * whole),
                            ("noise", os.urandom(whole)), ("cut", good[:-1]),
                            ("another version", with_other(good, "segment.version")),
                            ("another device's", with_other(good, "segment.uuid")),
                            ("another layout", with_other(good, "segment.fingerprint"))):
            os.unlink(path)
            with open(path, "wb") as file:
                file.write(text)
            agrees(asker, [GIB, GIB, 0], words)
        for words, make in (("a directory", os.mkdir), ("a pipe", os.mkfifo),
                            ("a link", lambda p: os.symlink("/dev/zero", p))):
            os.rename(path, path + ".was")
            make(path)
            agrees(asker, [GIB, GIB, 0], words)
            os.rename(path, path + "." + words)
            os.rename(path + ".was", path)
        for _ in range(8):
            os.unlink(path)
            with open(path, "wb") as file:
                file.write(noise_behind_head(good))
            rc, total, free, used = asker.ask("memory")
            check(rc == 0 and total <= DEVICE and free + used == total, "noise: %s" % [total, free])
            asker.ask(COMPUTE)
        traceless(asker, None, None, "garbage")
        equal(asker.end(), "", "lines about garbage")


def check_moved():
    """A ring that has lost its name is not looked at: the one that has it is."""
    with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
        a, beside = place.worker("a"), Asker(place, "beside")
        a.ok("alloc cuMemAlloc_v2 %d" % (100 * MIB))
        agrees(beside, like(a), "before")
        os.unlink(place.ring_file())
        agrees(beside, [CAP, CAP, 0], "while there is none")
        until = time.monotonic() + farm.SOON
        while not os.listdir(place.ring) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)
        agrees(beside, like(a), "when the client has moved")


# ---- Doors ----

def build_doors(level):
    place = os.path.join(TMP, level)
    os.makedirs(place, exist_ok=True)

    def compile_(out, source, *flags):
        subprocess.run([CC, "-std=gnu11", "-D_GNU_SOURCE", "-w", "-" + level, "-o", out,
                        os.path.join(SOURCES, source), *flags, "-ldl"], cwd=place, check=True)
    compile_("doors", "doors.c")
    compile_("linked", "doors.c", "-DLINKED", "-Wl,--no-as-needed", NVML)
    compile_("plugin.so", "plugin.c", "-shared", "-fPIC")
    compile_("plugin-linked.so", "plugin.c", "-shared", "-fPIC", "-DLINKED", NVML)
    return place


def through_doors(place, built, program, preload, *arguments, **settings):
    env = place.environment("x", preload=preload, **settings)
    env.update(PLUGIN=os.path.join(built, "plugin.so"), NVML=NVML,
               PLUGIN_LINKED=os.path.join(built, "plugin-linked.so"))
    done = subprocess.run([os.path.join(built, program), *arguments], env=env, text=True,
                          capture_output=True, timeout=30)
    equal((done.returncode, done.stderr), (0, ""), "%s %s" % (program, arguments))
    lines = [line.split() for line in done.stdout.splitlines()]
    return {who: [int(n) for n in numbers] for who, *numbers in lines}


def check_doors():
    if "address" in farm.SAN or "thread" in farm.SAN:
        print("a sanitizer's library cannot be preloaded into plain programs: no doors")
        return
    for level in ("O0", "O2"):
        built = build_doors(level)
        with place_with(MEM_LIMIT=CAP, TENANT="pod") as place:
            for program, count in (("linked", 3), ("doors", 6)):
                bare = through_doors(place, built, program, False)
                equal(len(bare), count, "doors of %s" % program)
                for who, found in bare.items():
                    equal(found[:2], [0, DEVICE], "%s without the library" % who)
                for who, found in through_doors(place, built, program, True).items():
                    equal(found, [0, CAP, CAP, 0], "%s, only asking, -%s" % (who, level))
                found = through_doors(place, built, program, True, str(100 * MIB))
                check(found["info"][:2] == [0, CAP] and found["info"][3] >= 100 * MIB,
                      "cuMemGetInfo: %s" % found["info"])
                for who in bare:
                    equal(found[who], found["info"], "%s in a client, -%s" % (who, level))
            print("%s: %s" % (level, " ".join(bare)), flush=True)


farm.run(check_client, check_two_processes, check_two_devices, check_lowered, check_full_device,
         check_beside, check_alone, check_without_ring, check_forked, check_modes, check_container,
         check_lists, check_threads, check_errors, check_other_library, check_old_library,
         check_garbage, check_moved, check_doors)
