"""Processes for the benchmarks: their surroundings, and clients that answer line by line.

Everything lives in one temporary directory that goes away with the Stage; every client is ended
with it. A client that fails or does not answer in time raises Failed with what it said.
"""
import os
import select
import shutil
import subprocess
import tempfile
import time

ANSWER_S = 30


class Failed(Exception):
    pass


class Skipped(Exception):
    """A client said (exit 77) that there is no device."""


class Client:
    """A process that prints `ready`, then answers each line that it is told with one line."""

    def __init__(self, command, environment, errors, cpu=None):
        self.name = os.path.basename(command[0])
        self.errors = errors
        self.ring = environment.get("CUSLICE_DIR")
        self.left = b""
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            preexec_fn=None if cpu is None else lambda: os.sched_setaffinity(0, {cpu}))

    def ready(self):
        said = self.hear(ANSWER_S)
        if said != "ready":
            self.fail("says: " + said)
        if self.ring:
            self.check_attached()

    def check_attached(self):
        """A preload that failed or a ring that was refused would be measured as free of cost."""
        with open("/proc/%d/maps" % self.process.pid, encoding="utf-8") as file:
            if not any(line.startswith(self.ring, line.find("/")) for line in file):
                self.fail("has not joined the ring in %s" % self.ring)

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.fail("is gone")

    def hear(self, seconds=ANSWER_S):
        end = time.monotonic() + seconds
        output = self.process.stdout
        while b"\n" not in self.left:
            if not select.select([output], [], [], max(0, end - time.monotonic()))[0]:
                self.fail("has not answered within %d s" % seconds)
            piece = os.read(output.fileno(), 65536)
            if not piece:
                self.fail("ended without an answer: %s" % self.left.decode())
            self.left += piece
        line, self.left = self.left.split(b"\n", 1)
        return line.decode()

    def ask(self, line, seconds=ANSWER_S):
        self.tell(line)
        return self.hear(seconds)

    def fail(self, what):
        if self.end(1) == 77:
            raise Skipped("%s %s" % (self.name, what))
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip()
        raise Failed("%s %s%s" % (self.name, what, "\n" + said if said else ""))

    def end(self, seconds=ANSWER_S):
        """The end of its input is the end of the client; its exit status."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        return self.process.returncode


class Stage:
    """The directories, the drivers and the clients of one run of the benchmarks."""

    def __init__(self, build, gpu):
        self.build = build
        self.gpu = gpu
        self.library = os.path.join(build, "libcuslice.so")
        self.place = tempfile.mkdtemp(prefix="cuslice-bench-")
        self.clients = []
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        for client in self.clients:
            client.end()
        shutil.rmtree(self.place, ignore_errors=True)

    def program(self, name):
        return os.path.join(self.build, "bench", name)

    def directory(self):
        self.count += 1
        path = os.path.join(self.place, str(self.count))
        os.mkdir(path)
        return path

    def environment(self, driver, ring=None, **more):
        """`driver`: stub, sim or gpu. With `ring`, a directory, the library is preloaded."""
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("CUSLICE_", "SIMCUDA_", "LD_"))}
        if driver != "gpu":
            kept["LD_LIBRARY_PATH"] = os.path.join(
                self.build, "bench/stub" if driver == "stub" else "sim")
        elif "LD_LIBRARY_PATH" in os.environ:
            kept["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        if ring:
            kept.update(LD_PRELOAD=self.library, CUSLICE_DIR=ring, CUSLICE_LOG="error")
        kept.update(more)
        return kept

    def client(self, command, environment, cpu=None):
        errors = tempfile.TemporaryFile(dir=self.place)
        client = Client(command, environment, errors, cpu)
        self.clients.append(client)
        return client

    def end(self):
        """Ends all clients; Failed when one does not end well."""
        clients, self.clients = self.clients, []
        for client in [c for c in clients if c.end() != 0]:
            client.fail("ends with %d" % client.process.returncode)


def output(command, environment=None, seconds=120, told=""):
    """What a command prints; Failed when it fails."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, input=told,
                              timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        raise Failed("%s: exit %d\n%s" % (command[0], done.returncode, done.stderr.strip()))
    return done.stdout
