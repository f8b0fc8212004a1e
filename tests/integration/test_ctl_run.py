#!/usr/bin/env python3
"""`cuslice run`: the environment that a program gets, which library is preloaded, and how it ends."""
import os
import shutil
import signal
import subprocess
import sys

B = os.environ["B"]
TMP = os.environ["TMPDIR"]
TOOL = os.path.join(B, "cuslice")
LIBRARY = os.path.realpath(os.path.join(B, "libcuslice.so"))
SHOW = [sys.executable, "-c", "import os, sys\n"
        "for k in sorted(os.environ): sys.stdout.write(k + '=' + os.environ[k] + '\\0')"]
failures = 0


def check(ok, words):
    global failures
    if not ok:
        failures += 1
        print("FAILED:", words)


def equal(is_, should, words):
    check(is_ == should, "%s: %r, not %r" % (words, is_, should))


def run(*arguments, tool=TOOL, cwd=None, **environment):
    """environment: names to set, or to drop when None."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CUSLICE_") and k != "LD_PRELOAD"}
    env.update({k: v for k, v in environment.items() if v is not None})
    return subprocess.run([tool, "run"] + list(arguments), env=env, text=True, capture_output=True,
                          cwd=cwd)


def environment_of(*arguments, **keywords):
    done = run(*arguments, *SHOW, **keywords)
    equal(done.returncode, 0, "run %s: %s" % (arguments, done.stderr))
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


def check_settings():
    seen = environment_of("--mem", "4Gi", "--process-mem", "25%", "--weight", "50", "--mode", "observe",
                          "--quantum", "10ms", "--allowance", "2s", "--replicas", "4", "--on-error",
                          "closed", "--limit", "12.5%", "--priority", "low", "--log", "info", "--dir", "/dev/shm/x", "--tenant", "me", "--")
    for name, value in {"MEM_LIMIT": "4Gi", "PROCESS_MEM_LIMIT": "25%", "WEIGHT": "50",
                        "MODE": "observe", "QUANTUM": "10ms", "ALLOWANCE": "2s", "REPLICAS": "4",
                        "ON_ERROR": "closed", "LOG": "info", "DIR": "/dev/shm/x",
                        "TENANT": "me", "LIMIT": "12.5%", "PRIORITY": "low"}.items():
        equal(seen.get("CUSLICE_" + name), value, name)
    seen = environment_of(CUSLICE_WEIGHT="7", OTHER="kept")
    equal((seen.get("CUSLICE_WEIGHT"), seen.get("OTHER")), ("7", "kept"), "what is not given stays")
    check("CUSLICE_MEM_LIMIT" not in seen, "a cap that nobody gave")
    equal(environment_of("--weight", "9", CUSLICE_WEIGHT="7")["CUSLICE_WEIGHT"], "9",
          "an option goes before the environment")
    equal(environment_of("--dir", "rings", cwd=TMP)["CUSLICE_DIR"], os.path.join(TMP, "rings"),
          "a relative directory becomes absolute")


def check_preload():
    equal(environment_of()["LD_PRELOAD"], LIBRARY, "the library beside the tool")
    libc = "libc.so.6"
    equal(environment_of(LD_PRELOAD=libc)["LD_PRELOAD"], LIBRARY + ":" + libc, "what is there is kept")
    equal(environment_of(LD_PRELOAD="libm.so.6 " + LIBRARY + ":libc.so.6")["LD_PRELOAD"],
          LIBRARY + ":libm.so.6:libc.so.6", "ours is there once")
    # "--" ends the outer command's options; the inner one starts the program
    equal(environment_of("--", TOOL, "run", "--")["LD_PRELOAD"], LIBRARY, "nested")
    copy = os.path.join(TMP, "libcuslice.so")
    shutil.copy(LIBRARY, copy)
    equal(environment_of("--lib", copy)["LD_PRELOAD"], copy, "--lib")
    equal(environment_of("--lib", "libcuslice.so", cwd=TMP)["LD_PRELOAD"], copy, "--lib, relative")
    equal(environment_of(CUSLICE_SO=copy)["LD_PRELOAD"], copy, "CUSLICE_SO")


def check_places():
    """Installed: bin/cuslice and lib/libcuslice.so; a tool alone says where it looked."""
    os.makedirs(os.path.join(TMP, "usr/bin"))
    os.makedirs(os.path.join(TMP, "usr/lib"))
    tool = shutil.copy(TOOL, os.path.join(TMP, "usr/bin/cuslice"))
    done = run("true", tool=tool)
    if os.path.exists("/usr/local/lib/libcuslice.so") or os.path.exists("/usr/lib/libcuslice.so"):
        print("a libcuslice.so is installed here; its absence is not tried")
    else:
        equal(done.returncode, 1, "exit code without a library")
        check("libcuslice.so" in done.stderr and "--lib" in done.stderr, "no way out: " + done.stderr)
    library = shutil.copy(LIBRARY, os.path.join(TMP, "usr/lib/libcuslice.so"))
    equal(environment_of(tool=tool)["LD_PRELOAD"], os.path.realpath(library), "installed")
    done = run("--lib", "/nonexistent/libcuslice.so", "true")
    equal(done.returncode, 1, "exit code with a library that is not there")
    blank = os.path.join(TMP, "a b")
    os.mkdir(blank)
    done = run("--lib", shutil.copy(LIBRARY, blank), "true")
    equal(done.returncode, 1, "a path that LD_PRELOAD cannot hold")
    check("blank" in done.stderr, "why is not told: " + done.stderr)


HOST_PID_NAMESPACE = 0xeffffffc


def check_container():
    """Inside a container the container is the tenant: no name is made."""
    inside = ["unshare", "--pid", "--fork"]
    if subprocess.run(inside + ["true"], stderr=subprocess.DEVNULL).returncode:
        print("unshare is not permitted: tenants in containers are not tested")
        return
    show = ["sh", "-c", 'echo "[$CUSLICE_TENANT]"']
    for extra, expected in (([], "[]"), (["--tenant", "me"], "[me]")):
        done = subprocess.run(inside + [TOOL, "run", "--lib", LIBRARY] + extra + ["--"] + show,
                              stdout=subprocess.PIPE, text=True)
        equal(done.stdout.strip(), expected, "tenant in a container with %r" % extra)


def check_tenants():
    if os.stat("/proc/self/ns/pid").st_ino != HOST_PID_NAMESPACE:
        print("in a container: tenants of the host are not tested")
        return
    names = {environment_of()["CUSLICE_TENANT"] for _ in range(20)}
    equal(len(names), 20, "names of 20 tenants")
    for name in names:
        check(name.startswith(os.path.basename(sys.executable)[:20]), "name " + name)
        check(len(name) <= 63 and name.isprintable() and " " not in name, "name " + name)
    equal(environment_of(CUSLICE_TENANT="mine")["CUSLICE_TENANT"], "mine", "inherited")
    outer = environment_of("sh", "-c", 'echo >&2; exec "$@"', "sh")
    inner = environment_of("--", TOOL, "run", "--", CUSLICE_TENANT=outer["CUSLICE_TENANT"])
    equal(inner["CUSLICE_TENANT"], outer["CUSLICE_TENANT"], "a nested run is of the same tenant")
    program = os.path.join(TMP, "x" * 100 + " ü")
    shutil.copy("/bin/sh", program)
    done = run("--", program, "-c", "echo $CUSLICE_TENANT")
    name = done.stdout.strip()
    check(0 < len(name) <= 63 and name.isascii() and " " not in name, "a long name: %r" % name)


def check_ends():
    for code in (0, 1, 2, 7, 255):
        equal(run("sh", "-c", "exit %d" % code).returncode, code, "the program's exit code")
    equal(run("sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM, "the program's signal")
    done = run("/nonexistent/program")
    equal(done.returncode, 127, "a program that is not there")
    check("/nonexistent/program" in done.stderr, "which one is not told: " + done.stderr)
    equal(run("no-such-program-in-the-path").returncode, 127, "not in the path")
    plain = os.path.join(TMP, "plain")
    open(plain, "w").close()
    equal(run(plain).returncode, 126, "a program that is not executable")
    equal(run(TMP).returncode, 126, "a directory")
    # The program is the tool's own process, and gets its arguments untouched.
    started = subprocess.Popen([TOOL, "run", "sh", "-c", 'echo $$ "$@"', "sh", "--weight", "0", "--"],
                               stdout=subprocess.PIPE, text=True)
    equal(started.communicate()[0], "%d --weight 0 --\n" % started.pid, "process id and arguments")


def main():
    if not os.path.exists(LIBRARY):
        print("no %s" % LIBRARY)
        return 1
    check_settings()
    check_preload()
    check_places()
    check_tenants()
    check_container()
    check_ends()
    print("%d failures" % failures)
    return 1 if failures else 0


sys.exit(main())
