"""What the tests of the doors share: the compiler for their callers, the names of the hooks, and
failures that are counted. No worker and no ring: these programs are of one process each."""
import os
import re
import subprocess
import sys

B, REPO, LIBRARY, TMP, SIM = (os.environ[k] for k in ("B", "REPO", "CUSLICE_SO", "TMPDIR", "SIM"))
CC, SAN = os.environ["CC"], os.environ.get("SAN", "")
SOURCES = os.path.join(REPO, "tests/integration/doors")
TOLD = 40  # of failures that are alike

_failures = 0


def check(good, words):
    global _failures
    if not good:
        _failures += 1
        if _failures <= TOLD:
            print("FAILED:", words, flush=True)
    return good


def rows():
    """The hooked names, in the order of hooks.def."""
    with open(os.path.join(REPO, "hooks/hooks.def")) as file:
        return re.findall(r"^(?!USE)[A-Z_]+\((cu\w+)", file.read(), re.MULTILINE)


def compile(out, source, *flags, place=TMP):
    """A program or library of this folder; its path."""
    subprocess.run([CC, "-std=gnu11", "-D_GNU_SOURCE", "-w", "-I" + place,
                    os.path.join(SOURCES, source), "-o", out, *flags, "-ldl"], cwd=place, check=True)
    return os.path.join(place, out)


def run(main):
    """The end of a test. `main` gives its exit status where there is more to it than failures."""
    if "address" in SAN or "thread" in SAN:
        print("a sanitizer's library cannot be preloaded into plain programs")
        sys.exit(77)
    status = main()
    print("%d failures" % _failures)
    sys.exit(1 if _failures else status or 0)
