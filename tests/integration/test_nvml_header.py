#!/usr/bin/env python3
"""What hooks/nvml_abi.h and hooks/nvml.def say of NVML is what NVIDIA's header says: every
function's prototype, by the compiler, and every structure's size, places and version. The header
comes from PyPI; without it the test is skipped. The comparison is then shown to fail."""
# timeout: 120
import fcntl
import glob
import os
import re
import subprocess
import sys

B, REPO, TMP, CC = (os.environ[k] for k in ("B", "REPO", "TMPDIR", "CC"))
PACKAGES = ("nvidia-nvml-dev==13.0.39", "nvidia-nvml-dev==13.5.37")
PLACE = os.path.join(B, "headers", "nvml")
HOOKS = os.path.join(REPO, "hooks")
STRUCTURES = ("nvmlMemory_t", "nvmlMemory_v2_t", "nvmlProcessInfo_v1_t", "nvmlProcessInfo_t",
              "nvmlProcessDetail_v1_t", "nvmlProcessDetailList_t")
THEIRS = "#include HEADER\n#ifndef NVML_API_VERSION\n#error not the one\n#endif\n"
VERSIONS = ("nvmlMemory_v2", "nvmlProcessDetailList_v1", "NVML_DEVICE_UUID_V2_BUFFER_SIZE",
            "NVML_VALUE_NOT_AVAILABLE", "NVML_SUCCESS", "NVML_ERROR_UNINITIALIZED",
            "NVML_ERROR_FUNCTION_NOT_FOUND")

failures = 0


def check(good, words):
    global failures
    if not good:
        failures += 1
        print("FAILED:", words, flush=True)


def headers():
    """The directories of the headers; None when one cannot be had."""
    os.makedirs(PLACE, exist_ok=True)
    with open(os.path.join(PLACE, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [bring(package) for package in PACKAGES]


def bring(package):
    place = os.path.join(PLACE, package.replace("==", "-"))
    if not os.path.isdir(place):
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
                   "--no-deps", "--only-binary", ":all:", "-d", TMP, package]
        if subprocess.run(command, timeout=90, check=False).returncode:
            return None
        wheel = glob.glob(os.path.join(TMP, "nvidia_nvml_dev-%s-*.whl" % package.split("==")[1]))[0]
        subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, place + ".new"], check=True)
        os.rename(place + ".new", place)
    found = glob.glob(os.path.join(place, "**", "nvml.h"), recursive=True)
    return os.path.dirname(found[0]) if found else None


def define(include):
    return '-DHEADER="%s/nvml.h"' % include


def compiled(text, *flags):
    """The program's path, or the compiler's complaint."""
    source, program = os.path.join(TMP, "check.c"), os.path.join(TMP, "check")
    with open(source, "w") as file:
        file.write(text)
    done = subprocess.run([CC, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I" + HOOKS, *flags,
                           "-o", program, source], text=True, stderr=subprocess.PIPE, check=False)
    return program if done.returncode == 0 else done.stderr


def prototypes(include, table=None):
    """Each row declared again, behind the header: empty when they agree. The header by its path,
    since the hooks have one of that name."""
    table = table or '#include "nvml.def"\n'
    text = '#define NVML_NO_UNVERSIONED_FUNC_DEFS\n' + THEIRS + '#include "pairs.h"\n' \
           '#define MASK(name, mask, ...) nvmlReturn_t name(PAIRS_DECLARE(__VA_ARGS__));\n' \
           '#define USE(name, ...) nvmlReturn_t name(PAIRS_DECLARE(__VA_ARGS__));\n' + table
    found = compiled(text + "int main(void) { return 0; }\n", define(include))
    return "" if os.path.exists(found) else found


def fields():
    with open(os.path.join(HOOKS, "nvml_abi.h")) as file:
        text = file.read()
    return [(s, re.findall(r"(\w+);", re.search(r"typedef struct \{([^}]*)\} %s;" % s,
                                                text).group(1))) for s in STRUCTURES]


def layout(head, *flags):
    """Sizes, offsets and constants, as the compiler sees them behind this include."""
    lines = ['printf("%%s %%llu\\n", "%s", (unsigned long long)(%s));' % (what, what)
             for s, names in fields()
             for what in ["sizeof(%s)" % s, *("offsetof(%s, %s)" % (s, n) for n in names),
                          *("sizeof(((%s *)0)->%s)" % (s, n) for n in names)]]
    lines += ['printf("%%s %%llu\\n", "%s", (unsigned long long)(%s));' % (v, v) for v in VERSIONS]
    text = "#include <stddef.h>\n#include <stdio.h>\n%s\nint main(void) {\n%s\nreturn 0; }\n" % (
        head, "\n".join(lines))
    program = compiled(text, *flags)
    if not os.path.exists(program):
        return program
    return subprocess.run([program], text=True, stdout=subprocess.PIPE, check=True).stdout


def main():
    found = headers()
    if None in found:
        print("NVIDIA's nvml.h cannot be had here")
        return 77
    ours = layout('#include "nvml_abi.h"')
    check(ours.count("\n") > 50, "what nvml_abi.h says: %s" % ours)
    for include in found:
        check(prototypes(include) == "", "prototypes in %s: %s" % (include, prototypes(include)))
        theirs = layout(THEIRS, define(include))
        check(theirs == ours, "layouts in %s:\n%s\nnot\n%s" % (include, theirs, ours))
        wrong = "MASK(nvmlDeviceGetMemoryInfo, 0, nvmlDevice_t, d, nvmlMemory_v2_t *, m)\n"
        check("conflicting types" in prototypes(include, wrong), "the check itself cannot fail")
    print("%d headers agree" % len(found))
    return 1 if failures else 0


sys.exit(main())
