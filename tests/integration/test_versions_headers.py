#!/usr/bin/env python3
"""One library comes out of every cuda.h: compiled with the headers of CUDA 11.8 to 13.0, by gcc and
by clang, without a warning, it exports the same names, and among them every row of hooks.def."""
# timeout: 240
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/versions"))
import versions

failures = 0


def check(good, words):
    global failures
    if not good:
        failures += 1
        print("FAILED:", words, flush=True)


def main():
    found = versions.headers()
    if not found:
        print("the headers of all versions cannot be had here")
        return 77
    wanted = versions.rows()
    check(len(wanted) > 80, "only %d rows in hooks.def" % len(wanted))
    lists = {}
    for compiler in ("gcc", "clang"):
        if not shutil.which(compiler):
            print("no %s here" % compiler)
            continue
        for version, include in found:
            name = "%s with the header of %s" % (compiler, version)
            try:
                lists[name] = versions.exports(versions.library(version, include, compiler))
            except subprocess.CalledProcessError as error:
                check(False, "%s: %s" % (name, error.stdout[-2000:]))
    check(len(lists) >= len(found), "compiled %d times" % len(lists))
    everything = set().union(*lists.values()) if lists else set()
    for name, symbols in lists.items():
        check(symbols == everything, "%s: lacks %s" % (name, sorted(everything - symbols)))
        check(wanted <= symbols, "%s: rows not exported: %s" % (name, sorted(wanted - symbols)))
    print("%d builds, %d names each, %d rows" % (len(lists), len(everything), len(wanted)))
    return 1 if failures else 0


sys.exit(main())
