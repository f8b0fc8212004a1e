#!/usr/bin/env python3
"""Every function of hooks.def through every door by which a program can find it: where it leads,
with the library and without. The callers are compiled at -O0, at -O2 and for the address sanitizer.
With MATRIX=FILE the outcome is written there, one line `door function outcome` per cell."""
# timeout: 180
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/integration/doors"))
import doors
import matrix
from doors import B, CC, LIBRARY, REPO, SIM, TMP, check, rows

DRIVER = os.path.join(SIM, "libcuda.so.1")
CAP = 64 << 20

LOOKS = ["handle", "path", "dlvsym", "default", "proc_v2", "proc",
         "proc_v2-by-proc_v2", "proc-by-proc_v2", "proc_v2-by-proc", "proc-by-proc"]
OWN = ["linked", *LOOKS, "next", "before"]
DEEP = ["deepbind-constructor", *("deepbind-" + d for d in LOOKS), "deepbind-linked"]
# These lie behind us, or outside of what a preload reaches; hooks/README.md says so.
PAST = ["after", "deepbind-next", "namespace"]
DOORS = [*OWN, *DEEP, *PAST]


def bases():
    """Every name that cuGetProcAddress might be asked for."""
    with open(os.path.join(REPO, "tests/sim/gen/symbols.txt")) as file:
        return sorted({re.sub(r"(_v\d+)?(_pt[sd][zs])?$", "", line.strip()) for line in file})


def build_versioned():
    """The simulated driver with a version on each function, without which dlvsym finds none."""
    place = os.path.join(TMP, "versioned")
    os.mkdir(place)
    with open(os.path.join(place, "map"), "w") as file:
        file.write("VERSION_1 { global: cu*; local: *; };\n")
    objects = [o for part in ("tests/sim/client/*", "tests/sim/common/*", "gen/procs", "gen/stubs",
                              "gen/abi") for o in glob.glob(os.path.join(B, "obj", part + ".o"))]
    subprocess.run([CC, "-shared", "-pthread", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic",
                    "-Wl,--hash-style=both", "-Wl,--version-script=map", "-o", "libcuda.so.1",
                    *objects], cwd=place, check=True)
    return place


class Build:
    def __init__(self, level):
        self.level, self.place = level, os.path.join(TMP, level)
        os.mkdir(self.place)
        self.flags = {"asan": ["-O1", "-fsanitize=address"]}.get(level, ["-" + level])
        with open(os.path.join(self.place, "names.h"), "w") as file:
            file.write("".join("NAME(%s)\n" % name for name in rows()))
        driver = ["-Wl,--no-as-needed", DRIVER]
        plain = ["-" + level] if level != "asan" else ["-O2"]
        for name in ("before", "after"):
            self.compile(name + ".so", "preload.c", plain, "-shared", "-fPIC",
                         "-DPRELOAD_ASK=preload_" + name)
        self.compile("plugin.so", "plugin.c", plain, "-shared", "-fPIC")
        self.compile("linked.so", "linked_plugin.c", plain, "-shared", "-fPIC", *driver,
                     "-Wl,-z,lazy")
        self.compile("program", "program.c", self.flags, "-rdynamic", *driver)

    def compile(self, out, source, flags, *more):
        doors.compile(out, source, "-g", *flags, *more, place=self.place)

    def run(self, *doors, preload=True, others=(), sim=SIM, **simcuda):
        names = [os.path.join(self.place, o + ".so") for o in others]
        if preload:
            names.insert(1 if names else 0, LIBRARY)
        env = {k: v for k, v in os.environ.items() if not k.startswith("CUSLICE_MEM")}
        env.update(LD_PRELOAD=":".join(names), DRIVER=os.path.join(sim, "libcuda.so.1"), DOORS_WHO="deepbind-",
                   PLUGIN=os.path.join(self.place, "plugin.so"), ASK=str(CAP + 1),
                   LINKED=os.path.join(self.place, "linked.so"), LD_LIBRARY_PATH=sim,
                   CUSLICE_MEM_LIMIT=str(CAP), SIMCUDA_LINGER="500ms",
                   ASAN_OPTIONS="detect_leaks=0:verify_asan_link_order=0")
        env.update({"SIMCUDA_" + k: v for k, v in simcuda.items()})
        done = subprocess.run([os.path.join(self.place, "program"), *doors], env=env, text=True,
                              capture_output=True, timeout=60)
        check(done.returncode == 0, "%s %s: exit %d: %s" % (
            self.level, doors, done.returncode, done.stderr[-400:]))
        self.said = done.stderr
        found = [line.split() for line in done.stdout.splitlines()]
        for words in found:
            check(words[0] != "error", "%s: %s" % (self.level, " ".join(words)))
        return {(w[0], w[1]): (w[2], w[3]) for w in found if len(w) == 4}


def look(build, preload, versioned):
    """What each door gives; the order of the preloads: before, ours, after."""
    own = ("own",) if build.level == "asan" else ("own", "deep")  # the sanitizer refuses DEEPBIND
    by_version = build.run(*own, preload=preload, sim=versioned)
    found = build.run(*own, preload=preload)
    found.update({key: answer for key, answer in by_version.items() if key[0].endswith("dlvsym")})
    others = ("before", "after")
    found.update(build.run("before", "after", preload=preload, others=others))
    if build.level != "asan":
        found.update(build.run("namespace", preload=preload))
        check(("[second-driver]" in build.said) == preload, "a second driver is told of: " + build.said)
    return found


def check_cell(level, door, name, bare, ours):
    """The same function as without the library, and its hook wherever a preload reaches."""
    if not check((door, name) in bare and (door, name) in ours, "%s: no answer of %s for %s" % (
            level, door, name)):
        return "untested"
    was, now = bare[door, name], ours[door, name]
    check(was[0] in ("driver", "none"), "%s: %s %s is %s without the library" % (
        level, door, name, was))
    wanted = "hook" if door not in PAST and was[0] == "driver" else was[0]
    check(now == (wanted, name if wanted != "none" else "-"), "%s: %s %s is %s, not %s" % (
        level, door, name, now, wanted))
    return now[0]


def check_matrix(build, versioned):
    bare, ours = look(build, False, versioned), look(build, True, versioned)
    doors = DOORS if build.level != "asan" else [*OWN, "after"]
    cells = {(d, n): check_cell(build.level, d, n, bare, ours) for d in doors for n in rows()}
    reached = sum(outcome == "hook" for outcome in cells.values())
    print("%s: %d cells, %d lead to hooks" % (build.level, len(cells), reached))
    check(not any(outcome == "hook" for door, outcome in
                  ((d, bare[d, n][0]) for d, n in bare)), "a hook without the library")
    return cells


def check_use(build):
    """A lazily bound call of a deep-bound, linked plugin meets the cap."""
    for preload, wanted in ((True, "2"), (False, "0")):
        found = build.run("use", preload=preload)
        check(found.get(("used", "deepbind"), ("none",))[0] == wanted, "%s: more than the cap %s: %s" % (
            build.level, "with the library" if preload else "without", found))


def check_sweep(build):
    """cuGetProcAddress_v2 of every name, at every version, with every flag."""
    names = os.path.join(build.place, "bases")
    with open(names, "w") as file:
        file.write("\n".join(bases()))
    bare, ours = build.run(names, preload=False), build.run(names)
    check(len(bare) > 1000, "%d answers" % len(bare))
    hooked, swapped = set(rows()), 0
    for key in sorted(set(bare) | set(ours)):
        was, now = bare.get(key, ("missing", "")), ours.get(key, ("missing", ""))
        wanted = ("hook" if was[1] in hooked else was[0], was[1])
        check(now == wanted, "%s: %s, not %s" % (key, now, wanted))
        swapped += now[0] == "hook"
    print("%d answers of cuGetProcAddress_v2, %d swapped" % (len(ours), swapped))
    # A driver that answers with entries other than those it exports.
    private = build.run(names, PROC_ENTRIES="private")
    check("unhooked" not in build.said, build.said)
    check({k: v for k, v in private.items() if v[0] == "hook"} ==
          {k: v for k, v in ours.items() if v[0] == "hook"}, "hooks for private entries")
    bare = build.run(names, preload=False, PROC_ENTRIES="private")
    check({v[0] for v in bare.values()} <= {"other", "none"}, "private entries are not private")


def check_document(cells):
    if "MATRIX" in os.environ:
        with open(os.environ["MATRIX"], "w") as file:
            for (door, name), outcome in cells.items():
                file.write("%s %s %s\n" % (door, name, outcome))
        return
    with open(os.path.join(REPO, "hooks/MATRIX.md")) as file:
        check(file.read() == matrix.text(cells), "hooks/MATRIX.md is stale: make it anew with "
              "tests/integration/doors/matrix.py")


def main():
    versioned = build_versioned()
    for level in ("O0", "O2", "asan"):
        build = Build(level)
        cells = check_matrix(build, versioned)
        if level != "asan":
            check_use(build)
        if level == "O2":
            check_sweep(build)
            check_document(cells)


doors.run(main)
