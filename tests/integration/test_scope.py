#!/usr/bin/env python3
"""dlsym keeps its caller's scope: RTLD_NEXT and RTLD_DEFAULT mean what they mean without the
library, for callers compiled at -O0 and -O2; a name nobody has fails alike, with dlerror's text."""
import os
import re
import subprocess
import sys

REPO, LIBRARY, TMP = os.environ["REPO"], os.environ["CUSLICE_SO"], os.environ["TMPDIR"]
CC, SAN = os.environ["CC"], os.environ.get("SAN", "")
failures = 0

# Three objects that have `who`: the program, near, far. near asks for the next one after itself.
NEAR = r"""
#include <dlfcn.h>
#include <stddef.h>
const char *who(void); const char *next(void); void *ask(void *handle, const char *name);
const char *who(void) { return "near"; }
void *ask(void *handle, const char *name) { return dlsym(handle, name); }
const char *next(void)
{
    const char *(*f)(void);
    *(void **)&f = dlsym(RTLD_NEXT, "who");
    return f ? f() : "none";
}
"""
FAR = 'const char *who(void); const char *who(void) { return "far"; }'
PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
const char *who(void); const char *next(void); void *ask(void *handle, const char *name);
const char *who(void) { return "program"; }
static const char *call(void *f)
{
    const char *(*g)(void);
    *(void **)&g = f;
    return f ? g() : "none";
}
int main(void)
{
    void *far = dlopen(FAR_PATH, RTLD_NOW | RTLD_LOCAL);
    printf("%s %s ", next(), call(dlsym(RTLD_NEXT, "who")));
    printf("%s %s ", call(dlsym(RTLD_DEFAULT, "who")), call(dlsym(far, "who")));
    printf("%s %s ", call(ask(RTLD_DEFAULT, "who")), call(ask(far, "who")));
    printf("%d ", dlsym(RTLD_DEFAULT, "cuNoSuchCall") != NULL);
    printf("%s ", dlerror() ? "said" : "silent");
    printf("%d %d", dlsym(RTLD_NEXT, "cuLaunchKernel") == NULL, dlvsym(far, "who", "V1") != NULL);
    printf("\n%s\n", (dlsym(far, "nobody"), dlerror()));
    return 0;
}
"""


def check(good, words):
    global failures
    if not good:
        failures += 1
        print("FAILED:", words)


def build(level):
    directory = os.path.join(TMP, level)
    os.mkdir(directory)
    for name, text in (("near", NEAR), ("far", FAR), ("program", PROGRAM)):
        with open(os.path.join(directory, name + ".c"), "w") as file:
            file.write(text)
    compiler = [CC, "-D_GNU_SOURCE", "-" + level, "-w"]
    for name in ("far", "near"):
        subprocess.run([*compiler, "-fPIC", "-shared", "-o", "lib%s.so" % name, name + ".c",
                        "-ldl"], cwd=directory, check=True)
    # far.so is in the program's own list behind near, so that near's next one is far's.
    subprocess.run([*compiler, "-DFAR_PATH=\"%s/libfar.so\"" % directory, "-o", "program",
                    "program.c", "-Wl,--no-as-needed", "-L.", "-lnear", "-lfar",
                    "-Wl,-rpath," + directory, "-rdynamic", "-ldl"], cwd=directory, check=True)
    return os.path.join(directory, "program")


def output(program, preload):
    env = dict(os.environ)
    env.pop("LD_PRELOAD", None)
    if preload:
        env["LD_PRELOAD"] = preload
    done = subprocess.run([program], env=env, text=True, capture_output=True, timeout=30)
    check(done.returncode == 0, "exit %d: %s" % (done.returncode, done.stderr))
    return done.stdout


def without_hooks(text):
    """A preload's own cuLaunchKernel may be found by RTLD_NEXT; all else must be equal."""
    return re.sub(r"(said|silent) [01] ", r"\1 - ", text)


def main():
    if "address" in SAN or "thread" in SAN:
        print("a sanitizer's library cannot be preloaded into plain programs")
        return 77
    for level in ("O0", "O2"):
        program = build(level)
        bare, under = output(program, None), output(program, LIBRARY)
        check(bare.startswith("far near program far program far 0 "), "%s bare: %s" % (level, bare))
        check(without_hooks(under) == without_hooks(bare), "%s: %r, not %r" % (level, under, bare))
    print("%d failures" % failures)
    return 1 if failures else 0


sys.exit(main())
