#!/usr/bin/env python3
"""The look-ups that the CUDA runtime makes: a recorded list of them replayed, and the runtime itself,
alone and within the libraries that carry a copy, watched by an audit library. Each that finds a
function of hooks.def finds its hook; all others find the driver. Afterwards the runtime reports an
error, as the simulated driver does not pose as a genuine one."""
# timeout: 180
import glob
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration/doors"))
import doors
from doors import LIBRARY, SIM, SOURCES, TMP, check

RECORDED = os.path.join(SOURCES, "lookups-13.0.txt")  # made by version 13.0.96
CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda")
LIBS = os.path.join(CUDA, "lib64")

# A call that wakes the runtime within a library, and how many look-ups there are at least.
CARRIERS = [("libcublas.so", "cublasCreate_v2", 440), ("libcublasLt.so", "cublasLtCreate", 440),
            ("libcudnn.so", "cudnnCreate", 440), ("libnccl.so", "ncclCommInitAll", 440),
            ("libcurand.so", "curandCreateGenerator", 440),
            ("libcusparse.so", "cusparseCreate", 440),
            ("libcusolver.so", "cusolverDnCreate", 440), ("libcufft.so", "cufftCreate", 60)]


def build(out, source, *flags):
    return doors.compile(out, source, *flags, "-lrt", "-pthread")


def run(command, preload, **more):
    env = dict(os.environ, LD_PRELOAD=LIBRARY if preload else "",
               LD_LIBRARY_PATH=":".join((SIM, LIBS)), SIMCUDA_LINGER="500ms", **more)
    done = subprocess.run(command, env=env, text=True, capture_output=True, timeout=60)
    check(done.returncode == 0, "%s: exit %d: %s" % (command, done.returncode, done.stderr[-400:]))
    return done.stdout


def judge(where, found, hooked, preload):
    """found: (name, symbol, owner) of each look-up; how many led to hooks."""
    swapped = 0
    for name, symbol, owner in found:
        if symbol == "-":
            continue
        wanted = "hook" if preload and symbol in hooked else "driver"
        check(owner == wanted, "%s: %s (%s) leads to the %s, not the %s" % (
            where, name, symbol, owner, wanted))
        swapped += owner == "hook"
    return swapped


def check_replay(hooked):
    open(os.path.join(TMP, "names.h"), "w").close()
    program = build("replay", "replay.c")
    for preload in (False, True):
        lines = [line.split() for line in run([program, RECORDED], preload).splitlines()]
        check(len(lines) == 440, "%d look-ups" % len(lines))
        check(sum(w[3] == "0" and w[5] != "-" for w in lines) > 400, "look-ups that find something")
        swapped = judge("replay", [(" ".join(w[:3]), w[5], w[4]) for w in lines], hooked, preload)
        check((swapped > 80) == preload, "replay: %d swapped" % swapped)
    print("replay: 440 look-ups, %d swapped" % swapped)


def check_unknown():
    """What cannot be told apart is said once, and goes to the driver as it would without us."""
    names = os.path.join(TMP, "few")
    with open(names, "w") as file:
        file.write("cuMemAlloc 3020 0\ncuLaunchKernel 4000 0\ncuLaunchKernel 7000 2\n")
    env = dict(os.environ, LD_PRELOAD=LIBRARY, LD_LIBRARY_PATH=SIM, SIMCUDA_PROC_ENTRIES="fresh")
    done = subprocess.run([os.path.join(TMP, "replay"), names], env=env, text=True,
                          capture_output=True, timeout=60)
    check([line.split()[4] for line in done.stdout.splitlines()] == ["other"] * 3, done.stdout)
    check(done.stderr.count("[unhooked]") == 1, "not said once: " + done.stderr)


def watched(command, log):
    """What was looked up while the command ran, by whichever copy of the runtime."""
    with open(log) as file:
        lines = [line.split() for line in file]
    os.unlink(log)
    owner = {"libcuslice.so": "hook", "libcuda.so.1": "driver"}
    # Other libraries of NVIDIA's have names that begin alike.
    return [(w[1], w[6], owner[w[5]]) for w in lines if w[5] in owner and w[4] == "0"], len(lines)


def check_runtime(name, command, least, hooked, watch):
    log = os.path.join(TMP, "log")
    for preload in (False, True):
        result = run(command, preload, LD_AUDIT=watch, WATCH=log).split()
        check(result and result[-1] != "0", "%s: no error without a genuine driver" % name)
        found, count = watched(command, log)
        check(count >= least, "%s: only %d look-ups" % (name, count))
        swapped = judge(name, found, hooked, preload)
        check((swapped > 20) == preload, "%s: %d swapped" % (name, swapped))
    print("%s: %d look-ups, %d swapped" % (name, count, swapped))


def runtimes():
    """(name, command, look-ups at least) of the copies of the runtime on this machine."""
    if os.path.exists(os.path.join(LIBS, "libcudart.so")):
        yield "shared", [build("shared", "runtime.c", "-DLINKED_RUNTIME", "-L" + LIBS,
                               "-lcudart")], 440
    static = os.path.join(LIBS, "libcudart_static.a")
    if os.path.exists(static):
        yield "static", [build("static", "runtime.c", "-DLINKED_RUNTIME", static)], 440
    carrier = build("carrier", "runtime.c")
    for library, function, least in CARRIERS:
        found = sorted(glob.glob(os.path.join(LIBS, library + ".*"))) or \
            glob.glob(os.path.join(LIBS, library))
        if found:
            yield library, [carrier, found[0], function], least


def main():
    hooked = set(doors.rows())
    check_replay(hooked)
    check_unknown()
    watch = build("watch.so", "watch.c", "-shared", "-fPIC")
    seen = 0
    for name, command, least in runtimes():
        check_runtime(name, command, least, hooked, watch)
        seen += 1
    print("%d copies of the CUDA runtime" % seen)
    if seen == 0:
        print("no CUDA runtime here to watch")
        return 77
    return 0


doors.run(main)
