#!/usr/bin/env python3
"""What is not the driver's business is not changed: without a driver, loading it fails with the same
words, also for callers loaded with RTLD_DEEPBIND; bare names are found by the caller's own runpath;
another preload that stands in front of dlsym and dlopen still gets its calls."""
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration/doors"))
import doors
from doors import LIBRARY, SIM, TMP, check


def build(level):
    place = os.path.join(TMP, level)
    os.makedirs(os.path.join(place, "beside"))

    def compile(out, source, *flags):
        doors.compile(out, source, "-" + level, *flags, place=place)
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
    for level in ("O0", "O2"):
        check_level(level)


doors.run(main)
