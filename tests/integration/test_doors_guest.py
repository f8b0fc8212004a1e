#!/usr/bin/env python3
"""What is not the driver's business is not changed: without a driver, loading it fails with the same
words, also for callers loaded with RTLD_DEEPBIND; bare names are found by the caller's own runpath;
another preload that stands in front of dlsym and dlopen still gets its calls."""
import os
import re
import subprocess
import sys

REPO, LIBRARY, TMP, SIM = (os.environ[k] for k in ("REPO", "CUSLICE_SO", "TMPDIR", "SIM"))
CC, SAN = os.environ["CC"], os.environ.get("SAN", "")
SOURCES = os.path.join(REPO, "tests/integration/doors")
failures = 0


def check(good, words):
    global failures
    if not good:
        failures += 1
        print("FAILED:", words, flush=True)


def build(level):
    place = os.path.join(TMP, level)
    os.makedirs(os.path.join(place, "beside"))
    compiler = [CC, "-std=gnu11", "-D_GNU_SOURCE", "-w", "-" + level]

    def compile(out, source, *flags):
        subprocess.run([*compiler, os.path.join(SOURCES, source), "-o", out, *flags, "-ldl"],
                       cwd=place, check=True)
    compile("guest", "guest.c", "-rdynamic", "-Wl,--enable-new-dtags,-rpath," +
            os.path.join(place, "beside"))
    compile("plugin.so", "guest_plugin.c", "-shared", "-fPIC")
    compile("beside/libbeside.so", "guest_plugin.c", "-shared", "-fPIC")
    # Both kinds of hash table: ours is read by hand.
    for style in ("sysv", "gnu"):
        compile("chain-%s.so" % style, "chain.c", "-shared", "-fPIC", "-Wl,--hash-style=" + style)
    return place


def run(place, preloads, driver):
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    env.update(PLUGIN=os.path.join(place, "plugin.so"), LD_PRELOAD=":".join(preloads))
    if driver:
        env["LD_LIBRARY_PATH"] = SIM
    done = subprocess.run([os.path.join(place, "guest")], env=env, text=True, capture_output=True,
                          timeout=30)
    check(done.returncode == 0 and not done.stderr, "exit %d: %s" % (done.returncode, done.stderr))
    return done.stdout


def check_level(level):
    place = build(level)
    for driver in (False, True):
        bare, ours = run(place, [], driver), run(place, [LIBRARY], driver)
        where = "%s %s a driver" % (level, "with" if driver else "without")
        check(bare == ours, "%s: %s instead of %s" % (where, ours, bare))
        check(("libcuda.so.1 2: there" in bare) == driver, "%s: %s" % (where, bare))
        check(len(re.findall(r"libbeside\.so \w+: there", bare)) == 2, "%s: %s" % (where, bare))
        for style in ("sysv", "gnu"):
            chain = os.path.join(place, "chain-%s.so" % style)
            behind, alone = run(place, [LIBRARY, chain], driver), run(place, [chain], driver)
            check(behind == alone, "%s, a preload behind: %s instead of %s" % (
                where, behind, alone))
            counts = re.search(r"chain (\d+) (\d+)", alone)
            check(int(counts.group(1)) >= 4 and int(counts.group(2)) >= 9, "%s: %s" % (where, alone))


def main():
    if "address" in SAN or "thread" in SAN:
        print("a sanitizer's library cannot be preloaded into plain programs")
        return 77
    for level in ("O0", "O2"):
        check_level(level)
    print("%d failures" % failures)
    return 1 if failures else 0


sys.exit(main())
