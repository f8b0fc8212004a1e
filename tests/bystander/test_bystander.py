#!/usr/bin/env python3
"""Programs that never use CUDA, under the preload: no thread, no file, no lock, no word, the same
exit status, the driver not loaded; and beside other preloads that use dlsym themselves."""
# timeout: 90
import json
import os
import re
import shutil
import subprocess
import sys
import time

LIBRARY, SIM, TMP = os.environ["CUSLICE_SO"], os.environ["SIM"], os.environ["TMPDIR"]
RING, CC, SAN = os.environ["CUSLICE_DIR"], os.environ["CC"], os.environ.get("SAN", "")
failures = 0


def check(good, words):
    global failures
    if not good:
        failures += 1
        print("FAILED:", words)
    return bool(good)


def equal(found, wanted, words):
    return check(found == wanted, "%s: %r, not %r" % (words, found, wanted))


def environment(preload, **more):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    # Settings that would be complained about, and a driver that could be loaded.
    env.update(CUSLICE_MEM_LIMIT="12 apples", CUSLICE_WEIGHT="heavy", LD_LIBRARY_PATH=SIM, **more)
    if preload:
        env["LD_PRELOAD"] = preload
    return env


def run(command, preload, **more):
    done = subprocess.run(command, env=environment(preload, **more), text=True, timeout=60,
                          capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


LOOK = """
import json, os
fds = sorted(os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd")
             if os.path.exists("/proc/self/fd/" + n))
maps = sorted({line.split()[-1] for line in open("/proc/self/maps") if "/" in line})
import signal
print(json.dumps({
    "fds": [f for f in fds if not f.startswith(("pipe:", "/proc/"))],
    "tasks": len(os.listdir("/proc/self/task")), "maps": maps, "umask": os.umask(0),
    "signals": [str(signal.getsignal(n)) for n in range(1, 32)], "cwd": os.getcwd(),
    "names": sorted(os.environ),
    "locks": [l for l in open("/proc/locks") if " %d " % os.getpid() in l],
}))
"""


def check_programs():
    for command in (["/bin/true"], ["/bin/false"], ["/bin/sh", "-c", "exit 7"],
                    ["bash", "-c", "echo out; echo err >&2; (exit 5); kill -TERM $$"],
                    ["bash", "-c", "cat </dev/null | sort | head -n 1; echo $((1 + 1))"],
                    [sys.executable, "-c", "import threading, ctypes, sys; print(sys.argv); 1 / 0"],
                    ["ls", "/nonexistent"], ["/bin/sh", "-c", "ulimit -n 3; true"]):
        equal(run(command, LIBRARY), run(command, None), "%s" % command)
    equal(os.listdir(RING), [], "files in the ring directory")


def check_process():
    bare, under = (json.loads(run([sys.executable, "-c", LOOK], preload)[1])
                   for preload in (None, LIBRARY))
    added = set(under["maps"]) - set(bare["maps"])
    # In a portable build the library may bring glibc's own pthread and dl.
    check(all(os.path.basename(m).startswith(("libcuslice", "libpthread", "libdl")) for m in added),
          "mapped besides the library: %s" % added)
    check(any("libcuslice" in m for m in added), "the library is not there: nothing was tried")
    for what in ("fds", "tasks", "umask", "signals", "cwd", "locks"):
        equal(under[what], bare[what], what)
    equal(set(under["names"]) - set(bare["names"]), {"LD_PRELOAD"}, "environment")


def opened(command, preload):
    """Paths that a program tried to open, and its threads and children, by strace."""
    out = os.path.join(TMP, "strace")
    env = environment(preload)
    arguments = [part for name in ("LD_PRELOAD", "LD_LIBRARY_PATH") if name in env
                 for part in ("-E", "%s=%s" % (name, env.pop(name)))]
    done = subprocess.run(["strace", "-f", "-o", out, "-e",
                           "trace=open,openat,creat,socket,connect,clone,clone3,fork,vfork,unlink,"
                           "mkdir,kill,tgkill,rt_sigaction,membarrier,flock,fcntl", *arguments,
                           *command], env=env, capture_output=True, timeout=60)
    if done.returncode:
        return None
    with open(out) as file:
        text = file.read()
    paths = set(re.findall(r'open(?:at)?\([^"]*"([^"]*)"', text))
    calls = re.findall(r"^\d+ (\w+)\(", text, re.MULTILINE)
    others = {name: calls.count(name) for name in set(calls) - {"open", "openat"}}
    return paths, others


def check_calls():
    if not shutil.which("strace"):
        print("no strace here: system calls are not compared")
        return
    for command in (["/bin/true"], ["bash", "-c", "true"], [sys.executable, "-S", "-c", "pass"]):
        bare, under = opened(command, None), opened(command, LIBRARY)
        if bare is None or under is None:
            print("strace is not permitted here: system calls are not compared")
            return
        added = under[0] - bare[0]
        check(LIBRARY in under[0], "%s: the library is not opened: nothing was tried" % command)
        check(all(os.path.basename(p).startswith(("libcuslice", "libpthread", "libdl"))
                  for p in added), "%s: opened besides: %s" % (command, added))
        equal(under[1], bare[1], "%s: other calls" % command)


SHIM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *(*next)(size_t);
static unsigned long count;
static char early[65536];
static size_t used;
static int busy;
void *malloc(size_t size)
{
    if (!next && !busy) {
        busy = 1;
        *(void **)&next = dlsym(RTLD_NEXT, "malloc");
        busy = 0;
    }
    if (!next) {
        used = (used + 15) & ~15ul;
        used += size;
        return used <= sizeof early ? early + used - size : NULL;
    }
    count++;
    return next(size);
}
static void done(void) __attribute__((destructor));
static void done(void)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%s\n",
                     count > 0 && next != malloc ? "shim works" : "broken");
    if (write(2, text, (size_t)n) != n)
        abort();
}
"""


PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
    char *text = malloc(100);
    snprintf(text, 100, "%d", 6 * 7);
    puts(text);
    free(text);
    return 0;
}
"""


def write(name, text):
    path = os.path.join(TMP, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def check_shims():
    """Another preload that finds the next malloc by dlsym works before and after ours."""
    source, program = write("shim.c", SHIM), os.path.join(TMP, "program")
    subprocess.run([CC, "-w", "-fno-builtin", "-o", program, write("program.c", PROGRAM)],
                   check=True)
    for level in ("-O0", "-O2"):
        shim = os.path.join(TMP, "shim%s.so" % level)
        subprocess.run([CC, "-D_GNU_SOURCE", level, "-w", "-fno-builtin-malloc", "-shared", "-fPIC",
                        "-o", shim, source, "-ldl"], check=True)
        for order in (shim, shim + ":" + LIBRARY, LIBRARY + ":" + shim):
            for command in ([program], [sys.executable, "-c", "print([str(i) for i in range(9)])"]):
                status, out, said = run(command, order)
                equal((status, said), (0, "shim works\n"), "%s under %s" % (command, order))
                equal(out, run(command, None)[1], "%s's output under %s" % (command, order))


ASK_AND_FORK = """
import ctypes, os, sys
handle = ctypes.CDLL(None)
# Names that begin as the driver's do, and libraries of the program's own.
for name in ("cu", "cuNothing", "cuInitially", "curl_easy_init", "puts", "nvml", "nvmlNothing"):
    getattr(handle, name, None)
# Nobody has initialised what is not loaded.
sys.stdout.write("%d " % handle.nvmlDeviceGetMemoryInfo(None, None))
libm = ctypes.CDLL("libm.so.6")
libm.cos.restype, libm.cos.argtypes = ctypes.c_double, [ctypes.c_double]
sys.stdout.write("%.1f " % libm.cos(0.0))
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    os._exit(9)
sys.stdout.write("%d %d" % (os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
                            len(os.listdir("/proc/self/task"))))
sys.stdout.write(" %s" % any("libcuda" in line or "libnvidia" in line
                               for line in open("/proc/self/maps")))
"""


def check_look_ups():
    """dlsym of foreign names, and of names that only look like the driver's, loads nothing."""
    status, out, said = run([sys.executable, "-c", ASK_AND_FORK], LIBRARY)
    equal((status, out, said), (0, "1 1.0 9 1 False", ""), "look-ups and a fork")
    equal(os.listdir(RING), [], "files in the ring directory")


def check_cost():
    def seconds(preload, times=100):
        env = environment(preload)
        begun = time.monotonic()
        for _ in range(times):
            subprocess.run(["/bin/true"], env=env, check=True)
        return (time.monotonic() - begun) / times

    bare = min(seconds(None) for _ in range(3))
    under = min(seconds(LIBRARY) for _ in range(3))
    print("starting /bin/true: %.3f ms bare, %.3f ms under the library" % (1e3 * bare, 1e3 * under))
    check(under - bare < 0.02, "the library costs %.1f ms at the start of a program" %
          (1e3 * (under - bare)))


def main():
    if "address" in SAN or "thread" in SAN:
        print("a sanitizer's library cannot be preloaded into plain programs")
        return 77
    for each in (check_programs, check_process, check_calls, check_shims, check_look_ups,
                 check_cost):
        each()
    print("%d failures" % failures)
    return 1 if failures else 0


sys.exit(main())
