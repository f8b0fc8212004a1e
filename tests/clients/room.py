"""Runs a program that nobody here wrote twice beside a busy neighbour, and compares.

The first run is bare: the simulated driver alone, which slices the two as it likes. In the second
both are under the preload, and the program has a cap. What it answers and what the device executed
for it must be the same; the cap must show; and in the second run alone no work of one may be
submitted while the other's is on the GPU. Imported by the tests of this room; a program of ours
prints one JSON line:
    same   what must not change
    total, free   the figures it was given at the start
    blocks, block, refusal   how many blocks of how many bytes it got before which refusal
"""
import collections
import contextlib
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import GIB, MIB, MS, check, equal

ROOM = os.path.join(os.environ["REPO"], "tests/clients")
PLACE = os.path.join(farm.B, "clients")
PYTHON = os.path.join(PLACE, "venv/bin/python")
DEVICE = 8 * GIB
CAP = 512 * MIB
CONTEXT = 64 * MIB
CODE = 64 * MIB  # what loaded code may take besides: nobody counts it yet
KERNEL = "300us"
DEADLINE = 60

Run = collections.namedtuple("Run", "status words errors answer trace tenant overruns")


def bring(kind, name):
    """Ends the test as skipped when the thing cannot be had here."""
    done = subprocess.run([os.path.join(ROOM, "bring"), kind, name], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(done.returncode)


def need(*packages):
    """The Python clients, and Debian's packages of these names."""
    if farm.SAN:
        farm.skip("a sanitised library cannot be preloaded into these programs")
    bring("python", PLACE)
    for package in packages:
        bring("apt", package)


def site(*parts):
    """A path within the environment's packages."""
    version = "python%d.%d" % sys.version_info[:2]
    return os.path.join(PLACE, "venv/lib", version, "site-packages", *parts)


def link_names():
    """A directory with the unversioned names that a driver's and a toolkit's installation have."""
    place = os.path.join(os.environ["TMPDIR"], "names")
    os.makedirs(place, exist_ok=True)
    cuda = site("nvidia/cu13/lib")
    for name, target in (("libcuda.so", os.path.join(farm.SIM, "libcuda.so.1")),
                         ("libnvrtc.so", os.path.join(cuda, "libnvrtc.so.13"))):
        with contextlib.suppress(FileExistsError):
            os.symlink(target, os.path.join(place, name))
    return "%s:%s:%s" % (farm.SIM, place, cuda)


def environment(place, preload, settings, more, tag="client"):
    env = place.environment(tag, preload=preload, **settings)
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        env.pop(name, None)
    home = os.path.join(os.environ["TMPDIR"], "home")  # the second run finds what the first built
    os.makedirs(home, exist_ok=True)
    env.update({"LD_LIBRARY_PATH": link_names(), "HOME": home, "XDG_CACHE_HOME": home + "/.cache",
                "XDG_DATA_HOME": home + "/.data", "PATH": site("../../../bin") + ":" + env["PATH"],
                "PYTHONWARNINGS": "ignore", "NO_COLOR": "1", "COLUMNS": "100"})
    env.update(more or {})
    return env


def start(place, command, preload=True, more=None, tag="client", **settings):
    """The client's exit status, its output and what it wrote to stderr."""
    env = environment(place, preload, settings, more, tag)
    done = subprocess.run(command, env=env, text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, cwd=place.place, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def read_answer(words):
    for line in reversed(words.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def run(command, preload, more=None, sim=None, cap=CAP):
    """The program beside a neighbour whose kernels never pause."""
    settings = {"MEM_LIMIT": cap} if preload else {}
    device = {"MEMORY": DEVICE, "CONTEXT_BYTES": CONTEXT, "KERNEL_DEFAULT": KERNEL}
    with farm.Farm(sim={**device, **(sim or {})}, preload=preload, QUANTUM="5ms") as place:
        neighbour = place.worker("neighbour")
        endless = neighbour.post("loop %d 1000000 4" % (3 * DEADLINE * 1000))
        status, words, errors = start(place, command, preload, more, **settings)
        check(not endless.done(), "the neighbour's work ended: %s" % neighbour.log())
        if status and errors:
            print("%s ended with %d:\n%s\n%s" % (command, status, words[-2000:], errors[-3000:]))
        tenants = place.gpu()["tenants"] if preload else []
        return Run(status, words, errors, read_answer(words), place.trace(),
                   {t["key"]: t for t in tenants}.get("client"),
                   sum(t["overruns"] + t["revocations"] for t in tenants))


def python(name, *arguments):
    return [PYTHON, os.path.join(ROOM, "programs", name), *arguments]


def work(trace, tag="client"):
    """What the device executed for the client: how often which kernel, graph, memset and copy."""
    commands = trace.commands(farm.GATED + ("htod", "dtoh"))
    return collections.Counter((c.kind, c.name) for c in commands if c.client == tag)


def peak(trace):
    return max([m.client_total for m in trace.memory if m.client == "client"] or [0])


def compare_work(bare, capped, least, clears):
    """`clears`: how many memsets a block costs, as the capped run gets fewer blocks."""
    equal(capped.answer.get("same"), bare.answer.get("same"), "the program's results")
    wanted, found = work(bare.trace), work(capped.trace)
    gated = sum(n for (kind, _), n in wanted.items() if kind in farm.GATED)
    check(gated >= least, "only %d launches: %s" % (gated, dict(wanted)))
    fewer = bare.answer.get("blocks", 0) - capped.answer.get("blocks", 0)
    wanted["memset", "-"] -= clears * fewer
    for key in sorted(set(wanted) | set(found)):
        equal(found[key], wanted[key], "%s %s" % key)


def compare_turns(bare, capped):
    """Side by side without the library, one after the other with it."""
    free, gated = (farm.overlaps(run.trace.commands()) for run in (bare, capped))
    turns = sum(turn.client == "client" for turn in capped.trace.turns())
    print("overlaps: %d bare, %d gated (%d counted overruns); %d turns" % (
        len(free), len(gated), capped.overruns, turns), flush=True)
    check(len(free) > 0, "nothing overlaps without the library: this test would see nothing")
    check(turns > 1, "all of the client's work came in one turn")
    if len(gated) > min(capped.overruns, len(free) // 10):
        for overlap in gated[:3]:
            check(False, farm.describe(overlap))


def compare_cap(bare, capped, refusal):
    """The cap is the GPU's size, and memory ends there."""
    equal(bare.answer["total"], DEVICE, "the GPU's size, bare")
    equal(bare.answer["refusal"], None, "refused, bare")
    equal(capped.answer["total"], CAP, "the GPU's size under the cap")
    check(0 < capped.answer["free"] <= CAP, "%d bytes free under the cap" % capped.answer["free"])
    check(refusal in str(capped.answer["refusal"]), "refused: %s" % capped.answer["refusal"])
    block, blocks = capped.answer["block"], capped.answer["blocks"]
    low, high = capped.answer["free"] - 2 * block, capped.answer["free"]
    farm.between(blocks * block, low, high, "bytes got before the refusal")
    check(capped.tenant["refusals"] > 0, "no refusal in the books")


def compare_bytes(bare, capped):
    """What the device gave, context and code included."""
    ceiling = CAP + CONTEXT + CODE
    most, gave = peak(bare.trace), peak(capped.trace)
    check(most > ceiling, "bare it had only %d bytes" % most)
    check(gave <= ceiling, "the device gave %d bytes under the cap" % gave)


def compare_text(bare, capped, least, text=str.splitlines, status=0):
    """Of a program that prints no JSON: `text` of what it prints must be the same."""
    for each in (bare, capped):
        each.answer["same"] = text(each.words)
        check(each.answer["same"], "nothing to compare in what it printed: %s" % each.words[-500:])
    if equal((bare.status, capped.status), (status, status), "exit status, bare and capped"):
        compare_work(bare, capped, least, 0)
        compare_turns(bare, capped)


def compare(command, refusal, least=200, clears=0, more=None, sim=None):
    """Both runs of one of our programs, and all that can be compared; the two runs."""
    bare, capped = run(command, False, more, sim), run(command, True, more, sim)
    if not equal((bare.status, capped.status), (0, 0), "exit status, bare and capped") or \
            not check(capped.tenant, "it did not join the ring: it reaches the driver unseen"):
        return bare, capped
    compare_work(bare, capped, least, clears)
    compare_turns(bare, capped)
    compare_cap(bare, capped, refusal)
    compare_bytes(bare, capped)
    return bare, capped
