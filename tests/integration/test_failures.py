#!/usr/bin/env python3
"""When something of ours cannot work: one clear line, then what CUSLICE_ON_ERROR says. Open: the
program runs, turns are not taken, the process cap still holds. Closed: cuInit fails."""
# timeout: 90
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["REPO"], "tests/multi"))
import farm
from farm import MIB, OUT_OF_MEMORY, PLACES, SUCCESS, check, equal

CAP = 64 * MIB
LINE = re.compile(r"cuslice\[(\d+)\] (error|warn|info|debug): \S.* \[[a-z0-9-]+\]")


def well_formed(text, pid):
    lines = text.splitlines()
    for line in lines:
        found = LINE.fullmatch(line)
        if check(found, "the line's form: " + line):
            equal(int(found.group(1)), pid, "the process id in: " + line)
    return lines


def runs_alone(place, words, told):
    """Open: a line that says what is wrong, turns not taken, the cap of the process in force."""
    a = place.worker("open", MEM_LIMIT=CAP, ON_ERROR="open")
    lines = well_formed(a.log(), a.pid)
    equal(len(lines), 1, "%s: lines: %s" % (words, lines))
    check(re.search(told, a.log()), "%s: '%s' is not told: %s" % (words, told, a.log()))
    equal(a.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0], OUT_OF_MEMORY, words + ": the cap")
    a.ok("alloc cuMemAlloc_v2 %d" % CAP)
    equal(a.ok("info"), [0, CAP], words + ": figures")
    a.ok("spin 100000 20")
    a.ok("sync")
    return a


def fails_closed(place, words, told):
    a = place.worker("closed", opened=False, MEM_LIMIT=CAP, ON_ERROR="closed")
    check(a.numbers("init")[0] != SUCCESS, words + ": cuInit succeeds although closed is asked")
    lines = well_formed(a.log(), a.pid)
    equal(len(lines), 1, "%s, closed: lines: %s" % (words, lines))
    check(re.search(told, a.log()), "%s, closed: '%s' is not told: %s" % (words, told, a.log()))
    a.end()


def both(place, words, told):
    fails_closed(place, words, told)
    a = runs_alone(place, words, told)
    a.end()


def check_directory():
    with farm.Farm() as place:
        good = place.ring
        place.ring = os.path.join(place.place, "none", "deeper")
        both(place, "a directory that cannot be made", "none/deeper")
        place.ring = os.path.join(place.place, "file")
        open(place.ring, "w").close()
        both(place, "a file instead of a directory", "file")
        place.ring = os.path.join(place.place, "link")
        os.symlink("/nonexistent", place.ring)
        both(place, "a link that leads nowhere", "link")
        place.ring = good
        if os.getuid() == 0:
            check_directory_as_user(place)


def check_directory_as_user(place):
    """As somebody whom the directory's mode keeps out; root is kept out by nothing."""
    os.chmod(place.place, 0o755)
    os.chmod(place.device, 0o777)
    place.worker("first")  # the device is there, with its socket open to all
    for name in os.listdir(place.device):
        os.chmod(os.path.join(place.device, name), 0o777)
    closed = os.path.join(place.place, "closed")
    os.mkdir(closed)
    os.chmod(closed, 0o700)
    place.ring = os.path.join(closed, "ring")
    readable = subprocess.run(["test", "-x", farm.LINKED], user=65534, group=65534)
    if readable.returncode:
        print("the build is not readable for another user: a directory without rights is not tried")
        return
    a = place.worker("nobody", opened=False, MEM_LIMIT=CAP, popen={"user": 65534, "group": 65534})
    if a.numbers("init")[0] != SUCCESS and not a.log():
        print("the simulated device is not open to another user: not tried")
        return
    a.ok("open")
    check(re.search("ring.*[Pp]ermission", a.log()), "why is not told: " + a.log())
    equal(a.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0], OUT_OF_MEMORY, "the cap")


def damaged(place, words, told, change):
    """A ring's file that is not what it should be."""
    place.worker("maker").end()
    path = place.ring_file()
    with open(path, "rb") as file:
        data = bytearray(file.read())
    os.unlink(path)
    wrong = bytes(change(data))
    with open(path, "wb") as file:
        file.write(wrong)
    os.chmod(path, 0o666)
    fails_closed(place, words, told)
    a = runs_alone(place, words, told)
    with open(path, "rb") as file:
        check(file.read() == wrong, words + ": the file was changed")
    a.end()
    os.unlink(path)


def check_files():
    def version(data):
        PLACES.put(data, "segment.version", PLACES.number(data, "segment.version") + 1)
        return data

    def magic(data):
        PLACES.put(data, "segment.magic", 0)
        return data

    with farm.Farm() as place:
        damaged(place, "another version", "version", version)
        damaged(place, "no ring", "not", magic)
        damaged(place, "a short file", "size", lambda data: data[:4096])
        damaged(place, "a long file", "size", lambda data: data + b"x")
        damaged(place, "an empty file", "size", lambda data: b"")
        damaged(place, "text", "size|not", lambda data: b"hello\n")
        place.worker("maker").end()
        path = place.ring_file()
        os.unlink(path)
        os.mkdir(path)
        both(place, "a directory in its place", os.path.basename(path))
        os.rmdir(path)
        os.mkfifo(path)
        both(place, "a pipe in its place", os.path.basename(path))
        os.unlink(path)
        os.symlink(os.path.join(place.place, "elsewhere"), path)
        both(place, "a link in its place", os.path.basename(path))
        check(not os.path.exists(os.path.join(place.place, "elsewhere")), "the link was followed")


def check_garbage():
    """Whatever the words behind the head hold, nobody crashes or hangs, and caps hold."""
    for fill in (b"\xff", b"\0", b"\x55"):
        with farm.Farm() as place:
            a = place.worker("a", MEM_LIMIT=CAP)
            a.ok("alloc cuMemAlloc_v2 %d" % (CAP // 2))
            busy = a.post("loop 3000 200000 0")
            path = place.ring_file()
            size = os.path.getsize(path)
            with open(path, "r+b", buffering=0) as file:
                for at in range(PLACES["segment.token"].start, size, 4096):
                    file.seek(at)
                    file.write(fill * min(4096, size - at))
            check(farm.answered(busy, 30), "a client hangs in a ring full of %r" % fill)
            b = place.worker("b", opened=False, MEM_LIMIT=CAP)
            joined = b.post("open")
            check(farm.answered(joined, 30), "a joiner hangs in a ring full of %r" % fill)
            equal(a.process.poll(), None, "the client's end in a ring full of %r" % fill)
            equal(b.process.poll(), None, "the joiner's end in a ring full of %r" % fill)


def check_full():
    with farm.Farm() as place:
        a = place.worker("a", MEM_LIMIT=CAP)
        uuid = re.search(r"GPU-(.*)\.ring", place.ring_file()).group(1)
        program = os.path.join(farm.B, "tests/integration/ring_filler")
        filler = subprocess.Popen([program, place.ring, uuid, "300"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True,
                                  env=place.environment("filler", preload=False))
        try:
            equal(filler.stdout.readline(), "255\n", "places beside one client")
            fails_closed(place, "a full ring", "no place|full|space")
            alone = runs_alone(place, "a full ring", "no place|full|space")
            no_turns_beside(a, alone)
            a.ok("spin 1000")
            a.ok("sync")
        finally:
            filler.stdin.close()
            filler.wait(farm.SOON)
        late = place.worker("late")
        equal(late.log(), "", "what a later client said")
        equal(len([c for c in place.gpu()["clients"] if c["pid"] == late.pid]), 1, "the later one")


def no_turns_beside(holder, alone):
    holder.ok("hold")
    check(farm.answered(alone.post("spin 1000"), 5), "a launch waits although it has no place")
    holder.ok("release")
    holder.ok("sync")


CALL_CUINIT = """
import ctypes, os, sys
cuInit = ctypes.CDLL(None).cuInit
sys.stdout.write(str(cuInit(0)) + " " + str(cuInit(0)))
"""


def check_driver():
    """A driver that is not there, or cannot be loaded: NO_DEVICE, one line, no ring."""
    with farm.Farm(MEM_LIMIT=CAP) as place:
        env = place.environment("python")
        for words, directory in (("no driver", None), ("a broken driver", broken_driver(place))):
            env.pop("LD_LIBRARY_PATH", None)
            if directory:
                env["LD_LIBRARY_PATH"] = directory
            elif glob.glob("/usr/lib/x86_64-linux-gnu/libcuda.so.1"):
                print("this machine has a driver: its absence is not tried")
                continue
            done = subprocess.run([sys.executable, "-c", CALL_CUINIT], env=env, text=True,
                                  capture_output=True, timeout=farm.SOON)
            equal((done.returncode, done.stdout), (0, "100 100"), words)
            lines = done.stderr.splitlines()
            check(1 <= len(lines) <= 2 and all(LINE.fullmatch(line) for line in lines),
                  "%s: lines: %s" % (words, lines))
            check("driver" in done.stderr, "%s is not told: %s" % (words, done.stderr))
        equal(os.listdir(place.ring), [], "files in the ring's directory")


def broken_driver(place):
    directory = os.path.join(place.place, "broken")
    os.mkdir(directory)
    with open(os.path.join(directory, "libcuda.so.1"), "w") as file:
        file.write("not a library\n")
    return directory


def check_driver_errors():
    """The driver's own cuInit error passes unchanged, and leaves no trace of ours."""
    with farm.Farm(MEM_LIMIT=CAP) as place:
        a = place.worker("a", opened=False, sim={"FAIL": "cuInit=100"})
        equal(a.numbers("init")[0], 100, "cuInit")
        equal(a.log(), "", "what it said")
        equal(os.listdir(place.ring), [], "files in the ring's directory")
        b = place.worker("b", opened=False, sim={"FAIL": "cuInit=999@1"})
        equal(b.numbers("init")[0], 999, "the first cuInit")
        b.ok("open")
        equal(b.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0], OUT_OF_MEMORY,
              "the cap after a cuInit that failed once")


def check_log_file():
    with farm.Farm(MEM_LIMIT=CAP) as place:
        path = os.path.join(place.place, "lines")
        a = place.worker("a", LOG_FILE=path)
        for _ in range(20):
            equal(a.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))[0], OUT_OF_MEMORY, "too much")
        equal(a.log(), "", "stderr")
        with open(path) as file:
            lines = well_formed(file.read(), a.pid)
        equal(len(lines), 1, "lines about 20 refusals within 5 s: %s" % lines)
        said = lines[0]
        for word in ("64.0 MiB", "mem-refused"):
            check(word in said, "'%s' is not told: %s" % (word, said))
        silent = place.worker("silent", LOG="error")
        silent.numbers("alloc cuMemAlloc_v2 %d" % (CAP + 1))
        equal(silent.log(), "", "what is below the asked level")


farm.run(check_directory, check_files, check_garbage, check_full, check_driver, check_driver_errors,
         check_log_file)
