#!/usr/bin/env python3
"""Makes hooks/MATRIX.md of the outcome of one run of test_doors_matrix.

    MATRIX=/tmp/cells tests/run doors_matrix
    tests/integration/doors/matrix.py /tmp/cells > hooks/MATRIX.md

Each line of the outcome is `door function outcome`. The test compares the file with what it finds."""
import sys

WORDS = {
    "linked": "the program is linked with the driver",
    "handle": "`dlopen` by name, `dlsym`",
    "path": "`dlopen` by full path, `dlsym`",
    "dlvsym": "`dlopen`, `dlvsym`; of a driver that has versions, as otherwise nothing is found",
    "default": "`dlsym(RTLD_DEFAULT)`",
    "proc_v2": "`dlsym` of `cuGetProcAddress_v2`, then that",
    "proc": "`dlsym` of `cuGetProcAddress`, then that",
    "proc_v2-by-proc_v2": "the `cuGetProcAddress_v2` that `cuGetProcAddress_v2` finds",
    "proc-by-proc_v2": "the `cuGetProcAddress` that `cuGetProcAddress_v2` finds",
    "proc_v2-by-proc": "the `cuGetProcAddress_v2` that `cuGetProcAddress` finds",
    "proc-by-proc": "the `cuGetProcAddress` that `cuGetProcAddress` finds",
    "next": "`dlsym(RTLD_NEXT)` of the program",
    "before": "`dlsym(RTLD_NEXT)` of a preload in front of cuslice",
    "after": "`dlsym(RTLD_NEXT)` of a preload behind cuslice",
    "deepbind-constructor": "while it is being loaded: `dlopen`, `dlsym`",
    "deepbind-linked": "it is linked with the driver",
    "deepbind-next": "`dlsym(RTLD_NEXT)`: nothing is loaded behind it",
    "namespace": "`dlmopen` of the driver into a namespace of its own, `dlsym`",
}
SIGNS = {"hook": "h", "driver": "d", "none": "-"}

HEAD = """# Every function through every door

Made by `tests/integration/doors/matrix.py` from a run of `tests/integration/test_doors_matrix.py`, which fails when
this file says something else than it finds. The same is found by callers compiled with -O0 and -O2; doors 1 to %d
also under the address sanitizer, which itself refuses `RTLD_DEEPBIND`. Signs: **h** leads to the hook, **d** to the
driver, past cuslice (README.md says why), **-** to nothing, as without cuslice.

| | door |
|---|---|
"""


def words(door):
    if door in WORDS:
        text = WORDS[door]
    else:
        text = WORDS[door[len("deepbind-"):]]
    return "a plugin loaded with `RTLD_DEEPBIND`: " + text if door.startswith("deepbind-") else text


def text(cells):
    """cells: {(door, function): outcome}, in order."""
    doors = list(dict.fromkeys(door for door, _ in cells))
    names = list(dict.fromkeys(name for _, name in cells))
    own = [d for d in doors if not d.startswith("deepbind") and d not in ("after", "namespace")]
    lines = ["| %d | %s |" % (i, words(door)) for i, door in enumerate(doors, 1)]
    lines += ["", "| function | " + " | ".join(str(i) for i in range(1, len(doors) + 1)) + " |",
              "|---" * (len(doors) + 1) + "|"]
    for name in names:
        signs = [SIGNS.get(cells.get((door, name)), "untested") for door in doors]
        lines.append("| `%s` | %s |" % (name, " | ".join(signs)))
    return HEAD % len(own) + "\n".join(lines) + "\n"


def read(path):
    with open(path) as file:
        return {(door, name): outcome for door, name, outcome in map(str.split, file)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: matrix.py OUTCOME")
    sys.stdout.write(text(read(sys.argv[1])))
